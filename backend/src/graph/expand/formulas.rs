//! Functions of complex numbers by their parts, and functions of `f64` that the vector unit has no code for.

use std::f64::consts::LN_2;

use tpusim_isa::num::DType;

use super::Expander;
use super::arith::{Formula, Parts};
use crate::graph::LowerError;
use crate::hlo::{Op, Opcode, TensorType, ValueId};

/// Whether a function with results of type `t` is written as a formula: what has code for that type is not.
pub(super) fn has(op: Opcode, t: DType) -> bool {
    use Opcode as O;
    let inverse = matches!(
        op,
        O::ChloAcos
            | O::ChloAcosh
            | O::ChloAsin
            | O::ChloAsinh
            | O::ChloAtan
            | O::ChloAtanh
            | O::ChloCosh
            | O::ChloSinh
    );
    match t {
        DType::C64 => inverse || matches!(op, O::ChloTan | O::Sign | O::Maximum | O::Minimum),
        DType::F64 => inverse || matches!(op, O::ChloTan | O::Real | O::Imag),
        _ => false,
    }
}

impl Expander<'_> {
    /// An elementwise operation on the parts of its operands.
    pub(super) fn formula(&mut self, op: &Op, r: ValueId, operands: &[Vec<ValueId>]) -> Result<(), LowerError> {
        let ty = self.ty(op.operands.first().copied().unwrap_or(r));
        let Some(x) = operands.first() else { return Err(self.error(op, "is not lowered on complex<f64>")) };
        if ty.dtype == DType::F64 {
            let y = Formula { e: self, like: x[0] }.real(op.opcode, x[0]);
            return match y {
                Some(y) => {
                    self.same.insert(r, y);
                    Ok(())
                }
                None => Err(self.error(op, "is not lowered on f64")),
            };
        }
        let mut args: Vec<Parts> = Vec::new();
        for v in operands {
            args.push(match v[..] {
                [re, im] => [re, im],
                [z] if ty.dtype == DType::C64 => {
                    let part = TensorType::new(ty.dims.clone(), DType::F32);
                    [Opcode::Real, Opcode::Imag].map(|half| self.emit(half, &[z], part.clone(), &[]))
                }
                _ => return Err(self.error(op, "is not lowered on complex<f64> mixed with other types")),
            });
        }
        let direction = op.attrs.text("comparison_direction").map(str::to_owned);
        let mut f = Formula { e: self, like: args[0][0] };
        let y = args.get(1).copied().unwrap_or(args[0]);
        let single = match (op.opcode, direction.as_deref()) {
            (Opcode::Compare, Some("EQ")) => Some(f.equal(args[0], y)),
            (Opcode::Compare, Some("NE")) => {
                let p = f.equal(args[0], y);
                Some(f.flags(Opcode::Not, &[p]))
            }
            (Opcode::Compare, Some(d)) => Some(f.ordered(d, args[0], y)),
            (Opcode::Abs, _) => Some(f.hypot(args[0])),
            _ => None,
        };
        if let Some(v) = single {
            self.same.insert(r, v);
            return Ok(());
        }
        let Some(parts) = f.complex(op.opcode, args[0], y) else {
            return Err(self.error(op, "is not lowered on complex<f64>; on its real and imaginary part it is"));
        };
        if ty.dtype == DType::C64 {
            let z = self.emit(Opcode::Complex, &parts, ty, &[]);
            self.same.insert(r, z);
        } else {
            self.parts.insert(r, parts);
        }
        Ok(())
    }
}

impl Formula<'_, '_> {
    fn double(&self) -> bool {
        self.e.ty(self.like).dtype == DType::F64
    }

    /// A real function of `f64`.
    fn real(&mut self, op: Opcode, x: ValueId) -> Option<ValueId> {
        use Opcode as O;
        Some(match op {
            O::ChloSinh => self.sinh(x),
            O::ChloCosh => self.cosh(x),
            O::ChloAsinh => self.asinh(x),
            O::ChloTan => self.of(O::Tan, x),
            O::Real => x,
            O::Imag => self.number(0.0),
            O::ChloAcosh => {
                let (t, u) = (self.plus(x, -1.0), self.plus(x, 1.0));
                let s = self.mul(t, u);
                let s = self.of(O::Sqrt, s);
                let y = self.add(t, s);
                let y = self.of(O::LogPlusOne, y);
                let y = self.far_log(x, y);
                let none = self.number(f64::NAN);
                let outside = self.is_number("LT", x, 1.0);
                self.pick(outside, none, y)
            }
            O::ChloAtanh => {
                let n = self.neg(x);
                let (p, q) = (self.of(O::LogPlusOne, x), self.of(O::LogPlusOne, n));
                let y = self.sub(p, q);
                self.times(y, 0.5)
            }
            O::ChloAsin => {
                let c = self.complement(x);
                self.op(O::Atan2, &[x, c])
            }
            O::ChloAcos => {
                let c = self.complement(x);
                self.op(O::Atan2, &[c, x])
            }
            O::ChloAtan => {
                let one = self.number(1.0);
                self.op(O::Atan2, &[x, one])
            }
            _ => return None,
        })
    }

    /// `sqrt(1 - x^2)`
    fn complement(&mut self, x: ValueId) -> ValueId {
        let one = self.number(1.0);
        let (p, q) = (self.sub(one, x), self.add(one, x));
        let s = self.mul(p, q);
        self.of(Opcode::Sqrt, s)
    }

    fn sinh(&mut self, x: ValueId) -> ValueId {
        if !self.double() {
            return self.of(Opcode::ChloSinh, x);
        }
        let a = self.of(Opcode::Abs, x);
        let e = self.of(Opcode::ExponentialMinusOne, a);
        let d = self.plus(e, 1.0);
        let q = self.div(e, d);
        let y = self.add(e, q);
        let y = self.times(y, 0.5);
        let far = self.plus(a, -LN_2);
        let far = self.of(Opcode::Exponential, far);
        let large = self.is_number("GT", a, 40.0);
        let y = self.pick(large, far, y);
        self.copysign(y, x)
    }

    fn cosh(&mut self, x: ValueId) -> ValueId {
        if !self.double() {
            return self.of(Opcode::ChloCosh, x);
        }
        let n = self.neg(x);
        let [p, q] = [x, n].map(|v| {
            let v = self.plus(v, -LN_2);
            self.of(Opcode::Exponential, v)
        });
        self.add(p, q)
    }

    fn asinh(&mut self, x: ValueId) -> ValueId {
        if !self.double() {
            return self.of(Opcode::ChloAsinh, x);
        }
        let a = self.of(Opcode::Abs, x);
        let s = self.mul(a, a);
        let r = self.plus(s, 1.0);
        let r = self.of(Opcode::Sqrt, r);
        let r = self.plus(r, 1.0);
        let q = self.div(s, r);
        let y = self.add(a, q);
        let y = self.of(Opcode::LogPlusOne, y);
        let y = self.far_log(a, y);
        self.copysign(y, x)
    }

    /// `ln 2x` where squares would overflow, else `y`.
    fn far_log(&mut self, x: ValueId, y: ValueId) -> ValueId {
        let far = self.of(Opcode::Log, x);
        let far = self.plus(far, LN_2);
        let large = self.is_number("GT", x, 1e15);
        self.pick(large, far, y)
    }

    fn equal(&mut self, a: Parts, b: Parts) -> ValueId {
        let (p, q) = (self.is("EQ", a[0], b[0]), self.is("EQ", a[1], b[1]));
        self.flags(Opcode::And, &[p, q])
    }

    /// Real parts decide, then imaginary ones.
    fn ordered(&mut self, direction: &str, a: Parts, b: Parts) -> ValueId {
        let strict = if direction.starts_with('L') { "LT" } else { "GT" };
        let (less, same) = (self.is(strict, a[0], b[0]), self.is("EQ", a[0], b[0]));
        let low = self.is(direction, a[1], b[1]);
        let low = self.flags(Opcode::And, &[same, low]);
        self.flags(Opcode::Or, &[less, low])
    }

    /// The larger part times the root of one and the squared ratio.
    fn hypot(&mut self, x: Parts) -> ValueId {
        let (a, b) = (self.of(Opcode::Abs, x[0]), self.of(Opcode::Abs, x[1]));
        let (hi, lo) = (self.op(Opcode::Maximum, &[a, b]), self.op(Opcode::Minimum, &[a, b]));
        let q = self.div(lo, hi);
        let s = self.mul(q, q);
        let s = self.plus(s, 1.0);
        let r = self.of(Opcode::Sqrt, s);
        let r = self.mul(hi, r);
        let (none, endless) = (self.is_number("EQ", hi, 0.0), self.is_number("EQ", hi, f64::INFINITY));
        let end = self.flags(Opcode::Or, &[none, endless]);
        self.pick(end, hi, r)
    }

    fn product(&mut self, a: Parts, b: Parts) -> Parts {
        let (p, q) = (self.mul(a[0], b[0]), self.mul(a[1], b[1]));
        let (r, s) = (self.mul(a[0], b[1]), self.mul(a[1], b[0]));
        [self.sub(p, q), self.add(r, s)]
    }

    /// Smith's method: scaled by the larger part of the divisor, the other being exchanged for it.
    fn quotient(&mut self, a: Parts, b: Parts) -> Parts {
        let (x, y) = (self.of(Opcode::Abs, b[0]), self.of(Opcode::Abs, b[1]));
        let real = self.is("GE", x, y);
        let (big, small) = (self.pick(real, b[0], b[1]), self.pick(real, b[1], b[0]));
        let r = self.div(small, big);
        let t = self.mul(small, r);
        let d = self.add(big, t);
        let (p, q) = (self.pick(real, a[0], a[1]), self.pick(real, a[1], a[0]));
        let t = self.mul(q, r);
        let re = self.add(p, t);
        let t = self.mul(p, r);
        let im = self.sub(q, t);
        let minus = self.neg(im);
        let im = self.pick(real, im, minus);
        [self.div(re, d), self.div(im, d)]
    }

    fn sqrt(&mut self, x: Parts) -> Parts {
        let r = self.hypot(x);
        let a = self.of(Opcode::Abs, x[0]);
        let (p, q) = (self.times(r, 0.5), self.times(a, 0.5));
        let t = self.add(p, q);
        let t = self.of(Opcode::Sqrt, t);
        let twice = self.add(t, t);
        let other = self.div(x[1], twice);
        let size = self.of(Opcode::Abs, other);
        let signed = self.copysign(t, x[1]);
        let right = self.is_number("GE", x[0], 0.0);
        let (re, im) = (self.pick(right, t, size), self.pick(right, other, signed));
        let origin = self.is_number("EQ", r, 0.0);
        let zero = self.number(0.0);
        [self.pick(origin, zero, re), self.pick(origin, x[1], im)]
    }

    fn exp(&mut self, x: Parts) -> Parts {
        let m = self.of(Opcode::Exponential, x[0]);
        let (k, s) = (self.of(Opcode::Cosine, x[1]), self.of(Opcode::Sine, x[1]));
        let (re, im) = (self.mul(m, k), self.mul(m, s));
        let real = self.is_number("EQ", x[1], 0.0);
        [self.pick(real, m, re), self.pick(real, x[1], im)]
    }

    fn log(&mut self, x: Parts) -> Parts {
        let r = self.hypot(x);
        [self.of(Opcode::Log, r), self.op(Opcode::Atan2, &[x[1], x[0]])]
    }

    fn tanh(&mut self, x: Parts) -> Parts {
        let (least, most) = (self.number(-20.0), self.number(20.0));
        let re = self.op(Opcode::Maximum, &[x[0], least]);
        let re = self.op(Opcode::Minimum, &[re, most]);
        let (a, b) = (self.add(re, re), self.add(x[1], x[1]));
        let (p, q) = (self.cosh(a), self.of(Opcode::Cosine, b));
        let d = self.add(p, q);
        let (s, t) = (self.sinh(a), self.of(Opcode::Sine, b));
        [self.div(s, d), self.div(t, d)]
    }

    /// `(f(re) g(im), h(re) k(im))`
    fn crossed(&mut self, f: ValueId, g: ValueId, h: ValueId, k: ValueId) -> Parts {
        [self.mul(f, g), self.mul(h, k)]
    }

    /// The roots of `1 - x` and `1 + x`.
    fn sides(&mut self, x: Parts) -> [Parts; 2] {
        let n = [self.neg(x[0]), self.neg(x[1])];
        let (p, q) = ([self.plus(n[0], 1.0), n[1]], [self.plus(x[0], 1.0), x[1]]);
        [self.sqrt(p), self.sqrt(q)]
    }

    /// The imaginary part of the product of the conjugate of `a` and `b`.
    fn turned(&mut self, a: Parts, b: Parts) -> ValueId {
        let (p, q) = (self.mul(a[0], b[1]), self.mul(a[1], b[0]));
        self.sub(p, q)
    }

    /// Kahan's forms of the inverse functions, which keep the branch cuts.
    fn asin(&mut self, x: Parts) -> Parts {
        let [m, p] = self.sides(x);
        let (s, t) = (self.mul(m[0], p[0]), self.mul(m[1], p[1]));
        let d = self.sub(s, t);
        let im = self.turned(m, p);
        [self.op(Opcode::Atan2, &[x[0], d]), self.asinh(im)]
    }

    fn atanh(&mut self, x: Parts) -> Parts {
        let u = self.neg(x[0]);
        let u = self.plus(u, 1.0);
        let (p, q) = (self.mul(u, u), self.mul(x[1], x[1]));
        let d = self.add(p, q);
        let n = self.times(x[0], 4.0);
        let r = self.div(n, d);
        let l = self.of(Opcode::LogPlusOne, r);
        let v = self.plus(x[0], 1.0);
        let w = self.mul(u, v);
        let w = self.sub(w, q);
        let twice = self.add(x[1], x[1]);
        let angle = self.op(Opcode::Atan2, &[twice, w]);
        [self.times(l, 0.25), self.times(angle, 0.5)]
    }

    /// `-i f(i x)`
    fn rotated(&mut self, x: Parts, f: impl FnOnce(&mut Self, Parts) -> Parts) -> Parts {
        let n = self.neg(x[1]);
        let y = f(self, [n, x[0]]);
        [y[1], self.neg(y[0])]
    }

    fn complex(&mut self, op: Opcode, x: Parts, y: Parts) -> Option<Parts> {
        use Opcode as O;
        Some(match op {
            O::ChloConj => [x[0], self.neg(x[1])],
            O::ChloSquare => self.product(x, x),
            O::Multiply => self.product(x, y),
            O::Divide => self.quotient(x, y),
            O::Maximum | O::Minimum => {
                let p = self.ordered(if op == O::Maximum { "GE" } else { "LE" }, x, y);
                self.pick_parts(p, x, y)
            }
            O::Exponential => self.exp(x),
            O::Log => self.log(x),
            O::Sqrt => self.sqrt(x),
            O::Rsqrt => {
                let s = self.sqrt(x);
                let one = [self.number(1.0), self.number(0.0)];
                self.quotient(one, s)
            }
            O::Tanh => self.tanh(x),
            O::Tan | O::ChloTan => self.rotated(x, Self::tanh),
            O::Sine => {
                let (s, k) = (self.of(O::Sine, x[0]), self.of(O::Cosine, x[0]));
                let (c, h) = (self.cosh(x[1]), self.sinh(x[1]));
                self.crossed(s, c, k, h)
            }
            O::Cosine => {
                let (s, k) = (self.of(O::Sine, x[0]), self.of(O::Cosine, x[0]));
                let (c, h) = (self.cosh(x[1]), self.sinh(x[1]));
                let y = self.crossed(k, c, s, h);
                [y[0], self.neg(y[1])]
            }
            O::ChloSinh => {
                let (s, k) = (self.of(O::Sine, x[1]), self.of(O::Cosine, x[1]));
                let (c, h) = (self.cosh(x[0]), self.sinh(x[0]));
                self.crossed(h, k, c, s)
            }
            O::ChloCosh => {
                let (s, k) = (self.of(O::Sine, x[1]), self.of(O::Cosine, x[1]));
                let (c, h) = (self.cosh(x[0]), self.sinh(x[0]));
                self.crossed(c, k, h, s)
            }
            O::ChloAsin => self.asin(x),
            O::ChloAsinh => self.rotated(x, Self::asin),
            O::ChloAtanh => self.atanh(x),
            O::ChloAtan => self.rotated(x, Self::atanh),
            O::ChloAcos => {
                let [m, p] = self.sides(x);
                let angle = self.op(O::Atan2, &[m[0], p[0]]);
                let im = self.turned(p, m);
                [self.add(angle, angle), self.asinh(im)]
            }
            O::ChloAcosh => {
                let (a, b) = ([self.plus(x[0], -1.0), x[1]], [self.plus(x[0], 1.0), x[1]]);
                let (m, p) = (self.sqrt(a), self.sqrt(b));
                let (s, t) = (self.mul(m[0], p[0]), self.mul(m[1], p[1]));
                let re = self.add(s, t);
                let angle = self.op(O::Atan2, &[m[1], p[0]]);
                [self.asinh(re), self.add(angle, angle)]
            }
            O::Sign => {
                let r = self.hypot(x);
                let none = self.is_number("EQ", r, 0.0);
                let (p, q) = (self.div(x[0], r), self.div(x[1], r));
                [self.pick(none, r, p), self.pick(none, r, q)]
            }
            O::Logistic => {
                let n = [self.neg(x[0]), self.neg(x[1])];
                let e = self.exp(n);
                let one = [self.number(1.0), self.number(0.0)];
                let d = [self.add(one[0], e[0]), e[1]];
                self.quotient(one, d)
            }
            O::ExponentialMinusOne => {
                // exp(re) cos(im) - 1 without cancellation.
                let half = self.times(x[1], 0.5);
                let h = self.of(O::Sine, half);
                let h = self.mul(h, h);
                let h = self.add(h, h);
                let (e, k) = (self.of(O::ExponentialMinusOne, x[0]), self.of(O::Cosine, x[1]));
                let p = self.mul(e, k);
                let (e, s) = (self.of(O::Exponential, x[0]), self.of(O::Sine, x[1]));
                [self.sub(p, h), self.mul(e, s)]
            }
            O::LogPlusOne => {
                // |1 + x|^2 = 1 + re (2 + re) + im^2; around -1 that cancels, while 1 + re is exact.
                let t = self.plus(x[0], 2.0);
                let (p, q) = (self.mul(x[0], t), self.mul(x[1], x[1]));
                let s = self.add(p, q);
                let s = self.of(O::LogPlusOne, s);
                let s = self.times(s, 0.5);
                let u = self.plus(x[0], 1.0);
                let d = self.hypot([u, x[1]]);
                let d = self.of(O::Log, d);
                let near = self.is_number("LT", x[0], -0.5);
                [self.pick(near, d, s), self.op(O::Atan2, &[x[1], u])]
            }
            O::Cbrt => {
                let d = self.hypot(x);
                let (d, angle) = (self.of(O::Cbrt, d), self.op(O::Atan2, &[x[1], x[0]]));
                let angle = self.times(angle, 1.0 / 3.0);
                let (k, s) = (self.of(O::Cosine, angle), self.of(O::Sine, angle));
                [self.mul(d, k), self.mul(d, s)]
            }
            O::Power => {
                let l = self.log(x);
                let e = self.product(y, l);
                let p = self.exp(e);
                let (zero, one) = (self.number(0.0), self.number(1.0));
                let (no_base, no_power) = (self.equal(x, [zero, zero]), self.equal(y, [zero, zero]));
                let p = self.pick_parts(no_base, [zero, zero], p);
                self.pick_parts(no_power, [one, zero], p)
            }
            _ => return None,
        })
    }
}
