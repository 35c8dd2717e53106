//! Elementwise operations as vector code: how each StableHLO function is computed on VPU and EUP.
//!
//! Values of float types narrower than f32 are held as f32 and rounded to their type after every operation; integers narrower than
//! 32 bits are held sign- or zero-extended and wrapped; `i1` lives in mask registers.
//!
//! Accuracy: `+ - *`, min, max, comparisons, conversions and integer operations are exact to the bit. A quotient is the product
//! with the rounded reciprocal (within 1.5 ulp). `exp(x)` is `pow2(x * log2 e)`, so its relative error grows as `|x| * 2^-24`; sine and
//! cosine reduce their argument with pi/2 in three parts and keep single accuracy up to about `|x| = 10^4`. Remainders are exact up to
//! quotients of 4096. A subnormal divisor counts as zero, since its reciprocal overflows.

use std::f32::consts::{LN_2, LOG2_E};

use tpusim_isa::num::{DType, DTypeKind, Format};
use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::vcode::{Code, M, V};

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
}

impl MapOp {
    /// Rough number of vector instructions, for deciding what to compute twice.
    pub fn cost(self) -> u32 {
        match self {
            MapOp::Div | MapOp::Exp | MapOp::Log | MapOp::Tanh | MapOp::Rsqrt | MapOp::Logistic => 6,
            MapOp::Sqrt | MapOp::Expm1 | MapOp::Log1p => 10,
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
        DTypeKind::Signed | DTypeKind::Unsigned => t.bits() >= 8 && t.bits() <= 32,
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

fn integer(c: &mut Code, op: MapOp, t: DType, a: &[V]) -> V {
    let signed = t.is_signed();
    match op {
        MapOp::Add => c.v(Op::VAddI, a),
        MapOp::Sub => c.v(Op::VSubI, a),
        MapOp::Mul => c.v(Op::VMulI, a),
        MapOp::Max => c.v(if signed { Op::VMaxI } else { Op::VMaxU }, a),
        MapOp::Min => c.v(if signed { Op::VMinI } else { Op::VMinU }, a),
        MapOp::And => c.v(Op::VAnd, a),
        MapOp::Or => c.v(Op::VOr, a),
        MapOp::Xor => c.v(Op::VXor, a),
        MapOp::Shl => {
            let v = c.v(Op::VShl, a);
            past_width(c, v, a[1], t, None)
        }
        MapOp::ShrLogical => {
            let x = if signed && t.bits() < 32 {
                let m = c.imm(((1u32 << t.bits()) - 1) as i32);
                c.v(Op::VAnd, &[a[0], m])
            } else {
                a[0]
            };
            let v = c.v(Op::VShr, &[x, a[1]]);
            past_width(c, v, a[1], t, None)
        }
        MapOp::ShrArith => {
            if signed {
                let v = c.v(Op::VSra, a);
                return past_width(c, v, a[1], t, Some(a[0]));
            }
            // An unsigned operand is shifted by the sign its own width gives it.
            let s = c.imm(32 - t.bits() as i32);
            let up = c.v(Op::VShl, &[a[0], s]);
            let wide = c.v(Op::VSra, &[up, s]);
            let v = c.v(Op::VSra, &[wide, a[1]]);
            past_width(c, v, a[1], t, Some(wide))
        }
        MapOp::Abs => {
            let z = c.imm(0);
            let n = c.v(Op::VSubI, &[z, a[0]]);
            if signed { c.v(Op::VMaxI, &[a[0], n]) } else { a[0] }
        }
        MapOp::Neg => {
            let z = c.imm(0);
            c.v(Op::VSubI, &[z, a[0]])
        }
        MapOp::Sign => {
            let (z, one, minus) = (c.imm(0), c.imm(1), c.imm(-1));
            let zero = c.cmp(Op::VEqI, a[0], z);
            let pos = if signed {
                let neg = c.cmp(Op::VLtI, a[0], z);
                c.sel(neg, minus, one)
            } else {
                one
            };
            c.sel(zero, z, pos)
        }
        MapOp::Not => {
            let m = c.imm(-1);
            c.v(Op::VXor, &[a[0], m])
        }
        MapOp::Popcnt => {
            let x = narrow_bits(c, a[0], t);
            c.v(Op::VPopcnt, &[x])
        }
        MapOp::Clz => {
            let x = narrow_bits(c, a[0], t);
            let n = c.v(Op::VClz, &[x]);
            let d = c.imm(32 - t.bits() as i32);
            c.v(Op::VSubI, &[n, d])
        }
        MapOp::Div => divide(c, t, a[0], a[1]).0,
        MapOp::Rem => divide(c, t, a[0], a[1]).1,
        MapOp::Pow => int_power(c, t, a[0], a[1]),
        _ => a[0],
    }
}

/// A negative narrow integer is held sign-extended; its own bits alone count here.
fn narrow_bits(c: &mut Code, x: V, t: DType) -> V {
    if t.is_signed() && t.bits() < 32 {
        let m = c.imm(((1u32 << t.bits()) - 1) as i32);
        c.v(Op::VAnd, &[x, m])
    } else {
        x
    }
}

/// Shifts past the width of a narrow type give 0, or the sign of `sign`.
fn past_width(c: &mut Code, v: V, amount: V, t: DType, sign: Option<V>) -> V {
    if t.bits() >= 32 {
        return v;
    }
    let w = c.imm(t.bits() as i32);
    let inside = c.cmp(Op::VLtU, amount, w);
    let other = match sign {
        None => c.imm(0),
        Some(x) => {
            let s = c.imm(31);
            c.v(Op::VSra, &[x, s])
        }
    };
    c.sel(inside, v, other)
}

/// `x^y` for integers by repeated squaring; a negative exponent gives 1, -1 or 0 as the exact rational truncates.
fn int_power(c: &mut Code, t: DType, x: V, y: V) -> V {
    let (zero, one) = (c.imm(0), c.imm(1));
    let mut acc = one;
    let mut base = x;
    for bit in 0..t.bits().min(32) {
        let s = c.imm(bit as i32);
        let b = c.v(Op::VShr, &[y, s]);
        let b = c.v(Op::VAnd, &[b, one]);
        let on = c.cmp(Op::VEqI, b, one);
        let prod = c.v(Op::VMulI, &[acc, base]);
        acc = c.sel(on, prod, acc);
        base = c.v(Op::VMulI, &[base, base]);
    }
    if !t.is_signed() {
        return acc;
    }
    let minus = c.imm(-1);
    let negative = c.cmp(Op::VLtI, y, zero);
    let is_one = c.cmp(Op::VEqI, x, one);
    let is_minus = c.cmp(Op::VEqI, x, minus);
    let odd = c.v(Op::VAnd, &[y, one]);
    let odd = c.cmp(Op::VEqI, odd, one);
    let unit = c.sel(odd, minus, one);
    let other = c.sel(is_minus, unit, zero);
    let other = c.sel(is_one, one, other);
    c.sel(negative, other, acc)
}

/// Quotient and remainder. `x / 0` is all ones, `x % 0` is `x`; `INT_MIN / -1` wraps.
fn divide(c: &mut Code, t: DType, n: V, d: V) -> (V, V) {
    let zero = c.imm(0);
    let by_zero = c.cmp(Op::VEqI, d, zero);
    let ones = c.imm(-1);
    if !t.is_signed() {
        let (q, r) = udivide(c, n, d);
        return (c.sel(by_zero, ones, q), c.sel(by_zero, n, r));
    }
    let abs = |c: &mut Code, x: V| {
        let m = c.v(Op::VSubI, &[zero, x]);
        c.v(Op::VMaxI, &[x, m])
    };
    let (an, ad) = (abs(c, n), abs(c, d));
    let (q, r) = udivide(c, an, ad);
    let sign = c.v(Op::VXor, &[n, d]);
    let q_neg = c.cmp(Op::VLtI, sign, zero);
    let r_neg = c.cmp(Op::VLtI, n, zero);
    let (mq, mr) = (c.v(Op::VSubI, &[zero, q]), c.v(Op::VSubI, &[zero, r]));
    let (q, r) = (c.sel(q_neg, mq, q), c.sel(r_neg, mr, r));
    (c.sel(by_zero, ones, q), c.sel(by_zero, n, r))
}

/// Unsigned division: two float estimates that never exceed the quotient, then two corrections by one.
fn udivide(c: &mut Code, n: V, d: V) -> (V, V) {
    let df = c.v(Op::VU2F, &[d]);
    let rcp = c.eup(Op::ERcp, df);
    let below = c.imm_f(1.0 - 1.0 / (1u32 << 20) as f32);
    let rcp = c.v(Op::VMulF, &[rcp, below]);
    let mut q = c.imm(0);
    let mut r = n;
    for _ in 0..2 {
        let rf = c.v(Op::VU2F, &[r]);
        let e = c.v(Op::VMulF, &[rf, rcp]);
        let e = c.v(Op::VF2U, &[e]);
        q = c.v(Op::VAddI, &[q, e]);
        let p = c.v(Op::VMulI, &[e, d]);
        r = c.v(Op::VSubI, &[r, p]);
    }
    for _ in 0..2 {
        let (one, zero) = (c.imm(1), c.imm(0));
        let more = c.cmp(Op::VLeU, d, r);
        let step = c.sel(more, one, zero);
        let part = c.sel(more, d, zero);
        q = c.v(Op::VAddI, &[q, step]);
        r = c.v(Op::VSubI, &[r, part]);
    }
    (q, r)
}

fn float(c: &mut Code, op: MapOp, a: &[V]) -> V {
    match op {
        MapOp::Add => c.v(Op::VAddF, a),
        MapOp::Sub => c.v(Op::VSubF, a),
        MapOp::Mul => c.v(Op::VMulF, a),
        MapOp::Max => c.v(Op::VMaxF, a),
        MapOp::Min => c.v(Op::VMinF, a),
        MapOp::Div => {
            let r = c.eup(Op::ERcp, a[1]);
            c.v(Op::VMulF, &[a[0], r])
        }
        MapOp::Rem => float_rem(c, a[0], a[1]),
        MapOp::Abs => abs(c, a[0]),
        MapOp::Neg => {
            let m = c.imm(i32::MIN);
            c.v(Op::VXor, &[a[0], m])
        }
        MapOp::Sign => {
            let (z, one, minus) = (c.imm(0), c.imm_f(1.0), c.imm_f(-1.0));
            let pos = c.cmp(Op::VLtF, z, a[0]);
            let neg = c.cmp(Op::VLtF, a[0], z);
            let v = c.sel(neg, minus, a[0]);
            c.sel(pos, one, v)
        }
        MapOp::Exp => exp(c, a[0]),
        MapOp::Expm1 => {
            // expm1(x) = tanh(x/2) (exp(x) + 1); where exp(x) overflows both are exact enough.
            let half = c.imm_f(0.5);
            let h = c.v(Op::VMulF, &[a[0], half]);
            let t = c.eup(Op::ETanh, h);
            let e = exp(c, a[0]);
            let one = c.imm_f(1.0);
            let e = c.v(Op::VAddF, &[e, one]);
            c.v(Op::VMulF, &[t, e])
        }
        MapOp::Log => log(c, a[0]),
        MapOp::Log1p => log1p(c, a[0]),
        MapOp::Tanh => c.eup(Op::ETanh, a[0]),
        MapOp::Logistic => {
            let k = c.imm_f(-LOG2_E);
            let x = c.v(Op::VMulF, &[a[0], k]);
            let e = c.eup(Op::EPow2, x);
            let one = c.imm_f(1.0);
            let d = c.v(Op::VAddF, &[e, one]);
            c.eup(Op::ERcp, d)
        }
        MapOp::Sqrt => {
            let r = c.eup(Op::ERsqrt, a[0]);
            let s = c.v(Op::VMulF, &[a[0], r]);
            let (z, inf) = (c.imm(0), c.imm_f(f32::INFINITY));
            let zero = c.cmp(Op::VEqF, a[0], z);
            let is_inf = c.cmp(Op::VEqF, a[0], inf);
            let keep = c.m2(Op::MOr, zero, is_inf);
            c.sel(keep, a[0], s)
        }
        MapOp::Rsqrt => c.eup(Op::ERsqrt, a[0]),
        MapOp::Cbrt => cbrt(c, a[0]),
        MapOp::Pow => pow(c, a[0], a[1]),
        MapOp::Sin => sincos(c, a[0]).0,
        MapOp::Cos => sincos(c, a[0]).1,
        MapOp::Tan => {
            let (s, k) = sincos(c, a[0]);
            let r = c.eup(Op::ERcp, k);
            c.v(Op::VMulF, &[s, r])
        }
        MapOp::Atan2 => atan2(c, a[0], a[1]),
        MapOp::Floor => c.v(Op::VFloor, a),
        MapOp::Ceil => c.v(Op::VCeil, a),
        MapOp::RoundEven => c.v(Op::VRne, a),
        MapOp::RoundAway => {
            let r = c.v(Op::VRne, &[a[0]]);
            let d = c.v(Op::VSubF, &[a[0], r]);
            let (half, z, one) = (c.imm_f(0.5), c.imm(0), c.imm_f(1.0));
            let minus_half = c.imm_f(-0.5);
            let up = c.cmp(Op::VEqF, d, half);
            let pos = c.cmp(Op::VLtF, z, a[0]);
            let up = c.m2(Op::MAnd, up, pos);
            let down = c.cmp(Op::VEqF, d, minus_half);
            let neg = c.cmp(Op::VLtF, a[0], z);
            let down = c.m2(Op::MAnd, down, neg);
            let (hi, lo) = (c.v(Op::VAddF, &[r, one]), c.v(Op::VSubF, &[r, one]));
            let r = c.sel(up, hi, r);
            c.sel(down, lo, r)
        }
        _ => a[0],
    }
}

fn abs(c: &mut Code, x: V) -> V {
    let m = c.imm(0x7fff_ffff);
    c.v(Op::VAnd, &[x, m])
}

fn copysign(c: &mut Code, magnitude: V, sign: V) -> V {
    let m = c.imm(i32::MIN);
    let s = c.v(Op::VAnd, &[sign, m]);
    c.v(Op::VOr, &[magnitude, s])
}

fn exp(c: &mut Code, x: V) -> V {
    let k = c.imm_f(LOG2_E);
    let t = c.v(Op::VMulF, &[x, k]);
    c.eup(Op::EPow2, t)
}

fn log(c: &mut Code, x: V) -> V {
    let k = c.imm_f(LN_2);
    let l = c.eup(Op::ELog2, x);
    c.v(Op::VMulF, &[l, k])
}

/// `log(u) x / (u - 1)` with `u = 1 + x` cancels the rounding of `u`.
fn log1p(c: &mut Code, x: V) -> V {
    let (one, inf) = (c.imm_f(1.0), c.imm_f(f32::INFINITY));
    let u = c.v(Op::VAddF, &[one, x]);
    let d = c.v(Op::VSubF, &[u, one]);
    let l = log(c, u);
    let r = c.eup(Op::ERcp, d);
    let q = c.v(Op::VMulF, &[x, r]);
    let y = c.v(Op::VMulF, &[l, q]);
    let tiny = c.cmp(Op::VEqF, u, one);
    let big = c.cmp(Op::VEqF, u, inf);
    let keep = c.m2(Op::MOr, tiny, big);
    c.sel(keep, x, y)
}

fn cbrt(c: &mut Code, x: V) -> V {
    let a = abs(c, x);
    let third = c.imm_f(1.0 / 3.0);
    let l = c.eup(Op::ELog2, a);
    let l = c.v(Op::VMulF, &[l, third]);
    let y = c.eup(Op::EPow2, l);
    // One Newton step: y - (y - a / y^2) / 3.
    let y2 = c.v(Op::VMulF, &[y, y]);
    let r = c.eup(Op::ERcp, y2);
    let q = c.v(Op::VMulF, &[a, r]);
    let d = c.v(Op::VSubF, &[y, q]);
    let d = c.v(Op::VMulF, &[d, third]);
    let n = c.v(Op::VSubF, &[y, d]);
    let (z, inf) = (c.imm(0), c.imm_f(f32::INFINITY));
    let zero = c.cmp(Op::VEqF, a, z);
    let big = c.cmp(Op::VEqF, a, inf);
    let keep = c.m2(Op::MOr, zero, big);
    let n = c.sel(keep, a, n);
    copysign(c, n, x)
}

fn trunc(c: &mut Code, x: V) -> V {
    let z = c.imm(0);
    let neg = c.cmp(Op::VLtF, x, z);
    let (f, u) = (c.v(Op::VFloor, &[x]), c.v(Op::VCeil, &[x]));
    c.sel(neg, u, f)
}

fn float_rem(c: &mut Code, x: V, y: V) -> V {
    let (ax, ay) = (abs(c, x), abs(c, y));
    let r = c.eup(Op::ERcp, ay);
    let q = c.v(Op::VMulF, &[ax, r]);
    let q = c.v(Op::VFloor, &[q]);
    // The divisor in two halves of 12 bits: their products with quotients up to 4096 are exact.
    let mask = c.imm(!0xfff);
    let hi = c.v(Op::VAnd, &[ay, mask]);
    let lo = c.v(Op::VSubF, &[ay, hi]);
    let (p, s) = (c.v(Op::VMulF, &[q, hi]), c.v(Op::VMulF, &[q, lo]));
    let m = c.v(Op::VSubF, &[ax, p]);
    let mut m = c.v(Op::VSubF, &[m, s]);
    let z = c.imm(0);
    let low = c.cmp(Op::VLtF, m, z);
    let up = c.v(Op::VAddF, &[m, ay]);
    m = c.sel(low, up, m);
    let high = c.cmp(Op::VLeF, ay, m);
    let down = c.v(Op::VSubF, &[m, ay]);
    m = c.sel(high, down, m);
    // x is its own remainder by anything larger, infinity included; by zero there is none.
    let small = c.cmp(Op::VLtF, ax, ay);
    m = c.sel(small, ax, m);
    let by_zero = c.cmp(Op::VEqF, ay, z);
    let nan = c.imm_f(f32::NAN);
    m = c.sel(by_zero, nan, m);
    copysign(c, m, x)
}

fn pow(c: &mut Code, x: V, y: V) -> V {
    let a = abs(c, x);
    let l = c.eup(Op::ELog2, a);
    let e = c.v(Op::VMulF, &[y, l]);
    let p = c.eup(Op::EPow2, e);
    let (z, one, nan) = (c.imm(0), c.imm_f(1.0), c.imm_f(f32::NAN));
    // Sign and domain for negative bases: only integer exponents, odd ones negate.
    let t = trunc(c, y);
    let whole = c.cmp(Op::VEqF, t, y);
    let half = c.imm_f(0.5);
    let h = c.v(Op::VMulF, &[y, half]);
    let th = trunc(c, h);
    let odd = c.cmp(Op::VNeF, th, h);
    let odd = c.m2(Op::MAnd, odd, whole);
    let signed = copysign(c, p, x);
    let p = c.sel(odd, signed, p);
    let neg = c.cmp(Op::VLtF, x, z);
    let frac = c.mnot(whole);
    let bad = c.m2(Op::MAnd, neg, frac);
    let least = c.imm_f(f32::NEG_INFINITY);
    let finite = c.cmp(Op::VLtF, least, x);
    let bad = c.m2(Op::MAnd, bad, finite);
    let p = c.sel(bad, nan, p);
    let y0 = c.cmp(Op::VEqF, y, z);
    let x1 = c.cmp(Op::VEqF, x, one);
    let unit = c.m2(Op::MOr, y0, x1);
    // (-1)^inf is 1, too.
    let (a1, ay, inf) = (c.cmp(Op::VEqF, a, one), abs(c, y), c.imm_f(f32::INFINITY));
    let endless = c.cmp(Op::VEqF, ay, inf);
    let limit = c.m2(Op::MAnd, a1, endless);
    let unit = c.m2(Op::MOr, unit, limit);
    c.sel(unit, one, p)
}

/// Horner's rule, highest coefficient first.
fn poly(c: &mut Code, x: V, coefficients: &[f32]) -> V {
    let mut acc = c.imm_f(coefficients[0]);
    for &k in &coefficients[1..] {
        let k = c.imm_f(k);
        let m = c.v(Op::VMulF, &[acc, x]);
        acc = c.v(Op::VAddF, &[m, k]);
    }
    acc
}

/// Sine and cosine: Cody-Waite reduction by pi/2 in three parts, Taylor polynomials on [-pi/4, pi/4].
fn sincos(c: &mut Code, x: V) -> (V, V) {
    let k = c.imm_f(std::f32::consts::FRAC_2_PI);
    let t = c.v(Op::VMulF, &[x, k]);
    let n = c.v(Op::VRne, &[t]);
    let mut r = x;
    // pi/2 = 201/128 + 4.8351287841796875e-4 + 3.1385570764541626e-7 + 6e-11: short parts whose products with n are exact.
    for part in [1.5703125f32, 4.835_128_8e-4, 3.138_557e-7, 6.077_1e-11] {
        let p = c.imm_f(part);
        let m = c.v(Op::VMulF, &[n, p]);
        r = c.v(Op::VSubF, &[r, m]);
    }
    let r2 = c.v(Op::VMulF, &[r, r]);
    let ps = poly(c, r2, &[2.755_731_9e-6, -1.984_127e-4, 8.333_333_5e-3, -1.666_666_7e-1]);
    let ps = c.v(Op::VMulF, &[ps, r2]);
    let ps = c.v(Op::VMulF, &[ps, r]);
    let s = c.v(Op::VAddF, &[r, ps]);
    let pc = poly(c, r2, &[2.480_158_7e-5, -1.388_888_9e-3, 4.166_666_8e-2, -0.5]);
    let pc = c.v(Op::VMulF, &[pc, r2]);
    let one = c.imm_f(1.0);
    let k = c.v(Op::VAddF, &[one, pc]);
    let q = c.v(Op::VF2I, &[n]);
    let (i1, i2, z) = (c.imm(1), c.imm(2), c.imm(0));
    let odd = c.v(Op::VAnd, &[q, i1]);
    let odd = c.cmp(Op::VNeI, odd, z);
    let sin = c.sel(odd, k, s);
    let cos = c.sel(odd, s, k);
    let flip = |c: &mut Code, v: V, q: V| {
        let b = c.v(Op::VAnd, &[q, i2]);
        let shift = c.imm(30);
        let b = c.v(Op::VShl, &[b, shift]);
        c.v(Op::VXor, &[v, b])
    };
    let sin = flip(c, sin, q);
    let q1 = c.v(Op::VAddI, &[q, i1]);
    let cos = flip(c, cos, q1);
    (sin, cos)
}

/// Angle of the point (x, y): arc tangent of the smaller over the larger magnitude, then moved to its octant.
fn atan2(c: &mut Code, y: V, x: V) -> V {
    use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, PI};
    let (ax, ay) = (abs(c, x), abs(c, y));
    let (lo, hi) = (c.v(Op::VMinF, &[ax, ay]), c.v(Op::VMaxF, &[ax, ay]));
    let r = c.eup(Op::ERcp, hi);
    let t = c.v(Op::VMulF, &[lo, r]);
    let (z, one, inf) = (c.imm(0), c.imm_f(1.0), c.imm_f(f32::INFINITY));
    let both_zero = c.cmp(Op::VEqF, hi, z);
    let t = c.sel(both_zero, z, t);
    let both_inf = c.cmp(Op::VEqF, lo, inf);
    let t = c.sel(both_inf, one, t);
    // atan(t) = pi/4 + atan((t - 1) / (t + 1)) above tan(pi/8).
    let limit = c.imm_f(0.414_213_56);
    let big = c.cmp(Op::VLtF, limit, t);
    let (up, down) = (c.v(Op::VAddF, &[t, one]), c.v(Op::VSubF, &[t, one]));
    let ru = c.eup(Op::ERcp, up);
    let w = c.v(Op::VMulF, &[down, ru]);
    let w = c.sel(big, w, t);
    let w2 = c.v(Op::VMulF, &[w, w]);
    // Minimax on [0, tan(pi/8)], within 2e-8.
    let p = poly(c, w2, &[8.053_744_6e-2, -1.387_768_6e-1, 1.997_771_1e-1, -3.333_295e-1]);
    let p = c.v(Op::VMulF, &[p, w2]);
    let p = c.v(Op::VMulF, &[p, w]);
    let a = c.v(Op::VAddF, &[w, p]);
    let quarter = c.imm_f(FRAC_PI_4);
    let moved = c.v(Op::VAddF, &[a, quarter]);
    let a = c.sel(big, moved, a);
    let steep = c.cmp(Op::VLtF, ax, ay);
    let right = c.imm_f(FRAC_PI_2);
    let b = c.v(Op::VSubF, &[right, a]);
    let a = c.sel(steep, b, a);
    // The sign bit of x decides the half plane, so that -0 counts as negative.
    let left = c.cmp(Op::VLtI, x, z);
    let pi = c.imm_f(PI);
    let b = c.v(Op::VSubF, &[pi, a]);
    let a = c.sel(left, b, a);
    let a = copysign(c, a, y);
    let nan_x = c.cmp(Op::VNeF, x, x);
    let a = c.sel(nan_x, x, a);
    let nan_y = c.cmp(Op::VNeF, y, y);
    c.sel(nan_y, y, a)
}

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
