//! Transcendentals of the EUP.

use tpusim_isa::op::Op;

/// Result of an EUP push of one element.
pub(crate) fn element(op: Op, x: f32) -> f32 {
    match op {
        Op::EPow2 => x.exp2(),
        Op::ELog2 => x.log2(),
        Op::ERcp => 1.0 / x,
        Op::ERsqrt => 1.0 / x.sqrt(),
        Op::ETanh => x.tanh(),
        _ => x,
    }
}
