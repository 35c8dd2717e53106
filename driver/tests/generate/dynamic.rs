//! Slices and updates at computed places.

use tpusim_backend::hlo::{Attr, Opcode, ValueId};
use tpusim_isa::num::DType;

use super::{DTYPES, Gen};

const INDICES: [DType; 6] = [DType::I8, DType::I16, DType::I32, DType::U8, DType::U16, DType::U32];

impl Gen<'_> {
    /// One index for each of `rank` dimensions, all of one type: parameters, elements of what there is, and results of arithmetic.
    fn indices(&mut self, rank: usize) -> (Vec<usize>, Vec<ValueId>) {
        let dtype = self.rng.pick(&INDICES);
        let mut all = Vec::new();
        for _ in 0..rank {
            let scalars: Vec<usize> = (0..self.values.len())
                .filter(|&i| self.values[i].ty.dtype == dtype && self.values[i].elements() == 1)
                .collect();
            let mut i = match self.rng.below(10) {
                0..6 if !scalars.is_empty() => self.rng.pick(&scalars),
                0..3 => self.constant(dtype, &[], true),
                _ => self.param(dtype, &[]),
            };
            if self.values[i].ty.rank() > 0 {
                let id = self.f.reshape(self.values[i].id, &[]);
                i = self.push_moved(id, &[i]);
            }
            if self.rng.percent(40) {
                use Opcode::*;
                let b = self.constant(dtype, &[], true);
                let op = self.rng.pick(&[
                    Add,
                    Subtract,
                    Multiply,
                    Maximum,
                    Minimum,
                    And,
                    Or,
                    Xor,
                    Remainder,
                    ShiftLeft,
                    ShiftRightArithmetic,
                    ShiftRightLogical,
                ]);
                let id = self.f.binary(op, self.values[i].id, self.values[b].id);
                i = self.push(id, &[i, b], true, false, super::max_of(dtype), super::moved());
            }
            all.push(i);
        }
        let ids = all.iter().map(|&i| self.values[i].id).collect();
        (all, ids)
    }

    /// Sizes of a part of `dims`.
    fn part(&mut self, dims: &[i64]) -> Vec<i64> {
        dims.iter()
            .map(|&d| match self.rng.below(10) {
                0..4 => d,
                4..6 => d.min(1),
                _ => self.rng.below(d as usize + 1) as i64,
            })
            .collect()
    }

    pub fn dynamic_slice(&mut self) {
        let a = self.any(|v| v.ty.rank() > 0, &DTYPES);
        let v = self.values[a].clone();
        let sizes = self.part(&v.ty.dims);
        let (indices, ids) = self.indices(sizes.len());
        let operands: Vec<ValueId> = std::iter::once(v.id).chain(ids).collect();
        let id = self.f.infer(Opcode::DynamicSlice, &operands, &[("slice_sizes", Attr::Ints(sizes))]);
        let (exact, whole, mag) = (v.exact, v.whole, v.mag);
        let args: Vec<usize> = std::iter::once(a).chain(indices).collect();
        self.push(id, &args, exact, whole, mag, std::rc::Rc::new(|s, _| s[0].err));
    }

    pub fn dynamic_update_slice(&mut self) {
        let a = self.any(|v| v.ty.rank() > 0, &DTYPES);
        let v = self.values[a].clone();
        let sizes = self.part(&v.ty.dims);
        // A part of the operand itself, moved, or something new.
        let u = if self.rng.percent(50) {
            let (_, ids) = self.indices(sizes.len());
            let operands: Vec<ValueId> = std::iter::once(v.id).chain(ids).collect();
            let id = self.f.infer(Opcode::DynamicSlice, &operands, &[("slice_sizes", Attr::Ints(sizes))]);
            let rule = std::rc::Rc::new(|s: &[super::Stat], _: f64| s[0].err);
            self.push(id, &[a], v.exact, v.whole, v.mag, rule)
        } else {
            self.param(v.ty.dtype, &sizes)
        };
        let (indices, ids) = self.indices(v.ty.rank());
        let w = self.values[u].clone();
        let operands: Vec<ValueId> = [v.id, w.id].into_iter().chain(ids).collect();
        let id = self.f.infer(Opcode::DynamicUpdateSlice, &operands, &[]);
        let args: Vec<usize> = [a, u].into_iter().chain(indices).collect();
        let rule = std::rc::Rc::new(|s: &[super::Stat], _: f64| s[0].err.max(s[1].err));
        self.push(id, &args, v.exact && w.exact, v.whole && w.whole, v.mag.max(w.mag), rule);
    }
}
