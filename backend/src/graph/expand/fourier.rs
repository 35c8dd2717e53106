//! Fourier transforms of doubles: one product with a matrix of cosines and sines along each dimension.

use std::f64::consts::TAU;

use tpusim_isa::num::DType;

use super::Expander;
use super::arith::{Formula, Parts};
use crate::graph::LowerError;
use crate::hlo::{Attr, DotDims, Literal, Op, Opcode, TensorType, ValueId};

/// Longest transform along a dimension, since matrices are its square.
const LONGEST: i64 = 512;

impl Expander<'_> {
    /// `stablehlo.fft` with operands or results of `complex<f64>`.
    pub(super) fn fourier(&mut self, op: &Op, x: &[ValueId], r: ValueId) -> Result<(), LowerError> {
        let kind = op.attrs.text("fft_type").unwrap_or("FFT").to_owned();
        let lengths = op.attrs.ints("fft_length").unwrap_or(&[]).to_vec();
        let rank = self.ty(x[0]).dims.len();
        if lengths.len() > rank || lengths.iter().any(|&n| n > LONGEST) {
            return Err(
                self.error(op, &format!("on doubles of more than {LONGEST} elements along a dimension is not lowered"))
            );
        }
        let inverse = kind.starts_with('I');
        let first = rank - lengths.len();
        let mut z: Parts = match *x {
            [re, im] => [re, im],
            _ => [x[0], Formula { e: self, like: x[0] }.number(0.0)],
        };
        let out = self.ty(r).dims;
        let result = out.last().copied().unwrap_or(0);
        // Real ends are the last dimension: it comes first forwards, and last backwards.
        let mut order: Vec<usize> = (first..rank).rev().collect();
        if kind == "IRFFT" {
            order.reverse();
        }
        for d in order {
            let last = d + 1 == rank;
            let n = lengths[d - first];
            let given = self.ty(z[0]).dims[d];
            if kind == "IRFFT" && last {
                // What is not given is the conjugate of what is.
                let weight = |k: i64| if k == 0 || 2 * k == n { 1.0 } else { 2.0 };
                let cos = self.matrix(given, n, |k, j| weight(k) * turn(k, j, n).cos() / n as f64);
                let sin = self.matrix(given, n, |k, j| -weight(k) * turn(k, j, n).sin() / n as f64);
                let (p, q) = (self.along(z[0], cos, d), self.along(z[1], sin, d));
                let y = Formula { e: self, like: p }.add(p, q);
                self.same.insert(r, y);
                return Ok(());
            }
            let count = if kind == "RFFT" && last { result } else { given };
            let (sign, scale) = if inverse { (1.0, 1.0 / n as f64) } else { (-1.0, 1.0) };
            let cos = self.matrix(given, count, |j, k| scale * turn(j, k, n).cos());
            let sin = self.matrix(given, count, |j, k| sign * scale * turn(j, k, n).sin());
            let products = [(z[0], cos), (z[1], sin), (z[0], sin), (z[1], cos)].map(|(v, m)| self.along(v, m, d));
            let mut f = Formula { e: self, like: products[0] };
            z = [f.sub(products[0], products[1]), f.add(products[2], products[3])];
        }
        self.parts.insert(r, z);
        Ok(())
    }

    fn matrix(&mut self, rows: i64, columns: i64, f: impl Fn(i64, i64) -> f64) -> ValueId {
        let ty = TensorType::new([rows, columns], DType::F64);
        let element = |i: i64| f(i / columns.max(1), i % columns.max(1)).to_le_bytes();
        let bytes: Vec<u8> = (0..rows * columns).flat_map(element).collect();
        let value = Attr::Dense(Literal::new(ty.clone(), bytes).into());
        self.emit(Opcode::Constant, &[], ty, &[("value", value)])
    }

    /// `x` with its dimension `d` multiplied by the matrix `m`.
    fn along(&mut self, x: ValueId, m: ValueId, d: usize) -> ValueId {
        let (dims, columns) = (self.ty(x).dims, self.ty(m).dims[1]);
        let mut moved = dims.clone();
        moved.remove(d);
        moved.push(columns);
        let numbers =
            DotDims { lhs_batch: vec![], rhs_batch: vec![], lhs_contract: vec![d as i64], rhs_contract: vec![0] };
        let attrs = [("dot_dimension_numbers", Attr::Dot(numbers))];
        let y = self.emit(Opcode::DotGeneral, &[x, m], TensorType::new(moved, DType::F64), &attrs);
        if d + 1 == dims.len() {
            return y;
        }
        // The new dimension is last; it belongs in the place of the old one.
        let (mut back, mut perm) = (dims.clone(), (0..d as i64).collect::<Vec<_>>());
        back[d] = columns;
        perm.push(dims.len() as i64 - 1);
        perm.extend(d as i64..dims.len() as i64 - 1);
        self.emit(Opcode::Transpose, &[y], TensorType::new(back, DType::F64), &[("permutation", Attr::Ints(perm))])
    }
}

/// The angle of `j k / n` of a turn; whole turns are left out, so that large products lose nothing.
fn turn(j: i64, k: i64, n: i64) -> f64 {
    TAU * ((j * k).rem_euclid(n.max(1))) as f64 / n.max(1) as f64
}
