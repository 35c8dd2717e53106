//! Complex numbers of two f32, by the textbook's formulas in the forms that do not overflow early.

use super::*;

/// A chain with the operators that formulas are made of.
struct Real<'c, 'a, 'm>(&'c mut Chain<'a, 'm>);

impl Real<'_, '_, '_> {
    fn add(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.0.map(MapOp::Add, &[a, b])
    }

    fn sub(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.0.map(MapOp::Sub, &[a, b])
    }

    fn mul(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.0.map(MapOp::Mul, &[a, b])
    }

    fn div(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.0.map(MapOp::Div, &[a, b])
    }

    fn of(&mut self, m: MapOp, a: NodeId) -> NodeId {
        self.0.map(m, &[a])
    }

    fn value(&mut self, v: f32) -> NodeId {
        self.0.value(v)
    }

    fn times(&mut self, a: NodeId, v: f32) -> NodeId {
        self.0.with(MapOp::Mul, a, v)
    }

    fn is(&mut self, d: Direction, a: NodeId, b: NodeId) -> NodeId {
        self.0.typed(MapOp::Compare(d, false), &[a, b], DType::I1)
    }

    fn is_value(&mut self, d: Direction, a: NodeId, v: f32) -> NodeId {
        let v = self.value(v);
        self.is(d, a, v)
    }

    fn pick(&mut self, p: NodeId, a: NodeId, b: NodeId) -> NodeId {
        self.0.map(MapOp::Select, &[p, a, b])
    }

    /// The magnitude of `a` with the sign of `b`, its sign bit's.
    fn copysign(&mut self, a: NodeId, b: NodeId) -> NodeId {
        let a = self.of(MapOp::Abs, a);
        let minus = self.of(MapOp::Neg, a);
        let bits = self.0.typed(MapOp::Bitcast, &[b], DType::I32);
        let zero = number(self.0, 0, DType::I32);
        let negative = self.is(Direction::Lt, bits, zero);
        self.pick(negative, minus, a)
    }

    fn cosh(&mut self, x: NodeId) -> NodeId {
        self.0.function(Opcode::ChloCosh, x).unwrap_or(x)
    }

    fn sinh(&mut self, x: NodeId) -> NodeId {
        self.0.function(Opcode::ChloSinh, x).unwrap_or(x)
    }

    /// Distance from the origin: the larger part times the root of one and the squared ratio.
    fn hypot(&mut self, [re, im]: Parts) -> NodeId {
        let (a, b) = (self.of(MapOp::Abs, re), self.of(MapOp::Abs, im));
        let (hi, lo) = (self.0.map(MapOp::Max, &[a, b]), self.0.map(MapOp::Min, &[a, b]));
        let q = self.div(lo, hi);
        let s = self.mul(q, q);
        let s = self.0.with(MapOp::Add, s, 1.0);
        let r = self.of(MapOp::Sqrt, s);
        let r = self.mul(hi, r);
        let (none, endless) = (self.is_value(Direction::Eq, hi, 0.0), self.is_value(Direction::Eq, hi, f32::INFINITY));
        let end = self.0.typed(MapOp::Or, &[none, endless], DType::I1);
        self.pick(end, hi, r)
    }

    fn product(&mut self, a: Parts, b: Parts) -> Parts {
        let (p, q) = (self.mul(a[0], b[0]), self.mul(a[1], b[1]));
        let (r, s) = (self.mul(a[0], b[1]), self.mul(a[1], b[0]));
        [self.sub(p, q), self.add(r, s)]
    }

    /// Smith's method: scaled by the larger part of the divisor, the other being exchanged for it.
    fn quotient(&mut self, a: Parts, b: Parts) -> Parts {
        let (x, y) = (self.of(MapOp::Abs, b[0]), self.of(MapOp::Abs, b[1]));
        let real = self.is(Direction::Ge, x, y);
        let (big, small) = (self.pick(real, b[0], b[1]), self.pick(real, b[1], b[0]));
        let r = self.div(small, big);
        let t = self.mul(small, r);
        let d = self.add(big, t);
        // (a0 + a1 r, a1 - a0 r), or (a0 r + a1, a1 r - a0).
        let (p, q) = (self.pick(real, a[0], a[1]), self.pick(real, a[1], a[0]));
        let t = self.mul(q, r);
        let re = self.add(p, t);
        let t = self.mul(p, r);
        let im = self.sub(q, t);
        let minus = self.of(MapOp::Neg, im);
        let im = self.pick(real, im, minus);
        [self.div(re, d), self.div(im, d)]
    }

    fn exp(&mut self, x: Parts) -> Parts {
        let m = self.of(MapOp::Exp, x[0]);
        let (k, s) = (self.of(MapOp::Cos, x[1]), self.of(MapOp::Sin, x[1]));
        let (re, im) = (self.mul(m, k), self.mul(m, s));
        let real = self.is_value(Direction::Eq, x[1], 0.0);
        [self.pick(real, m, re), self.pick(real, x[1], im)]
    }

    fn log(&mut self, x: Parts) -> Parts {
        let r = self.hypot(x);
        [self.of(MapOp::Log, r), self.0.map(MapOp::Atan2, &[x[1], x[0]])]
    }

    fn sqrt(&mut self, x: Parts) -> Parts {
        let r = self.hypot(x);
        let a = self.of(MapOp::Abs, x[0]);
        let (p, q) = (self.times(r, 0.5), self.times(a, 0.5));
        // The part that does not cancel first.
        let t = self.add(p, q);
        let t = self.of(MapOp::Sqrt, t);
        let twice = self.add(t, t);
        let other = self.div(x[1], twice);
        let size = self.of(MapOp::Abs, other);
        let signed = self.copysign(t, x[1]);
        let right = self.is_value(Direction::Ge, x[0], 0.0);
        let (re, im) = (self.pick(right, t, size), self.pick(right, other, signed));
        let origin = self.is_value(Direction::Eq, r, 0.0);
        let zero = self.value(0.0);
        [self.pick(origin, zero, re), self.pick(origin, x[1], im)]
    }

    fn tanh(&mut self, x: Parts) -> Parts {
        let (least, most) = (self.value(-20.0), self.value(20.0));
        let re = self.0.map(MapOp::Max, &[x[0], least]);
        let re = self.0.map(MapOp::Min, &[re, most]);
        let (a, b) = (self.add(re, re), self.add(x[1], x[1]));
        let (p, q) = (self.cosh(a), self.of(MapOp::Cos, b));
        let d = self.add(p, q);
        let (s, t) = (self.sinh(a), self.of(MapOp::Sin, b));
        let (re, im) = (self.div(s, d), self.div(t, d));
        let (size, one, zero) = (self.of(MapOp::Abs, x[0]), self.value(1.0), self.value(0.0));
        let far = self.is(Direction::Gt, size, most);
        let one = self.copysign(one, x[0]);
        [self.pick(far, one, re), self.pick(far, zero, im)]
    }

    /// Products of functions of the parts, `(f(re) g(im), h(re) k(im))`.
    fn crossed(&mut self, fs: [NodeId; 4]) -> Parts {
        [self.mul(fs[0], fs[1]), self.mul(fs[2], fs[3])]
    }
}

/// Elementwise operations on complex numbers; `None` if there is no code.
pub(in super::super) fn map(c: &mut Chain<'_, '_>, op: Opcode, m: Option<MapOp>, args: &[Parts]) -> Option<Value> {
    let x = *args.first()?;
    let y = args.get(1).copied().unwrap_or(x);
    let mut r = Real(c);
    let parts = match (op, m) {
        (Opcode::Real, _) => return Some(Value::One(x[0])),
        (Opcode::Imag, _) => return Some(Value::One(x[1])),
        (Opcode::ChloConj, _) => [x[0], r.of(MapOp::Neg, x[1])],
        (Opcode::ChloSquare, _) => r.product(x, x),
        (_, Some(MapOp::Abs)) => return Some(Value::One(r.hypot(x))),
        (_, Some(MapOp::Compare(Direction::Eq, _))) => return Some(Value::One(equal(r.0, x, y))),
        (_, Some(MapOp::Compare(Direction::Ne, _))) => {
            let p = equal(r.0, x, y);
            return Some(Value::One(r.0.typed(MapOp::Not, &[p], DType::I1)));
        }
        (_, Some(m)) => arithmetic(&mut r, m, x, y)?,
        _ => return None,
    };
    Some(Value::Pair(DType::C64, parts))
}

fn arithmetic(r: &mut Real<'_, '_, '_>, m: MapOp, x: Parts, y: Parts) -> Option<Parts> {
    let one = [r.value(1.0), r.value(0.0)];
    Some(match m {
        MapOp::Add => [r.add(x[0], y[0]), r.add(x[1], y[1])],
        MapOp::Sub => [r.sub(x[0], y[0]), r.sub(x[1], y[1])],
        MapOp::Mul => r.product(x, y),
        MapOp::Div => r.quotient(x, y),
        MapOp::Neg => x.map(|p| r.of(MapOp::Neg, p)),
        MapOp::Copy => x,
        MapOp::Exp => r.exp(x),
        MapOp::Log => r.log(x),
        MapOp::Sqrt => r.sqrt(x),
        MapOp::Rsqrt => {
            let s = r.sqrt(x);
            r.quotient(one, s)
        }
        MapOp::Tanh => r.tanh(x),
        MapOp::Tan => {
            // tan x = -i tanh(i x).
            let minus = r.of(MapOp::Neg, x[1]);
            let t = r.tanh([minus, x[0]]);
            [t[1], r.of(MapOp::Neg, t[0])]
        }
        MapOp::Sin => {
            let fs = [r.of(MapOp::Sin, x[0]), r.cosh(x[1]), r.of(MapOp::Cos, x[0]), r.sinh(x[1])];
            r.crossed(fs)
        }
        MapOp::Cos => {
            let fs = [r.of(MapOp::Cos, x[0]), r.cosh(x[1]), r.of(MapOp::Sin, x[0]), r.sinh(x[1])];
            let y = r.crossed(fs);
            [y[0], r.of(MapOp::Neg, y[1])]
        }
        MapOp::Logistic => {
            let n = x.map(|p| r.of(MapOp::Neg, p));
            let e = r.exp(n);
            let d = r.add(one[0], e[0]);
            r.quotient(one, [d, e[1]])
        }
        MapOp::Expm1 => {
            // exp(re) cos(im) - 1 without cancellation.
            let half = r.times(x[1], 0.5);
            let h = r.of(MapOp::Sin, half);
            let h = r.mul(h, h);
            let h = r.add(h, h);
            let (e, k) = (r.of(MapOp::Expm1, x[0]), r.of(MapOp::Cos, x[1]));
            let p = r.mul(e, k);
            let (e, s) = (r.of(MapOp::Exp, x[0]), r.of(MapOp::Sin, x[1]));
            [r.sub(p, h), r.mul(e, s)]
        }
        MapOp::Log1p => {
            // |1 + x|^2 = 1 + re (2 + re) + im^2.
            let t = r.0.with(MapOp::Add, x[0], 2.0);
            let (p, q) = (r.mul(x[0], t), r.mul(x[1], x[1]));
            let s = r.add(p, q);
            let s = r.of(MapOp::Log1p, s);
            let u = r.0.with(MapOp::Add, x[0], 1.0);
            // Around -1 that cancels, while 1 + re is exact.
            let near = r.is_value(Direction::Lt, x[0], -0.5);
            let d = r.hypot([u, x[1]]);
            let (d, s) = (r.of(MapOp::Log, d), r.times(s, 0.5));
            [r.pick(near, d, s), r.0.map(MapOp::Atan2, &[x[1], u])]
        }
        MapOp::Cbrt => {
            let d = r.hypot(x);
            let (d, angle) = (r.of(MapOp::Cbrt, d), r.0.map(MapOp::Atan2, &[x[1], x[0]]));
            let angle = r.times(angle, 1.0 / 3.0);
            let (k, s) = (r.of(MapOp::Cos, angle), r.of(MapOp::Sin, angle));
            [r.mul(d, k), r.mul(d, s)]
        }
        MapOp::Pow => {
            let l = r.log(x);
            let e = r.product(y, l);
            let p = r.exp(e);
            let zero = [one[1], one[1]];
            let (no_base, no_power) = (equal(r.0, x, zero), equal(r.0, y, zero));
            let p = choose(r.0, no_base, zero, p);
            choose(r.0, no_power, one, p)
        }
        _ => return None,
    })
}
