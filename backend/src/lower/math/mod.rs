//! Elementwise operations as vector code: how each StableHLO function is computed on VPU and EUP.
//!
//! Values of float types narrower than f32 are held as f32 and rounded to their type after every operation; integers narrower than
//! 32 bits are held sign- or zero-extended and wrapped; `i1` lives in mask registers.
//!
//! Accuracy: `+ - *`, min, max, comparisons, conversions and integer operations are exact to the bit. A quotient is the product
//! with the rounded reciprocal (within 1.5 ulp). `exp(x)` is `pow2(x * log2 e)`, so its relative error grows as `|x| * 2^-24`; sine and
//! cosine reduce their argument with pi/2 in three parts and keep single accuracy up to about `|x| = 10^4`. Remainders are exact up to
//! quotients of 4096. A subnormal divisor counts as zero, since its reciprocal overflows.

mod float;
mod integer;
mod reduce;
mod wide;

use tpusim_isa::num::{DType, DTypeKind, Format};
use tpusim_isa::op::Op;

use super::vcode::{Code, M, V};

use float::float;
use integer::integer;
pub use reduce::{Combine, iota, reduce_lanes, reduce_sublanes};
pub use wide::{Registers, WideOp};

/// Direction of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// An elementwise operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum MapOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Max,
    Min,
    Pow,
    Atan2,
    And,
    Or,
    Xor,
    Shl,
    ShrLogical,
    ShrArith,
    /// Comparison; the flag asks for the total order of floats.
    Compare(Direction, bool),
    Select,
    Abs,
    Neg,
    Sign,
    Exp,
    Expm1,
    Log,
    Log1p,
    Tanh,
    Logistic,
    Sqrt,
    Rsqrt,
    Cbrt,
    Sin,
    Cos,
    Tan,
    Floor,
    Ceil,
    RoundEven,
    RoundAway,
    Not,
    Popcnt,
    Clz,
    IsFinite,
    Convert,
    Bitcast,
    Copy,
    /// High word of the product of unsigned words.
    MulHigh,
    /// One register, the first or the second, of an operation on pairs of registers.
    Wide(WideOp, u8),
}

impl MapOp {
    /// Rough number of vector instructions, for deciding what to compute twice.
    pub fn cost(self) -> u32 {
        match self {
            MapOp::Div | MapOp::Exp | MapOp::Log | MapOp::Tanh | MapOp::Rsqrt | MapOp::Logistic => 6,
            MapOp::Sqrt | MapOp::Expm1 | MapOp::Log1p => 10,
            MapOp::Wide(op, _) => op.cost(),
            MapOp::Sin | MapOp::Cos | MapOp::Pow | MapOp::Cbrt | MapOp::Tan | MapOp::Atan2 | MapOp::Rem => 30,
            _ => 1,
        }
    }
}

/// A value in registers.
#[derive(Clone, Copy, Debug)]
pub enum Val {
    /// 32-bit elements.
    V(V),
    /// Booleans.
    M(M),
}

/// The types an operation works on.
#[derive(Clone, Copy, Debug)]
pub struct Types {
    /// Type of the first operand that is not a predicate.
    pub operand: DType,
    /// Type of the result.
    pub result: DType,
}

/// Whether vector code can hold values of `t`.
pub fn holds(t: DType) -> bool {
    match t.kind() {
        DTypeKind::Bool => true,
        DTypeKind::Signed | DTypeKind::Unsigned => t.bits() <= 32,
        DTypeKind::Float => t == DType::F32 || Format::of(t).is_some(),
        DTypeKind::Complex => false,
    }
}

/// Mask as 0 / 1 integers.
pub fn mask_to_int(c: &mut Code, m: M) -> V {
    let (one, zero) = (c.imm(1), c.imm(0));
    c.sel(m, one, zero)
}

/// Integers as a mask of those that are not zero.
pub fn int_to_mask(c: &mut Code, v: V) -> M {
    let zero = c.imm(0);
    c.cmp(Op::VNeI, v, zero)
}

/// The value as a vector; booleans become 0 or 1.
pub fn as_v(c: &mut Code, x: Val) -> V {
    match x {
        Val::V(v) => v,
        Val::M(m) => mask_to_int(c, m),
    }
}

/// The value as a mask.
pub fn as_m(c: &mut Code, x: Val) -> M {
    match x {
        Val::M(m) => m,
        Val::V(v) => int_to_mask(c, v),
    }
}

/// Brings a freshly computed 32-bit value back into the range of `t`.
fn fit(c: &mut Code, v: V, t: DType) -> V {
    match t.kind() {
        DTypeKind::Float => match Format::of(t) {
            Some(f) => c.round(v, f),
            None => v,
        },
        DTypeKind::Signed if t.bits() < 32 => {
            let s = c.imm(32 - t.bits() as i32);
            let up = c.v(Op::VShl, &[v, s]);
            c.v(Op::VSra, &[up, s])
        }
        DTypeKind::Unsigned if t.bits() < 32 => {
            let m = c.imm(((1u32 << t.bits()) - 1) as i32);
            c.v(Op::VAnd, &[v, m])
        }
        _ => v,
    }
}

/// Code of `op` on `args`.
pub fn map(c: &mut Code, op: MapOp, t: Types, args: &[Val]) -> Val {
    let kind = t.operand.kind();
    if kind == DTypeKind::Bool && !matches!(op, MapOp::Select | MapOp::Convert | MapOp::Bitcast | MapOp::Copy) {
        return boolean(c, op, args);
    }
    match op {
        MapOp::Copy => args[0],
        MapOp::Select => select(c, args),
        MapOp::Compare(d, total) => {
            let (a, b) = (as_v(c, args[0]), as_v(c, args[1]));
            Val::M(compare(c, d, total, t.operand, a, b))
        }
        MapOp::IsFinite => {
            let a = as_v(c, args[0]);
            let (m, inf) = (c.imm(0x7fff_ffff), c.imm(0x7f80_0000));
            let bits = c.v(Op::VAnd, &[a, m]);
            Val::M(c.cmp(Op::VLtI, bits, inf))
        }
        MapOp::Convert => convert(c, args[0], t),
        MapOp::Bitcast => bitcast(c, args[0], t),
        MapOp::Wide(op, part) => {
            let a: Vec<V> = args.iter().map(|&x| as_v(c, x)).collect();
            let pair = c.shared(op, &a, wide::wide);
            Val::V(pair[usize::from(part & 1)])
        }
        _ => {
            let a: Vec<V> = args.iter().map(|&x| as_v(c, x)).collect();
            let v = if kind == DTypeKind::Float { float(c, op, &a) } else { integer(c, op, t.operand, &a) };
            Val::V(fit(c, v, t.result))
        }
    }
}

fn select(c: &mut Code, args: &[Val]) -> Val {
    let p = as_m(c, args[0]);
    match (args[1], args[2]) {
        (Val::M(a), Val::M(b)) => {
            let (pa, np) = (c.m2(Op::MAnd, p, a), c.mnot(p));
            let nb = c.m2(Op::MAnd, np, b);
            Val::M(c.m2(Op::MOr, pa, nb))
        }
        (a, b) => {
            let (a, b) = (as_v(c, a), as_v(c, b));
            Val::V(c.sel(p, a, b))
        }
    }
}

fn boolean(c: &mut Code, op: MapOp, args: &[Val]) -> Val {
    let a = as_m(c, args[0]);
    let b = args.get(1).map(|&b| as_m(c, b)).unwrap_or(a);
    Val::M(match op {
        MapOp::And | MapOp::Min | MapOp::Mul => c.m2(Op::MAnd, a, b),
        MapOp::Or | MapOp::Max | MapOp::Add => c.m2(Op::MOr, a, b),
        MapOp::Xor | MapOp::Compare(Direction::Ne, _) => c.m2(Op::MXor, a, b),
        MapOp::Compare(Direction::Eq, _) => {
            let x = c.m2(Op::MXor, a, b);
            c.mnot(x)
        }
        MapOp::Compare(Direction::Lt, _) => {
            let n = c.mnot(a);
            c.m2(Op::MAnd, n, b)
        }
        MapOp::Compare(Direction::Gt, _) => {
            let n = c.mnot(b);
            c.m2(Op::MAnd, a, n)
        }
        MapOp::Compare(Direction::Le, _) => {
            let n = c.mnot(a);
            c.m2(Op::MOr, n, b)
        }
        MapOp::Compare(Direction::Ge, _) => {
            let n = c.mnot(b);
            c.m2(Op::MOr, a, n)
        }
        MapOp::Not => c.mnot(a),
        _ => a,
    })
}

fn compare(c: &mut Code, d: Direction, total: bool, t: DType, a: V, b: V) -> M {
    use Direction::*;
    let (a, b, float, signed) = if t.is_float() && total {
        let key = |c: &mut Code, x: V| {
            let (s, m) = (c.imm(31), c.imm(0x7fff_ffff));
            let sign = c.v(Op::VSra, &[x, s]);
            let flip = c.v(Op::VAnd, &[sign, m]);
            c.v(Op::VXor, &[x, flip])
        };
        (key(c, a), key(c, b), false, true)
    } else {
        (a, b, t.is_float(), t.is_signed())
    };
    let (eq, ne, lt, le) = match (float, signed) {
        (true, _) => (Op::VEqF, Op::VNeF, Op::VLtF, Op::VLeF),
        (false, true) => (Op::VEqI, Op::VNeI, Op::VLtI, Op::VLeI),
        (false, false) => (Op::VEqI, Op::VNeI, Op::VLtU, Op::VLeU),
    };
    match d {
        Eq => c.cmp(eq, a, b),
        Ne => c.cmp(ne, a, b),
        Lt => c.cmp(lt, a, b),
        Le => c.cmp(le, a, b),
        Gt => c.cmp(lt, b, a),
        Ge => c.cmp(le, b, a),
    }
}

fn convert(c: &mut Code, x: Val, t: Types) -> Val {
    use DTypeKind::*;
    let (from, to) = (t.operand, t.result);
    match (from.kind(), to.kind()) {
        (Bool, Bool) => x,
        (Bool, Float) => {
            let m = as_m(c, x);
            let (one, zero) = (c.imm_f(1.0), c.imm(0));
            Val::V(c.sel(m, one, zero))
        }
        (Bool, _) => Val::V(as_v(c, x)),
        (Float, Bool) => {
            let (v, zero) = (as_v(c, x), c.imm(0));
            Val::M(c.cmp(Op::VNeF, v, zero))
        }
        (_, Bool) => Val::M(as_m(c, x)),
        (Float, Float) => {
            let v = as_v(c, x);
            // Widening is exact, as is the same type.
            if from == to || to == DType::F32 { Val::V(v) } else { Val::V(fit(c, v, to)) }
        }
        (Float, Signed) => {
            let v = as_v(c, x);
            let i = c.v(Op::VF2I, &[v]);
            if to.bits() == 32 {
                return Val::V(i);
            }
            let (lo, hi) = (c.imm(-(1 << (to.bits() - 1))), c.imm((1 << (to.bits() - 1)) - 1));
            let i = c.v(Op::VMaxI, &[i, lo]);
            Val::V(c.v(Op::VMinI, &[i, hi]))
        }
        (Float, _) => {
            let v = as_v(c, x);
            let i = c.v(Op::VF2U, &[v]);
            if to.bits() == 32 {
                return Val::V(i);
            }
            let hi = c.imm(((1u32 << to.bits()) - 1) as i32);
            Val::V(c.v(Op::VMinU, &[i, hi]))
        }
        (Signed, Float) => {
            let v = as_v(c, x);
            let f = c.v(Op::VI2F, &[v]);
            Val::V(fit(c, f, to))
        }
        (Unsigned, Float) => {
            let v = as_v(c, x);
            let f = c.v(Op::VU2F, &[v]);
            Val::V(fit(c, f, to))
        }
        _ => {
            let v = as_v(c, x);
            Val::V(if to.bits() < from.bits() || to.kind() != from.kind() { fit(c, v, to) } else { v })
        }
    }
}

/// Same-width reinterpretation: narrow types go through their packed bits.
fn bitcast(c: &mut Code, x: Val, t: Types) -> Val {
    let v = as_v(c, x);
    if t.operand.is_int() && t.result.is_int() && t.result.bits() < 8 {
        return Val::V(fit(c, v, t.result));
    }
    let (Some(from), Some(to)) = (Format::of(t.operand), Format::of(t.result)) else { return Val::V(v) };
    let s = c.imm(16);
    Val::V(match (t.operand, t.result) {
        // bf16 is the high half of its f32, payloads of NaNs included.
        (DType::BF16, r) if r.is_int() => {
            let bits = c.v(Op::VShr, &[v, s]);
            fit(c, bits, r)
        }
        (o, DType::BF16) if o.is_int() => c.v(Op::VShl, &[v, s]),
        _ => {
            let packed = c.pack(&[v], from);
            c.unpack(packed, to, 0)
        }
    })
}
