//! Sorting and the largest elements.

use super::region::{Num, ScalarFn, decode, encode};
use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, rules, shape};
use crate::eval::{EvalOptions, Fault, Frame, Tensor, Value};
use crate::hlo::{Opcode, TensorType, Type};
use tpusim_isa::num::DType;
use tpusim_isa::num::convert::encode_i64;

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::Sort, Arity::AtLeast(1), Rule::Infer(sort_rule), Eval::Values(sort))
        .regions(Arity::Exactly(1))
        .quantized(),
    OpDef::new(Opcode::ChloTopK, Arity::Exactly(1), Rule::Infer(top_k_rule), Eval::Tensors(top_k)).quantized(),
];

/// The dimension to sort along; the last if absent, negative ones count from the end.
fn dimension(site: &Site<'_>, rank: usize) -> Result<usize, RuleError> {
    let d = site.op.attrs.int("dimension").unwrap_or(-1);
    let d = if d < 0 { d + rank as i64 } else { d };
    super::site::in_range(d, rank).ok_or_else(|| RuleError(format!("`dimension` is out of range for rank {rank}")))
}

fn sort_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let first = site.operand(0)?;
    dimension(site, first.rank())?;
    let mut dtypes = Vec::new();
    for i in 0..site.op.operands.len() {
        let x = site.operand(i)?;
        ensure(x.dims == first.dims, || format!("inputs differ: {first} and {x}"))?;
        dtypes.extend([x.dtype, x.dtype]);
    }
    let args = &site.block(0)?.args;
    let fits = args.len() == dtypes.len()
        && args.iter().zip(dtypes).all(|(v, d)| site.func.ty(*v).tensor() == Some(&TensorType::new([], d)));
    ensure(fits, || "the comparator should take two scalars of each input".into())?;
    Ok(site.operand_types())
}

fn sort<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let tensors: Vec<&Tensor> = operands.iter().filter_map(Value::tensor).collect();
    let rank = tensors[0].dims().len();
    let d = dimension(site, rank)?;
    let order: Vec<usize> = (0..rank).filter(|&k| k != d).chain([d]).collect();
    let mut back = vec![0; rank];
    order.iter().enumerate().for_each(|(i, &k)| back[k] = i);
    let rows: Vec<Tensor> = tensors.iter().map(|t| shape::permute(t, &order)).collect();
    let values: Vec<Vec<Num>> = rows.iter().map(decode).collect();
    let mut f = ScalarFn::new(frame, site, site.block(0)?)?;
    let n = tensors[0].shape()[d];
    let (mut args, mut result) = (Vec::new(), Vec::new());
    let mut places = Vec::with_capacity(values[0].len());
    for base in (0..values[0].len()).step_by(n.max(1)) {
        let sorted = merge_sort((base..base + n).collect(), |a, b| {
            args.clear();
            args.extend(values.iter().flat_map(|v| [v[a], v[b]]));
            f.call(frame, &args, &mut result)?;
            Ok(result.first().is_some_and(|r| r.truth()))
        })?;
        places.extend(sorted);
    }
    let take = |(t, v): (&Tensor, &Vec<Num>)| {
        let moved: Vec<Num> = places.iter().map(|&p| v[p]).collect();
        Value::Tensor(shape::permute(&encode(t.ty(), &moved), &back))
    };
    Ok(rows.iter().zip(&values).map(take).collect())
}

/// A stable sort by `less`, which need not be an order: whatever it says, this ends and gives a permutation.
pub(super) fn merge_sort(
    mut items: Vec<usize>,
    mut less: impl FnMut(usize, usize) -> Result<bool, Fault>,
) -> Result<Vec<usize>, Fault> {
    let mut width = 1;
    while width < items.len() {
        let mut merged = Vec::with_capacity(items.len());
        for run in items.chunks(2 * width) {
            let (mut a, mut b) = run.split_at(width.min(run.len()));
            while let (Some((&x, rest_a)), Some((&y, rest_b))) = (a.split_first(), b.split_first()) {
                if less(y, x)? {
                    merged.push(y);
                    b = rest_b;
                } else {
                    merged.push(x);
                    a = rest_a;
                }
            }
            merged.extend_from_slice(a);
            merged.extend_from_slice(b);
        }
        items = merged;
        width *= 2;
    }
    Ok(items)
}

fn top_k_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let x = site.operand(0)?;
    let (Some(&n), k) = (x.dims.last(), site.int("k")?) else { return Err(RuleError::new("needs at least rank 1")) };
    ensure(0 <= k && k <= n, || format!("`k` is {k}, the last dimension of {x} is smaller"))?;
    let mut dims = x.dims.clone();
    dims[x.rank() - 1] = k;
    Ok(vec![rules::reshaped(x, dims.clone()), rules::tensor(&dims, DType::I32)])
}

/// The `k` largest of each row by total order, the first of equals first.
fn top_k(site: &Site<'_>, operands: &[&Tensor], _: &EvalOptions) -> Result<Vec<Tensor>, Fault> {
    let (values, indices) = extremes(operands[0], site.int("k")? as usize, true);
    let (values_ty, indices_ty) = (site.result(0)?, site.result(1)?);
    Ok(vec![encode(values_ty, &values), Tensor::make(indices_ty.clone(), encode_i64(DType::I32, &indices))])
}

/// The `k` largest or smallest of each row of `x` by total order, the first of equals first, and their places in the row.
pub(super) fn extremes(x: &Tensor, k: usize, largest: bool) -> (Vec<Num>, Vec<i64>) {
    let n = x.shape().last().copied().unwrap_or(1);
    let values = decode(x);
    let (mut found, mut indices) = (Vec::new(), Vec::new());
    for base in (0..values.len()).step_by(n.max(1)) {
        let mut row: Vec<usize> = (base..base + n).collect();
        row.sort_by(|&a, &b| {
            let (a, b) = if largest { (b, a) } else { (a, b) };
            match (values[a], values[b]) {
                (Num::F(a), Num::F(b)) => a.total_cmp(&b),
                (Num::I(a), Num::I(b)) => super::compare::int_order(x.dtype(), a, b),
                _ => std::cmp::Ordering::Equal,
            }
        });
        found.extend(row[..k].iter().map(|&p| values[p]));
        indices.extend(row[..k].iter().map(|&p| (p - base) as i64));
    }
    (found, indices)
}
