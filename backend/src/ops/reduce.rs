//! Reductions over whole dimensions.

use tpusim_isa::num::DType;
use tpusim_isa::num::convert::{encode_f32, encode_f64, encode_i64};

use super::elementwise::Class;
use super::region::{Num, ScalarFn, decode, encode, single_op};
use super::site::ensure;
use super::{Arity, BinaryFns, Eval, OpDef, Rule, RuleError, Site, lookup, shape};
use crate::eval::{Fault, Frame, Tensor, Value};
use crate::hlo::{Block, Opcode, TensorType};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::Reduce, Arity::AtLeast(2), Rule::Check(reduce_rule), Eval::Values(reduce))
        .regions(Arity::Exactly(1))
        .quantized(),
    OpDef::new(Opcode::Map, Arity::AtLeast(1), Rule::Check(map_rule), Eval::Values(map))
        .regions(Arity::Exactly(1))
        .quantized(),
];

/// The region takes scalars of the given element types, twice over, and returns them once.
pub(super) fn reducer_rule(site: &Site<'_>, block: &Block, dtypes: &[DType]) -> Result<(), RuleError> {
    let scalars = |vs: &[crate::hlo::ValueId]| -> Option<Vec<DType>> {
        vs.iter().map(|v| site.func.ty(*v).tensor().filter(|t| t.rank() == 0).map(|t| t.dtype)).collect()
    };
    ensure(scalars(&block.args).is_some_and(|a| a == [dtypes, dtypes].concat()), || {
        format!("the region should take scalars of {dtypes:?}, twice")
    })?;
    let returned = crate::eval::terminator(block).and_then(|op| scalars(&op.operands));
    ensure(returned.is_some_and(|r| r == dtypes), || format!("the region should return scalars of {dtypes:?}"))
}

/// Half of the operands are inputs, the other half their initial values; returns how many.
pub(super) fn inputs(site: &Site<'_>) -> Result<usize, RuleError> {
    let n = site.op.operands.len() / 2;
    ensure(n > 0 && site.op.operands.len() == 2 * n && site.op.results.len() == n, || {
        "needs as many initial values and results as inputs".into()
    })?;
    Ok(n)
}

fn reduce_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let n = inputs(site)?;
    let first = site.operand(0)?;
    let reduced = site.dims("dimensions", first.rank())?;
    let dims: Vec<i64> = (0..first.rank()).filter(|d| !reduced.contains(d)).map(|d| first.dims[d]).collect();
    let mut dtypes = Vec::new();
    for i in 0..n {
        let (x, init, r) = (site.operand(i)?, site.operand(n + i)?, site.result(i)?);
        ensure(x.dims == first.dims, || format!("inputs differ: {first} and {x}"))?;
        ensure(init.rank() == 0, || format!("initial values are scalars, not {init}"))?;
        ensure(r.dims == dims && r.dtype == init.dtype, || {
            format!("result {i} should have dimensions {dims:?}, is {r}")
        })?;
        dtypes.push(init.dtype);
    }
    reducer_rule(site, site.block(0)?, &dtypes)
}

fn reduce<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let tensors: Vec<&Tensor> = operands.iter().filter_map(Value::tensor).collect();
    let n = inputs(site)?;
    let rank = tensors[0].dims().len();
    let reduced = site.dims("dimensions", rank)?;
    let order: Vec<usize> = (0..rank).filter(|d| !reduced.contains(d)).chain(sorted(&reduced)).collect();
    let row: usize = reduced.iter().map(|&d| tensors[0].dims()[d] as usize).product();
    // Reduced dimensions last: each result is the fold of one row.
    let rows: Vec<Tensor> = tensors[..n].iter().map(|x| shape::permute(x, &order)).collect();
    let block = site.block(0)?;
    if let (1, Some(op)) = (n, single_op(site, block))
        && let Some(Eval::Binary(f)) = lookup(op.opcode).map(|d| d.eval)
        && Class::of(rows[0].dtype()) != Class::Complex
    {
        return Ok(vec![fold_rows(&rows[0], row, tensors[1], f, op.opcode, site.result(0)?).into()]);
    }
    let mut f = ScalarFn::new(frame, site, block)?;
    let values: Vec<Vec<Num>> = rows.iter().map(decode).collect();
    let mut init = Vec::new();
    for t in &tensors[n..] {
        init.extend(decode(t));
    }
    let count = site.result(0)?.elements().unwrap_or(0) as usize;
    let mut out: Vec<Vec<Num>> = vec![Vec::with_capacity(count); n];
    let (mut args, mut acc) = (Vec::new(), Vec::new());
    for r in 0..count {
        acc.clone_from(&init);
        for i in r * row..(r + 1) * row {
            args.clone_from(&acc);
            args.extend(values.iter().map(|v| v[i]));
            f.call(frame, &args, &mut acc)?;
        }
        out.iter_mut().zip(&acc).for_each(|(o, v)| o.push(*v));
    }
    out.iter().enumerate().map(|(i, v)| Ok(encode(site.result(i)?, v).into())).collect()
}

fn sorted(dims: &[usize]) -> Vec<usize> {
    let mut dims = dims.to_vec();
    dims.sort_unstable();
    dims
}

/// Folds every row of `x` with `f`, from `init`. Sums and products of floats have a wider accumulator, see [`crate::eval`].
fn fold_rows(x: &Tensor, row: usize, init: &Tensor, f: &BinaryFns, op: Opcode, ty: &TensorType) -> Tensor {
    let count = ty.elements().unwrap_or(0) as usize;
    let wide = matches!(op, Opcode::Add | Opcode::Multiply);
    let bytes = match (Class::of(ty.dtype), f.f32, f.f64, f.int) {
        (Class::F32, Some(f), ..) if !wide || ty.dtype != DType::F32 => {
            encode_f32(ty.dtype, &folded(&x.to_f32(), row, count, init.to_f32()[0], f))
        }
        (Class::F32 | Class::F64, _, Some(f), _) => {
            encode_f64(ty.dtype, &folded(&x.to_f64(), row, count, init.to_f64()[0], f))
        }
        (_, _, _, Some(f)) => {
            let d = ty.dtype;
            encode_i64(d, &folded(&x.to_i64(), row, count, init.to_i64()[0], |a, b| f(d, a, b)))
        }
        _ => init.bytes().repeat(count),
    };
    Tensor::make(ty.clone(), bytes)
}

fn folded<T: Copy>(x: &[T], row: usize, count: usize, init: T, f: impl Fn(T, T) -> T) -> Vec<T> {
    (0..count).map(|r| x[r * row..(r + 1) * row].iter().fold(init, |a, &b| f(a, b))).collect()
}

fn map_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (first, r) = (site.operand(0)?, site.result(0)?);
    for i in 0..site.op.operands.len() {
        ensure(site.operand(i)?.dims == r.dims, || format!("inputs differ: {first} and {r}"))?;
    }
    ensure(site.block(0)?.args.len() == site.op.operands.len(), || "the region takes one scalar per input".into())
}

fn map<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let values: Vec<Vec<Num>> = operands.iter().filter_map(Value::tensor).map(decode).collect();
    let mut f = ScalarFn::new(frame, site, site.block(0)?)?;
    let ty = site.result(0)?;
    let (mut out, mut result) = (Vec::new(), Vec::new());
    for i in 0..ty.elements().unwrap_or(0) as usize {
        let args: Vec<Num> = values.iter().map(|v| v[i]).collect();
        f.call(frame, &args, &mut result)?;
        out.extend(result.first());
    }
    Ok(vec![encode(ty, &out).into()])
}
