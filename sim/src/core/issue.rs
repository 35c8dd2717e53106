//! When a bundle issues: the scoreboard of registers and the state of every unit.
//!
//! A bundle waits for its operands, for its units to accept, for the results it pops and the flags it waits for; then all its
//! instructions issue in one cycle. All times are absolute cycles.

use std::collections::VecDeque;

use tpusim_isa::chip::ChipSpec;

use crate::code::{Bundle, Files, Use};
use crate::dma::{Cost, DmaTiming};
use crate::fault::FaultKind;
use crate::mxu::timing::MxuTiming;
use crate::probe::Probe;
use crate::profile::{Stall, Unit};
use crate::sync::Flags;
use crate::xlu::{MAX_RESULTS, XluTiming};

/// Numbers of the chip that issuing needs, in cycles.
#[derive(Clone, Debug)]
struct Rules {
    push_interval: u64,
    mxu_latency: u64,
    mxu_queue: usize,
    halves: usize,
    eup: u64,
    eup_interval: u64,
    xlu_interval: u64,
    xlu_transpose: u64,
    scalar_load_interval: u64,
    dma_gap: u64,
    dma_latency: u64,
}

/// Timing state of a core.
#[derive(Clone, Debug)]
pub(super) struct Scoreboard {
    rules: Rules,
    /// First cycle at which the next bundle may issue.
    now: u64,
    ready: Vec<u64>,
    scalar_load_free: u64,
    eup_free: u64,
    eup_queue: VecDeque<u64>,
    xlus: Vec<XluTiming>,
    mxus: Vec<MxuTiming>,
    dma: DmaTiming,
    flags: Flags,
}

impl Scoreboard {
    pub fn new(chip: &ChipSpec) -> Self {
        let l = &chip.latency;
        Scoreboard {
            rules: Rules {
                push_interval: u64::from(*chip.mxu.push_interval),
                mxu_latency: u64::from(*chip.mxu.latency),
                mxu_queue: *chip.mxu.result_queue as usize,
                halves: *chip.mxu.dim as usize / 128,
                eup: u64::from(*l.eup),
                eup_interval: u64::from(*l.eup_interval),
                xlu_interval: u64::from(*l.xlu_interval),
                xlu_transpose: u64::from(*l.xlu_transpose),
                scalar_load_interval: u64::from(*l.scalar_load_interval),
                dma_gap: chip.cycles(*chip.overhead.dma_issue_s).min(1 << 40),
                dma_latency: chip.cycles(*chip.hbm.latency_s).min(1 << 40),
            },
            now: 0,
            ready: vec![0; Files::of(chip).entries()],
            scalar_load_free: 0,
            eup_free: 0,
            eup_queue: VecDeque::new(),
            xlus: vec![XluTiming::default(); *chip.xlus as usize],
            mxus: vec![MxuTiming::default(); *chip.mxu.count as usize],
            dma: DmaTiming::default(),
            flags: Flags::new(*chip.regs.flags as usize),
        }
    }

    /// First cycle at which the next bundle may issue.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Lets `cycles` pass.
    pub fn stall(&mut self, why: Stall, cycles: u64, probe: &mut Probe) {
        self.now = self.now.saturating_add(cycles);
        probe.stall(why, cycles);
    }

    /// A branch that looks at a register.
    pub fn branch(&mut self, entry: u16, cycles: u64, probe: &mut Probe) {
        let wait = self.ready[entry as usize].saturating_sub(self.now);
        self.stall(Stall::Register, wait, probe);
        self.stall(Stall::Branch, cycles, probe);
    }

    /// Waits until every DMA has landed.
    pub fn drain(&mut self, probe: &mut Probe) {
        let wait = self.dma.drained_at().saturating_sub(self.now);
        self.stall(Stall::Dma, wait, probe);
    }

    /// Issues a bundle. `costs` are those of the program's descriptors for the `cores` that run.
    pub fn issue(&mut self, b: Bundle<'_>, costs: &[Cost], cores: u32, probe: &mut Probe) -> Result<(), FaultKind> {
        let mut t = self.now;
        let mut why = Stall::Register;
        for &r in b.reads {
            t = t.max(self.ready[r as usize]);
        }
        for u in b.uses {
            let (at, stall) = self.accepts(u)?;
            if at > t {
                (t, why) = (at, stall);
            }
        }
        if t > self.now {
            probe.stall(why, t - self.now);
        }
        for &(r, latency) in b.writes {
            let ready = &mut self.ready[r as usize];
            *ready = (*ready).max(t + u64::from(latency));
        }
        if t >= super::END {
            return Err(FaultKind::TimeOverflow);
        }
        self.now = t + 1;
        for u in b.uses {
            self.occupy(u, t, costs, cores, probe)?;
        }
        probe.counters.bundles += 1;
        for (unit, n) in [Unit::Scalar, Unit::Vpu, Unit::VLoad, Unit::VStore].into_iter().zip(b.slots) {
            if n > 0 {
                probe.tick(unit, t, u64::from(n));
            }
        }
        Ok(())
    }

    /// When a unit is ready for a use, and what a bundle that waits for it waits for.
    fn accepts(&self, u: &Use) -> Result<(u64, Stall), FaultKind> {
        Ok(match *u {
            Use::Wait { flag, n } => (self.flags.reached(flag, n)?, Stall::Dma),
            Use::EupPop { nth } => {
                let ready = self.eup_queue.get(nth).ok_or(FaultKind::EmptyQueue { unit: "EUP result" })?;
                (*ready, Stall::Eup)
            }
            Use::XluPop { xlu, nth } => (self.xlus[xlu].pop_at(nth)?, Stall::Xlu),
            Use::MxuPop { mxu, nth } => (self.mxus[mxu].pop_at(nth)?, Stall::Mxu),
            Use::AccPop { mxu } => (self.mxus[mxu].accumulators_at(), Stall::Mxu),
            Use::ScalarLoad => (self.scalar_load_free, Stall::Register),
            Use::Eup => (self.eup_free, Stall::Eup),
            Use::Xlu { xlu, .. } | Use::Xpose { xlu } => (self.xlus[xlu].accepts_at(), Stall::Xlu),
            Use::Push { mxu } => (self.mxus[mxu].push_at(), Stall::Mxu),
            Use::Latch { mxu } => (self.mxus[mxu].latch_at(), Stall::Mxu),
            Use::Mul { mxu, .. } | Use::Acc { mxu, .. } => (self.mxus[mxu].rows_at(), Stall::Mxu),
            Use::Dma { .. } | Use::FlagAdd { .. } => (0, Stall::Dma),
        })
    }

    /// A unit is used by a bundle that issues at `t`.
    fn occupy(&mut self, u: &Use, t: u64, costs: &[Cost], cores: u32, probe: &mut Probe) -> Result<(), FaultKind> {
        let r = &self.rules;
        match *u {
            Use::Wait { flag, n } => self.flags.take(flag, n),
            Use::EupPop { .. } => drop(self.eup_queue.pop_front()),
            Use::XluPop { xlu, .. } => self.xlus[xlu].pop(),
            Use::MxuPop { mxu, .. } => self.mxus[mxu].pop(),
            Use::AccPop { .. } => {}
            Use::ScalarLoad => self.scalar_load_free = t + r.scalar_load_interval,
            Use::Eup => {
                let queued = self.eup_queue.len();
                if queued >= MAX_RESULTS {
                    return Err(FaultKind::QueueFull { unit: "EUP", queued, added: 1, limit: MAX_RESULTS });
                }
                self.eup_queue.push_back(t + r.eup);
                self.eup_free = t + r.eup_interval;
                probe.busy(Unit::Eup, t, t + r.eup_interval, r.eup_interval, 0);
            }
            Use::Xlu { xlu, latency } => {
                let until = self.xlus[xlu].single(xlu, t, latency, r.xlu_interval)?;
                probe.busy(Unit::Xlu, t, until, until - t, 0);
            }
            Use::Xpose { xlu } => {
                let until = self.xlus[xlu].transpose(t, r.xlu_transpose, r.xlu_interval)?;
                probe.busy(Unit::Xlu, t, until, until - t, 0);
            }
            Use::Push { mxu } => self.mxus[mxu].push(t, r.push_interval),
            Use::Latch { .. } => {}
            Use::Mul { mxu, stream } => {
                self.mxus[mxu].multiply(t, stream, r.mxu_latency, r.halves, r.mxu_queue)?;
                probe.busy(Unit::Mxu, t, t + stream.interval, stream.interval, 0);
            }
            Use::Acc { mxu, stream } => {
                self.mxus[mxu].accumulate(t, stream, r.mxu_latency);
                probe.busy(Unit::Mxu, t, t + stream.interval, stream.interval, 0);
            }
            Use::Dma { desc, flag } => {
                let c = costs[desc as usize];
                let (from, to, done) = self.dma.start(t, c.service, r.dma_gap, r.dma_latency);
                if done >= super::END {
                    return Err(FaultKind::TimeOverflow);
                }
                self.flags.add(flag, 1, done, t);
                let bytes = c.payload.saturating_mul(u64::from(cores));
                let total = if c.write { &mut probe.counters.hbm_written } else { &mut probe.counters.hbm_read };
                *total = total.saturating_add(bytes);
                probe.busy(Unit::Hbm, from, to, c.service, bytes);
            }
            Use::FlagAdd { flag, n } => self.flags.add(flag, n, t + 1, t),
        }
        Ok(())
    }

    /// Writes this state relative to now over `out`: two equal snapshots have equal futures. Without `syncs`, that holds for code
    /// that has nothing to do with DMAs: those on their way stay out of it.
    pub fn snapshot(&self, syncs: bool, out: &mut Vec<u64>) {
        let now = self.now;
        out.clear();
        out.extend(self.ready.iter().map(|t| t.saturating_sub(now)));
        out.extend([self.scalar_load_free, self.eup_free].map(|t| t.saturating_sub(now)));
        out.push(self.eup_queue.len() as u64);
        out.extend(self.eup_queue.iter().map(|t| t.saturating_sub(now)));
        self.xlus.iter().for_each(|x| x.snapshot(now, out));
        self.mxus.iter().for_each(|m| m.snapshot(now, out));
        if syncs {
            self.dma.snapshot(now, out);
            self.flags.snapshot(now, out);
        }
    }

    /// Moves everything `by` cycles into the future, or, without `syncs`, everything but the DMAs on their way: those land when
    /// they land.
    pub fn shift(&mut self, by: u64, syncs: bool) {
        self.now += by;
        self.ready.iter_mut().for_each(|t| *t += by);
        self.scalar_load_free += by;
        self.eup_free += by;
        self.eup_queue.iter_mut().for_each(|t| *t += by);
        self.xlus.iter_mut().for_each(|x| x.shift(by));
        self.mxus.iter_mut().for_each(|m| m.shift(by));
        if syncs {
            self.dma.shift(by);
            self.flags.shift(by);
        }
    }
}
