//! Sync flags: counters that DMAs add to when their data has landed and that `dma.wait` takes from.

use std::collections::VecDeque;

use crate::fault::FaultKind;

/// Units added to one flag, by the time they are (or will be) there, earliest first.
#[derive(Clone, Debug, Default)]
struct Flag {
    arrivals: VecDeque<(u64, u64)>,
}

/// All flags of a core.
#[derive(Clone, Debug)]
pub(crate) struct Flags {
    flags: Vec<Flag>,
    /// Flags from here on were never used.
    used: usize,
}

impl Flags {
    pub fn new(count: usize) -> Self {
        Flags { flags: vec![Flag::default(); count], used: 0 }
    }

    /// Adds `n` to a flag at time `at`. `now` lets arrivals of the past merge.
    pub fn add(&mut self, flag: u32, n: u64, at: u64, now: u64) {
        self.used = self.used.max(flag as usize + 1);
        let q = &mut self.flags[flag as usize].arrivals;
        if n == 0 {
            return;
        }
        while q.len() >= 2 && q[1].0 <= now {
            let first = q[0].1;
            q.pop_front();
            q[0].1 = q[0].1.saturating_add(first);
        }
        let i = q.partition_point(|e| e.0 <= at);
        if let Some(last) = i.checked_sub(1).filter(|&p| q[p].0 == at) {
            q[last].1 = q[last].1.saturating_add(n);
        } else {
            q.insert(i, (at, n));
        }
    }

    /// When the flag will be at least `n`.
    pub fn reached(&self, flag: u32, n: u64) -> Result<u64, FaultKind> {
        let mut have = 0u64;
        if n == 0 {
            return Ok(0);
        }
        for &(at, count) in &self.flags[flag as usize].arrivals {
            have = have.saturating_add(count);
            if have >= n {
                return Ok(at);
            }
        }
        Err(FaultKind::Deadlock { flag, wanted: n, coming: have })
    }

    /// Subtracts `n`, which [`Flags::reached`] said is there.
    pub fn take(&mut self, flag: u32, mut n: u64) {
        let q = &mut self.flags[flag as usize].arrivals;
        while n > 0 {
            let Some(first) = q.front_mut() else { return };
            let used = first.1.min(n);
            first.1 -= used;
            n -= used;
            if first.1 == 0 {
                q.pop_front();
            }
        }
    }

    /// Appends this state relative to `now`.
    pub fn snapshot(&self, now: u64, out: &mut Vec<u64>) {
        for (i, f) in self.flags.iter().take(self.used).enumerate() {
            let mut landed = 0u64;
            for &(at, count) in &f.arrivals {
                if at <= now {
                    landed = landed.saturating_add(count);
                    continue;
                }
                if landed > 0 {
                    out.extend([i as u64, 0, landed]);
                    landed = 0;
                }
                out.extend([i as u64, at - now, count]);
            }
            if landed > 0 {
                out.extend([i as u64, 0, landed]);
            }
        }
    }

    /// Moves everything `by` cycles into the future.
    pub fn shift(&mut self, by: u64) {
        for f in self.flags.iter_mut().take(self.used) {
            for a in &mut f.arrivals {
                a.0 += by;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: a flag is a counter; units that arrive out of order are taken earliest first.
    #[test]
    fn takes_earliest_first() {
        let mut f = Flags::new(2);
        f.add(0, 1, 100, 0);
        f.add(0, 2, 10, 0);
        assert_eq!(f.reached(0, 2), Ok(10));
        assert_eq!(f.reached(0, 3), Ok(100));
        f.take(0, 2);
        assert_eq!(f.reached(0, 1), Ok(100));
        assert_eq!(f.reached(0, 2), Err(FaultKind::Deadlock { flag: 0, wanted: 2, coming: 1 }));
        assert_eq!(f.reached(1, 0), Ok(0));
    }

    // Oracle: two flags that differ only in how long ago their units came look the same from now on.
    #[test]
    fn the_past_is_forgotten() {
        let (mut a, mut b) = (Flags::new(1), Flags::new(1));
        a.add(0, 1, 5, 0);
        a.add(0, 1, 7, 0);
        b.add(0, 2, 90, 0);
        let (mut x, mut y) = (vec![], vec![]);
        a.snapshot(100, &mut x);
        b.snapshot(100, &mut y);
        assert_eq!(x, y);
    }
}
