//! Ops that make or rearrange elements without computing with them.

use tpusim_isa::num::DTypeKind;
use tpusim_isa::num::convert::{encode_f64, encode_i64};

use super::site::{distinct, ensure};
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, rules};
use crate::eval::strided::{read, strides, write};
use crate::eval::{Fault, Tensor};
use crate::hlo::{Attr, Literal, Opcode, TensorType, Type};

const ONE: Arity = Arity::Exactly(1);

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::Constant, Arity::Exactly(0), Rule::Check(constant_rule), Eval::Tensor(constant)).quantized(),
    OpDef::new(Opcode::ChloConstant, Arity::Exactly(0), Rule::Check(constant_rule), Eval::Tensor(constant)),
    OpDef::new(Opcode::SdyConstant, Arity::Exactly(0), Rule::Check(constant_rule), Eval::Tensor(constant)),
    OpDef::new(Opcode::ChloConstantLike, ONE, Rule::Check(rules::any), Eval::Tensor(constant_like)),
    OpDef::new(Opcode::Iota, Arity::Exactly(0), Rule::Check(iota_rule), Eval::Tensor(iota)),
    OpDef::new(Opcode::Broadcast, ONE, Rule::Infer(broadcast_rule), Eval::Tensor(broadcast)).quantized(),
    OpDef::new(Opcode::BroadcastInDim, ONE, Rule::Check(broadcast_in_dim_rule), Eval::Tensor(broadcast_in_dim))
        .quantized(),
    OpDef::new(Opcode::Reshape, ONE, Rule::Check(reshape_rule), Eval::Tensor(reshape)).quantized(),
    OpDef::new(Opcode::Transpose, ONE, Rule::Infer(transpose_rule), Eval::Tensor(transpose)).quantized(),
    OpDef::new(Opcode::Reverse, ONE, Rule::Infer(reverse_rule), Eval::Tensor(reverse)).quantized(),
    OpDef::new(Opcode::Concatenate, Arity::AtLeast(1), Rule::Infer(concatenate_rule), Eval::Tensor(concatenate))
        .quantized(),
];

/// The literal of a constant.
pub(crate) fn literal<'a>(site: &Site<'a>) -> Result<&'a Literal, RuleError> {
    match site.op.attrs.get("value") {
        Some(Attr::Dense(l)) => Ok(l),
        _ => Err(RuleError::new("needs the tensor `value`")),
    }
}

fn constant_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (l, r) = (literal(site)?, site.result(0)?);
    ensure(rules::compatible(&l.ty, r), || format!("`value` is {}, the result {r}", l.ty))?;
    let n = l.ty.bytes();
    ensure(l.is_splat() || n == Some(l.bytes.len() as u64), || format!("`value` has {} bytes", l.bytes.len()))
}

fn constant(site: &Site<'_>, _: &[&Tensor]) -> Result<Tensor, Fault> {
    let t = Tensor::from_literal(literal(site)?).map_err(|e| Fault::invalid(e.to_string()))?;
    Ok(t.with_type(site.result(0)?.clone()))
}

fn constant_like(site: &Site<'_>, _: &[&Tensor]) -> Result<Tensor, Fault> {
    let ty = site.result(0)?;
    let n = ty.elements().ok_or_else(|| Fault::invalid("the result has no fixed size"))? as usize;
    let bytes = match site.op.attrs.get("value") {
        Some(Attr::Float(v, _)) => encode_f64(ty.dtype, &[*v]),
        Some(Attr::Int(v, _)) => encode_i64(ty.dtype, &[*v]),
        _ => return Err(Fault::invalid("needs the number `value`")),
    };
    Ok(Tensor::make(ty.clone(), bytes.repeat(n)))
}

/// A tensor whose elements are all `value`.
pub(super) fn filled(ty: &TensorType, value: i64) -> Tensor {
    let one = match ty.dtype.kind() {
        DTypeKind::Float => encode_f64(ty.dtype, &[value as f64]),
        DTypeKind::Complex => encode_f64(rules::part(ty.dtype), &[value as f64, 0.0]),
        _ => encode_i64(ty.dtype, &[value]),
    };
    Tensor::make(ty.clone(), one.repeat(ty.elements().unwrap_or(0) as usize))
}

fn iota_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let r = site.result(0)?;
    site.dim("iota_dimension", r.rank()).map(|_| ())
}

fn iota(site: &Site<'_>, _: &[&Tensor]) -> Result<Tensor, Fault> {
    let ty = site.result(0)?;
    Ok(iota_along(ty, site.dim("iota_dimension", ty.rank())?))
}

/// A tensor whose elements are their index along `dim`.
pub(super) fn iota_along(ty: &TensorType, dim: usize) -> Tensor {
    let n = ty.dims[dim];
    let row = match ty.dtype.kind() {
        DTypeKind::Float => encode_f64(ty.dtype, &(0..n).map(|i| i as f64).collect::<Vec<_>>()),
        DTypeKind::Complex => {
            let parts: Vec<f64> = (0..n).flat_map(|i| [i as f64, 0.0]).collect();
            encode_f64(rules::part(ty.dtype), &parts)
        }
        _ => encode_i64(ty.dtype, &(0..n).collect::<Vec<_>>()),
    };
    broadcast_to(&Tensor::make(TensorType::new([n], ty.dtype), row), &[dim as i64], &ty.dims)
}

fn broadcast_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let x = site.operand(0)?;
    Ok(vec![rules::reshaped(x, [site.ints("broadcast_sizes")?, &x.dims].concat())])
}

fn broadcast(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (x, ty) = (operands[0], site.result(0)?);
    let n = (ty.rank() - x.dims().len()) as i64;
    let dims: Vec<i64> = (n..ty.rank() as i64).collect();
    Ok(broadcast_to(x, &dims, &ty.dims).with_type(ty.clone()))
}

/// Whether a tensor of shape `from`, its dimensions placed at `dims`, can be broadcast to `to`.
pub(super) fn broadcast_fits(from: &[i64], dims: &[i64], to: &[i64]) -> Result<(), RuleError> {
    ensure(from.len() == dims.len(), || format!("`broadcast_dimensions` should have {} entries", from.len()))?;
    for (&n, d) in from.iter().zip(distinct("broadcast_dimensions", dims, to.len())?) {
        ensure(n == 1 || n == to[d], || format!("a dimension of size {n} cannot be broadcast to {}", to[d]))?;
    }
    Ok(())
}

/// `x`, its dimensions placed at `dims`, broadcast to the shape `to`.
pub(super) fn broadcast_to(x: &Tensor, dims: &[i64], to: &[i64]) -> Tensor {
    let shape = x.shape();
    let own = strides(&shape);
    let mut stride = vec![0isize; to.len()];
    for ((&d, &n), &s) in dims.iter().zip(&shape).zip(&own) {
        if n != 1 {
            stride[d as usize] = s;
        }
    }
    let ty = TensorType { dims: to.to_vec(), dtype: x.dtype(), quant: x.ty().quant.clone() };
    let out: Vec<usize> = to.iter().map(|&d| d as usize).collect();
    let bytes = read(x.bytes(), x.dtype().bytes(), &out, &stride, 0);
    Tensor::make(ty, bytes)
}

fn broadcast_in_dim_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (x, r) = (site.operand(0)?, site.result(0)?);
    ensure(x.dtype == r.dtype, || format!("cannot broadcast {x} to {r}"))?;
    broadcast_fits(&x.dims, site.ints("broadcast_dimensions")?, &r.dims)
}

fn broadcast_in_dim(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let ty = site.result(0)?;
    Ok(broadcast_to(operands[0], site.ints("broadcast_dimensions")?, &ty.dims).with_type(ty.clone()))
}

fn reshape_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (x, r) = (site.operand(0)?, site.result(0)?);
    ensure(x.dtype == r.dtype && x.elements() == r.elements(), || format!("cannot reshape {x} to {r}"))
}

fn reshape(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    Ok(operands[0].with_type(site.result(0)?.clone()))
}

fn permutation(site: &Site<'_>, rank: usize) -> Result<Vec<usize>, RuleError> {
    let p = site.dims("permutation", rank)?;
    ensure(p.len() == rank, || format!("`permutation` should have {rank} entries"))?;
    Ok(p)
}

fn transpose_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let x = site.operand(0)?;
    let dims = permutation(site, x.rank())?.iter().map(|&p| x.dims[p]).collect();
    Ok(vec![rules::reshaped(x, dims)])
}

fn transpose(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let x = operands[0];
    Ok(permute(x, &permutation(site, x.dims().len())?).with_type(site.result(0)?.clone()))
}

/// `x` with its dimensions in the order of `permutation`.
pub(super) fn permute(x: &Tensor, permutation: &[usize]) -> Tensor {
    let shape = x.shape();
    let own = strides(&shape);
    let out: Vec<usize> = permutation.iter().map(|&p| shape[p]).collect();
    let stride: Vec<isize> = permutation.iter().map(|&p| own[p]).collect();
    let mut ty = TensorType::new(permutation.iter().map(|&p| x.dims()[p]).collect::<Vec<_>>(), x.dtype());
    ty.quant = x.ty().quant.clone();
    if let Some(q) = &mut ty.quant {
        q.axis = q.axis.and_then(|a| permutation.iter().position(|&p| p == a));
    }
    let bytes = read(x.bytes(), x.dtype().bytes(), &out, &stride, 0);
    Tensor::make(ty, bytes)
}

fn reverse_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let x = site.operand(0)?;
    site.dims("dimensions", x.rank())?;
    Ok(vec![Type::Tensor(x.clone())])
}

fn reverse(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let x = operands[0];
    let shape = x.shape();
    let (mut stride, mut base) = (strides(&shape), 0);
    for d in site.dims("dimensions", shape.len())? {
        base += stride[d] * (shape[d] as isize - 1);
        stride[d] = -stride[d];
    }
    Ok(Tensor::make(x.ty().clone(), read(x.bytes(), x.dtype().bytes(), &shape, &stride, base)))
}

fn concatenate_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let first = site.operand(0)?;
    let d = site.dim("dimension", first.rank())?;
    let mut dims = first.dims.clone();
    for i in 1..site.op.operands.len() {
        let x = site.operand(i)?;
        let fits = x.rank() == dims.len() && (0..dims.len()).all(|k| k == d || x.dims[k] == dims[k]);
        ensure(fits && x.dtype == first.dtype, || format!("cannot join {first} and {x} along dimension {d}"))?;
        dims[d] = dims[d].saturating_add(x.dims[d]);
    }
    Ok(vec![rules::reshaped(first, dims)])
}

fn concatenate(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let ty = site.result(0)?;
    let d = site.dim("dimension", ty.rank())?;
    let out: Vec<usize> = ty.dims.iter().map(|&d| d as usize).collect();
    let (stride, w) = (strides(&out), ty.dtype.bytes());
    let mut bytes = vec![0; out.iter().product::<usize>() * w];
    let mut at = 0;
    for x in operands {
        let shape = x.shape();
        write(&mut bytes, x.bytes(), w, &shape, &stride, at);
        at += stride[d] * shape[d] as isize;
    }
    Ok(Tensor::make(ty.clone(), bytes))
}
