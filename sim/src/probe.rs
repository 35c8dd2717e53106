//! Fills a [`Profile`] while a program runs: cumulative counters, spans up to a limit, and a series of fixed length whose windows
//! widen as time grows, so that the cost of recording does not depend on how long the program runs.

use crate::profile::{OpProfile, Profile, Series, Span, Stall, Unit};

const UNITS: usize = Unit::ALL.len();
/// Windows of the utilization series.
const WINDOWS: usize = 1024;
/// Activity of a unit closer together than this is one span.
const SPAN_GAP: u64 = 64;
/// Most operations a profile lists; a folded loop of operations would otherwise have no bound.
const MAX_OPS: usize = 1 << 20;

/// Everything that is counted; differences of two states are what happened between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub busy: [u64; UNITS],
    pub stalls: [u64; Stall::ALL.len()],
    pub bundles: u64,
    pub hbm_read: u64,
    pub hbm_written: u64,
}

impl Counters {
    fn zip(self, other: Counters, f: impl Fn(u64, u64) -> u64) -> Counters {
        let mut r = self;
        r.busy.iter_mut().zip(other.busy).for_each(|(a, b)| *a = f(*a, b));
        r.stalls.iter_mut().zip(other.stalls).for_each(|(a, b)| *a = f(*a, b));
        r.bundles = f(r.bundles, other.bundles);
        r.hbm_read = f(r.hbm_read, other.hbm_read);
        r.hbm_written = f(r.hbm_written, other.hbm_written);
        r
    }

    /// What was added after `earlier`. Counters wrap: a period found in a trial may hold more than all that has been counted since.
    pub fn since(self, earlier: Counters) -> Counters {
        self.zip(earlier, u64::wrapping_sub)
    }

    fn plus_times(self, delta: Counters, times: u64) -> Counters {
        self.zip(delta, |a, d| a.saturating_add(d.saturating_mul(times)))
    }
}

/// Records a run.
#[derive(Debug)]
pub(crate) struct Probe {
    pub counters: Counters,
    shift: u32,
    windows: Vec<[f64; UNITS]>,
    spans: Vec<Span>,
    open: [Option<Span>; UNITS],
    limit: usize,
    truncated: bool,
    ops: Vec<OpProfile>,
    op: u32,
}

/// Where a probe was: see [`Probe::mark`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    counters: Counters,
    ops: usize,
}

impl Probe {
    pub fn new(limit: usize) -> Self {
        Probe {
            counters: Counters::default(),
            shift: 0,
            windows: vec![[0.0; UNITS]; WINDOWS],
            spans: Vec::new(),
            open: Default::default(),
            limit,
            truncated: false,
            ops: Vec::new(),
            op: 0,
        }
    }

    /// `amount` busy cycles of `unit` during `start .. end`, moving `bytes`.
    #[inline]
    pub fn busy(&mut self, unit: Unit, start: u64, end: u64, amount: u64, bytes: u64) {
        self.counters.busy[unit as usize] += amount;
        self.spread(unit, start, end, amount as f64);
        if self.limit > 0 {
            self.span(unit, start, end, amount, bytes);
        }
    }

    pub fn stall(&mut self, why: Stall, cycles: u64) {
        self.counters.stalls[why as usize] += cycles;
    }

    /// As [`Probe::busy`] for one cycle, `t`.
    #[inline(always)]
    pub fn tick(&mut self, unit: Unit, t: u64, amount: u64) {
        self.counters.busy[unit as usize] += amount;
        match self.windows.get_mut((t >> self.shift) as usize) {
            Some(w) => w[unit as usize] += amount as f64,
            None => self.spread(unit, t, t + 1, amount as f64),
        }
        if self.limit > 0 {
            self.span(unit, t, t + 1, amount, 0);
        }
    }

    #[inline]
    fn spread(&mut self, unit: Unit, start: u64, end: u64, amount: f64) {
        let u = unit as usize;
        let last = end.max(start + 1) - 1;
        while last >> self.shift >= WINDOWS as u64 {
            self.widen();
        }
        let (a, b) = (start >> self.shift, last >> self.shift);
        if a == b {
            self.windows[a as usize][u] += amount;
            return;
        }
        let per_cycle = amount / (last + 1 - start) as f64;
        for w in a..=b {
            let from = start.max(w << self.shift);
            let to = (last + 1).min((w + 1) << self.shift);
            self.windows[w as usize][u] += per_cycle * (to - from) as f64;
        }
    }

    fn widen(&mut self) {
        for i in 0..WINDOWS {
            self.windows[i] = if i < WINDOWS / 2 {
                let (x, y) = (self.windows[2 * i], self.windows[2 * i + 1]);
                std::array::from_fn(|u| x[u] + y[u])
            } else {
                [0.0; UNITS]
            };
        }
        self.shift += 1;
    }

    fn span(&mut self, unit: Unit, start: u64, end: u64, busy: u64, bytes: u64) {
        let op = self.op;
        match &mut self.open[unit as usize] {
            Some(s) if s.op == op && start <= s.end + SPAN_GAP => {
                s.end = s.end.max(end);
                s.busy += busy;
                s.bytes += bytes;
            }
            slot => {
                let old = slot.replace(Span { unit, op, start, end, bytes, busy });
                self.close(old);
            }
        }
    }

    fn close(&mut self, span: Option<Span>) {
        if let Some(s) = span {
            if self.spans.len() < self.limit {
                self.spans.push(s);
            } else {
                self.truncated = true;
            }
        }
    }

    pub fn begin_op(&mut self, op: u32) {
        self.op = op;
    }

    /// The operation that started at `start`, when the counters were `before`, ended at `end`.
    pub fn end_op(&mut self, start: u64, before: Counters, end: u64) {
        let c = self.counters.since(before);
        if self.ops.len() >= MAX_OPS {
            self.truncated = true;
            return;
        }
        self.ops.push(OpProfile {
            op: self.op,
            start,
            end,
            busy: c.busy,
            stalls: c.stalls,
            bundles: c.bundles,
            hbm_read: c.hbm_read,
            hbm_written: c.hbm_written,
        });
    }

    pub fn mark(&self) -> Mark {
        Mark { counters: self.counters, ops: self.ops.len() }
    }

    /// A mark as it was when the counters had not had `added`, and no operation has ended since.
    pub fn mark_before(&self, added: Counters) -> Mark {
        Mark { counters: self.counters.since(added), ops: self.ops.len() }
    }

    /// What the counters got since `mark`, if no operation has ended since.
    pub fn added_since(&self, mark: &Mark) -> Option<Counters> {
        (mark.ops == self.ops.len()).then(|| self.counters.since(mark.counters))
    }

    /// What happened since `mark`, `period` cycles ago, happens `times` more times from `now` on.
    pub fn repeat(&mut self, mark: &Mark, now: u64, period: u64, times: u64) {
        let delta = self.counters.since(mark.counters);
        self.counters = self.counters.plus_times(delta, times);
        let end = now + period * times;
        for unit in Unit::ALL {
            let busy = delta.busy[unit as usize].saturating_mul(times);
            if busy == 0 {
                continue;
            }
            self.spread(unit, now, end, busy as f64);
            if self.limit > 0 {
                let bytes =
                    if unit == Unit::Hbm { (delta.hbm_read + delta.hbm_written).saturating_mul(times) } else { 0 };
                self.span(unit, now, end, busy, bytes);
            }
        }
        let new = self.ops.len();
        for k in 1..=times {
            if new == mark.ops {
                break;
            }
            if self.ops.len() + (new - mark.ops) > MAX_OPS {
                self.truncated = true;
                break;
            }
            for i in mark.ops..new {
                let mut o = self.ops[i].clone();
                o.start += k * period;
                o.end += k * period;
                self.ops.push(o);
            }
        }
    }

    /// The finished profile of a run of `cycles` cycles on a core with these unit `instances`.
    pub fn finish(mut self, cycles: u64, instances: [u32; UNITS]) -> Profile {
        for i in 0..UNITS {
            let open = self.open[i].take();
            self.close(open);
        }
        // The width follows from the length of the run alone.
        while (cycles.max(1) - 1) >> self.shift >= WINDOWS as u64 {
            self.widen();
        }
        self.spans.sort_by_key(|s| (s.start, s.unit));
        let window = 1u64 << self.shift;
        let used = usize::try_from(cycles.div_ceil(window)).unwrap_or(WINDOWS).clamp(1, WINDOWS);
        self.windows.truncate(used);
        Profile {
            cycles,
            instances,
            ops: self.ops,
            spans: self.spans,
            spans_truncated: self.truncated,
            series: Series { window, busy: self.windows },
            assumed: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: what is added to the series is in it, whatever the widths; and it lies where it was added.
    #[test]
    fn series_keeps_its_sum() {
        let mut p = Probe::new(10);
        for t in 0..5000 {
            p.busy(Unit::Vpu, t, t + 1, 2, 0);
        }
        p.busy(Unit::Hbm, 1000, 9000, 8000, 1);
        let r = p.finish(10_000, [1; UNITS]);
        let sum = |u: Unit| r.series.busy.iter().map(|w| w[u as usize]).sum::<f64>();
        assert_eq!(sum(Unit::Vpu), 10_000.0);
        assert!((sum(Unit::Hbm) - 8000.0).abs() < 1e-6);
        assert_eq!(r.series.window, 16);
        assert_eq!(r.series.busy[0][Unit::Vpu as usize], 32.0);
        assert_eq!(r.series.busy[400][Unit::Vpu as usize], 0.0);
        assert_eq!(r.spans.len(), 2);
    }
}
