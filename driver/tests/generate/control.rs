//! Loops, branches and what has no effect on values.

use std::rc::Rc;

use tpusim_backend::hlo::{Attr, Opcode, TensorType};
use tpusim_isa::num::DType;

use super::value::{Rule, Stat, max_of, moved, ulp};
use super::{DTYPES, Gen};

/// Of results that are `x`, `y - x`, or `y` with one more rounding each of `n` times.
fn alternating(dtype: DType, n: f64) -> Rule {
    Rc::new(move |s: &[Stat], _| s[0].err + n * (s[1].err + ulp(dtype, s[0].mag + s[1].mag)))
}

impl Gen<'_> {
    pub fn loop_(&mut self) {
        let a = self.any(|v| v.float() || v.int(), &DTYPES);
        let b = self.partner(a, false);
        let (x, y) = (self.values[a].clone(), self.values[b].clone());
        // Few trips, some of them none, some known only from data.
        let most = self.rng.below(5) as f64;
        let mut trips = self.f.scalar(DType::I32, most);
        if self.rng.percent(50) {
            let p = self.param(DType::I32, &[]);
            trips = self.f.binary(Opcode::Minimum, self.values[p].id, trips);
            self.push(trips, &[p], true, false, max_of(DType::I32), moved());
        }
        let zero = self.f.scalar(DType::I32, 0.0);
        let state = self.f.while_loop(
            &[zero, x.id, y.id],
            |f, s| f.compare("LT", s[0], trips),
            |f, s| vec![f.binary_scalar(Opcode::Add, s[0], 1.0), f.binary(Opcode::Subtract, s[2], s[1]), s[2]],
        );
        let mag = if x.int() { max_of(x.ty.dtype) } else { x.mag + y.mag };
        let rule = alternating(x.ty.dtype, most);
        let exact = x.exact && y.exact;
        self.push(state[1], &[a, b], exact, x.whole && y.whole, mag, rule);
    }

    pub fn branch(&mut self) {
        let a = self.any(|v| v.float() || v.int(), &DTYPES);
        let b = self.partner(a, false);
        let (x, y) = (self.values[a].clone(), self.values[b].clone());
        let many = self.rng.percent(50);
        let wanted = if many { DType::I32 } else { DType::I1 };
        let have: Vec<usize> = (0..self.values.len())
            .filter(|&i| self.values[i].ty.rank() == 0 && self.values[i].ty.dtype == wanted)
            .collect();
        let p = if have.is_empty() || self.rng.percent(50) { self.param(wanted, &[]) } else { self.rng.pick(&have) };
        let mut regions = vec![
            self.f.region(&[], |f, _| vec![f.binary(Opcode::Subtract, y.id, x.id)]),
            self.f.region(&[], |_, _| vec![x.id]),
        ];
        if many {
            regions.push(self.f.region(&[], |f, _| vec![f.binary(Opcode::Maximum, x.id, y.id)]));
        }
        let op = if many { Opcode::Case } else { Opcode::If };
        let id = self.f.op_with_regions(op, &[self.values[p].id], &[], regions, std::slice::from_ref(&x.ty))[0];
        let mag = if x.int() { max_of(x.ty.dtype) } else { x.mag + y.mag };
        let rule = alternating(x.ty.dtype, 1.0);
        self.push(id, &[a, b, p], x.exact && y.exact, x.whole && y.whole, mag, rule);
    }

    pub fn transparent(&mut self) {
        let a = self.any(|v| v.float() || v.int(), &DTYPES);
        let v = self.values[a].clone();
        match self.rng.below(3) {
            0 => {
                let id = self.f.op(Opcode::OptimizationBarrier, &[v.id], &[], &[v.ty])[0];
                self.push_moved(id, &[a]);
            }
            1 if v.ty.rank() > 0 => {
                let d = self.rng.below(v.ty.rank()) as i64;
                let id = self.f.op(
                    Opcode::GetDimensionSize,
                    &[v.id],
                    &[("dimension", super::int(d))],
                    &[TensorType::new([], DType::I32)],
                )[0];
                self.push(id, &[], true, false, 1000.0, moved());
            }
            _ => {
                let scalar = TensorType::new([], v.ty.dtype);
                let body = self.f.region(&[scalar], |f, x| vec![f.unary(Opcode::Negate, x[0])]);
                let dims = Attr::Ints((0..v.ty.rank() as i64).collect());
                let id = self.f.op_with_regions(
                    Opcode::Map,
                    &[v.id],
                    &[("dimensions", dims)],
                    vec![body],
                    std::slice::from_ref(&v.ty),
                )[0];
                let mag = if v.int() { max_of(v.ty.dtype) } else { v.mag };
                self.push(id, &[a], v.exact, v.whole, mag, moved());
            }
        }
    }
}
