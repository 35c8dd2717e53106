//! Quantization: from real numbers to stored integers and back.

use tpusim_isa::num::convert::{encode_f64, encode_i64};

use super::site::ensure;
use super::unary::round_to;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site};
use crate::eval::strided::strides;
use crate::eval::{DotPrecision, EvalOptions, Fault, Tensor};
use crate::hlo::{Op, Opcode, Quant, TensorType, Type, ValueId};

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

/// What the elements of `t` stand for, in its expressed type.
fn real(t: &Tensor) -> Result<Vec<f64>, Fault> {
    let Some(q) = t.ty().quant.as_deref() else { return Ok(t.to_f64()) };
    parameters(t.ty())?;
    let scale = scale_index(t.ty(), q);
    let value = |(i, v): (usize, i64)| {
        let offset = round_to(q.expressed, v.wrapping_sub(q.zero_points[scale(i)]) as f64);
        round_to(q.expressed, offset * round_to(q.expressed, q.scales[scale(i)]))
    };
    Ok(t.to_i64().into_iter().enumerate().map(value).collect())
}

/// Real numbers as stored integers of `ty`. The zero point is added before rounding, as the specification does it, so that ties
/// go to the even stored integer. NaN is stored as 0.
pub(super) fn store(ty: &TensorType, values: Vec<f64>) -> Result<Tensor, Fault> {
    let q = parameters(ty)?;
    let scale = scale_index(ty, q);
    let round = |v: f64| round_to(q.expressed, v);
    let (min, max) = (round(q.storage_min as f64), round(q.storage_max.max(q.storage_min) as f64));
    let stored = |(i, x): (usize, f64)| {
        let scaled = round(x / round(q.scales[scale(i)]));
        if x.is_nan() {
            return 0.clamp(q.storage_min, q.storage_max.max(q.storage_min));
        }
        let v = round(scaled + round(q.zero_points[scale(i)] as f64)).max(min).min(max);
        (v.round_ties_even() as i64).clamp(q.storage_min, q.storage_max.max(q.storage_min))
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

/// Evaluates an op that knows nothing of quantization: on the numbers that its operands stand for, in their expressed types. Its
/// quantized results are quantized again.
pub(crate) fn eval_quantized(
    site: &Site<'_>,
    eval: &Eval,
    operands: &[&Tensor],
    options: &EvalOptions,
) -> Result<Vec<Tensor>, Fault> {
    let plain = |t: &TensorType| match &t.quant {
        Some(q) => TensorType::new(t.dims.clone(), q.expressed),
        None => t.clone(),
    };
    let real = |t: &&Tensor| match &t.ty().quant {
        Some(_) => Ok(Tensor::make(plain(t.ty()), encode_f64(plain(t.ty()).dtype, &real(t)?))),
        None => Ok((*t).clone()),
    };
    let inputs: Vec<Tensor> = operands.iter().map(real).collect::<Result<_, Fault>>()?;
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    // The same op among values of the expressed types.
    let mut func = site.func.clone_signature();
    let (first, count) = (site.op.operands.len(), site.op.results.len());
    for t in &inputs {
        func.new_value(Type::Tensor(t.ty().clone()));
    }
    for i in 0..count {
        func.new_value(Type::Tensor(plain(site.result(i)?)));
    }
    let value = |i: usize| ValueId::from(i);
    let op = Op {
        operands: (0..first).map(value).collect(),
        results: (first..first + count).map(value).collect(),
        regions: Vec::new(),
        ..site.op.clone()
    };
    let among = Site { module: site.module, func: &func, op: &op };
    // An MXU multiplies stored integers, without rounding.
    let all = site.op.operands.iter().all(|v| site.func.ty(*v).tensor().is_some_and(|t| t.quant.is_some()));
    let dot = if all { DotPrecision::Exact } else { options.dot };
    let results = match eval {
        Eval::Unary(f) => vec![super::eval_unary(&among, f, &inputs)?],
        Eval::Binary(f) => vec![super::eval_binary(&among, f, &inputs)?],
        Eval::Tensor(f) => vec![f(&among, &inputs)?],
        Eval::Tensors(f) => f(&among, &inputs, &EvalOptions { dot, ..*options })?,
        Eval::Values(_) | Eval::Unsupported => return Err(Fault::Unsupported(" on quantized tensors".into())),
    };
    let finish = |(i, t): (usize, Tensor)| {
        let ty = site.result(i)?;
        if ty.quant.is_some() { store(ty, t.to_f64()) } else { Ok(t) }
    };
    results.into_iter().enumerate().map(finish).collect()
}
