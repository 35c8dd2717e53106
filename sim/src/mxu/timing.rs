//! When an MXU takes weights and rows and when results are there.
//!
//! Weights go into a shadow buffer while rows stream against the active ones. A latch swaps them as a wave that follows the rows
//! through the array, so it costs nothing once the pushes are done and the rows before it are in.

use std::collections::VecDeque;

use crate::code::Stream;
use crate::fault::FaultKind;

/// Timing state of one MXU. Times are absolute cycles.
#[derive(Clone, Debug, Default)]
pub(crate) struct MxuTiming {
    /// First cycle for the next push, and for a latch of what was pushed.
    push_free: u64,
    /// First cycle for the next `vmatmul` or latch.
    row_free: u64,
    /// When each queued result register can be popped.
    queue: VecDeque<u64>,
    /// When the last accumulation has landed.
    landed: u64,
}

impl MxuTiming {
    pub fn push_at(&self) -> u64 {
        self.push_free
    }

    pub fn latch_at(&self) -> u64 {
        self.push_free.max(self.row_free)
    }

    pub fn rows_at(&self) -> u64 {
        self.row_free
    }

    pub fn accumulators_at(&self) -> u64 {
        self.landed
    }

    /// When the `nth` next pop finds its result.
    pub fn pop_at(&self, nth: usize) -> Result<u64, FaultKind> {
        self.queue.get(nth).copied().ok_or(FaultKind::EmptyQueue { unit: "MXU result" })
    }

    pub fn push(&mut self, t: u64, interval: u64) {
        self.push_free = t + interval;
    }

    pub fn pop(&mut self) {
        self.queue.pop_front();
    }

    /// Rows stream from `t`; results are queued.
    pub fn multiply(&mut self, t: u64, s: Stream, latency: u64, halves: usize, limit: usize) -> Result<(), FaultKind> {
        let added = s.groups as usize * halves;
        if self.queue.len() + added > limit {
            return Err(FaultKind::QueueFull { unit: "MXU", queued: self.queue.len(), added, limit });
        }
        self.row_free = t + s.interval;
        for g in 0..s.groups {
            let ready = t + latency + (8 * g).div_ceil(s.rate);
            (0..halves).for_each(|_| self.queue.push_back(ready));
        }
        Ok(())
    }

    /// Rows stream from `t` into accumulators.
    pub fn accumulate(&mut self, t: u64, s: Stream, latency: u64) {
        self.row_free = t + s.interval;
        self.landed = self.landed.max(t + latency + (8 * (s.groups - 1)).div_ceil(s.rate));
    }

    pub fn snapshot(&self, now: u64, out: &mut Vec<u64>) {
        out.extend([self.push_free, self.row_free, self.landed].map(|t| t.saturating_sub(now)));
        out.push(self.queue.len() as u64);
        out.extend(self.queue.iter().map(|t| t.saturating_sub(now)));
    }

    pub fn shift(&mut self, by: u64) {
        self.push_free += by;
        self.row_free += by;
        self.landed += by;
        self.queue.iter_mut().for_each(|t| *t += by);
    }
}
