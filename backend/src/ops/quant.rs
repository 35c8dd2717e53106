//! Quantization: from real numbers to stored integers and back.

use tpusim_isa::num::convert::{encode_f64, encode_i64};

use super::elementwise::{binary, unary};
use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site};
use crate::eval::strided::strides;
use crate::eval::{Fault, Tensor};
use crate::hlo::{Opcode, Quant, TensorType};

const ONE: Arity = Arity::Exactly(1);

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::UniformQuantize, ONE, Rule::Check(quantize_rule), Eval::Tensor(quantize)).quantized(),
    OpDef::new(Opcode::UniformDequantize, ONE, Rule::Check(dequantize_rule), Eval::Tensor(dequantize)).quantized(),
];

fn parameters(t: &TensorType) -> Result<&Quant, RuleError> {
    let q = t.quant.as_deref().ok_or_else(|| RuleError(format!("{t} is not quantized")))?;
    let scales = match q.axis {
        None => 1,
        Some(a) => t.dims.get(a).map_or(0, |&d| d as usize),
    };
    ensure(q.scales.len() == scales && q.zero_points.len() == scales, || format!("{t} should have {scales} scales"))?;
    Ok(q)
}

fn quantize_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (x, r) = (site.operand(0)?, site.result(0)?);
    parameters(r)?;
    ensure(x.dims == r.dims && (x.dtype.is_float() || x.quant.is_some()), || format!("cannot quantize {x} to {r}"))
}

fn dequantize_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (x, r) = (site.operand(0)?, site.result(0)?);
    let q = parameters(x)?;
    ensure(x.dims == r.dims && r.dtype == q.expressed, || format!("cannot dequantize {x} to {r}"))
}

/// Index of the scale of each element.
fn scale_index(t: &TensorType, q: &Quant) -> impl Fn(usize) -> usize + use<> {
    let dims: Vec<usize> = t.dims.iter().map(|&d| d as usize).collect();
    let (stride, size) = match q.axis {
        Some(a) => (strides(&dims)[a] as usize, dims[a]),
        None => (1, 1),
    };
    move |i| i / stride % size
}

fn real(t: &Tensor) -> Result<Vec<f64>, Fault> {
    let Some(q) = t.ty().quant.as_deref() else { return Ok(t.to_f64()) };
    parameters(t.ty())?;
    let scale = scale_index(t.ty(), q);
    let value = |(i, v): (usize, i64)| (v - q.zero_points[scale(i)]) as f64 * q.scales[scale(i)];
    Ok(t.to_i64().into_iter().enumerate().map(value).collect())
}

/// Real numbers as stored integers of `ty`.
pub(super) fn store(ty: &TensorType, values: Vec<f64>) -> Result<Tensor, Fault> {
    let (q, scale) = (parameters(ty)?, scale_index(ty, parameters(ty)?));
    let stored = |(i, x): (usize, f64)| {
        let v = (x / q.scales[scale(i)]).round_ties_even() + q.zero_points[scale(i)] as f64;
        (v as i64).clamp(q.storage_min, q.storage_max.max(q.storage_min))
    };
    let values: Vec<i64> = values.into_iter().enumerate().map(stored).collect();
    Ok(Tensor::make(ty.clone(), encode_i64(ty.dtype, &values)))
}

fn quantize(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    store(site.result(0)?, real(operands[0])?)
}

fn dequantize(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let ty = site.result(0)?;
    Ok(Tensor::make(ty.clone(), encode_f64(ty.dtype, &real(operands[0])?)))
}

/// An elementwise op on quantized tensors: on the numbers they stand for, in the expressed type, and quantized again.
pub(crate) fn eval_quantized(site: &Site<'_>, eval: &Eval, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let ty = site.result(0)?;
    let expressed = TensorType::new(ty.dims.clone(), ty.quant.as_ref().map_or(ty.dtype, |q| q.expressed));
    let plain = |t: &&Tensor| Ok(Tensor::make(expressed.clone(), encode_f64(expressed.dtype, &real(t)?)));
    let x: Vec<Tensor> = operands.iter().map(plain).collect::<Result<_, Fault>>()?;
    let result = match (eval, x.as_slice()) {
        (Eval::Unary(f), [a]) => unary(f, a, expressed.clone())?,
        (Eval::Binary(f), [a, b]) => binary(f, a, b, expressed.clone())?,
        _ => return Err(Fault::Unsupported(" on quantized tensors".into())),
    };
    if ty.quant.is_some() { store(ty, result.to_f64()) } else { Ok(result) }
}
