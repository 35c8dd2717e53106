//! Which unit an instruction occupies, and the result queues between units and blocks.

use std::collections::BTreeMap;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::{Instr, Timing};

use super::super::vcode::Code;

/// One unit that takes submissions at an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum UnitKey {
    Eup,
    Xlu(i32),
    MxuPush(i32),
    MxuMul(i32),
    ScalarLoad,
}

pub(super) fn unit_of(i: &Instr, chip: &ChipSpec) -> Option<(UnitKey, u32)> {
    let l = &chip.latency;
    Some(match i.op.timing() {
        Timing::Eup => (UnitKey::Eup, *l.eup_interval),
        Timing::XluRotate | Timing::XluReduce | Timing::XluTranspose => (UnitKey::Xlu(i.args[0]), *l.xlu_interval),
        Timing::MxuPush => (UnitKey::MxuPush(i.args[0]), *chip.mxu.push_interval),
        Timing::MxuMul | Timing::MxuAcc => (UnitKey::MxuMul(i.args[0]), i.format().map_or(1, |f| chip.mxu_interval(f))),
        Timing::ScalarLoad => (UnitKey::ScalarLoad, *l.scalar_load_interval),
        _ => return None,
    })
}

/// Key of an ordered queue: pushes among themselves and pops among themselves keep their order.
pub(super) fn queue_of(i: &Instr) -> Option<(u8, i32, bool)> {
    Some(match i.op.timing() {
        Timing::Eup => (0, 0, false),
        Timing::EupPop => (0, 0, true),
        Timing::XluRotate | Timing::XluReduce | Timing::XluTranspose => (1, i.args[0], false),
        Timing::XluPop => (1, i.args[0], true),
        Timing::MxuPush | Timing::MxuLatch | Timing::MxuMul | Timing::MxuAcc => (2, i.args[0], false),
        Timing::MxuPop => (2, i.args[0], true),
        Timing::MxuPopAcc => (3, i.args[0], true),
        _ => return None,
    })
}

/// Results one vmatmul leaves in the queue, in registers.
pub(super) fn mxu_results(i: &Instr, chip: &ChipSpec) -> u32 {
    i.format().map_or(1, |f| f.packing() as u32) * (*chip.mxu.dim / 128).max(1)
}

/// Results a push leaves in its unit's queue.
pub(super) fn results_of(i: &Instr, chip: &ChipSpec) -> u32 {
    match i.op.timing() {
        Timing::MxuMul => mxu_results(i, chip),
        Timing::Eup | Timing::XluRotate | Timing::XluReduce | Timing::XluTranspose => 1,
        _ => 0,
    }
}

/// Results that wait in each unit's queue where a block starts: software pipelines carry them from block to block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Queued(pub(super) BTreeMap<(u8, i32), u32>);

impl Queued {
    /// What waits after `code`.
    pub fn after(&mut self, code: &Code, chip: &ChipSpec) {
        for ci in &code.instrs {
            if let Some((kind, unit, is_pop)) = queue_of(&ci.instr) {
                let n = self.0.entry((kind, unit)).or_default();
                *n = if is_pop { n.saturating_sub(1) } else { *n + results_of(&ci.instr, chip) };
            }
        }
    }
}
