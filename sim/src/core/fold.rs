//! Folding of loops: when an iteration starts in a state that an earlier one started in, seen relative to now, everything in
//! between repeats, and the engine can jump whole periods. Time is integer, so "the same" is exact, not close. A loop inside
//! another runs often; the period found first is kept, so that later runs jump as soon as they fall into it.

use std::collections::VecDeque;

use super::issue::Scoreboard;
use crate::probe::{Counters, Mark, Probe};

/// Earlier iterations that are remembered: the longest period found, in iterations.
const REMEMBERED: usize = 16;

struct Start {
    iteration: u32,
    now: u64,
    state: Vec<u64>,
    mark: Mark,
}

/// A period of a loop, for when the same loop runs again.
#[derive(Debug)]
pub(super) struct Steady {
    state: Vec<u64>,
    period: u64,
    iterations: u32,
    /// What a period adds to the counters.
    added: Counters,
}

/// States at the starts of one loop's latest iterations.
pub(super) struct History {
    on: bool,
    /// Whether the loop has to do with DMAs. The state of one that has not leaves them out: a long transfer on its way, nearer to
    /// its end with every iteration, would keep the states different.
    syncs: bool,
    starts: VecDeque<Start>,
}

/// A jump over whole periods.
pub(super) struct Jump {
    /// Cycles of a period.
    pub period: u64,
    /// Iterations of a period.
    pub iterations: u32,
    /// Periods to jump.
    pub times: u64,
    /// Counters at the start of the last simulated period.
    pub mark: Mark,
}

impl History {
    pub fn new(on: bool, syncs: bool) -> Self {
        History { on, syncs, starts: VecDeque::new() }
    }

    /// Iteration `i` of `trip` is about to start. `steady` is a period that this loop fell into when it ran before, if it did.
    pub fn visit(
        &mut self,
        (i, trip): (u32, u32),
        board: &Scoreboard,
        probe: &Probe,
        steady: &mut Option<Steady>,
    ) -> Option<Jump> {
        if !self.on {
            return None;
        }
        let recycled = if self.starts.len() >= REMEMBERED { self.starts.pop_front() } else { None };
        let mut state = recycled.map_or_else(Vec::new, |s| s.state);
        board.snapshot(self.syncs, &mut state);
        let now = board.now();
        let known = steady.as_ref().filter(|s| s.state == state);
        let (period, iterations, mark) = if let Some(s) = known {
            (s.period, s.iterations, probe.mark_before(s.added))
        } else if let Some(s) = self.starts.iter().rev().find(|s| s.state == state) {
            let (period, iterations) = (now - s.now, i - s.iteration);
            // Operations that ran within the period are listed one by one, so they have to have run.
            if let Some(added) = probe.added_since(&s.mark) {
                *steady = Some(Steady { state, period, iterations, added });
            }
            (period, iterations, s.mark)
        } else {
            self.starts.push_back(Start { iteration: i, now, state, mark: probe.mark() });
            return None;
        };
        self.on = false;
        let times = u64::from((trip - i) / iterations);
        (times > 0).then_some(Jump { period, iterations, times, mark })
    }
}
