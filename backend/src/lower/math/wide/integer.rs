//! 64-bit integers as two words.

use tpusim_isa::op::Op;

use super::super::super::vcode::{Code, M, V};

/// Low and high word.
#[derive(Clone, Copy, Debug)]
pub(super) struct L {
    pub l: V,
    pub h: V,
}

/// The same words in all elements.
pub(super) fn constant(c: &mut Code, v: i64) -> L {
    L { l: c.imm(v as i32), h: c.imm((v >> 32) as i32) }
}

pub(super) fn select(c: &mut Code, m: M, a: L, b: L) -> L {
    L { l: c.sel(m, a.l, b.l), h: c.sel(m, a.h, b.h) }
}

pub(super) fn add(c: &mut Code, a: L, b: L) -> L {
    let l = c.v(Op::VAddI, &[a.l, b.l]);
    let carry = c.cmp(Op::VLtU, l, a.l);
    let h = c.v(Op::VAddI, &[a.h, b.h]);
    let one = c.imm(1);
    let more = c.v(Op::VAddI, &[h, one]);
    L { l, h: c.sel(carry, more, h) }
}

pub(super) fn sub(c: &mut Code, a: L, b: L) -> L {
    let l = c.v(Op::VSubI, &[a.l, b.l]);
    let borrow = c.cmp(Op::VLtU, a.l, b.l);
    let h = c.v(Op::VSubI, &[a.h, b.h]);
    let one = c.imm(1);
    let less = c.v(Op::VSubI, &[h, one]);
    L { l, h: c.sel(borrow, less, h) }
}

pub(super) fn neg(c: &mut Code, a: L) -> L {
    let zero = constant(c, 0);
    sub(c, zero, a)
}

pub(super) fn mul(c: &mut Code, a: L, b: L) -> L {
    let l = c.v(Op::VMulI, &[a.l, b.l]);
    let h = c.v(Op::VMulHiU, &[a.l, b.l]);
    let (p, q) = (c.v(Op::VMulI, &[a.l, b.h]), c.v(Op::VMulI, &[a.h, b.l]));
    let h = c.v(Op::VAddI, &[h, p]);
    L { l, h: c.v(Op::VAddI, &[h, q]) }
}

/// Whether `a < b` as unsigned numbers.
pub(super) fn below(c: &mut Code, a: L, b: L) -> M {
    let (high, same) = (c.cmp(Op::VLtU, a.h, b.h), c.cmp(Op::VEqI, a.h, b.h));
    let low = c.cmp(Op::VLtU, a.l, b.l);
    let low = c.m2(Op::MAnd, same, low);
    c.m2(Op::MOr, high, low)
}

pub(super) fn is_zero(c: &mut Code, a: L) -> M {
    let both = c.v(Op::VOr, &[a.l, a.h]);
    let zero = c.imm(0);
    c.cmp(Op::VEqI, both, zero)
}

pub(super) fn is_negative(c: &mut Code, a: L) -> M {
    let zero = c.imm(0);
    c.cmp(Op::VLtI, a.h, zero)
}

pub(super) fn abs(c: &mut Code, a: L) -> L {
    let n = neg(c, a);
    let negative = is_negative(c, a);
    select(c, negative, n, a)
}

/// `a << s`; shifts of words by 32 and more (and by negative amounts, which are huge) give 0, so one formula serves all amounts.
pub(super) fn shl(c: &mut Code, a: L, s: V) -> L {
    let w = c.imm(32);
    let (up, past) = (c.v(Op::VSubI, &[w, s]), c.v(Op::VSubI, &[s, w]));
    let (h, carried, moved) = (c.v(Op::VShl, &[a.h, s]), c.v(Op::VShr, &[a.l, up]), c.v(Op::VShl, &[a.l, past]));
    let h = c.v(Op::VOr, &[h, carried]);
    L { l: c.v(Op::VShl, &[a.l, s]), h: c.v(Op::VOr, &[h, moved]) }
}

/// `a >> s`, zeros coming in.
pub(super) fn shr(c: &mut Code, a: L, s: V) -> L {
    let w = c.imm(32);
    let (up, past) = (c.v(Op::VSubI, &[w, s]), c.v(Op::VSubI, &[s, w]));
    let (l, carried, moved) = (c.v(Op::VShr, &[a.l, s]), c.v(Op::VShl, &[a.h, up]), c.v(Op::VShr, &[a.h, past]));
    let l = c.v(Op::VOr, &[l, carried]);
    L { l: c.v(Op::VOr, &[l, moved]), h: c.v(Op::VShr, &[a.h, s]) }
}

/// The amount, or 64 if it has a high word.
fn amount(c: &mut Code, s: L) -> V {
    let (w, zero) = (c.imm(64), c.imm(0));
    let small = c.v(Op::VMinU, &[s.l, w]);
    let low = c.cmp(Op::VEqI, s.h, zero);
    c.sel(low, small, w)
}

/// A shift past the width gives 0.
pub(super) fn shift(c: &mut Code, a: L, s: L, by: fn(&mut Code, L, V) -> L) -> L {
    let s = amount(c, s);
    by(c, a, s)
}

/// A shift past the width gives the sign.
pub(super) fn shift_arith(c: &mut Code, a: L, s: L) -> L {
    let s = amount(c, s);
    let w = c.imm(32);
    let (up, past) = (c.v(Op::VSubI, &[w, s]), c.v(Op::VSubI, &[s, w]));
    let (l, carried, moved) = (c.v(Op::VShr, &[a.l, s]), c.v(Op::VShl, &[a.h, up]), c.v(Op::VSra, &[a.h, past]));
    let near = c.v(Op::VOr, &[l, carried]);
    let inside = c.cmp(Op::VLtU, s, w);
    L { l: c.sel(inside, near, moved), h: c.v(Op::VSra, &[a.h, s]) }
}

/// About `a` as f32, within 2^-23.
fn rough(c: &mut Code, a: L) -> V {
    let (h, l) = (c.v(Op::VU2F, &[a.h]), c.v(Op::VU2F, &[a.l]));
    let k = c.imm_f(4_294_967_296.0);
    let h = c.v(Op::VMulF, &[h, k]);
    c.v(Op::VAddF, &[h, l])
}

/// The integer part of `x`, not negative and below 2^64.
fn whole(c: &mut Code, x: V) -> L {
    let (down, up) = (c.imm_f(1.0 / 4_294_967_296.0), c.imm_f(4_294_967_296.0));
    let h = c.v(Op::VMulF, &[x, down]);
    let h = c.v(Op::VF2U, &[h]);
    let f = c.v(Op::VU2F, &[h]);
    let f = c.v(Op::VMulF, &[f, up]);
    let rest = c.v(Op::VSubF, &[x, f]);
    L { l: c.v(Op::VF2U, &[rest]), h }
}

/// Unsigned division: four float estimates that never exceed what is left of the quotient, each 19 bits of it, then two corrections
/// by one: about 150 instructions.
fn udivide(c: &mut Code, n: L, d: L) -> (L, L) {
    let df = rough(c, d);
    let rcp = c.eup(Op::ERcp, df);
    let below_one = c.imm_f(1.0 - 1.0 / (1u32 << 20) as f32);
    let rcp = c.v(Op::VMulF, &[rcp, below_one]);
    let (mut q, mut r) = (constant(c, 0), n);
    for _ in 0..4 {
        let rf = rough(c, r);
        let e = c.v(Op::VMulF, &[rf, rcp]);
        let e = whole(c, e);
        q = add(c, q, e);
        let p = mul(c, e, d);
        r = sub(c, r, p);
    }
    let one = constant(c, 1);
    for _ in 0..2 {
        let less = below(c, r, d);
        let (up, rest) = (add(c, q, one), sub(c, r, d));
        q = select(c, less, q, up);
        r = select(c, less, r, rest);
    }
    (q, r)
}

/// Quotient and remainder. `x / 0` is all ones, `x % 0` is `x`; the least number by -1 wraps.
pub(super) fn divide(c: &mut Code, signed: bool, n: L, d: L) -> (L, L) {
    let by_zero = is_zero(c, d);
    let ones = constant(c, -1);
    let (q, r) = if signed {
        let (an, ad) = (abs(c, n), abs(c, d));
        let (q, r) = udivide(c, an, ad);
        let (mq, mr) = (neg(c, q), neg(c, r));
        let (n_neg, d_neg) = (is_negative(c, n), is_negative(c, d));
        let q_neg = c.m2(Op::MXor, n_neg, d_neg);
        (select(c, q_neg, mq, q), select(c, n_neg, mr, r))
    } else {
        udivide(c, n, d)
    };
    (select(c, by_zero, ones, q), select(c, by_zero, n, r))
}

/// `x^y` by repeated squaring; a negative exponent gives 1, -1 or 0 as the exact rational truncates.
pub(super) fn power(c: &mut Code, signed: bool, x: L, y: L) -> L {
    let one = constant(c, 1);
    let (mut acc, mut base) = (one, x);
    for bit in 0..64 {
        let word = if bit < 32 { y.l } else { y.h };
        let mask = c.imm((1u32 << (bit % 32)) as i32);
        let (b, zero) = (c.v(Op::VAnd, &[word, mask]), c.imm(0));
        let off = c.cmp(Op::VEqI, b, zero);
        let product = mul(c, acc, base);
        acc = select(c, off, acc, product);
        base = mul(c, base, base);
    }
    if !signed {
        return acc;
    }
    let (zero, minus) = (constant(c, 0), constant(c, -1));
    let equal = |c: &mut Code, a: L, b: L| {
        let (l, h) = (c.cmp(Op::VEqI, a.l, b.l), c.cmp(Op::VEqI, a.h, b.h));
        c.m2(Op::MAnd, l, h)
    };
    let (is_one, is_minus) = (equal(c, x, one), equal(c, x, minus));
    let odd = c.v(Op::VAnd, &[y.l, one.l]);
    let odd = c.cmp(Op::VEqI, odd, one.l);
    let unit = select(c, odd, minus, one);
    let other = select(c, is_minus, unit, zero);
    let other = select(c, is_one, one, other);
    let negative = is_negative(c, y);
    select(c, negative, other, acc)
}

/// To f32: the magnitude's leading 32 bits, what is cut off kept as a last bit, are rounded by the unit's own conversion.
pub(super) fn to_f32(c: &mut Code, signed: bool, x: L, odd: bool) -> V {
    let m = if signed { abs(c, x) } else { x };
    let (h, l, w, zero) = (c.v(Op::VClz, &[m.h]), c.v(Op::VClz, &[m.l]), c.imm(32), c.imm(0));
    let l = c.v(Op::VAddI, &[l, w]);
    let empty = c.cmp(Op::VEqI, m.h, zero);
    let n = c.sel(empty, l, h);
    let s = shl(c, m, n);
    let (top, cut) = if odd {
        // 24 bits are kept as they are.
        let (keep, drop) = (c.imm(!0xff), c.imm(0xff));
        let cut = c.v(Op::VAnd, &[s.h, drop]);
        (c.v(Op::VAnd, &[s.h, keep]), c.v(Op::VOr, &[cut, s.l]))
    } else {
        (s.h, s.l)
    };
    let last = c.imm(if odd { 0x100 } else { 1 });
    let exact = c.cmp(Op::VEqI, cut, zero);
    let last = c.sel(exact, zero, last);
    let top = c.v(Op::VOr, &[top, last]);
    let f = c.v(Op::VU2F, &[top]);
    // Times 2^(32 - n).
    let (bias, shift) = (c.imm(127 + 32), c.imm(23));
    let e = c.v(Op::VSubI, &[bias, n]);
    let e = c.v(Op::VShl, &[e, shift]);
    let f = c.v(Op::VMulF, &[f, e]);
    if !signed {
        return f;
    }
    let sign = c.imm(i32::MIN);
    let sign = c.v(Op::VAnd, &[x.h, sign]);
    c.v(Op::VOr, &[f, sign])
}

/// From f32: towards zero, saturating, NaN to 0.
pub(super) fn from_f32(c: &mut Code, signed: bool, x: V) -> L {
    let zero = c.imm(0);
    if !signed {
        let x = c.v(Op::VMaxF, &[x, zero]);
        return whole(c, x);
    }
    let m = c.imm(0x7fff_ffff);
    let a = c.v(Op::VAnd, &[x, m]);
    let w = whole(c, a);
    let top = c.imm_f(9_223_372_036_854_775_808.0);
    let over = c.cmp(Op::VLeF, top, a);
    let (most, least) = (constant(c, i64::MAX), constant(c, i64::MIN));
    let (up, down) = (select(c, over, most, w), neg(c, w));
    let down = select(c, over, least, down);
    let negative = c.cmp(Op::VLtF, x, zero);
    select(c, negative, down, up)
}
