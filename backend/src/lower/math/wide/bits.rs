//! Double-floats from and to the bits of doubles, and integers.

use tpusim_isa::op::Op;

use super::super::super::vcode::{Code, V};
use super::double::{D, finish, fold, signed_like};
use super::integer::{self, L, from_f32};

/// `x * 2^n` for an integer `n` between -250 and 250.
pub(super) fn scale(c: &mut Code, x: D, n: V) -> D {
    let (one, bias, shift) = (c.imm(1), c.imm(127), c.imm(23));
    let half = c.v(Op::VSra, &[n, one]);
    let rest = c.v(Op::VSubI, &[n, half]);
    let mut out = x;
    for part in [half, rest] {
        let e = c.v(Op::VAddI, &[part, bias]);
        let f = c.v(Op::VShl, &[e, shift]);
        out = D { h: c.v(Op::VMulF, &[out.h, f]), l: c.v(Op::VMulF, &[out.l, f]) };
    }
    out
}

/// The fraction is cut into its leading 24 bits, 24 more and the last five, each an exact f32; the sum is rounded once.
pub(super) fn from_bits(c: &mut Code, x: L) -> D {
    let and = |c: &mut Code, v: V, m: i32| {
        let m = c.imm(m);
        c.v(Op::VAnd, &[v, m])
    };
    let by = |c: &mut Code, op: Op, v: V, s: i32| {
        let s = c.imm(s);
        c.v(op, &[v, s])
    };
    let e = by(c, Op::VShr, x.h, 20);
    let e = and(c, e, 0x7ff);
    let fraction = and(c, x.h, 0xf_ffff);
    let top = by(c, Op::VShl, fraction, 3);
    let next = by(c, Op::VShr, x.l, 29);
    let top = c.v(Op::VOr, &[top, next]);
    let top = by(c, Op::VOr, top, 1 << 23);
    let (middle, low) = (and(c, x.l, 0x1fff_ffe0), and(c, x.l, 31));
    let [t, m, l] = [top, middle, low].map(|v| c.v(Op::VU2F, &[v]));
    let k = c.imm_f(1.0 / 536_870_912.0);
    let (m, l) = (c.v(Op::VMulF, &[m, k]), c.v(Op::VMulF, &[l, k]));
    let s = fold(c, t, m);
    let d = D { h: s.h, l: c.v(Op::VAddF, &[s.l, l]) };
    let bias = c.imm(1023 + 23);
    let n = c.v(Op::VSubI, &[e, bias]);
    let (least, most) = (c.imm(-250), c.imm(200));
    let n = c.v(Op::VMaxI, &[n, least]);
    let n = c.v(Op::VMinI, &[n, most]);
    let d = scale(c, d, n);
    // Subnormal doubles are far below f32; the largest exponent is that of infinity and NaN.
    let (zero, special) = (c.imm(0), c.imm(0x7ff));
    let tiny = c.cmp(Op::VEqI, e, zero);
    let special = c.cmp(Op::VEqI, e, special);
    let rest = c.v(Op::VOr, &[fraction, x.l]);
    let infinite = c.cmp(Op::VEqI, rest, zero);
    let (inf, nan) = (c.imm_f(f32::INFINITY), c.imm_f(f32::NAN));
    let end = c.sel(infinite, inf, nan);
    let h = c.sel(tiny, zero, d.h);
    let h = c.sel(special, end, h);
    let d = finish(c, h, D { h, l: d.l });
    signed_like(c, d, x.h)
}

/// The bits of the first part as a double, then the second added to them as a number of last places.
pub(super) fn to_bits(c: &mut Code, x: D) -> L {
    let zero = c.imm(0);
    let sign = c.imm(i32::MIN);
    let sign = c.v(Op::VAnd, &[x.h, sign]);
    let a = D { h: c.v(Op::VXor, &[x.h, sign]), l: c.v(Op::VXor, &[x.l, sign]) };
    // Subnormal f32 are made normal first.
    let normal = c.imm_f(f32::MIN_POSITIVE);
    let small = c.cmp(Op::VLtF, a.h, normal);
    let (up, one) = (c.imm_f(16_777_216.0), c.imm_f(1.0));
    let f = c.sel(small, up, one);
    let a = D { h: c.v(Op::VMulF, &[a.h, f]), l: c.v(Op::VMulF, &[a.l, f]) };
    let (down, s23, fraction) = (c.imm(24), c.imm(23), c.imm(0x7f_ffff));
    let lowered = c.sel(small, down, zero);
    let e = c.v(Op::VShr, &[a.h, s23]);
    let e = c.v(Op::VSubI, &[e, lowered]);
    let m = c.v(Op::VAnd, &[a.h, fraction]);
    // Below a power of two the places are half as large.
    let (whole, negative) = (c.cmp(Op::VEqI, m, zero), c.cmp(Op::VLtF, a.l, zero));
    let finer = c.m2(Op::MAnd, whole, negative);
    // In units of the last place: times 2^(52 - (e - 127)), the made-up 24 of subnormals taken back.
    let (p, q) = (c.imm(127 + 53), c.imm(127 + 52));
    let n = c.sel(finer, p, q);
    let n = c.v(Op::VSubI, &[n, e]);
    let n = c.v(Op::VSubI, &[n, lowered]);
    let units = scale(c, D { h: a.l, l: a.l }, n).h;
    let units = c.v(Op::VRne, &[units]);
    let units = c.v(Op::VF2I, &[units]);
    let s31 = c.imm(31);
    let units = L { l: units, h: c.v(Op::VSra, &[units, s31]) };
    let (s20, s29, s3, bias) = (c.imm(20), c.imm(29), c.imm(3), c.imm(1023 - 127));
    let e64 = c.v(Op::VAddI, &[e, bias]);
    let e64 = c.v(Op::VShl, &[e64, s20]);
    let high = c.v(Op::VShr, &[m, s3]);
    let base = L { l: c.v(Op::VShl, &[m, s29]), h: c.v(Op::VOr, &[e64, high]) };
    let sum = integer::add(c, base, units);
    let is_zero = c.cmp(Op::VEqF, a.h, zero);
    let (inf, bits, quiet) = (c.imm_f(f32::INFINITY), c.imm(0x7ff0_0000), c.imm(0x7ff8_0000));
    let infinite = c.cmp(Op::VEqF, a.h, inf);
    let nan = c.cmp(Op::VNeF, a.h, a.h);
    let none = c.m2(Op::MOr, is_zero, infinite);
    let none = c.m2(Op::MOr, none, nan);
    let l = c.sel(none, zero, sum.l);
    let h = c.sel(is_zero, zero, sum.h);
    let h = c.sel(infinite, bits, h);
    let h = c.sel(nan, quiet, h);
    L { l, h: c.v(Op::VOr, &[h, sign]) }
}

/// Four pieces of 16 bits, each an exact f32.
pub(super) fn from_int(c: &mut Code, signed: bool, x: L) -> D {
    let m = if signed { integer::abs(c, x) } else { x };
    let (low, s16) = (c.imm(0xffff), c.imm(16));
    let mut pieces = Vec::new();
    for w in [m.h, m.l] {
        let (p, q) = (c.v(Op::VShr, &[w, s16]), c.v(Op::VAnd, &[w, low]));
        pieces.extend([c.v(Op::VU2F, &[p]), c.v(Op::VU2F, &[q])]);
    }
    for (p, k) in pieces.iter_mut().zip([2f32.powi(48), 2f32.powi(32), 65536.0]) {
        let k = c.imm_f(k);
        *p = c.v(Op::VMulF, &[*p, k]);
    }
    let (high, low) = (fold(c, pieces[0], pieces[1]), fold(c, pieces[2], pieces[3]));
    let d = super::double::add(c, high, low);
    if !signed {
        return d;
    }
    signed_like(c, d, x.h)
}

/// Towards zero, saturating, NaN to 0.
pub(super) fn to_int(c: &mut Code, signed: bool, x: D) -> L {
    let zero = c.imm(0);
    let a = signed_like(c, x, x.h);
    let t = super::elementary::floor(c, a);
    let high = from_f32(c, false, t.h);
    let low = from_f32(c, true, t.l);
    let limit = c.imm_f(if signed { 2f32.powi(63) } else { 2f32.powi(64) });
    let at = c.cmp(Op::VEqF, t.h, limit);
    // Just below the limit the first part is the limit, which unsigned words cannot hold.
    let none = integer::constant(c, 0);
    let high = if signed { high } else { integer::select(c, at, none, high) };
    let sum = integer::add(c, high, low);
    let (reached, under) = (c.cmp(Op::VLeF, limit, t.h), c.cmp(Op::VLtF, t.l, zero));
    let inside = c.m2(Op::MAnd, at, under);
    let inside = c.mnot(inside);
    let over = c.m2(Op::MAnd, reached, inside);
    let negative = c.cmp(Op::VLtF, x.h, zero);
    let most = integer::constant(c, if signed { i64::MAX } else { -1 });
    let least = integer::constant(c, if signed { i64::MIN } else { 0 });
    let up = integer::select(c, over, most, sum);
    let down = if signed { integer::neg(c, sum) } else { least };
    let down = integer::select(c, over, least, down);
    let out = integer::select(c, negative, down, up);
    let nan = c.cmp(Op::VNeF, x.h, x.h);
    integer::select(c, nan, none, out)
}

/// The first part moved towards zero where the second points there, with an odd last bit where the second is not zero.
pub(super) fn to_f32_odd(c: &mut Code, x: D) -> V {
    let (zero, one) = (c.imm(0), c.imm(1));
    let exact = c.cmp(Op::VEqF, x.l, zero);
    let differ = c.v(Op::VXor, &[x.h, x.l]);
    let inwards = c.cmp(Op::VLtI, differ, zero);
    let less = c.v(Op::VSubI, &[x.h, one]);
    let t = c.sel(inwards, less, x.h);
    let t = c.v(Op::VOr, &[t, one]);
    c.sel(exact, x.h, t)
}
