//! Data movement and matrix products of a random program.

use std::rc::Rc;

use tpusim_backend::hlo::{Attr, DotDims, Opcode, TensorType};
use tpusim_isa::num::DType;

use super::value::{Rule, Val, ulp};
use super::{Gen, LIMIT, MOVED};

const NARROW: [DType; 2] = [DType::I8, DType::U8];
const MATRIX: [DType; 7] =
    [DType::F32, DType::F32, DType::BF16, DType::BF16, DType::F8E5M2, DType::F8E4M3FN, DType::I8];

impl Gen<'_> {
    fn moves(&mut self, fits: impl Fn(&Val) -> bool) -> (usize, Val) {
        let a = self.any(fits, &MOVED);
        (a, self.values[a].clone())
    }

    pub fn broadcast(&mut self) {
        let (a, v) = self.moves(|v| v.ty.rank() < 5 && v.elements() < 3000);
        let (mut dims, mut map) = (Vec::new(), Vec::new());
        for &d in &v.ty.dims {
            while self.rng.percent(30) && dims.len() < 5 {
                dims.push(self.rng.pick(&[1, 2, 3, 5, 8, 17]));
            }
            map.push(dims.len() as i64);
            dims.push(if d == 1 && self.rng.percent(70) { self.rng.pick(&[2, 7, 16, 130]) } else { d });
        }
        while self.rng.percent(40) && dims.len() < 6 {
            dims.push(self.rng.pick(&[1, 2, 3, 9, 128]));
        }
        // Dimensions may be placed in any order.
        if self.rng.percent(25) {
            let order = self.rng.shuffled(dims.len());
            dims = order.iter().map(|&o| dims[o]).collect();
            map = map.iter().map(|&m| order.iter().position(|&o| o == m as usize).unwrap_or(0) as i64).collect();
        }
        if dims.iter().product::<i64>() > LIMIT {
            return;
        }
        let id = self.f.broadcast_along(v.id, &map, &dims);
        self.push_moved(id, &[a]);
    }

    pub fn reshape(&mut self) {
        let (a, v) = self.moves(|_| true);
        let mut left = v.elements();
        let mut dims = Vec::new();
        if left == 0 {
            dims = vec![self.rng.pick(&[0, 3]), 0, 2];
        }
        while left > 1 && dims.len() < 5 {
            let divisors: Vec<i64> = (1..=left).filter(|d| left % d == 0).collect();
            let d = self.rng.pick(&divisors);
            dims.push(d);
            left /= d;
        }
        if left > 1 {
            dims.push(left);
        }
        let order = self.rng.shuffled(dims.len());
        let dims: Vec<i64> = order.iter().map(|&o| dims[o]).collect();
        let id = self.f.reshape(v.id, &dims);
        self.push_moved(id, &[a]);
    }

    pub fn transpose(&mut self) {
        let (a, v) = self.moves(|v| v.ty.rank() > 1);
        let perm: Vec<i64> = self.rng.shuffled(v.ty.rank()).into_iter().map(|d| d as i64).collect();
        let id = self.f.transpose(v.id, &perm);
        self.push_moved(id, &[a]);
    }

    pub fn slice(&mut self) {
        let (a, v) = self.moves(|v| v.ty.rank() > 0);
        let (mut start, mut limit, mut strides) = (vec![], vec![], vec![]);
        for &d in &v.ty.dims {
            let (x, y) = (self.rng.below(d as usize + 1) as i64, self.rng.below(d as usize + 1) as i64);
            let whole = self.rng.percent(35);
            let (lo, hi) = if whole { (0, d) } else { (x.min(y), x.max(y)) };
            let hi = if hi == lo && d > 0 && self.rng.percent(90) { (lo + 1).min(d) } else { hi };
            start.push(lo.min(hi));
            limit.push(hi);
            strides.push(if self.rng.percent(30) { self.rng.pick(&[2, 3, 5, 200]) } else { 1 });
        }
        let attrs = [
            ("start_indices", Attr::Ints(start)),
            ("limit_indices", Attr::Ints(limit)),
            ("strides", Attr::Ints(strides)),
        ];
        let id = self.f.infer(Opcode::Slice, &[v.id], &attrs);
        self.push_moved(id, &[a]);
    }

    pub fn reverse(&mut self) {
        let (a, v) = self.moves(|v| v.ty.rank() > 0);
        let dims: Vec<i64> = (0..v.ty.rank() as i64).filter(|_| self.rng.percent(60)).collect();
        let id = self.f.infer(Opcode::Reverse, &[v.id], &[("dimensions", Attr::Ints(dims))]);
        self.push_moved(id, &[a]);
    }

    pub fn concatenate(&mut self) {
        let (a, v) = self.moves(|v| v.ty.rank() > 0 && v.elements() < 3000);
        let along = self.rng.below(v.ty.rank());
        let mut parts = vec![a];
        for _ in 0..=self.rng.below(2) {
            let fits: Vec<usize> = (0..self.values.len())
                .filter(|&i| {
                    let t = &self.values[i].ty;
                    t.dtype == v.ty.dtype
                        && t.rank() == v.ty.rank()
                        && (0..t.rank()).all(|d| d == along || t.dims[d] == v.ty.dims[d])
                })
                .collect();
            if self.rng.percent(60) {
                parts.push(self.rng.pick(&fits));
            } else {
                let mut dims = v.ty.dims.clone();
                dims[along] = self.size();
                // The value may have no elements along this dimension alone.
                if dims.iter().product::<i64>() > LIMIT {
                    return;
                }
                parts.push(self.param(v.ty.dtype, &dims));
            }
        }
        if self.rng.percent(50) {
            parts.rotate_left(1);
        }
        let ids: Vec<_> = parts.iter().map(|&p| self.values[p].id).collect();
        if parts.iter().map(|&p| self.values[p].elements()).sum::<i64>() > LIMIT {
            return;
        }
        let id = self.f.concatenate(&ids, along as i64);
        self.push_moved(id, &parts);
    }

    pub fn pad(&mut self) {
        let (a, v) = self.moves(|v| v.elements() < 2000);
        let (mut low, mut high, mut inner, mut n) = (vec![], vec![], vec![], 1);
        for &d in &v.ty.dims {
            let i = if self.rng.percent(25) { self.rng.pick(&[1, 2, 3]) } else { 0 };
            let wide = if d > 0 { d + (d - 1) * i } else { 0 };
            let mut edge = || self.rng.pick(&[0, 0, 0, 1, 2, 5, -1, -2, 9]).max(-wide);
            let (l, h) = (edge(), edge());
            let h = h.max(-wide - l);
            n *= wide + l + h;
            low.push(l);
            high.push(h);
            inner.push(i);
        }
        if n > LIMIT {
            return;
        }
        let with =
            if self.rng.percent(50) { self.param(v.ty.dtype, &[]) } else { self.constant(v.ty.dtype, &[], true) };
        let attrs = [
            ("edge_padding_low", Attr::Ints(low)),
            ("edge_padding_high", Attr::Ints(high)),
            ("interior_padding", Attr::Ints(inner)),
        ];
        let id = self.f.infer(Opcode::Pad, &[v.id, self.values[with].id], &attrs);
        self.push_moved(id, &[a, with]);
    }

    /// A contraction in any dimension numbering of a value with a new parameter or with another value.
    pub fn dot(&mut self) {
        let a = self.any(|v| MATRIX.contains(&v.ty.dtype) && (1..5).contains(&v.ty.rank()), &MATRIX);
        let v = self.values[a].clone();
        let mut dims = DotDims::default();
        let mut other: Vec<(i64, usize)> = Vec::new();
        let (mut batch, mut contract, mut k) = (vec![], vec![], 1);
        for (d, &size) in v.ty.dims.iter().enumerate() {
            match self.rng.below(10) {
                0 | 1 => batch.push(d),
                2..6 => {
                    contract.push(d);
                    k *= size;
                }
                _ => {}
            }
        }
        for (at, &d) in batch.iter().chain(&contract).enumerate() {
            other.push((v.ty.dims[d], at));
        }
        for _ in 0..self.rng.below(3) {
            other.push((self.size(), usize::MAX));
        }
        let order = self.rng.shuffled(other.len());
        let other: Vec<(i64, usize)> = order.iter().map(|&o| other[o]).collect();
        let place = |at: usize| other.iter().position(|o| o.1 == at).unwrap_or(0) as i64;
        let shape: Vec<i64> = other.iter().map(|o| o.0).collect();
        let free = (0..v.ty.rank()).filter(|d| !contract.contains(d)).map(|d| v.ty.dims[d]).product::<i64>();
        let out = free * other.iter().filter(|o| o.1 == usize::MAX).map(|o| o.0).product::<i64>();
        if out > LIMIT || out * k > 1_500_000 || shape.iter().product::<i64>() > LIMIT {
            return;
        }
        let mine = |v: &[usize]| v.iter().map(|&d| d as i64).collect::<Vec<_>>();
        let nb = batch.len();
        let theirs = [(0..nb).map(place).collect::<Vec<_>>(), (0..contract.len()).map(|i| place(nb + i)).collect()];
        let dtype = if v.int() { self.rng.pick(&NARROW) } else { v.ty.dtype };
        let wanted = TensorType::new(shape.clone(), dtype);
        let have: Vec<usize> = (0..self.values.len()).filter(|&i| self.values[i].ty == wanted).collect();
        let b = if have.is_empty() || self.rng.percent(30) { self.param(dtype, &shape) } else { self.rng.pick(&have) };
        let swap = self.rng.percent(50);
        let (l, r) = if swap { (b, a) } else { (a, b) };
        (dims.lhs_batch, dims.lhs_contract) = (mine(&batch), mine(&contract));
        (dims.rhs_batch, dims.rhs_contract) = (theirs[0].clone(), theirs[1].clone());
        if swap {
            std::mem::swap(&mut dims.lhs_batch, &mut dims.rhs_batch);
            std::mem::swap(&mut dims.lhs_contract, &mut dims.rhs_contract);
        }
        let to = if v.int() { DType::I32 } else { self.rng.pick(&[DType::F32, DType::F32, v.ty.dtype, DType::BF16]) };
        let (x, y) = (self.values[a].clone(), self.values[b].clone());
        let id = self.f.dot_general(self.values[l].id, self.values[r].id, dims, to);
        let k = k as f64;
        let mag = k * x.mag * y.mag;
        let whole = x.whole && y.whole;
        let sure = whole && mag < (1 << 24) as f64 && x.mag.max(y.mag) <= 256.0;
        let exact = x.exact && y.exact && (v.int() || sure);
        let single = v.ty.dtype == DType::F32;
        let rule: Rule = Rc::new(move |s, m| {
            // An operand that is a little off may round to another bf16.
            let off = |s: &super::Stat| if s.err > 0.0 && single { s.err + s.mag / 128.0 } else { s.err };
            let (ex, ey) = (off(&s[0]), off(&s[1]));
            let carried = k * (s[0].mag * ey + s[1].mag * ex + ex * ey);
            carried + (8.0 + k.sqrt()) * 2f64.powi(-23) * k * s[0].mag * s[1].mag + ulp(to, m)
        });
        self.push(id, &[a, b], exact, whole, mag, rule);
    }
}
