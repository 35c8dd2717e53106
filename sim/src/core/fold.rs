//! Folding of loops: when an iteration starts in a state that an earlier one started in, seen relative to now, everything in
//! between repeats, and the engine can jump whole periods. Time is integer, so "the same" is exact, not close.

use std::collections::VecDeque;

use super::issue::Scoreboard;
use crate::probe::{Mark, Probe};

/// Earlier iterations that are remembered: the longest period found, in iterations.
const REMEMBERED: usize = 16;

struct Start {
    iteration: u32,
    now: u64,
    state: Vec<u64>,
    mark: Mark,
}

/// States at the starts of one loop's latest iterations.
pub(super) struct History {
    on: bool,
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
    pub fn new(on: bool) -> Self {
        History { on, starts: VecDeque::new() }
    }

    /// Iteration `i` of `trip` is about to start.
    pub fn visit(&mut self, i: u32, trip: u32, board: &Scoreboard, probe: &Probe) -> Option<Jump> {
        if !self.on {
            return None;
        }
        let recycled = if self.starts.len() >= REMEMBERED { self.starts.pop_front() } else { None };
        let mut state = recycled.map_or_else(Vec::new, |s| s.state);
        board.snapshot(&mut state);
        let now = board.now();
        if let Some(s) = self.starts.iter().rev().find(|s| s.state == state) {
            let iterations = i - s.iteration;
            self.on = false;
            let times = (trip - i) / iterations;
            if times == 0 {
                return None;
            }
            return Some(Jump { period: now - s.now, iterations, times: u64::from(times), mark: s.mark });
        }
        self.starts.push_back(Start { iteration: i, now, state, mark: probe.mark() });
        None
    }
}
