//! Float operations of a random program.

use std::rc::Rc;

use tpusim_backend::hlo::Opcode::{self, *};
use tpusim_isa::num::DType;

use super::value::{Rule, moved, ulp};
use super::{DTYPES, Gen};

/// Half a unit of single precision.
const U: f64 = 1.0 / (1u64 << 24) as f64;

impl Gen<'_> {
    fn any_float(&mut self, exact: bool) -> usize {
        self.any(|v| v.float() && (v.exact || !exact), &DTYPES[..10])
    }

    /// Operations that are exact, those that a small error may flip on exact operands only.
    pub fn float_unary(&mut self) {
        let (op, exact) = self.rng.pick(&[
            (Abs, false),
            (Negate, false),
            (Abs, false),
            (Sign, true),
            (Floor, true),
            (Ceil, true),
            (RoundNearestAfz, true),
            (RoundNearestEven, true),
            (IsFinite, true),
        ]);
        let a = self.any_float(exact);
        let v = self.values[a].clone();
        let id = self.f.unary(op, v.id);
        let whole = v.whole || matches!(op, Sign | Floor | Ceil | RoundNearestAfz | RoundNearestEven);
        self.push(id, &[a], v.exact, whole, v.mag + 1.0, moved());
    }

    fn apply(&mut self, op: Opcode, args: &[usize], mag: f64, rule: Rule) -> usize {
        let ids: Vec<_> = args.iter().map(|&a| self.values[a].id).collect();
        let id = self.f.infer(op, &ids, &[]);
        self.push(id, args, false, false, mag, rule)
    }

    /// `|a| + 1/2`.
    fn away_from_zero(&mut self, a: usize) -> usize {
        let v = self.values[a].clone();
        let id = self.f.unary(Abs, v.id);
        let p = self.push(id, &[a], v.exact, v.whole, v.mag, moved());
        let id = self.f.binary_scalar(Add, self.values[p].id, 0.5);
        let dtype = v.ty.dtype;
        self.push(id, &[p], v.exact, false, v.mag + 0.5, Rc::new(move |s, m| s[0].err + ulp(dtype, m)))
    }

    /// What EUP and polynomials compute, on domains where the result is well conditioned.
    pub fn approximate(&mut self) {
        let a = self.any_float(false);
        let dtype = self.values[a].ty.dtype;
        let round = move |m: f64| if dtype == DType::F32 { 0.0 } else { ulp(dtype, m) };
        match self.rng.below(8) {
            0 => {
                let x = if self.values[a].mag > 5.0 { self.clamped(a, 5.0) } else { a };
                let op = self.rng.pick(&[Exponential, ExponentialMinusOne]);
                let rule = move |s: &[super::Stat], m: f64| (m + 1.0) * (s[0].err * 2.0 + 40.0 * U) + round(m);
                self.apply(op, &[x], 5f64.exp(), Rc::new(rule));
            }
            1 => {
                let x = self.away_from_zero(a);
                let op = self.rng.pick(&[Log, LogPlusOne, Sqrt, Rsqrt, Cbrt]);
                let mag = self.values[x].mag + 2.0;
                self.apply(op, &[x], mag, Rc::new(move |s, m| 2.0 * s[0].err + 16.0 * U * (m + 1.0) + round(m)));
            }
            2 | 3 => {
                let op = self.rng.pick(&[Tanh, Logistic]);
                self.apply(op, &[a], 1.0, Rc::new(move |s, m| s[0].err + 16.0 * U + round(m)));
            }
            4 => {
                let x = if self.values[a].mag > 100.0 { self.clamped(a, 50.0) } else { a };
                let op = self.rng.pick(&[Sine, Cosine]);
                self.apply(
                    op,
                    &[x],
                    1.0,
                    Rc::new(move |s, m| s[0].err + 16.0 * U * (1.0 + s[0].mag / 16.0) + round(m)),
                );
            }
            5 => {
                let b = self.partner(a, false);
                let d = self.away_from_zero(b);
                let mag = self.values[a].mag * 2.0;
                let rule = move |s: &[super::Stat], m: f64| {
                    2.0 * s[0].err + 4.0 * s[0].mag * s[1].err + 8.0 * U * m + 1e-37 + round(m)
                };
                self.apply(Divide, &[a, d], mag, Rc::new(rule));
            }
            6 => {
                let x = self.any_float(true);
                let b = self.partner(x, true);
                let dtype = self.values[x].ty.dtype;
                let round = move |m: f64| if dtype == DType::F32 { 0.0 } else { ulp(dtype, m) };
                let (x, y) = (self.clamped(x, 2.0), self.clamped(b, 2.0));
                let x = self.away_from_zero(x);
                self.apply(Power, &[x, y], 6.5, Rc::new(move |_, m| 64.0 * U * (m + 1.0) + round(m)));
            }
            _ => {
                let x = self.any_float(true);
                let b = self.partner(x, true);
                let dtype = self.values[x].ty.dtype;
                let round = move |m: f64| if dtype == DType::F32 { 0.0 } else { ulp(dtype, m) };
                // The sign of a zero decides between pi and -pi, and sums may lose it.
                let b = self.away_from_zero(b);
                self.apply(Atan2, &[x, b], 3.2, Rc::new(move |_, m| 32.0 * U + round(m)));
            }
        }
    }
}
