//! Exponentials, logarithms and rounding of double-floats.
//!
//! Series whose later terms are small enough are summed in f32, the first ones as double-floats.

use std::f64::consts::LN_2;

use tpusim_isa::op::Op;

use super::super::super::vcode::{Code, M, V};
use super::bits::scale;
use super::double::*;

/// `c0 + x (c1 + x (c2 + ...))`: the first `wide` coefficients in double-float, the others in f32.
pub(super) fn series(c: &mut Code, x: D, coefficients: &[f64], wide: usize) -> D {
    let (first, tail) = coefficients.split_at(wide.min(coefficients.len()));
    let mut t = c.imm(0);
    for &k in tail.iter().rev() {
        let k = c.imm_f(k as f32);
        let p = times(c, t, x.h);
        t = plus(c, p, k);
    }
    let mut y = single(c, t);
    for &k in first.iter().rev() {
        let p = product(c, y, x);
        let k = constant(c, k);
        y = sum(c, k, p);
    }
    y
}

/// `n ln 2` with `ln 2` in a part whose product with small integers is exact, and the rest.
fn times_ln2(c: &mut Code, n: V) -> [D; 2] {
    let high = f64::from(f32::from_bits((LN_2 as f32).to_bits() & !0xfff));
    let k = c.imm_f(high as f32);
    let h = times(c, n, k);
    let rest = constant(c, LN_2 - high);
    [single(c, h), scaled(c, rest, n)]
}

/// `exp(x) = 2^n (1 + p)`: `p` and `n` as a float, for `x` between -110 and 90.
fn exp_parts(c: &mut Code, x: D) -> (D, V) {
    let k = c.imm_f(std::f32::consts::LOG2_E);
    let n = times(c, x.h, k);
    let n = c.v(Op::VRne, &[n]);
    let mut r = x;
    for part in times_ln2(c, n) {
        let part = neg(c, part);
        r = sum(c, r, part);
    }
    let mut coefficients = vec![1.0];
    for i in 2..14 {
        coefficients.push(coefficients[i - 2] / i as f64);
    }
    let s = series(c, r, &coefficients, 6);
    (product(c, r, s), n)
}

/// `x` limited to where its exponential is neither 0 nor infinite.
fn limited(c: &mut Code, x: D) -> D {
    let (lo, hi, zero) = (c.imm_f(-110.0), c.imm_f(90.0), c.imm(0));
    let h = c.v(Op::VMaxF, &[x.h, lo]);
    let h = c.v(Op::VMinF, &[h, hi]);
    let same = c.cmp(Op::VEqF, h, x.h);
    D { h, l: c.sel(same, x.l, zero) }
}

fn scaled_exp(c: &mut Code, p: D, n: V) -> D {
    let one = constant(c, 1.0);
    let e = sum(c, one, p);
    let n = c.v(Op::VF2I, &[n]);
    let d = scale(c, e, n);
    finish(c, d.h, d)
}

pub(super) fn exp(c: &mut Code, x: D) -> D {
    let x = limited(c, x);
    let (p, n) = exp_parts(c, x);
    scaled_exp(c, p, n)
}

pub(super) fn expm1(c: &mut Code, x: D) -> D {
    let y = limited(c, x);
    let (p, n) = exp_parts(c, y);
    let e = scaled_exp(c, p, n);
    let one = constant(c, -1.0);
    let far = add(c, e, one);
    let zero = c.imm(0);
    let near = c.cmp(Op::VEqF, n, zero);
    let d = select(c, near, p, far);
    // Tiny arguments and zeros are their own results.
    let d = finish(c, x.h, d);
    let inf = c.imm_f(f32::INFINITY);
    let over = c.cmp(Op::VEqF, far.h, inf);
    let h = c.sel(over, inf, d.h);
    D { h, l: d.l }
}

/// `2 atanh(num / den)`.
fn atanh2(c: &mut Code, num: D, den: D) -> D {
    let s = quotient(c, num, den);
    let s2 = product(c, s, s);
    let coefficients: Vec<f64> = (1..11).map(|n| 2.0 / f64::from(2 * n + 1)).collect();
    let t = series(c, s2, &coefficients, 4);
    let t = product(c, s2, t);
    let t = product(c, s, t);
    let two = D { h: plus(c, s.h, s.h), l: plus(c, s.l, s.l) };
    sum(c, two, t)
}

/// `x = 2^n m` with `m` in about [0.7, 1.42], for positive finite `x`: `m - 1`, `m + 1` and `n` as a float.
fn log_parts(c: &mut Code, x: D) -> (D, D, V) {
    let (tiny, up, one) = (c.imm_f(2f32.powi(-90)), c.imm_f(2f32.powi(32)), c.imm_f(1.0));
    let small = c.cmp(Op::VLtF, x.h, tiny);
    let f = c.sel(small, up, one);
    let x = D { h: times(c, x.h, f), l: times(c, x.l, f) };
    let (root, s23, zero, lowered) = (c.imm_f(std::f32::consts::FRAC_1_SQRT_2), c.imm(23), c.imm(0), c.imm_f(-32.0));
    let e = c.v(Op::VSubI, &[x.h, root]);
    let e = c.v(Op::VSra, &[e, s23]);
    let minus_e = c.v(Op::VSubI, &[zero, e]);
    let m = scale(c, x, minus_e);
    let n = c.v(Op::VI2F, &[e]);
    let lowered = c.sel(small, lowered, zero);
    let n = plus(c, n, lowered);
    let (minus_one, plus_one) = (constant(c, -1.0), constant(c, 1.0));
    (sum(c, m, minus_one), sum(c, m, plus_one), n)
}

/// The logarithm's values at the ends: minus infinity at 0, none below, and `x` where it is infinite or NaN.
fn log_ends(c: &mut Code, x: V, d: D) -> D {
    let (zero, least, nan, inf) = (c.imm(0), c.imm_f(f32::NEG_INFINITY), c.imm_f(f32::NAN), c.imm_f(f32::INFINITY));
    let inside = c.cmp(Op::VLtF, x, inf);
    let positive = c.cmp(Op::VLtF, zero, x);
    let inside = c.m2(Op::MAnd, inside, positive);
    let at_zero = c.cmp(Op::VEqF, x, zero);
    let negative = c.cmp(Op::VLtF, x, zero);
    let end = c.sel(at_zero, least, x);
    let end = c.sel(negative, nan, end);
    D { h: c.sel(inside, d.h, end), l: c.sel(inside, d.l, zero) }
}

pub(super) fn log(c: &mut Code, x: D) -> D {
    let (num, den, n) = log_parts(c, x);
    let mut y = atanh2(c, num, den);
    for part in times_ln2(c, n) {
        y = sum(c, part, y);
    }
    log_ends(c, x.h, y)
}

pub(super) fn log1p(c: &mut Code, x: D) -> D {
    let one = constant(c, 1.0);
    let u = add(c, x, one);
    let (num, den, n) = log_parts(c, u);
    // Near zero x itself is the exact numerator.
    let (limit, mask, zero) = (c.imm_f(0.4), c.imm(0x7fff_ffff), c.imm(0));
    let a = c.v(Op::VAnd, &[x.h, mask]);
    let near = c.cmp(Op::VLtF, a, limit);
    let two = constant(c, 2.0);
    let x2 = sum(c, two, x);
    let (num, den) = (select(c, near, x, num), select(c, near, x2, den));
    let n = c.sel(near, zero, n);
    let mut y = atanh2(c, num, den);
    for part in times_ln2(c, n) {
        y = sum(c, part, y);
    }
    let y = log_ends(c, u.h, y);
    let at_zero = c.cmp(Op::VEqF, x.h, zero);
    D { h: c.sel(at_zero, x.h, y.h), l: c.sel(at_zero, zero, y.l) }
}

pub(super) fn logistic(c: &mut Code, x: D) -> D {
    let n = neg(c, x);
    let e = exp(c, n);
    let one = constant(c, 1.0);
    let d = add(c, one, e);
    div(c, one, d)
}

/// `tanh a = e / (e + 2)` with `e = expm1(2 a)`; from 20 on it is 1.
pub(super) fn tanh(c: &mut Code, x: D) -> D {
    let a = signed_like(c, x, x.h);
    let (end, zero) = (c.imm_f(20.0), c.imm(0));
    let h = c.v(Op::VMinF, &[a.h, end]);
    let same = c.cmp(Op::VEqF, h, a.h);
    let l = c.sel(same, a.l, zero);
    let twice = D { h: plus(c, h, h), l: plus(c, l, l) };
    let e = expm1(c, twice);
    let two = constant(c, 2.0);
    let d = add(c, e, two);
    let y = quotient(c, e, d);
    let y = finish(c, e.h, y);
    signed_like(c, y, x.h)
}

/// Newton's steps from the f32 root: `y - (y - a / y^2) / 3`.
pub(super) fn cbrt(c: &mut Code, x: D) -> D {
    let a = signed_like(c, x, x.h);
    // Numbers near the ends are brought to the middle by a power of 8.
    let (large, small) = (c.imm_f(2f32.powi(60)), c.imm_f(2f32.powi(-60)));
    let (large, small) = (c.cmp(Op::VLtF, large, a.h), c.cmp(Op::VLtF, a.h, small));
    let pick = |c: &mut Code, down: f32, up: f32| {
        let (down, up, one) = (c.imm_f(down), c.imm_f(up), c.imm_f(1.0));
        let f = c.sel(large, down, one);
        c.sel(small, up, f)
    };
    let f = pick(c, 2f32.powi(-66), 2f32.powi(90));
    let back = pick(c, 2f32.powi(22), 2f32.powi(-30));
    let s = D { h: times(c, a.h, f), l: times(c, a.l, f) };
    let y = super::super::float::cbrt(c, s.h);
    let mut y = single(c, y);
    let third = constant(c, -1.0 / 3.0);
    for _ in 0..2 {
        let y2 = product(c, y, y);
        let q = quotient(c, s, y2);
        let q = neg(c, q);
        let e = sum(c, y, q);
        let e = product(c, e, third);
        y = sum(c, y, e);
    }
    let y = D { h: times(c, y.h, back), l: times(c, y.l, back) };
    let y = finish(c, a.h, y);
    signed_like(c, y, x.h)
}

/// `x^y`; signs and special cases are those of the f32 power.
pub(super) fn pow(c: &mut Code, x: D, y: D) -> D {
    let a = signed_like(c, x, x.h);
    let l = log(c, a);
    let e = mul(c, y, l);
    let p = exp(c, e);
    let (zero, one, nan, inf) = (c.imm(0), c.imm_f(1.0), c.imm_f(f32::NAN), c.imm_f(f32::INFINITY));
    let whole_of = |c: &mut Code, d: D| -> M {
        let f = floor(c, d);
        let (h, l) = (c.cmp(Op::VEqF, f.h, d.h), c.cmp(Op::VEqF, f.l, d.l));
        c.m2(Op::MAnd, h, l)
    };
    let whole = whole_of(c, y);
    let half = c.imm_f(0.5);
    let h = D { h: times(c, y.h, half), l: times(c, y.l, half) };
    let even = whole_of(c, h);
    let odd = c.mnot(even);
    let odd = c.m2(Op::MAnd, odd, whole);
    let flipped = signed_like(c, p, x.h);
    let p = select(c, odd, flipped, p);
    let (neg_x, least) = (c.cmp(Op::VLtF, x.h, zero), c.imm_f(f32::NEG_INFINITY));
    let finite = c.cmp(Op::VLtF, least, x.h);
    let bad = c.mnot(whole);
    let bad = c.m2(Op::MAnd, bad, neg_x);
    let bad = c.m2(Op::MAnd, bad, finite);
    let unit_of = |c: &mut Code, d: D| -> M {
        let (h, l) = (c.cmp(Op::VEqF, d.h, one), c.cmp(Op::VEqF, d.l, zero));
        c.m2(Op::MAnd, h, l)
    };
    let (y0, x1, a1) = (c.cmp(Op::VEqF, y.h, zero), unit_of(c, x), unit_of(c, a));
    let ay = signed_like(c, y, y.h);
    let endless = c.cmp(Op::VEqF, ay.h, inf);
    let limit = c.m2(Op::MAnd, a1, endless);
    let unit = c.m2(Op::MOr, y0, x1);
    let unit = c.m2(Op::MOr, unit, limit);
    let h = c.sel(bad, nan, p.h);
    let h = c.sel(unit, one, h);
    let special = c.m2(Op::MOr, bad, unit);
    D { h, l: c.sel(special, zero, p.l) }
}

fn rounded(c: &mut Code, op: Op, x: D) -> D {
    let h = c.v(op, &[x.h]);
    let l = c.v(op, &[x.l]);
    let zero = c.imm(0);
    let whole = c.cmp(Op::VEqF, h, x.h);
    let l = c.sel(whole, l, zero);
    let d = fold(c, h, l);
    // A zero has the sign of what was rounded to it.
    let sign = c.imm(i32::MIN);
    let sign = c.v(Op::VAnd, &[x.h, sign]);
    let none = c.cmp(Op::VEqF, d.h, zero);
    let raw = c.sel(none, sign, x.h);
    finish(c, raw, d)
}

pub(super) fn floor(c: &mut Code, x: D) -> D {
    rounded(c, Op::VFloor, x)
}

pub(super) fn ceil(c: &mut Code, x: D) -> D {
    rounded(c, Op::VCeil, x)
}

fn truncated(c: &mut Code, x: D) -> D {
    let a = signed_like(c, x, x.h);
    let f = floor(c, a);
    signed_like(c, f, x.h)
}

/// What is left of `|x|` above its integer part, compared with one half: above, and equal.
fn compared_with_half(c: &mut Code, a: D, whole: D) -> (M, M) {
    let w = neg(c, whole);
    let rest = sum(c, a, w);
    let (half, zero) = (c.imm_f(0.5), c.imm(0));
    let (above, at) = (c.cmp(Op::VLtF, half, rest.h), c.cmp(Op::VEqF, rest.h, half));
    let (more, none) = (c.cmp(Op::VLtF, zero, rest.l), c.cmp(Op::VEqF, rest.l, zero));
    let more = c.m2(Op::MAnd, at, more);
    (c.m2(Op::MOr, above, more), c.m2(Op::MAnd, at, none))
}

fn round_with(c: &mut Code, x: D, ties: impl Fn(&mut Code, D, M) -> M) -> D {
    let a = signed_like(c, x, x.h);
    let whole = floor(c, a);
    let (above, tie) = compared_with_half(c, a, whole);
    let tie = ties(c, whole, tie);
    let up = c.m2(Op::MOr, above, tie);
    let one = constant(c, 1.0);
    let next = add(c, whole, one);
    let y = select(c, up, next, whole);
    signed_like(c, y, x.h)
}

pub(super) fn round_away(c: &mut Code, x: D) -> D {
    round_with(c, x, |_, _, tie| tie)
}

pub(super) fn round_even(c: &mut Code, x: D) -> D {
    round_with(c, x, |c, whole, tie| {
        let half = c.imm_f(0.5);
        let h = D { h: times(c, whole.h, half), l: times(c, whole.l, half) };
        let f = floor(c, h);
        let (p, q) = (c.cmp(Op::VNeF, f.h, h.h), c.cmp(Op::VNeF, f.l, h.l));
        let odd = c.m2(Op::MOr, p, q);
        c.m2(Op::MAnd, tie, odd)
    })
}

/// `x - y trunc(x / y)`, corrected by one; exact for quotients below 2^40 or so.
pub(super) fn remainder(c: &mut Code, x: D, y: D) -> D {
    let (ax, ay) = (signed_like(c, x, x.h), signed_like(c, y, y.h));
    let q = div(c, ax, ay);
    let q = truncated(c, q);
    // The products of all parts are exact, and so is what is left of each.
    let mut r = ax;
    for part in [q.h, q.l] {
        for y in [ay.h, ay.l] {
            let p = two_product(c, y, part);
            let p = neg(c, p);
            r = sum(c, r, p);
        }
    }
    let zero = c.imm(0);
    let low = c.cmp(Op::VLtF, r.h, zero);
    let up = sum(c, r, ay);
    r = select(c, low, up, r);
    let less = |c: &mut Code, a: D, b: D| {
        let (lt, eq, l) = (c.cmp(Op::VLtF, a.h, b.h), c.cmp(Op::VEqF, a.h, b.h), c.cmp(Op::VLtF, a.l, b.l));
        let l = c.m2(Op::MAnd, eq, l);
        c.m2(Op::MOr, lt, l)
    };
    let inside = less(c, r, ay);
    let n = neg(c, ay);
    let down = sum(c, r, n);
    r = select(c, inside, r, down);
    let small = less(c, ax, ay);
    r = select(c, small, ax, r);
    let (inf, nan) = (c.imm_f(f32::INFINITY), c.imm_f(f32::NAN));
    let (by_zero, endless) = (c.cmp(Op::VEqF, ay.h, zero), c.cmp(Op::VEqF, ax.h, inf));
    let (xn, yn) = (c.cmp(Op::VNeF, x.h, x.h), c.cmp(Op::VNeF, y.h, y.h));
    let mut bad = c.m2(Op::MOr, by_zero, endless);
    for m in [xn, yn] {
        bad = c.m2(Op::MOr, bad, m);
    }
    let r = D { h: c.sel(bad, nan, r.h), l: c.sel(bad, zero, r.l) };
    signed_like(c, r, x.h)
}
