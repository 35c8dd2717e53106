//! Integer operations. The vector unit multiplies but does not divide: quotients come from the EUP's reciprocal and two corrections.

use tpusim_isa::num::DType;
use tpusim_isa::op::Op;

use super::super::vcode::{Code, V};
use super::*;

pub(super) fn integer(c: &mut Code, op: MapOp, t: DType, a: &[V]) -> V {
    let signed = t.is_signed();
    match op {
        MapOp::Add => c.v(Op::VAddI, a),
        MapOp::Sub => c.v(Op::VSubI, a),
        MapOp::Mul => c.v(Op::VMulI, a),
        MapOp::MulHigh => c.v(Op::VMulHiU, a),
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
pub(super) fn narrow_bits(c: &mut Code, x: V, t: DType) -> V {
    if t.is_signed() && t.bits() < 32 {
        let m = c.imm(((1u32 << t.bits()) - 1) as i32);
        c.v(Op::VAnd, &[x, m])
    } else {
        x
    }
}

/// Shifts past the width of a narrow type give 0, or the sign of `sign`.
pub(super) fn past_width(c: &mut Code, v: V, amount: V, t: DType, sign: Option<V>) -> V {
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
pub(super) fn int_power(c: &mut Code, t: DType, x: V, y: V) -> V {
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
pub(super) fn divide(c: &mut Code, t: DType, n: V, d: V) -> (V, V) {
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
pub(super) fn udivide(c: &mut Code, n: V, d: V) -> (V, V) {
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
