//! Custom calls: those that frameworks write for ops that StableHLO lacks or once lacked, and those that only carry annotations.
//!
//! [`TARGETS`] lists them, one line a target. A target that is not in it is an error that names it and says what to do.

use tpusim_isa::num::convert::encode_i64;

use super::attention::{self, Attention};
use super::linalg::lu;
use super::region::{decode, encode};
use super::sort::merge_sort;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, elementwise, lookup, shape};
use crate::eval::{Fault, Frame, Tensor, Value, eval_module_with};
use crate::hlo::{Attr, AttrList, Opcode, TensorType};

const ANY: Arity = Arity::AtLeast(0);

pub(super) static OPS: &[OpDef] =
    &[OpDef::new(Opcode::CustomCall, ANY, Rule::Check(check), Eval::Values(custom_call)).regions(ANY).quantized()];

type Run = for<'m> fn(&mut Frame<'m>, &Site<'m>, Vec<Value>) -> Result<Vec<Value>, Fault>;

/// Known targets.
static TARGETS: &[(&str, Run)] = &[
    ("Sharding", identity),
    ("SPMDFullToShardShape", identity),
    ("SPMDShardToFullShape", identity),
    ("annotate_device_placement", identity),
    ("MoveToHost", identity),
    ("MoveToDevice", identity),
    ("LayoutConstraint", identity),
    ("xla.sdy.FuncResultSharding", identity),
    ("xla.sdy.GlobalToLocalShape", identity),
    ("xla.sdy.LocalToGlobalShape", identity),
    ("AllocateBuffer", zeros),
    ("mhlo.topk", mhlo_top_k),
    ("ApproxTopK", approx_top_k),
    ("LuDecomposition", lu_decomposition),
    (attention::ATTENTION, attend),
    (attention::GRADIENT, attend),
];

/// What is known of a call of its own target is checked; nothing of any other.
fn check(site: &Site<'_>) -> Result<(), RuleError> {
    let own = Attention::of(site.op, &site.operand_types(), &site.result_types());
    own.map_or(Ok(()), |a| a.map(|_| ()))
}

/// Attention, by what it stands for.
fn attend<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let own = Attention::of(site.op, &site.operand_types(), &site.result_types());
    let own = own.ok_or_else(|| Fault::invalid("is no attention"))??;
    let module = own
        .decomposition()
        .map_err(|e| Fault::invalid(e.first().map_or_else(|| "has no meaning".to_owned(), ToString::to_string)))?;
    let tensors: Option<Vec<Tensor>> = operands.iter().map(|v| v.tensor().cloned()).collect();
    let tensors = tensors.ok_or_else(|| Fault::invalid("takes tensors"))?;
    let results = eval_module_with(&module, &tensors, frame.options)?;
    Ok(results.into_iter().map(Value::Tensor).collect())
}

fn custom_call<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let target = site.op.attrs.text("call_target_name").unwrap_or_default();
    if let Some((_, run)) = TARGETS.iter().find(|(t, _)| *t == target) {
        return run(frame, site, operands);
    }
    if let Some(name) = target.strip_prefix("mhlo.") {
        return mhlo(site, name, &operands);
    }
    Err(Fault::Unsupported(format!(
        " to `{target}`: its meaning is not known here. Export the program with the ops that it stands for, or keep the call on the host"
    )))
}

/// Annotations pass their operands on.
fn identity<'m>(_: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    if site.operand_types() != site.result_types() {
        let target = site.op.attrs.text("call_target_name").unwrap_or_default();
        return Err(Fault::Unsupported(format!(
            " to `{target}` between a whole value and a device's part of it; write the manual part as `sdy.manual_computation`"
        )));
    }
    Ok(operands)
}

/// A buffer that nobody wrote to. Zeros, so that programs which read it anyway are repeatable.
fn zeros<'m>(_: &mut Frame<'m>, site: &Site<'m>, _: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let zero = |i| -> Result<Value, Fault> { Ok(shape::filled(site.result(i)?, 0).into()) };
    (0..site.op.results.len()).map(zero).collect()
}

/// The attributes of an op that travels as a custom call.
fn carried<'a>(site: &Site<'a>) -> &'a AttrList {
    match site.op.attrs.get("mhlo.attributes") {
        Some(Attr::Dict(d)) => d,
        _ => &site.op.attrs,
    }
}

/// Elementwise ops of MHLO that are StableHLO's or CHLO's now.
fn mhlo(site: &Site<'_>, name: &str, operands: &[Value]) -> Result<Vec<Value>, Fault> {
    let opcode = Opcode::from_name(&format!("chlo.{name}")).or_else(|| Opcode::from_name(&format!("stablehlo.{name}")));
    let tensors: Option<Vec<&Tensor>> = operands.iter().map(Value::tensor).collect();
    let ty = site.result(0)?.clone();
    match (opcode.and_then(lookup).map(|d| d.eval), tensors.as_deref()) {
        (Some(Eval::Unary(f)), Some([x])) if *x.ty() == ty && ty.quant.is_none() => {
            Ok(vec![elementwise::unary(f, x, ty)?.into()])
        }
        (Some(Eval::Binary(f)), Some([a, b])) if *a.ty() == ty && *b.ty() == ty && ty.quant.is_none() => {
            Ok(vec![elementwise::binary(f, a, b, ty)?.into()])
        }
        _ => Err(Fault::Unsupported(format!(
            " to `mhlo.{name}`: of MHLO only `topk` and elementwise ops of plain tensors are known as custom calls"
        ))),
    }
}

fn tensor(operands: &[Value], i: usize) -> Result<&Tensor, Fault> {
    operands.get(i).and_then(Value::tensor).ok_or_else(|| Fault::invalid(format!("operand {i} should be a tensor")))
}

/// The largest or smallest `k` of each row, in order, the first of equals first, and where they were.
fn mhlo_top_k<'m>(_: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let (x, values, indices) = (tensor(&operands, 0)?, site.result(0)?, site.result(1)?);
    let attrs = carried(site);
    let k =
        attrs.int("k").and_then(|k| usize::try_from(k).ok()).ok_or_else(|| Fault::invalid("needs the integer `k`"))?;
    let n = x.shape().last().copied().ok_or_else(|| Fault::invalid("needs at least rank 1"))?;
    let mut dims = x.dims().to_vec();
    dims.pop();
    dims.push(k as i64);
    if k > n || values.dims != dims || indices.dims != dims || values.dtype != x.dtype() || !indices.dtype.is_int() {
        return Err(Fault::invalid(format!("cannot give {values} and {indices} for the {k} largest of {}", x.ty())));
    }
    let largest = !matches!(attrs.get("largest"), Some(Attr::Bool(false)));
    let (v, i) = super::sort::extremes(x, k, largest);
    let i = Tensor::make(indices.clone(), encode_i64(indices.dtype, &i));
    Ok(vec![encode(values, &v).into(), i.into()])
}

/// The elements that come first by the comparator of the call, exactly. Operands are arrays, then a start value for each.
fn approx_top_k<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let config = match ["mhlo.backend_config", "backend_config"].iter().find_map(|n| site.op.attrs.get(n)) {
        Some(Attr::Dict(d)) => d,
        _ => return Err(Fault::invalid("needs `mhlo.backend_config`")),
    };
    let comparator = match site.op.attrs.get("called_computations") {
        Some(Attr::Array(a)) => a.iter().find_map(|a| if let Attr::Symbol(s) = a { Some(s.as_str()) } else { None }),
        _ => None,
    };
    let comparator = comparator.ok_or_else(|| Fault::invalid("needs a comparator in `called_computations`"))?;
    let n = site.op.results.len();
    let inputs: Vec<&Tensor> = (0..n).map(|i| tensor(&operands, i)).collect::<Result<_, _>>()?;
    let first = inputs.first().ok_or_else(|| Fault::invalid("needs an operand"))?;
    let rank = first.dims().len();
    let d = config.int("reduction_dim").map_or(-1, |d| if d < 0 { d + rank as i64 } else { d });
    let d = super::site::in_range(d, rank).ok_or_else(|| Fault::invalid("`reduction_dim` is out of range"))?;
    let kept = site.result(0)?.dims.get(d).map_or(0, |&k| k as usize);
    let mut wanted = first.dims().to_vec();
    wanted[d] = kept as i64;
    let fits = |i: usize| site.result(i).is_ok_and(|r| r.dims == wanted && r.dtype == inputs[i].dtype());
    if kept > first.shape()[d] || !(0..n).all(fits) || inputs.iter().any(|t| t.dims() != first.dims()) {
        return Err(Fault::invalid("results should be the operands cut along `reduction_dim`"));
    }
    let order: Vec<usize> = (0..rank).filter(|&k| k != d).chain([d]).collect();
    let mut back = vec![0; rank];
    order.iter().enumerate().for_each(|(i, &k)| back[k] = i);
    let rows: Vec<Tensor> = inputs.iter().map(|t| shape::permute(t, &order)).collect();
    let values: Vec<_> = rows.iter().map(decode).collect();
    let length = first.shape()[d];
    let mut places = Vec::new();
    for base in (0..values[0].len()).step_by(length.max(1)) {
        let sorted = merge_sort((base..base + length).collect(), |a, b| {
            let scalar = |t: &Tensor, v| Value::Tensor(encode(&TensorType::new([], t.dtype()), &[v]));
            let args = rows.iter().zip(&values).flat_map(|(t, v)| [scalar(t, v[a]), scalar(t, v[b])]).collect();
            let answer = frame.call(comparator, args)?;
            Ok(answer.first().and_then(Value::tensor).is_some_and(|t| t.bytes().first() == Some(&1)))
        })?;
        places.extend_from_slice(&sorted[..kept]);
    }
    let mut dims: Vec<i64> = order.iter().map(|&k| first.dims()[k]).collect();
    dims[rank - 1] = kept as i64;
    let take = |(t, v): (&Tensor, &Vec<_>)| {
        let moved: Vec<_> = places.iter().map(|&p| v[p]).collect();
        Value::Tensor(shape::permute(&encode(&TensorType::new(dims.clone(), t.dtype()), &moved), &back))
    };
    Ok(rows.iter().zip(&values).map(take).collect())
}

/// Factors, pivots and permutation of each matrix, with rows exchanged for the largest pivot.
fn lu_decomposition<'m>(_: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let x = tensor(&operands, 0)?;
    let (factors, pivots, permutation) = lu(x)?;
    let ints = |i: usize, v: Vec<i64>| -> Result<Value, Fault> {
        let ty = site.result(i)?;
        if ty.elements() != Some(v.len() as u64) || !ty.dtype.is_int() {
            return Err(Fault::invalid(format!("result {i} should hold {} integers, is {ty}", v.len())));
        }
        Ok(Tensor::make(ty.clone(), encode_i64(ty.dtype, &v)).into())
    };
    Ok(vec![factors.into(), ints(1, pivots)?, ints(2, permutation)?])
}
