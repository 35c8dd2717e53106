//! Factorisations and solves of batches of matrices, in double precision and rounded once.

use tpusim_isa::num::convert::encode_f64;

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

fn real(t: &Tensor) -> Result<Vec<f64>, Fault> {
    if t.dtype().is_float() { Ok(t.to_f64()) } else { Err(Fault::Unsupported(format!(" on {}", t.dtype()))) }
}

fn cholesky_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    square(site.operand(0)?)?;
    rules::elementwise_float(site)
}

/// Only the triangle asked for is read; the other one is zero in the result. NaN where a matrix is not positive definite.
fn cholesky(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (x, n) = (operands[0], square(operands[0].ty())?);
    let lower = site.op.attrs.flag("lower");
    let mut out = real(x)?;
    for a in out.chunks_exact_mut((n * n).max(1)) {
        let mut l = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..=i {
                let dot: f64 = (0..j).map(|k| l[i * n + k] * l[j * n + k]).sum();
                let rest = (if lower { a[i * n + j] } else { a[j * n + i] }) - dot;
                l[i * n + j] = if i == j { rest.sqrt() } else { rest / l[j * n + j] };
            }
        }
        for i in 0..n {
            for j in 0..n {
                a[i * n + j] = if lower { l[i * n + j] } else { l[j * n + i] };
            }
        }
    }
    Ok(Tensor::make(x.ty().clone(), encode_f64(x.dtype(), &out)))
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
    let (a, mut b) = (real(operands[0])?, real(operands[1])?);
    let left = site.op.attrs.flag("left_side");
    let unit = site.op.attrs.flag("unit_diagonal");
    let transposed = matches!(site.op.attrs.text("transpose_a"), Some("TRANSPOSE" | "ADJOINT"));
    let [.., rows, columns] = *operands[1].shape().as_slice() else { return Err(Fault::invalid("needs matrices")) };
    // x op(a) = b is op(a)' x' = b': the right-hand sides are then the rows of b.
    let flip = transposed == left;
    let lower = site.op.attrs.flag("lower") != flip;
    let (count, stride, step) = if left { (columns, columns, 1) } else { (rows, 1, columns) };
    for (a, b) in a.chunks_exact((n * n).max(1)).zip(b.chunks_exact_mut((rows * columns).max(1))) {
        let at = |i: usize, j: usize| if flip { a[j * n + i] } else { a[i * n + j] };
        for side in 0..count {
            for k in 0..n {
                let i = if lower { k } else { n - 1 - k };
                let known = if lower { 0..i } else { i + 1..n };
                let dot: f64 = known.map(|j| at(i, j) * b[side * step + j * stride]).sum();
                let rest = b[side * step + i * stride] - dot;
                b[side * step + i * stride] = if unit { rest } else { rest / at(i, i) };
            }
        }
    }
    Ok(Tensor::make(operands[1].ty().clone(), encode_f64(operands[1].dtype(), &b)))
}
