//! Arithmetic of double-floats: Dekker's and Knuth's exact sums and products.
//!
//! There is no fused multiply-add, so products are made exact by cutting both factors into halves of 12 bits.

use tpusim_isa::op::Op;

use super::super::super::vcode::{Code, M, V};

/// The unevaluated sum of a number and a smaller one.
#[derive(Clone, Copy, Debug)]
pub(super) struct D {
    pub h: V,
    pub l: V,
}

pub(super) fn plus(c: &mut Code, a: V, b: V) -> V {
    c.v(Op::VAddF, &[a, b])
}

pub(super) fn minus(c: &mut Code, a: V, b: V) -> V {
    c.v(Op::VSubF, &[a, b])
}

pub(super) fn times(c: &mut Code, a: V, b: V) -> V {
    c.v(Op::VMulF, &[a, b])
}

/// `x` rounded to a double-float, everywhere.
pub(super) fn constant(c: &mut Code, x: f64) -> D {
    let h = x as f32;
    let l = if h.is_finite() { (x - f64::from(h)) as f32 } else { 0.0 };
    D { h: c.imm_f(h), l: c.imm_f(l) }
}

pub(super) fn select(c: &mut Code, m: M, a: D, b: D) -> D {
    D { h: c.sel(m, a.h, b.h), l: c.sel(m, a.l, b.l) }
}

/// An f32 as it is.
pub(super) fn single(c: &mut Code, h: V) -> D {
    D { h, l: c.imm(0) }
}

/// `d`, its sign flipped where `v` is negative.
pub(super) fn signed_like(c: &mut Code, d: D, v: V) -> D {
    let sign = c.imm(i32::MIN);
    let s = c.v(Op::VAnd, &[v, sign]);
    D { h: c.v(Op::VXor, &[d.h, s]), l: c.v(Op::VXor, &[d.l, s]) }
}

pub(super) fn neg(c: &mut Code, d: D) -> D {
    let sign = c.imm(i32::MIN);
    D { h: c.v(Op::VXor, &[d.h, sign]), l: c.v(Op::VXor, &[d.l, sign]) }
}

/// `a + b` exactly, for `|a|` not below `|b|`.
pub(super) fn fold(c: &mut Code, a: V, b: V) -> D {
    let h = plus(c, a, b);
    let t = minus(c, h, a);
    D { h, l: minus(c, b, t) }
}

/// `a + b` exactly.
pub(super) fn two_sum(c: &mut Code, a: V, b: V) -> D {
    let h = plus(c, a, b);
    let t = minus(c, h, a);
    let u = minus(c, h, t);
    let (p, q) = (minus(c, a, u), minus(c, b, t));
    D { h, l: plus(c, p, q) }
}

fn halves(c: &mut Code, a: V) -> [V; 2] {
    let mask = c.imm(!0xfff);
    let h = c.v(Op::VAnd, &[a, mask]);
    [h, minus(c, a, h)]
}

/// `a * b` exactly, unless it underflows.
pub(super) fn two_product(c: &mut Code, a: V, b: V) -> D {
    let h = times(c, a, b);
    let ([p, q], [r, s]) = (halves(c, a), halves(c, b));
    let mut l = times(c, p, r);
    l = minus(c, l, h);
    for (x, y) in [(p, s), (q, r), (q, s)] {
        let t = times(c, x, y);
        l = plus(c, l, t);
    }
    D { h, l }
}

/// `d` where it is a finite number but not zero. Elsewhere corrections are meaningless, and `raw`, what a single f32 operation gives,
/// is right: infinities, NaNs, and the sign of zero.
pub(super) fn finish(c: &mut Code, raw: V, d: D) -> D {
    let (mask, one, end, zero) = (c.imm(0x7fff_ffff), c.imm(1), c.imm(0x7f7f_ffff), c.imm(0));
    let bits = c.v(Op::VAnd, &[d.h, mask]);
    let bits = c.v(Op::VSubI, &[bits, one]);
    let ok = c.cmp(Op::VLtU, bits, end);
    D { h: c.sel(ok, d.h, raw), l: c.sel(ok, d.l, zero) }
}

/// `a + b` for finite numbers.
pub(super) fn sum(c: &mut Code, a: D, b: D) -> D {
    let (s, t) = (two_sum(c, a.h, b.h), two_sum(c, a.l, b.l));
    let l = plus(c, s.l, t.h);
    let s = fold(c, s.h, l);
    let l = plus(c, s.l, t.l);
    fold(c, s.h, l)
}

/// `a * b` for finite numbers.
pub(super) fn product(c: &mut Code, a: D, b: D) -> D {
    let p = two_product(c, a.h, b.h);
    let (q, r) = (times(c, a.h, b.l), times(c, a.l, b.h));
    let l = plus(c, q, r);
    let l = plus(c, p.l, l);
    fold(c, p.h, l)
}

/// `a * b` for an f32 `b`.
pub(super) fn scaled(c: &mut Code, a: D, b: V) -> D {
    let p = two_product(c, a.h, b);
    let q = times(c, a.l, b);
    let l = plus(c, p.l, q);
    fold(c, p.h, l)
}

pub(super) fn add(c: &mut Code, a: D, b: D) -> D {
    let d = sum(c, a, b);
    let raw = plus(c, a.h, b.h);
    finish(c, raw, d)
}

pub(super) fn sub(c: &mut Code, a: D, b: D) -> D {
    let b = neg(c, b);
    add(c, a, b)
}

pub(super) fn mul(c: &mut Code, a: D, b: D) -> D {
    let d = product(c, a, b);
    let raw = times(c, a.h, b.h);
    finish(c, raw, d)
}

/// `a / b` for finite numbers whose reciprocal is one: three quotients, each of what the one before left.
pub(super) fn quotient(c: &mut Code, a: D, b: D) -> D {
    let r = c.eup(Op::ERcp, b.h);
    let q1 = times(c, a.h, r);
    let p = scaled(c, b, q1);
    let p = neg(c, p);
    let rest = sum(c, a, p);
    let q2 = times(c, rest.h, r);
    let p = scaled(c, b, q2);
    let p = neg(c, p);
    let rest = sum(c, rest, p);
    let q3 = times(c, rest.h, r);
    let q = fold(c, q1, q2);
    let l = plus(c, q.l, q3);
    fold(c, q.h, l)
}

/// A factor that brings numbers of the size of `x` away from both ends of f32's range.
fn centring(c: &mut Code, x: V) -> V {
    let m = c.imm(0x7fff_ffff);
    let a = c.v(Op::VAnd, &[x, m]);
    let (large, small) = (c.imm_f(2f32.powi(100)), c.imm_f(2f32.powi(-80)));
    let (down, up, one) = (c.imm_f(2f32.powi(-64)), c.imm_f(2f32.powi(64)), c.imm_f(1.0));
    let (large, small) = (c.cmp(Op::VLtF, large, a), c.cmp(Op::VLtF, a, small));
    let f = c.sel(large, down, one);
    c.sel(small, up, f)
}

fn by_power(c: &mut Code, a: D, f: V) -> D {
    D { h: times(c, a.h, f), l: times(c, a.l, f) }
}

pub(super) fn div(c: &mut Code, a: D, b: D) -> D {
    // Numerators that leave the range by the factor belong to quotients that do.
    let f = centring(c, b.h);
    let (a, b) = (by_power(c, a, f), by_power(c, b, f));
    let d = quotient(c, a, b);
    let r = c.eup(Op::ERcp, b.h);
    let raw = times(c, a.h, r);
    finish(c, raw, d)
}

/// Square root of the centred number, and one over it; both within 2^-45.
fn roots(c: &mut Code, a: D) -> (D, D) {
    let y = c.eup(Op::ERsqrt, a.h);
    // y (1 + e (1/2 + 3/8 e)) for e = 1 - a y^2.
    let y2 = two_product(c, y, y);
    let p = product(c, a, y2);
    let p = neg(c, p);
    let one = constant(c, 1.0);
    let e = sum(c, one, p);
    let (half, k) = (c.imm_f(0.5), c.imm_f(0.375));
    let t = times(c, e.h, k);
    let t = plus(c, t, half);
    let t = times(c, e.h, t);
    let t = times(c, t, y);
    let inverse = fold(c, y, t);
    (product(c, a, inverse), inverse)
}

pub(super) fn sqrt(c: &mut Code, a: D) -> D {
    let (f, up) = (centring(c, a.h), c.imm_f(2f32.powi(64)));
    let one = c.imm_f(1.0);
    let (lower, higher) = (c.imm_f(2f32.powi(-32)), c.imm_f(2f32.powi(32)));
    let (small, large) = (c.cmp(Op::VEqF, f, up), c.cmp(Op::VLtF, f, one));
    let back = c.sel(large, higher, one);
    let back = c.sel(small, lower, back);
    let x = by_power(c, a, f);
    let r = roots(c, x).0;
    let d = by_power(c, r, back);
    // Zeros and infinity are their own roots; below zero there is none.
    let (zero, nan) = (c.imm(0), c.imm_f(f32::NAN));
    let negative = c.cmp(Op::VLtF, a.h, zero);
    let raw = c.sel(negative, nan, a.h);
    finish(c, raw, d)
}

pub(super) fn rsqrt(c: &mut Code, a: D) -> D {
    let (f, up) = (centring(c, a.h), c.imm_f(2f32.powi(64)));
    let one = c.imm_f(1.0);
    let (lower, higher) = (c.imm_f(2f32.powi(-32)), c.imm_f(2f32.powi(32)));
    let (small, large) = (c.cmp(Op::VEqF, f, up), c.cmp(Op::VLtF, f, one));
    let back = c.sel(large, lower, one);
    let back = c.sel(small, higher, back);
    let x = by_power(c, a, f);
    let r = roots(c, x).1;
    let d = by_power(c, r, back);
    let raw = c.eup(Op::ERsqrt, a.h);
    finish(c, raw, d)
}
