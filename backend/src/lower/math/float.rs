//! Float operations on f32 registers.

use std::f32::consts::{LN_2, LOG2_E};

use tpusim_isa::op::Op;

use super::super::vcode::{Code, V};
use super::*;

pub(super) fn float(c: &mut Code, op: MapOp, a: &[V]) -> V {
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

pub(super) fn abs(c: &mut Code, x: V) -> V {
    let m = c.imm(0x7fff_ffff);
    c.v(Op::VAnd, &[x, m])
}

pub(super) fn copysign(c: &mut Code, magnitude: V, sign: V) -> V {
    let m = c.imm(i32::MIN);
    let s = c.v(Op::VAnd, &[sign, m]);
    c.v(Op::VOr, &[magnitude, s])
}

pub(super) fn exp(c: &mut Code, x: V) -> V {
    let k = c.imm_f(LOG2_E);
    let t = c.v(Op::VMulF, &[x, k]);
    c.eup(Op::EPow2, t)
}

pub(super) fn log(c: &mut Code, x: V) -> V {
    let k = c.imm_f(LN_2);
    let l = c.eup(Op::ELog2, x);
    c.v(Op::VMulF, &[l, k])
}

/// `log(u) x / (u - 1)` with `u = 1 + x` cancels the rounding of `u`.
pub(super) fn log1p(c: &mut Code, x: V) -> V {
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

pub(super) fn cbrt(c: &mut Code, x: V) -> V {
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

pub(super) fn trunc(c: &mut Code, x: V) -> V {
    let z = c.imm(0);
    let neg = c.cmp(Op::VLtF, x, z);
    let (f, u) = (c.v(Op::VFloor, &[x]), c.v(Op::VCeil, &[x]));
    c.sel(neg, u, f)
}

pub(super) fn float_rem(c: &mut Code, x: V, y: V) -> V {
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

pub(super) fn pow(c: &mut Code, x: V, y: V) -> V {
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
pub(super) fn poly(c: &mut Code, x: V, coefficients: &[f32]) -> V {
    let mut acc = c.imm_f(coefficients[0]);
    for &k in &coefficients[1..] {
        let k = c.imm_f(k);
        let m = c.v(Op::VMulF, &[acc, x]);
        acc = c.v(Op::VAddF, &[m, k]);
    }
    acc
}

/// Sine and cosine: Cody-Waite reduction by pi/2 in three parts, Taylor polynomials on [-pi/4, pi/4].
pub(super) fn sincos(c: &mut Code, x: V) -> (V, V) {
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
    let ps = poly(c, r2, &[1.0 / 362_880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0]);
    let ps = c.v(Op::VMulF, &[ps, r2]);
    let ps = c.v(Op::VMulF, &[ps, r]);
    let s = c.v(Op::VAddF, &[r, ps]);
    let pc = poly(c, r2, &[1.0 / 40_320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5]);
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
pub(super) fn atan2(c: &mut Code, y: V, x: V) -> V {
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
