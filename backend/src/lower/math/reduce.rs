//! Reductions of registers, and indices.

use tpusim_isa::num::{DType, DTypeKind};
use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::vcode::{Code, V};
use super::*;

/// How a reduction combines two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Combine {
    Add,
    Mul,
    Max,
    Min,
    And,
    Or,
    Xor,
}

impl Combine {
    /// Bits of the neutral element for values of type `t` as registers hold them.
    pub fn identity(self, t: DType) -> i32 {
        let float = t.is_float();
        let (signed, bits) = (t.is_signed(), t.bits());
        match self {
            Combine::Add | Combine::Or | Combine::Xor => 0,
            Combine::Mul if float => 1.0f32.to_bits() as i32,
            Combine::Mul => 1,
            Combine::And => {
                if t == DType::I1 {
                    1
                } else {
                    -1
                }
            }
            Combine::Max if float => f32::NEG_INFINITY.to_bits() as i32,
            Combine::Min if float => f32::INFINITY.to_bits() as i32,
            Combine::Max if signed => (-1i64 << (bits - 1)) as i32,
            Combine::Max => 0,
            Combine::Min if signed => ((1i64 << (bits - 1)) - 1) as i32,
            Combine::Min => ((1u64 << bits) - 1) as u32 as i32,
        }
    }

    /// The instruction that combines two registers of type `t`.
    pub fn op(self, t: DType) -> Op {
        let (float, signed) = (t.is_float(), t.is_signed());
        match self {
            Combine::Add if float => Op::VAddF,
            Combine::Add => Op::VAddI,
            Combine::Mul if float => Op::VMulF,
            Combine::Mul => Op::VMulI,
            Combine::Max if float => Op::VMaxF,
            Combine::Max if signed => Op::VMaxI,
            Combine::Max => Op::VMaxU,
            Combine::Min if float => Op::VMinF,
            Combine::Min if signed => Op::VMinI,
            Combine::Min => Op::VMinU,
            Combine::And => Op::VAnd,
            Combine::Or => Op::VOr,
            Combine::Xor => Op::VXor,
        }
    }

    /// The XLU's lane reduction for it, if it has one.
    pub fn lanes_op(self, t: DType) -> Option<Op> {
        let (float, signed) = (t.is_float(), t.is_signed());
        match self {
            Combine::Add if float => Some(Op::XSumF),
            Combine::Add => Some(Op::XSumI),
            Combine::Max if float => Some(Op::XMaxF),
            Combine::Max if signed => Some(Op::XMaxI),
            Combine::Min if float => Some(Op::XMinF),
            Combine::Min if signed => Some(Op::XMinI),
            _ => None,
        }
    }
}

/// Reduces the lanes of `v`; the result is in every lane.
pub fn reduce_lanes(c: &mut Code, how: Combine, t: DType, v: V, xlu: u32) -> V {
    if let Some(op) = how.lanes_op(t) {
        c.xlu_push(op, xlu, v, 0);
        return c.xlu_pop(xlu);
    }
    let mut v = v;
    for shift in [64, 32, 16, 8, 4, 2, 1] {
        c.xlu_push(Op::XRot, xlu, v, shift);
        let r = c.xlu_pop(xlu);
        v = c.v(how.op(t), &[v, r]);
    }
    v
}

/// Reduces the sublanes of `v`; the result is in every sublane.
pub fn reduce_sublanes(c: &mut Code, how: Combine, t: DType, v: V) -> V {
    let mut v = v;
    for shift in [4, 2, 1] {
        let r = c.vi(Op::VSubRot, v, shift);
        v = c.v(how.op(t), &[v, r]);
    }
    v
}

/// Index along a dimension as a value of type `t`: `ids + offset` where `ids` are lane or sublane numbers (or nothing).
pub fn iota(c: &mut Code, t: DType, ids: Option<Op>, scalar: SReg, offset: i32) -> V {
    let base = c.bcast(scalar);
    let mut v = match ids {
        Some(op) => {
            let i = c.ids(op);
            c.v(Op::VAddI, &[i, base])
        }
        None => base,
    };
    if offset != 0 {
        let k = c.imm(offset);
        v = c.v(Op::VAddI, &[v, k]);
    }
    match t.kind() {
        DTypeKind::Float => {
            let f = c.v(Op::VI2F, &[v]);
            fit(c, f, t)
        }
        _ => fit(c, v, t),
    }
}
