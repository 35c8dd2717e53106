//! Factorisations and solves of batches of matrices, in double precision and rounded once.

use tpusim_isa::num::convert::encode_f64;

use super::complex::{div, mul};
use super::elementwise::{C, Class, decode_complex, encode_complex};
use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, rules};
use crate::eval::{Fault, Tensor};
use crate::hlo::{Opcode, TensorType, Type};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::Cholesky, Arity::Exactly(1), Rule::Infer(cholesky_rule), Eval::Tensor(cholesky)),
    OpDef::new(Opcode::TriangularSolve, Arity::Exactly(2), Rule::Infer(solve_rule), Eval::Tensor(solve)),
];

/// Rows of the square matrices that `t` is a batch of.
fn square(t: &TensorType) -> Result<usize, RuleError> {
    match t.dims.as_slice() {
        [.., m, n] if m == n => Ok(*n as usize),
        _ => Err(RuleError(format!("needs square matrices, got {t}"))),
    }
}

/// Elements as complex numbers in double precision.
fn numbers(t: &Tensor) -> Result<Vec<C>, Fault> {
    match Class::of(t.dtype()) {
        Class::F32 | Class::F64 => Ok(t.to_f64().into_iter().map(|x| (x, 0.0)).collect()),
        Class::Complex => Ok(decode_complex(t)),
        Class::Int => Err(Fault::Unsupported(format!(" on {}", t.dtype()))),
    }
}

fn tensor(like: &Tensor, values: &[C]) -> Tensor {
    if like.dtype().is_float() {
        let real: Vec<f64> = values.iter().map(|v| v.0).collect();
        return Tensor::make(like.ty().clone(), encode_f64(like.dtype(), &real));
    }
    encode_complex(like.ty().clone(), values)
}

fn conj(x: C) -> C {
    (x.0, -x.1)
}

/// `acc - a b`.
fn less_product(acc: C, a: C, b: C) -> C {
    // Real matrices must not meet the zeros of their imaginary parts times infinities.
    if a.1 == 0.0 && b.1 == 0.0 {
        return (acc.0 - a.0 * b.0, acc.1);
    }
    let p = mul(a, b);
    (acc.0 - p.0, acc.1 - p.1)
}

fn quotient(a: C, b: C) -> C {
    if a.1 == 0.0 && b.1 == 0.0 { (a.0 / b.0, 0.0) } else { div(a, b) }
}

fn cholesky_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    square(site.operand(0)?)?;
    rules::elementwise_float(site)
}

/// Only the triangle asked for is read; the other one is zero in the result. NaN where a matrix is not positive definite.
fn cholesky(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (x, n) = (operands[0], square(operands[0].ty())?);
    let lower = site.op.attrs.flag("lower");
    let mut out = numbers(x)?;
    for a in out.chunks_exact_mut((n * n).max(1)) {
        // The factor below the diagonal; of the triangle above, its conjugate is read.
        let mut l = vec![(0.0, 0.0); n * n];
        for i in 0..n {
            for j in 0..=i {
                let start = if lower { a[i * n + j] } else { conj(a[j * n + i]) };
                let rest = (0..j).fold(start, |r, k| less_product(r, l[i * n + k], conj(l[j * n + k])));
                l[i * n + j] = if i == j { (rest.0.sqrt(), 0.0) } else { quotient(rest, l[j * n + j]) };
            }
        }
        for i in 0..n {
            for j in 0..n {
                a[i * n + j] = if lower { l[i * n + j] } else { conj(l[j * n + i]) };
            }
        }
    }
    Ok(tensor(x, &out))
}

fn solve_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let (a, b) = (site.operand(0)?, site.operand(1)?);
    let n = square(a)? as i64;
    let r = a.rank();
    let side = if site.op.attrs.flag("left_side") { 2 } else { 1 };
    let fits = b.rank() == r && b.dtype == a.dtype && a.dims[..r - 2] == b.dims[..r - 2] && b.dims[r - side] == n;
    ensure(fits, || format!("{a} cannot solve {b}"))?;
    Ok(vec![Type::Tensor(b.clone())])
}

fn solve(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let n = square(operands[0].ty())?;
    let (a, mut b) = (numbers(operands[0])?, numbers(operands[1])?);
    let left = site.op.attrs.flag("left_side");
    let unit = site.op.attrs.flag("unit_diagonal");
    let transposed = matches!(site.op.attrs.text("transpose_a"), Some("TRANSPOSE" | "ADJOINT"));
    let adjoint = site.op.attrs.text("transpose_a") == Some("ADJOINT");
    let [.., rows, columns] = *operands[1].shape().as_slice() else { return Err(Fault::invalid("needs matrices")) };
    // x op(a) = b is op(a)' x' = b': the right-hand sides are then the rows of b.
    let flip = transposed == left;
    let lower = site.op.attrs.flag("lower") != flip;
    let (count, stride, step) = if left { (columns, columns, 1) } else { (rows, 1, columns) };
    for (a, b) in a.chunks_exact((n * n).max(1)).zip(b.chunks_exact_mut((rows * columns).max(1))) {
        let at = |i: usize, j: usize| {
            let v = if flip { a[j * n + i] } else { a[i * n + j] };
            if adjoint { conj(v) } else { v }
        };
        for side in 0..count {
            for k in 0..n {
                let i = if lower { k } else { n - 1 - k };
                let known = if lower { 0..i } else { i + 1..n };
                let start = b[side * step + i * stride];
                let rest = known.fold(start, |r, j| less_product(r, at(i, j), b[side * step + j * stride]));
                b[side * step + i * stride] = if unit { rest } else { quotient(rest, at(i, i)) };
            }
        }
    }
    Ok(tensor(operands[1], &b))
}

/// For each matrix of `x`: the factors below and above the diagonal in one, which row was exchanged in each step, and where each
/// row of the product comes from. The pivot is the first of the largest magnitude.
pub(super) fn lu(x: &Tensor) -> Result<(Tensor, Vec<i64>, Vec<i64>), Fault> {
    let [.., m, n] = *x.shape().as_slice() else {
        return Err(Fault::invalid(format!("needs matrices, got {}", x.ty())));
    };
    let mut out = numbers(x)?;
    let (mut pivots, mut permutation) = (Vec::new(), Vec::new());
    for a in out.chunks_exact_mut((m * n).max(1)) {
        let mut rows: Vec<i64> = (0..m as i64).collect();
        for k in 0..m.min(n) {
            let size = |i: usize| libm::hypot(a[i * n + k].0, a[i * n + k].1);
            let p = (k + 1..m).fold(k, |p, i| if size(i) > size(p) { i } else { p });
            pivots.push(p as i64);
            rows.swap(k, p);
            (0..n).for_each(|j| a.swap(k * n + j, p * n + j));
            for i in k + 1..m {
                if a[k * n + k] == (0.0, 0.0) {
                    continue;
                }
                let f = quotient(a[i * n + k], a[k * n + k]);
                a[i * n + k] = f;
                for j in k + 1..n {
                    a[i * n + j] = less_product(a[i * n + j], f, a[k * n + j]);
                }
            }
        }
        permutation.extend(rows);
    }
    Ok((tensor(x, &out), pivots, permutation))
}
