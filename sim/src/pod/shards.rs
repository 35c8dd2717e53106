//! Windows: chips advance side by side, one link latency at a time. What a chip sends reaches others only in a later window, so the
//! chips of a window run in any order and on any number of host threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tpusim_isa::program::Node;
use tpusim_isa::time::Picos;

use super::data::Data;
use super::site::{Flight, Site, Turn};
use super::world::World;
use crate::fault::FaultKind;

/// Fewest chips for each host thread.
const FEWEST: usize = 32;

/// Chips that one host thread runs.
pub(super) struct Shard<'a, D: Data> {
    /// The first chip's number.
    first: u32,
    pub sites: Vec<Site<'a, D::Mail>>,
    pub data: D,
    /// When each chip's next event is; `u64::MAX` if it has none.
    next: Vec<u64>,
    out: Vec<Flight<D::Mail>>,
}

/// Why the chips stopped.
pub(super) enum Outcome<'a> {
    /// Nothing happens any more.
    Over,
    /// The first device has begun another iteration of this loop, and all that happens before this moment has happened.
    Iteration(&'a [Node], Picos),
}

impl<'a, D: Data> Shard<'a, D> {
    /// Chips with their events.
    pub fn new(sites: Vec<Site<'a, D::Mail>>, data: D) -> Self {
        let mut shard =
            Shard { first: sites.first().map_or(0, |s| s.number), next: Vec::new(), sites, data, out: Vec::new() };
        shard.look();
        shard
    }

    /// Splits chips over at most `threads` host threads.
    pub fn split(mut sites: Vec<Site<'a, D::Mail>>, threads: usize, data: impl Fn() -> D) -> Vec<Self> {
        let shards = threads.min(sites.len() / FEWEST).max(1);
        let each = sites.len().div_ceil(shards);
        let mut all = Vec::new();
        while sites.len() > each {
            let rest = sites.split_off(each);
            all.push(Shard::new(std::mem::replace(&mut sites, rest), data()));
        }
        all.push(Shard::new(sites, data()));
        all
    }

    /// Looks again when the next events are.
    pub fn look(&mut self) {
        let at = |s: &Site<'a, D::Mail>| s.events.next().map_or(u64::MAX, |p| p.0);
        self.next.clear();
        self.next.extend(self.sites.iter().map(at));
    }

    /// When the next event is.
    pub fn earliest(&self) -> u64 {
        self.next.iter().copied().min().unwrap_or(u64::MAX)
    }

    /// Runs the events before `end`.
    fn window(&mut self, world: &World<'a>, end: Picos) -> Result<(), (Picos, FaultKind)> {
        for (site, next) in self.sites.iter_mut().zip(&mut self.next) {
            if *next < end.0 {
                Turn { world, data: &mut self.data, site, out: &mut self.out }.run(end)?;
                *next = site.events.next().map_or(u64::MAX, |p| p.0);
            }
        }
        Ok(())
    }

    fn deliver(&mut self, (to, event, mail): Flight<D::Mail>) {
        let i = (to - self.first) as usize;
        self.next[i] = self.next[i].min(event.at.0);
        self.sites[i].events.push(event, mail);
    }

    /// What the first device has begun, if this shard runs it, and when to look at the pod for it: one link latency later, when every
    /// chip has come at least to its beginning, wherever windows start.
    fn mark(&mut self, lookahead: Picos) -> Option<(&'a [Node], Picos)> {
        let (body, at) = if self.first == 0 { self.sites.first_mut()?.mark.take()? } else { return None };
        Some((body, at + lookahead))
    }
}

/// Runs windows until nothing happens any more or, if `iterations`, the first device begins an iteration.
///
/// # Errors
/// The earliest thing that goes wrong.
pub(super) fn run<'a, D: Data + Send>(
    world: &World<'a>,
    shards: &mut [Shard<'a, D>],
    iterations: bool,
) -> Result<Outcome<'a>, (Picos, FaultKind)> {
    let lookahead = Picos(world.network.lookahead().0.max(1));
    match shards {
        [one] => alone(world, one, lookahead, iterations),
        many => together(world, many, lookahead, iterations),
    }
}

fn alone<'a, D: Data>(
    world: &World<'a>,
    shard: &mut Shard<'a, D>,
    lookahead: Picos,
    iterations: bool,
) -> Result<Outcome<'a>, (Picos, FaultKind)> {
    let mut mark: Option<(&'a [Node], Picos)> = None;
    loop {
        let now = shard.earliest();
        match mark {
            Some((body, at)) if now >= at.0 => return Ok(Outcome::Iteration(body, at)),
            None if now == u64::MAX => return Ok(Outcome::Over),
            _ => {}
        }
        let end = mark.map_or(u64::MAX, |(_, at)| at.0).min(now.saturating_add(lookahead.0));
        shard.window(world, Picos(end))?;
        let mut out = std::mem::take(&mut shard.out);
        out.drain(..).for_each(|f| shard.deliver(f));
        shard.out = out;
        if let Some(begun) = shard.mark(lookahead).filter(|_| iterations) {
            mark = mark.or(Some(begun));
        }
    }
}

/// A barrier that waits actively for a while: windows are short.
#[derive(Default)]
struct Meeting {
    here: AtomicU32,
    round: AtomicU32,
}

impl Meeting {
    fn wait(&self, all: u32) {
        let round = self.round.load(Ordering::Acquire);
        if self.here.fetch_add(1, Ordering::AcqRel) + 1 == all {
            self.here.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut tries = 0u32;
        while self.round.load(Ordering::Acquire) == round {
            tries += 1;
            if tries < 2_000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

fn together<'a, D: Data + Send>(
    world: &World<'a>,
    shards: &mut [Shard<'a, D>],
    lookahead: Picos,
    iterations: bool,
) -> Result<Outcome<'a>, (Picos, FaultKind)> {
    let all = shards.len() as u32;
    // Chips are dealt out in equal parts, but for the last.
    let each = shards[0].sites.len() as u32;
    let earliest: Vec<AtomicU64> = shards.iter().map(|s| AtomicU64::new(s.earliest())).collect();
    let mail: Vec<Mutex<Vec<Flight<D::Mail>>>> = shards.iter().map(|_| Mutex::new(Vec::new())).collect();
    // When to stop; changes only while all are at work on a window, and is read only between windows.
    let stop = AtomicU64::new(u64::MAX);
    let meeting = Meeting::default();
    let work = |k: usize, shard: &mut Shard<'a, D>| -> Result<Outcome<'a>, (Picos, FaultKind)> {
        let mut sorted: Vec<Vec<Flight<D::Mail>>> = (0..all).map(|_| Vec::new()).collect();
        let mut mark: Option<(&'a [Node], Picos)> = None;
        loop {
            let now = earliest.iter().map(|e| e.load(Ordering::Relaxed)).min().unwrap_or(u64::MAX);
            let last = stop.load(Ordering::Relaxed);
            if now >= last {
                return Ok(mark.map_or(Outcome::Over, |(body, at)| Outcome::Iteration(body, at)));
            }
            meeting.wait(all);
            let ran = shard.window(world, Picos(last.min(now.saturating_add(lookahead.0))));
            if ran.is_err() {
                stop.store(0, Ordering::Relaxed);
            }
            if let Some(begun) = shard.mark(lookahead).filter(|_| iterations && mark.is_none()) {
                mark = Some(begun);
                stop.fetch_min(begun.1.0, Ordering::Relaxed);
            }
            for f in std::mem::take(&mut shard.out) {
                sorted[(f.0 / each) as usize].push(f);
            }
            for (to, flights) in sorted.iter_mut().enumerate() {
                if to == k {
                    flights.drain(..).for_each(|f| shard.deliver(f));
                } else if !flights.is_empty() {
                    mail[to].lock().unwrap_or_else(|e| e.into_inner()).append(flights);
                }
            }
            meeting.wait(all);
            let mut own = std::mem::take(&mut *mail[k].lock().unwrap_or_else(|e| e.into_inner()));
            own.drain(..).for_each(|f| shard.deliver(f));
            earliest[k].store(shard.earliest(), Ordering::Relaxed);
            meeting.wait(all);
            ran?;
        }
    };
    let outcomes: Vec<_> = std::thread::scope(|s| {
        let work = &work;
        let running: Vec<_> = shards.iter_mut().enumerate().map(|(k, shard)| s.spawn(move || work(k, shard))).collect();
        running.into_iter().map(|r| r.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    });
    let mut result = Outcome::Over;
    let mut error: Option<(Picos, FaultKind)> = None;
    for o in outcomes {
        match o {
            Ok(Outcome::Over) => {}
            Ok(begun) => result = begun,
            Err(e) if error.as_ref().is_none_or(|first| e.0 < first.0) => error = Some(e),
            Err(_) => {}
        }
    }
    error.map_or(Ok(result), Err)
}
