//! Sine, cosine and their kin of double-floats.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

use tpusim_isa::op::Op;

use super::super::super::vcode::{Code, V};
use super::super::float;
use super::double::*;
use super::elementary::series;

/// What pi/2 has beyond its double.
const FRAC_PI_2_REST: f64 = 6.123_233_995_736_766e-17;

/// Sine and cosine: the argument less its multiple of pi/2, that in three f32 of 72 bits, then two series on [-pi/4, pi/4].
pub(super) fn sincos(c: &mut Code, x: D) -> (D, D) {
    let k = c.imm_f(FRAC_2_PI as f32);
    let n = times(c, x.h, k);
    let n = c.v(Op::VRne, &[n]);
    let first = FRAC_PI_2 as f32;
    let second = (FRAC_PI_2 - f64::from(first)) as f32;
    let third = (FRAC_PI_2 - f64::from(first) - f64::from(second) + FRAC_PI_2_REST) as f32;
    let mut r = x;
    for part in [first, second, third] {
        let k = c.imm_f(part);
        let p = two_product(c, n, k);
        let p = neg(c, p);
        r = sum(c, r, p);
    }
    let r2 = product(c, r, r);
    // Coefficients of r^2: (-1)^i / (2 i + odd)!
    let coefficients = |odd: i32| -> Vec<f64> {
        let mut v = Vec::new();
        let mut k = 1.0;
        for i in 1..10 {
            k /= -f64::from((2 * i + odd) * (2 * i + odd - 1));
            v.push(k);
        }
        v
    };
    let s = series(c, r2, &coefficients(1), 4);
    let s = product(c, s, r2);
    let s = product(c, s, r);
    let s = sum(c, r, s);
    let k = series(c, r2, &coefficients(0), 4);
    let k = product(c, k, r2);
    let one = constant(c, 1.0);
    let k = sum(c, one, k);
    let q = c.v(Op::VF2I, &[n]);
    let (i1, i2, zero, s30) = (c.imm(1), c.imm(2), c.imm(0), c.imm(30));
    let odd = c.v(Op::VAnd, &[q, i1]);
    let odd = c.cmp(Op::VNeI, odd, zero);
    let (sin, cos) = (select(c, odd, k, s), select(c, odd, s, k));
    let flip = |c: &mut Code, d: D, q: V| {
        let b = c.v(Op::VAnd, &[q, i2]);
        let b = c.v(Op::VShl, &[b, s30]);
        signed_like(c, d, b)
    };
    let sin = flip(c, sin, q);
    let q1 = c.v(Op::VAddI, &[q, i1]);
    let cos = flip(c, cos, q1);
    // Zero keeps its sign; infinity has no sine.
    let sin = finish(c, sin.h, sin);
    let at_zero = c.cmp(Op::VEqF, x.h, zero);
    let sin = D { h: c.sel(at_zero, x.h, sin.h), l: sin.l };
    (sin, finish(c, cos.h, cos))
}

pub(super) fn tan(c: &mut Code, x: D) -> D {
    let (s, k) = sincos(c, x);
    div(c, s, k)
}

/// The f32 angle, corrected by what the point has left when it is turned back by it.
pub(super) fn atan2(c: &mut Code, y: D, x: D) -> D {
    let (inf, zero, one, mask) = (c.imm_f(f32::INFINITY), c.imm(0), c.imm_f(1.0), c.imm(0x7fff_ffff));
    let (ax, ay) = (c.v(Op::VAnd, &[x.h, mask]), c.v(Op::VAnd, &[y.h, mask]));
    // Infinite points become those at distance 1 in the same direction, and the origin lies on the x axis.
    let (ix, iy) = (c.cmp(Op::VEqF, ax, inf), c.cmp(Op::VEqF, ay, inf));
    let far = c.m2(Op::MOr, ix, iy);
    let big = c.v(Op::VMaxF, &[ax, ay]);
    let origin = c.cmp(Op::VEqF, big, zero);
    let ones = c.m2(Op::MOr, ix, origin);
    let place = |c: &mut Code, d: D, unit| {
        let magnitude = D { h: c.sel(unit, one, zero), l: zero };
        let moved = signed_like(c, magnitude, d.h);
        let special = c.m2(Op::MOr, far, origin);
        select(c, special, moved, d)
    };
    let (given_x, given_y) = (x.h, y.h);
    let (x, y) = (place(c, x, ones), place(c, y, iy));
    // Away from the ends of the range, by a power of two.
    let (large, small) = (c.imm_f(2f32.powi(60)), c.imm_f(2f32.powi(-60)));
    let (down, up) = (c.imm_f(2f32.powi(-66)), c.imm_f(2f32.powi(66)));
    let (large, small) = (c.cmp(Op::VLtF, large, big), c.cmp(Op::VLtF, big, small));
    let f = c.sel(large, down, one);
    let f = c.sel(small, up, f);
    let plain = c.m2(Op::MOr, far, origin);
    let f = c.sel(plain, one, f);
    let [x, y] = [x, y].map(|d| D { h: times(c, d.h, f), l: times(c, d.l, f) });
    let t = float::atan2(c, y.h, x.h);
    let angle = single(c, t);
    let (s, k) = sincos(c, angle);
    let (yk, xs) = (product(c, y, k), product(c, x, s));
    let xs = neg(c, xs);
    let num = sum(c, yk, xs);
    let (xk, ys) = (times(c, x.h, k.h), times(c, y.h, s.h));
    let den = plus(c, xk, ys);
    let r = c.eup(Op::ERcp, den);
    let turn = times(c, num.h, r);
    let d = two_sum(c, t, turn);
    let d = finish(c, t, d);
    let (nan_x, nan_y) = (c.cmp(Op::VNeF, given_x, given_x), c.cmp(Op::VNeF, given_y, given_y));
    let h = c.sel(nan_x, given_x, d.h);
    D { h: c.sel(nan_y, given_y, h), l: d.l }
}
