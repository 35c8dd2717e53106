//! Transcendentals of the EUP, on whole registers.

use tpusim_isa::num::eup;
use tpusim_isa::op::Op;

use super::regs::{Reg, Words};
use crate::simd::{Work, widest};

/// Result of an EUP push of one element.
#[inline(always)]
fn element(op: Op, x: f32) -> f32 {
    match op {
        Op::EPow2 => eup::pow2(x),
        Op::ELog2 => eup::log2(x),
        Op::ERcp => eup::rcp(x),
        Op::ERsqrt => eup::rsqrt(x),
        Op::ETanh => eup::tanh(x),
        _ => x,
    }
}

/// Computes a whole register.
pub(crate) fn execute(op: Op, x: &Words, out: &mut Reg) {
    widest(Eup { op, x, out });
}

struct Eup<'a> {
    op: Op,
    x: &'a Words,
    out: &'a mut Reg,
}

impl Work for Eup<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const WIDE: bool>(self) {
        let pairs = self.out.0.iter_mut().zip(self.x);
        // One loop per function, so that each can be vectorized.
        macro_rules! each {
            ($($op:ident),*) => {
                match self.op {
                    $(Op::$op => pairs.for_each(|(o, x)| *o = element(Op::$op, f32::from_bits(*x)).to_bits()),)*
                    _ => {}
                }
            };
        }
        each!(EPow2, ELog2, ERcp, ERsqrt, ETanh);
    }
}
