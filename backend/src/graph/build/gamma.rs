//! The gamma function's logarithm and its derivative, a Bessel function, neighbours of floats, and high halves of products.

use std::f32::consts::PI;

use super::super::NodeId;
use super::special::Chain;
use super::*;
use crate::lower::math::{Direction, MapOp};

/// Lanczos' series for g = 7: `c0 + c1 / (z + 1) + c2 / (z + 2) + ...`.
const LANCZOS: [f32; 9] =
    [1.0, 676.520_4, -1_259.139_2, 771.323_4, -176.615_02, 12.507_343, -1.385_711e-1, 9.984_369e-6, 1.505_632_7e-7];

/// Chebyshev series of `i1e(x) / x` on [0, 8], in `x / 2 - 2`.
const BESSEL_NEAR: [f32; 17] = [
    9.381_537e-9,
    -4.445_059e-8,
    2.003_294_8e-7,
    -8.568_72e-7,
    3.470_251_4e-6,
    -1.327_316_4e-5,
    4.781_565e-5,
    -1.617_608_2e-4,
    5.122_86e-4,
    -1.513_572_5e-3,
    4.156_423e-3,
    -1.056_408_5e-2,
    2.472_644_9e-2,
    -5.294_598e-2,
    1.026_436_6e-1,
    -1.764_165_2e-1,
    2.525_872e-1,
];

/// Chebyshev series of `i1e(x) sqrt(x)` beyond 8, in `32 / x - 2`.
const BESSEL_FAR: [f32; 7] =
    [-3.835_380_5e-9, -2.631_468_7e-8, -2.512_236e-7, -3.882_564_7e-6, -1.105_889_4e-4, -9.761_097e-3, 7.785_762e-1];

impl Chain<'_, '_> {
    fn add(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.map(MapOp::Add, &[a, b])
    }

    fn sub(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.map(MapOp::Sub, &[a, b])
    }

    fn mul(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.map(MapOp::Mul, &[a, b])
    }

    fn div(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.map(MapOp::Div, &[a, b])
    }

    /// The reflected argument `z`, so that the function of `z + 1` is wanted; Lanczos' sum there and its derivative; `z + 7.5`, and the
    /// logarithm of that.
    fn lanczos(&mut self, x: NodeId) -> [NodeId; 5] {
        let minus = self.map(MapOp::Neg, &[x]);
        let less = self.with(MapOp::Sub, x, 1.0);
        let z = self.choose(x, Direction::Lt, 0.5, minus, less);
        let (mut sum, mut slope) = (self.value(LANCZOS[0]), self.value(0.0));
        for (i, &k) in LANCZOS.iter().enumerate().skip(1) {
            let (d, k) = (self.with(MapOp::Add, z, i as f32), self.value(k));
            let q = self.div(k, d);
            sum = self.add(sum, q);
            let q = self.div(q, d);
            slope = self.sub(slope, q);
        }
        let t = self.with(MapOp::Add, z, 7.5);
        let l = self.with(MapOp::Mul, z, 1.0 / 7.5);
        let l = self.map(MapOp::Log1p, &[l]);
        let l = self.with(MapOp::Add, l, 7.5f32.ln());
        [z, sum, slope, t, l]
    }

    pub(super) fn lgamma(&mut self, x: NodeId) -> NodeId {
        let [z, sum, _, t, l] = self.lanczos(x);
        let q = self.div(t, l);
        let h = self.with(MapOp::Add, z, 0.5);
        let h = self.sub(h, q);
        let y = self.mul(h, l);
        let s = self.map(MapOp::Log, &[sum]);
        let y = self.add(y, s);
        let y = self.with(MapOp::Add, y, 0.918_938_5);
        // Reflection: log(pi / |sin(pi x)|) less that, with the argument of the sine in its first quarter.
        let a = self.map(MapOp::Abs, &[x]);
        let whole = self.map(MapOp::Floor, &[a]);
        let part = self.sub(a, whole);
        let one = self.value(1.0);
        let rest = self.sub(one, part);
        let part = self.choose(part, Direction::Gt, 0.5, rest, part);
        let s = self.with(MapOp::Mul, part, PI);
        let s = self.map(MapOp::Sin, &[s]);
        let s = self.map(MapOp::Log, &[s]);
        let other = self.value(PI.ln());
        let other = self.sub(other, s);
        let other = self.sub(other, y);
        let inf = self.value(f32::INFINITY);
        // At the poles the sine is zero.
        let other = self.choose(part, Direction::Eq, 0.0, inf, other);
        let y = self.choose(x, Direction::Lt, 0.5, other, y);
        self.choose(a, Direction::Eq, f32::INFINITY, inf, y)
    }

    pub(super) fn digamma(&mut self, x: NodeId) -> NodeId {
        let [_, sum, slope, t, l] = self.lanczos(x);
        let q = self.div(slope, sum);
        let seven = self.value(7.0);
        let r = self.div(seven, t);
        let y = self.add(l, q);
        let y = self.sub(y, r);
        // Reflection: less pi cot(pi x), with the whole part taken out.
        let near = self.with(MapOp::Add, x, 0.5);
        let near = self.map(MapOp::Floor, &[near]);
        let part = self.sub(x, near);
        let angle = self.with(MapOp::Mul, part, PI);
        let (s, k) = (self.map(MapOp::Sin, &[angle]), self.map(MapOp::Cos, &[angle]));
        let k = self.with(MapOp::Mul, k, PI);
        let cot = self.div(k, s);
        let other = self.sub(y, cot);
        let y = self.choose(x, Direction::Lt, 0.5, other, y);
        let none = self.value(f32::NAN);
        let pole = self.choose(part, Direction::Eq, 0.0, none, y);
        self.choose(x, Direction::Le, 0.0, pole, y)
    }

    fn chebyshev(&mut self, x: NodeId, coefficients: &[f32]) -> NodeId {
        let zero = self.value(0.0);
        let [mut b0, mut b1, mut b2] = [zero; 3];
        for &k in coefficients {
            (b2, b1) = (b1, b0);
            let y = self.mul(x, b1);
            let y = self.sub(y, b2);
            b0 = self.with(MapOp::Add, y, k);
        }
        let d = self.sub(b0, b2);
        self.with(MapOp::Mul, d, 0.5)
    }

    /// The modified Bessel function of order one, times `exp(-|x|)`.
    pub(super) fn bessel_i1e(&mut self, x: NodeId) -> NodeId {
        let a = self.map(MapOp::Abs, &[x]);
        let u = self.with(MapOp::Mul, a, 0.5);
        let u = self.with(MapOp::Sub, u, 2.0);
        let near = self.chebyshev(u, &BESSEL_NEAR);
        let near = self.mul(near, a);
        let n = self.value(32.0);
        let u = self.div(n, a);
        let u = self.with(MapOp::Sub, u, 2.0);
        let far = self.chebyshev(u, &BESSEL_FAR);
        let r = self.map(MapOp::Rsqrt, &[a]);
        let far = self.mul(far, r);
        let y = self.choose(a, Direction::Le, 8.0, near, far);
        self.odd(x, y)
    }
}

impl Builder<'_> {
    /// The float next to `args[0]` towards `args[1]`: codes without their sign are in the order of magnitudes.
    pub(super) fn next_after(
        &mut self,
        args: [NodeId; 2],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Option<NodeId> {
        let [a, b] = args;
        let word = match (t.dtype, t.dtype.bits()) {
            (DType::F32, _) => DType::I32,
            (DType::BF16 | DType::F16, _) => DType::I16,
            _ => return None,
        };
        let mut c = Chain { b: self, dims: t.dims.clone(), name, site: site.clone() };
        let number = |c: &mut Chain<'_, '_>, v: i32, dtype: DType| {
            let t = Shape { dims: c.dims.clone(), dtype };
            c.b.constant(bits_to_bytes(v, dtype), &t, c.name, c.site.clone())
        };
        let zero = number(&mut c, 0, t.dtype);
        let flag = |c: &mut Chain<'_, '_>, d, x, y| c.typed(MapOp::Compare(d, false), &[x, y], DType::I1);
        let bits = c.typed(MapOp::Bitcast, &[a], word);
        let (up, positive) = (flag(&mut c, Direction::Lt, a, b), flag(&mut c, Direction::Gt, a, zero));
        let inwards = c.typed(MapOp::Xor, &[up, positive], DType::I1);
        let (one, minus) = (number(&mut c, 1, word), number(&mut c, -1, word));
        let step = c.typed(MapOp::Select, &[inwards, minus, one], word);
        let moved = c.typed(MapOp::Add, &[bits, step], word);
        // From zero: the smallest number with the sign of the other.
        let sign = number(&mut c, if word == DType::I32 { i32::MIN } else { i16::MIN.into() }, word);
        let least = c.typed(MapOp::Or, &[sign, one], word);
        let down = flag(&mut c, Direction::Lt, b, zero);
        let least = c.typed(MapOp::Select, &[down, least, one], word);
        let from_zero = flag(&mut c, Direction::Eq, a, zero);
        let moved = c.typed(MapOp::Select, &[from_zero, least, moved], word);
        let y = c.typed(MapOp::Bitcast, &[moved], t.dtype);
        let same = flag(&mut c, Direction::Eq, a, b);
        let y = c.typed(MapOp::Select, &[same, b, y], t.dtype);
        let (p, q) = (flag(&mut c, Direction::Ne, a, a), flag(&mut c, Direction::Ne, b, b));
        let y = c.typed(MapOp::Select, &[q, b, y], t.dtype);
        Some(c.typed(MapOp::Select, &[p, a, y], t.dtype))
    }

    /// The high half of the product of integers.
    pub(super) fn high_product(
        &mut self,
        args: [NodeId; 2],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Option<NodeId> {
        let (signed, bits) = (t.dtype.is_signed(), t.dtype.bits());
        if !t.dtype.is_int() || bits > 32 {
            return None;
        }
        let mut c = Chain { b: self, dims: t.dims.clone(), name, site: site.clone() };
        let number = |c: &mut Chain<'_, '_>, v: i32, dtype: DType| {
            let t = Shape { dims: c.dims.clone(), dtype };
            c.b.constant(bits_to_bytes(v, dtype), &t, c.name, c.site.clone())
        };
        let word = if signed { DType::I32 } else { DType::U32 };
        if bits < 32 {
            let [a, b] = args.map(|x| c.typed(MapOp::Convert, &[x], word));
            let (p, n) = (c.typed(MapOp::Mul, &[a, b], word), number(&mut c, bits as i32, word));
            let shift = if signed { MapOp::ShrArith } else { MapOp::ShrLogical };
            let p = c.typed(shift, &[p, n], word);
            return Some(c.typed(MapOp::Convert, &[p], t.dtype));
        }
        let [a, b] = args.map(|x| c.typed(MapOp::Bitcast, &[x], DType::U32));
        let mut high = c.typed(MapOp::MulHigh, &[a, b], DType::U32);
        if signed {
            // A negative factor counts 2^32 too much as an unsigned one.
            let zero = number(&mut c, 0, DType::I32);
            let none = number(&mut c, 0, DType::U32);
            for (x, other) in [(args[0], b), (args[1], a)] {
                let negative = c.typed(MapOp::Compare(Direction::Lt, false), &[x, zero], DType::I1);
                let over = c.typed(MapOp::Select, &[negative, other, none], DType::U32);
                high = c.typed(MapOp::Sub, &[high, over], DType::U32);
            }
        }
        Some(c.typed(MapOp::Bitcast, &[high], t.dtype))
    }
}
