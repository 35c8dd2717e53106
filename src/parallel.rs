//! The same work on many things, on several host threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::progress::Progress;

/// Threads to use: `asked`, or all the host has.
pub fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()), usize::from)
}

/// `f` of every item, in their order; how many threads there are changes nothing else. `None` for an item whose thread ended early.
pub fn map<T: Sync, R: Send>(items: &[T], threads: usize, what: &str, f: impl Fn(&T) -> R + Sync) -> Vec<Option<R>> {
    let progress = Progress::bar(what, items.len() as u64);
    let slots: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some((item, slot)) = items.get(i).zip(slots.get(i)) else { return };
            let made = f(item);
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
            progress.step();
        }
    };
    std::thread::scope(|s| {
        for _ in 1..threads.clamp(1, items.len().max(1)) {
            s.spawn(work);
        }
        work();
    });
    slots.into_iter().map(|s| s.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

#[cfg(test)]
mod tests {
    // Oracle: squares.
    #[test]
    fn order_does_not_depend_on_threads() {
        let items: Vec<u64> = (0..100).collect();
        let want: Vec<Option<u64>> = items.iter().map(|n| Some(n * n)).collect();
        for threads in [1, 3, 200] {
            assert_eq!(super::map(&items, threads, "squares", |n| n * n), want);
        }
    }
}
