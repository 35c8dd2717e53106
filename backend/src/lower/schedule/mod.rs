//! Packs a block into bundles: a list scheduler over the chip's slots, latencies and unit intervals that assigns registers as
//! it goes.
//!
//! The dependence graph has edges for registers (true, anti and output), for VMEM objects (store against load or store of the same
//! object, unless the rows are known to differ), for SMEM (load, store and DMA against each other, as one object), for the order
//! of pushes and of pops of each unit, from a unit's push to its pop, and from the pop that frees a queue entry to the push that
//! needs it. Ready instructions are taken by the length of the longest path behind them. When registers run short, only the oldest
//! instruction may take the last ones: the source order is legal by itself, so this always makes progress if the source order fits
//! the register file.
//!
//! Empty cycles are not written down: the core interlocks, so the next bundle waits by itself.

mod graph;
mod list;
mod regs;
mod units;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::{Field, Instr, Op, Slot};
use tpusim_isa::program::Bundle;

use super::vcode::{CodeInstr, VIRTUAL};
pub use units::Queued;

/// The block needs more registers than there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a block needs more than the {available} free vector or {masks} mask registers")]
pub struct RegisterPressure {
    /// Vector registers that were free.
    pub available: u32,
    /// Mask registers.
    pub masks: u32,
}

/// Registers a block may use for its virtual registers: vector registers `0 .. vregs`, mask registers `0 .. masks`. Pinned
/// registers must lie above.
#[derive(Clone, Copy, Debug)]
pub struct RegFile {
    /// Free vector registers.
    pub vregs: u32,
    /// Free mask registers.
    pub masks: u32,
}

/// Instructions after the oldest unscheduled one that may be scheduled before it, where registers allow.
pub(super) const WINDOW: usize = 320;

/// Packs `code` into bundles for `chip`. `queued` is what waits in result queues when the block starts. Only instructions less than
/// `window` behind the oldest unscheduled one may overtake it: [`WINDOW`] where registers allow, 1 for the source order.
///
/// # Errors
/// [`RegisterPressure`] if even the source order needs more registers than `regs` has.
pub(super) fn schedule(
    code: &[CodeInstr],
    chip: &ChipSpec,
    regs: RegFile,
    queued: &Queued,
    window: usize,
) -> Result<Vec<Bundle>, RegisterPressure> {
    let live = live_code(code);
    let graph = graph::Graph::new(&live, chip, queued);
    list::List::new(&live, graph, chip, regs, window).run()
}

/// Immediates that need one of the bundle's shared 32-bit slots: those beyond 0..=31 or negative.
fn immediates_of(i: &Instr) -> u32 {
    i.operands().filter(|(f, a)| *f == Field::Imm && !(0..32).contains(a)).count() as u32
}

/// Drops instructions whose only effect is a virtual register nobody reads.
fn live_code(code: &[CodeInstr]) -> Vec<CodeInstr> {
    let mut needed: rustc_hash::FxHashSet<(Field, i32)> = Default::default();
    let mut keep = vec![false; code.len()];
    for (n, ci) in code.iter().enumerate().rev() {
        let i = &ci.instr;
        let effect = matches!(i.op.slot(), Slot::VStore | Slot::Extended | Slot::Pop | Slot::Dma | Slot::Scalar);
        let wanted = i.operands().any(|(f, a)| match f {
            Field::Vd | Field::Md => a < VIRTUAL || needed.contains(&(f, a)),
            _ => false,
        });
        if effect || wanted || i.op == Op::FlagAdd {
            keep[n] = true;
            for (f, a) in i.operands() {
                match f {
                    Field::Vs => drop(needed.insert((Field::Vd, a))),
                    Field::Ms => drop(needed.insert((Field::Md, a))),
                    _ => {}
                }
            }
        }
    }
    code.iter().zip(keep).filter(|(_, k)| *k).map(|(c, _)| *c).collect()
}
