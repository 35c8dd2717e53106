//! Elementwise functions that the vector unit has no code for, composed of those it has.
//!
//! Everything is computed in f32 and rounded once. Errors are a few ulp of the largest magnitude of the result.

use super::super::NodeId;
use super::*;
use crate::hlo::{Attr, Op, Opcode};
use crate::lower::math::{Direction, MapOp};

/// Coefficients of erf on [-4, 4], odd over even, highest power of `x^2` first.
const ERF_NUMERATOR: [f32; 7] =
    [-2.726_142_4e-10, 2.770_681_4e-8, -2.101_024e-6, -5.692_506_2e-5, -7.349_906_4e-4, -2.954_6e-3, -1.609_603_3e-2];
const ERF_DENOMINATOR: [f32; 5] = [-1.456_607_2e-5, -2.133_740_5e-4, -1.682_827_e-3, -7.373_329_3e-3, -1.426_473_9e-2];

/// Cephes' polynomials of `erfc(x) exp(x^2) x` in `1 / x^2`, for `x` in [1, 2] and beyond.
const ERFC_NEAR: [f32; 9] = [
    2.326_82e-2,
    -1.387_039_4e-1,
    3.687_424_7e-1,
    -5.824_733e-1,
    6.210_004_7e-1,
    -4.944_515_2e-1,
    3.404_88e-1,
    -2.741_127e-1,
    5.638_259_6e-1,
];
const ERFC_FAR: [f32; 8] =
    [-10.477_664, 12.977_2, -7.495_518_7, 2.921_019, -1.015_265_3, 4.218_463_3e-1, -2.820_767_5e-1, 5.641_895e-1];

/// Giles' polynomials of the inverse of erf, in `w - 2.5` and `sqrt(w) - 3` for `w = -ln(1 - x^2)`.
const ERF_INV_CENTRE: [f32; 9] = [
    2.810_226_4e-8,
    3.432_739_4e-7,
    -3.523_387_7e-6,
    -4.391_506_5e-6,
    2.185_808_7e-4,
    -1.253_725e-3,
    -4.177_681_6e-3,
    2.466_407_3e-1,
    1.501_409_4,
];
const ERF_INV_TAIL: [f32; 9] = [
    -2.002_142_6e-4,
    1.009_505_6e-4,
    1.349_343_2e-3,
    -3.673_428_4e-3,
    5.739_507_7e-3,
    -7.622_461_3e-3,
    9.438_870_5e-3,
    1.001_674,
    2.832_976_8,
];

/// A chain of elementwise f32 nodes of one shape.
pub(super) struct Chain<'a, 'm> {
    pub b: &'a mut Builder<'m>,
    pub dims: Vec<u64>,
    pub name: &'static str,
    pub site: (String, String),
}

impl Chain<'_, '_> {
    /// `m` with a result of type `dtype`.
    pub fn typed(&mut self, m: MapOp, args: &[NodeId], dtype: DType) -> NodeId {
        let t = Shape { dims: self.dims.clone(), dtype };
        self.b.map(m, args, &t, self.name, self.site.clone())
    }

    pub fn map(&mut self, m: MapOp, args: &[NodeId]) -> NodeId {
        self.typed(m, args, DType::F32)
    }

    /// `v` everywhere.
    pub fn value(&mut self, v: f32) -> NodeId {
        let t = Shape { dims: self.dims.clone(), dtype: DType::F32 };
        self.b.constant(v.to_le_bytes().to_vec().into(), &t, self.name, self.site.clone())
    }

    /// `m` of `x` and a number.
    pub fn with(&mut self, m: MapOp, x: NodeId, v: f32) -> NodeId {
        let v = self.value(v);
        self.map(m, &[x, v])
    }

    /// `if x d v { yes } else { no }`.
    pub(super) fn choose(&mut self, x: NodeId, d: Direction, v: f32, yes: NodeId, no: NodeId) -> NodeId {
        let v = self.value(v);
        let p = self.typed(MapOp::Compare(d, false), &[x, v], DType::I1);
        self.map(MapOp::Select, &[p, yes, no])
    }

    pub(super) fn polynomial(&mut self, x: NodeId, coefficients: &[f32]) -> NodeId {
        let mut y = self.value(coefficients.first().copied().unwrap_or(0.0));
        for &c in coefficients.iter().skip(1) {
            let m = self.map(MapOp::Mul, &[y, x]);
            y = self.with(MapOp::Add, m, c);
        }
        y
    }

    /// `y` with the sign of `x`, for `y` computed from `|x|`.
    pub(super) fn odd(&mut self, x: NodeId, y: NodeId) -> NodeId {
        let n = self.map(MapOp::Neg, &[y]);
        self.choose(x, Direction::Lt, 0.0, n, y)
    }

    fn erf(&mut self, x: NodeId) -> NodeId {
        let c = self.with(MapOp::Max, x, -4.0);
        let c = self.with(MapOp::Min, c, 4.0);
        let s = self.map(MapOp::Mul, &[c, c]);
        let (p, q) = (self.polynomial(s, &ERF_NUMERATOR), self.polynomial(s, &ERF_DENOMINATOR));
        let y = self.map(MapOp::Mul, &[c, p]);
        let y = self.map(MapOp::Div, &[y, q]);
        let y = self.with(MapOp::Max, y, -1.0);
        self.with(MapOp::Min, y, 1.0)
    }

    /// `1 - erf(x)` cancels beyond 1, where the tail has a form of its own.
    fn erfc(&mut self, x: NodeId) -> NodeId {
        let (one, y) = (self.value(1.0), self.erf(x));
        let near = self.map(MapOp::Sub, &[one, y]);
        let a = self.map(MapOp::Abs, &[x]);
        let s = self.map(MapOp::Mul, &[a, a]);
        let n = self.map(MapOp::Neg, &[s]);
        let e = self.map(MapOp::Exp, &[n]);
        let r = self.map(MapOp::Div, &[one, a]);
        let r2 = self.map(MapOp::Mul, &[r, r]);
        let (p, q) = (self.polynomial(r2, &ERFC_NEAR), self.polynomial(r2, &ERFC_FAR));
        let p = self.choose(a, Direction::Lt, 2.0, p, q);
        let y = self.map(MapOp::Mul, &[e, r]);
        let y = self.map(MapOp::Mul, &[y, p]);
        let two = self.value(2.0);
        let mirrored = self.map(MapOp::Sub, &[two, y]);
        let far = self.choose(x, Direction::Lt, 0.0, mirrored, y);
        self.choose(a, Direction::Gt, 1.0, far, near)
    }

    fn erf_inv(&mut self, x: NodeId) -> NodeId {
        let n = self.map(MapOp::Neg, &[x]);
        let s = self.map(MapOp::Mul, &[x, n]);
        let l = self.map(MapOp::Log1p, &[s]);
        let w = self.map(MapOp::Neg, &[l]);
        let centre = self.with(MapOp::Sub, w, 2.5);
        let centre = self.polynomial(centre, &ERF_INV_CENTRE);
        let root = self.map(MapOp::Sqrt, &[w]);
        let tail = self.with(MapOp::Sub, root, 3.0);
        let tail = self.polynomial(tail, &ERF_INV_TAIL);
        let y = self.choose(w, Direction::Lt, 5.0, centre, tail);
        let y = self.map(MapOp::Mul, &[y, x]);
        // At the ends the polynomial of an infinite `w` is no number.
        let end = self.with(MapOp::Mul, x, f32::INFINITY);
        let a = self.map(MapOp::Abs, &[x]);
        self.choose(a, Direction::Eq, 1.0, end, y)
    }

    /// Rounds to `e` exponent and `m` mantissa bits, with infinities but without subnormals.
    fn rounded(&mut self, x: NodeId, e: u32, m: u32) -> NodeId {
        let (int, flag) = (DType::U32, DType::I1);
        let number = |c: &mut Self, v: u32| {
            let t = Shape { dims: c.dims.clone(), dtype: DType::U32 };
            c.b.constant(v.to_le_bytes().to_vec().into(), &t, c.name, c.site.clone())
        };
        let bits = self.typed(MapOp::Bitcast, &[x], int);
        let mask = number(self, 0x7fff_ffff);
        let (drop, mut size) = (23 - m, self.typed(MapOp::And, &[bits, mask], int));
        if drop > 0 {
            // To the nearest, ties to even: half of the last place, less one if that is even.
            let (place, one, half) = (number(self, drop), number(self, 1), number(self, (1 << (drop - 1)) - 1));
            let last = self.typed(MapOp::ShrLogical, &[size, place], int);
            let last = self.typed(MapOp::And, &[last, one], int);
            let up = self.typed(MapOp::Add, &[size, half], int);
            let up = self.typed(MapOp::Add, &[up, last], int);
            let keep = number(self, !((1u32 << drop) - 1));
            size = self.typed(MapOp::And, &[up, keep], int);
        }
        let bias = (1u32 << (e - 1)) - 1;
        let (least, most) = (number(self, (128 - bias) << 23), number(self, (128 + bias) << 23));
        let (zero, inf) = (number(self, 0), number(self, 0x7f80_0000));
        let small = self.typed(MapOp::Compare(Direction::Lt, false), &[size, least], flag);
        let large = self.typed(MapOp::Compare(Direction::Ge, false), &[size, most], flag);
        let y = self.typed(MapOp::Select, &[small, zero, size], int);
        let y = self.typed(MapOp::Select, &[large, inf, y], int);
        let top = number(self, 0x8000_0000);
        let sign = self.typed(MapOp::And, &[bits, top], int);
        let y = self.typed(MapOp::Or, &[y, sign], int);
        let y = self.typed(MapOp::Bitcast, &[y], DType::F32);
        if m == 0 {
            return y;
        }
        // A NaN stays what it is.
        let nan = self.typed(MapOp::Compare(Direction::Ne, false), &[x, x], flag);
        self.map(MapOp::Select, &[nan, x, y])
    }

    fn sinh(&mut self, x: NodeId) -> NodeId {
        let a = self.map(MapOp::Abs, &[x]);
        let e = self.map(MapOp::Expm1, &[a]);
        let d = self.with(MapOp::Add, e, 1.0);
        let q = self.map(MapOp::Div, &[e, d]);
        let y = self.map(MapOp::Add, &[e, q]);
        let y = self.with(MapOp::Mul, y, 0.5);
        let far = self.with(MapOp::Sub, a, std::f32::consts::LN_2);
        let far = self.map(MapOp::Exp, &[far]);
        let y = self.choose(a, Direction::Gt, 80.0, far, y);
        self.odd(x, y)
    }

    fn cosh(&mut self, x: NodeId) -> NodeId {
        let n = self.map(MapOp::Neg, &[x]);
        let [p, q] = [x, n].map(|v| {
            let v = self.with(MapOp::Sub, v, std::f32::consts::LN_2);
            self.map(MapOp::Exp, &[v])
        });
        self.map(MapOp::Add, &[p, q])
    }

    fn asinh(&mut self, x: NodeId) -> NodeId {
        let a = self.map(MapOp::Abs, &[x]);
        let s = self.map(MapOp::Mul, &[a, a]);
        let r = self.with(MapOp::Add, s, 1.0);
        let r = self.map(MapOp::Sqrt, &[r]);
        let r = self.with(MapOp::Add, r, 1.0);
        let q = self.map(MapOp::Div, &[s, r]);
        let y = self.map(MapOp::Add, &[a, q]);
        let y = self.map(MapOp::Log1p, &[y]);
        let y = self.far_log(a, y);
        self.odd(x, y)
    }

    fn acosh(&mut self, x: NodeId) -> NodeId {
        let t = self.with(MapOp::Sub, x, 1.0);
        let u = self.with(MapOp::Add, x, 1.0);
        let s = self.map(MapOp::Mul, &[t, u]);
        let r = self.map(MapOp::Sqrt, &[s]);
        let y = self.map(MapOp::Add, &[t, r]);
        let y = self.map(MapOp::Log1p, &[y]);
        let y = self.far_log(x, y);
        let none = self.value(f32::NAN);
        self.choose(x, Direction::Lt, 1.0, none, y)
    }

    /// `ln 2x` where squares would overflow, else `y`.
    fn far_log(&mut self, x: NodeId, y: NodeId) -> NodeId {
        let far = self.map(MapOp::Log, &[x]);
        let far = self.with(MapOp::Add, far, std::f32::consts::LN_2);
        self.choose(x, Direction::Gt, 1e9, far, y)
    }

    fn atanh(&mut self, x: NodeId) -> NodeId {
        let n = self.map(MapOp::Neg, &[x]);
        let (p, q) = (self.map(MapOp::Log1p, &[x]), self.map(MapOp::Log1p, &[n]));
        let y = self.map(MapOp::Sub, &[p, q]);
        self.with(MapOp::Mul, y, 0.5)
    }

    /// `sqrt(1 - x^2)`
    fn complement(&mut self, x: NodeId) -> NodeId {
        let one = self.value(1.0);
        let (p, q) = (self.map(MapOp::Sub, &[one, x]), self.map(MapOp::Add, &[one, x]));
        let s = self.map(MapOp::Mul, &[p, q]);
        self.map(MapOp::Sqrt, &[s])
    }

    pub(super) fn function(&mut self, op: Opcode, x: NodeId) -> Option<NodeId> {
        Some(match op {
            Opcode::ChloErf => self.erf(x),
            Opcode::ChloErfc => self.erfc(x),
            Opcode::ChloErfInv => self.erf_inv(x),
            Opcode::ChloLgamma => self.lgamma(x),
            Opcode::ChloDigamma => self.digamma(x),
            Opcode::ChloBesselI1e => self.bessel_i1e(x),
            Opcode::ChloSinh => self.sinh(x),
            Opcode::ChloCosh => self.cosh(x),
            Opcode::ChloTan => self.map(MapOp::Tan, &[x]),
            Opcode::ChloAsinh => self.asinh(x),
            Opcode::ChloAcosh => self.acosh(x),
            Opcode::ChloAtanh => self.atanh(x),
            Opcode::ChloAsin => {
                let c = self.complement(x);
                self.map(MapOp::Atan2, &[x, c])
            }
            Opcode::ChloAcos => {
                let c = self.complement(x);
                self.map(MapOp::Atan2, &[c, x])
            }
            Opcode::ChloAtan => self.with(MapOp::Atan2, x, 1.0),
            _ => return None,
        })
    }
}

impl Builder<'_> {
    /// A composed elementwise function; `None` if `op` is none of them.
    pub(super) fn special(
        &mut self,
        op: &Op,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Option<Result<NodeId, LowerError>> {
        let &x = args.first()?;
        let from = self.node(x).dtype;
        match op.opcode {
            Opcode::ReducePrecision => return Some(self.reduce_precision(op, x, t, name, site)),
            Opcode::BatchNormInference => return Some(self.batch_norm(op, args, t, name, site)),
            Opcode::ChloNextAfter | Opcode::ChloMulhi => {
                let &[a, b] = args else { return None };
                let y = match op.opcode {
                    Opcode::ChloMulhi => self.high_product([a, b], t, name, site),
                    _ => self.next_after([a, b], t, name, site),
                };
                return y.map(Ok);
            }
            Opcode::ChloSquare => return Some(Ok(self.map(MapOp::Mul, &[x, x], t, name, site.clone()))),
            _ => {}
        }
        if !from.is_float() || !op.opcode.name().starts_with("chlo.") {
            return None;
        }
        let mut c = Chain { b: self, dims: t.dims.clone(), name, site: site.clone() };
        let x = c.map(MapOp::Convert, &[x]);
        let infinite = match op.opcode {
            Opcode::ChloIsPosInf => Some((x, f32::INFINITY)),
            Opcode::ChloIsNegInf => Some((x, f32::NEG_INFINITY)),
            Opcode::ChloIsInf => Some((c.map(MapOp::Abs, &[x]), f32::INFINITY)),
            _ => None,
        };
        if let Some((x, v)) = infinite {
            let v = c.value(v);
            return Some(Ok(c.typed(MapOp::Compare(Direction::Eq, false), &[x, v], t.dtype)));
        }
        let y = c.function(op.opcode, x)?;
        Some(Ok(c.typed(MapOp::Convert, &[y], t.dtype)))
    }

    /// Rounding to a narrower format and back.
    fn reduce_precision(
        &mut self,
        op: &Op,
        x: NodeId,
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<NodeId, LowerError> {
        let bits = |n: &str| op.attrs.int(n).unwrap_or(0);
        match (bits("exponent_bits"), bits("mantissa_bits"), t.dtype) {
            (e, m, DType::F32) if e >= 8 && m >= 23 => Ok(x),
            (e, m, DType::BF16) if e >= 8 && m >= 7 => Ok(x),
            (8, 7, DType::F32) => {
                let narrow = Shape { dims: t.dims.clone(), dtype: DType::BF16 };
                let y = self.map(MapOp::Convert, &[x], &narrow, name, site.clone());
                Ok(self.map(MapOp::Convert, &[y], t, name, site.clone()))
            }
            (e, m, d) if (1..=8).contains(&e) && (0..=23).contains(&m) && d.is_float() => {
                let mut c = Chain { b: self, dims: t.dims.clone(), name, site: site.clone() };
                let x = c.map(MapOp::Convert, &[x]);
                let y = c.rounded(x, e as u32, m as u32);
                Ok(c.typed(MapOp::Convert, &[y], t.dtype))
            }
            (e, m, d) if e > 8 && d.bits() <= 32 && m >= 23 => Ok(x),
            (e, m, d) => {
                let m =
                    format!("rounding {d} to {e} exponent and {m} mantissa bits is not lowered; up to 8 and 23 are");
                Err(self.error(op.opcode.name(), op.loc, m))
            }
        }
    }

    /// `(x - mean) / sqrt(variance + epsilon) * scale + offset`, the last four per feature.
    fn batch_norm(
        &mut self,
        op: &Op,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<NodeId, LowerError> {
        let epsilon = match op.attrs.get("epsilon") {
            Some(Attr::Float(v, _)) => *v as f32,
            _ => 0.0,
        };
        let feature = op.attrs.int("feature_index").unwrap_or(0);
        let (&[x, scale, offset, mean, variance], Ok(feature)) = (args, usize::try_from(feature)) else {
            return Err(self.error(op.opcode.name(), op.loc, "needs five operands and a feature index"));
        };
        // What is known per feature is computed per feature.
        let mut c = Chain { dims: self.node(scale).dims.clone(), b: self, name, site: site.clone() };
        let [scale, offset, mean, variance] = [scale, offset, mean, variance].map(|v| c.map(MapOp::Convert, &[v]));
        let v = c.with(MapOp::Add, variance, epsilon);
        let r = c.map(MapOp::Rsqrt, &[v]);
        let factor = c.map(MapOp::Mul, &[scale, r]);
        let full = Shape { dims: t.dims.clone(), dtype: DType::F32 };
        let [factor, offset, mean] =
            [factor, offset, mean].map(|v| c.b.broadcast(v, vec![feature], &full, name, site.clone()));
        c.dims.clone_from(&t.dims);
        let x = c.map(MapOp::Convert, &[x]);
        let y = c.map(MapOp::Sub, &[x, mean]);
        let y = c.map(MapOp::Mul, &[y, factor]);
        let y = c.map(MapOp::Add, &[y, offset]);
        Ok(c.typed(MapOp::Convert, &[y], t.dtype))
    }
}
