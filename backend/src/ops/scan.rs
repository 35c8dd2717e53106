//! CHLO's `scan`: a body that runs over the slices of its inputs in turn and hands its carries on.

use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site};
use crate::eval::strided::{read, strides, write};
use crate::eval::{Fault, Frame, Tensor, Value, terminator};
use crate::hlo::{Opcode, TensorType};

pub(super) static OPS: &[OpDef] =
    &[OpDef::new(Opcode::ChloScan, Arity::AtLeast(0), Rule::Check(rule), Eval::Values(scan))
        .regions(Arity::Exactly(1))
        .quantized()];

struct Parts {
    inputs: usize,
    carries: usize,
    outputs: usize,
    dim: usize,
    steps: i64,
}

fn parts(site: &Site<'_>) -> Result<Parts, RuleError> {
    let (&[inputs, carries], &[outputs, last]) = (site.ints("operandSegmentSizes")?, site.ints("resultSegmentSizes")?)
    else {
        return Err(RuleError::new("needs the numbers of inputs, carries and outputs"));
    };
    let size = |n: i64| usize::try_from(n).map_err(|_| RuleError::new("a number of operands or results is negative"));
    let (inputs, carries, outputs) = (size(inputs)?, size(carries)?, size(outputs)?);
    let counts = inputs + carries == site.op.operands.len()
        && outputs + carries == site.op.results.len()
        && last == carries as i64;
    ensure(counts, || "operands and results should be inputs and outputs, each with the carries behind".into())?;
    let dim = usize::try_from(site.int("dimension")?).map_err(|_| RuleError::new("`dimension` is negative"))?;
    let mut steps = site.op.attrs.int("scan_dim_size");
    for i in 0..inputs + outputs {
        let t = if i < inputs { site.operand(i)? } else { site.result(i - inputs)? };
        let n = *t.dims.get(dim).ok_or_else(|| RuleError(format!("{t} has no dimension {dim}")))?;
        ensure(steps.is_none_or(|s| s == n), || format!("{t} should have {} slices", steps.unwrap_or(0)))?;
        steps = Some(n);
    }
    let steps = steps.ok_or_else(|| RuleError::new("needs an input, an output or `scan_dim_size`"))?;
    Ok(Parts { inputs, carries, outputs, dim, steps })
}

/// The type of a slice.
fn slice_type(t: &TensorType, dim: usize) -> TensorType {
    let mut t = t.clone();
    t.dims.remove(dim);
    if let Some(q) = &mut t.quant {
        q.axis = q.axis.filter(|a| *a != dim).map(|a| a - usize::from(a > dim));
    }
    t
}

fn rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (p, block) = (parts(site)?, site.block(0)?);
    let taken = (0..p.inputs).map(|i| Ok(slice_type(site.operand(i)?, p.dim)));
    let given = (0..p.outputs).map(|i| Ok(slice_type(site.result(i)?, p.dim)));
    let mut takes: Vec<TensorType> = taken.collect::<Result<_, RuleError>>()?;
    let mut gives: Vec<TensorType> = given.collect::<Result<_, RuleError>>()?;
    for i in 0..p.carries {
        let (init, last) = (site.operand(p.inputs + i)?, site.result(p.outputs + i)?);
        ensure(init == last, || format!("carry {i} begins as {init} and ends as {last}"))?;
        takes.push(init.clone());
        gives.push(init.clone());
    }
    let types = |vs: &[crate::hlo::ValueId]| -> Vec<Option<TensorType>> {
        vs.iter().map(|v| site.func.ty(*v).tensor().cloned()).collect()
    };
    let same = |got: Vec<Option<TensorType>>, want: Vec<TensorType>| got.into_iter().eq(want.into_iter().map(Some));
    let returned = terminator(block).map(|op| types(&op.operands)).unwrap_or_default();
    ensure(same(types(&block.args), takes), || "the body should take a slice of each input and the carries".into())?;
    ensure(same(returned, gives), || "the body should return a slice of each output and the carries".into())
}

fn scan<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let (p, block) = (parts(site)?, site.block(0)?);
    let mut carries: Vec<Value> = operands[p.inputs..].to_vec();
    let types: Vec<TensorType> = (0..p.outputs).map(|i| site.result(i).cloned()).collect::<Result<_, _>>()?;
    let mut outputs: Vec<Vec<u8>> = types.iter().map(|t| vec![0; t.bytes().unwrap_or(0) as usize]).collect();
    let reverse = site.op.attrs.flag("is_reverse");
    for step in 0..p.steps {
        let at = (if reverse { p.steps - 1 - step } else { step }) as usize;
        let mut args: Vec<Value> = Vec::new();
        for v in &operands[..p.inputs] {
            let t = v.tensor().ok_or_else(|| Fault::invalid("an input is not a tensor"))?;
            args.push(slice(t, p.dim, at).into());
        }
        args.append(&mut carries);
        let mut given = frame.region(block, args)?;
        if given.len() != p.outputs + p.carries {
            return Err(Fault::invalid("the body returns the wrong number of values"));
        }
        carries = given.split_off(p.outputs);
        for ((v, ty), out) in given.iter().zip(&types).zip(&mut outputs) {
            let t = v.tensor().ok_or_else(|| Fault::invalid("an output is not a tensor"))?;
            let whole: Vec<usize> = ty.dims.iter().map(|&d| d as usize).collect();
            let mut stride = strides(&whole);
            let base = stride.remove(p.dim) * at as isize;
            write(out, t.bytes(), ty.dtype.bytes(), &t.shape(), &stride, base);
        }
    }
    let made = types.into_iter().zip(outputs).map(|(t, b)| Value::Tensor(Tensor::make(t, b)));
    Ok(made.chain(carries).collect())
}

/// Slice `at` of `t` along `dim`, without that dimension.
fn slice(t: &Tensor, dim: usize, at: usize) -> Tensor {
    let shape = t.shape();
    let mut stride = strides(&shape);
    let base = stride.remove(dim) * at as isize;
    let dims: Vec<usize> = (0..shape.len()).filter(|d| *d != dim).map(|d| shape[d]).collect();
    Tensor::make(slice_type(t.ty(), dim), read(t.bytes(), t.dtype().bytes(), &dims, &stride, base))
}
