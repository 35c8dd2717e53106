//! Scatters: updates at computed places, combined with what is there, in row-major order of the updates.

use super::gather::{Indices, batching, index_batch};
use super::reduce::reducer_rule;
use super::region::{Num, ScalarFn, decode, encode};
use super::site::{distinct, ensure};
use super::window::each_index;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site};
use crate::eval::strided::strides;
use crate::eval::{Fault, Frame, Tensor, Value};
use crate::hlo::{Attr, Opcode, ScatterDims, Type};

pub(super) static OPS: &[OpDef] =
    &[OpDef::new(Opcode::Scatter, Arity::AtLeast(3), Rule::Infer(rule), Eval::Values(scatter))
        .regions(Arity::Exactly(1))
        .quantized()];

fn dims<'a>(site: &Site<'a>) -> Result<&'a ScatterDims, RuleError> {
    match site.op.attrs.get("scatter_dimension_numbers") {
        Some(Attr::Scatter(d)) => Ok(d),
        _ => Err(RuleError::new("needs `scatter_dimension_numbers`")),
    }
}

/// Operands are n inputs, the indices, n updates.
fn inputs(site: &Site<'_>) -> Result<usize, RuleError> {
    let n = site.op.operands.len() / 2;
    ensure(site.op.operands.len() == 2 * n + 1, || "needs as many updates as inputs".into())?;
    Ok(n)
}

/// Operand dimensions that the window of an update runs along.
fn window_dims(d: &ScatterDims, rank: usize) -> Vec<usize> {
    (0..rank)
        .filter(|&k| !d.inserted_window_dims.contains(&(k as i64)) && !d.input_batching_dims.contains(&(k as i64)))
        .collect()
}

fn rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let (n, d) = (inputs(site)?, dims(site)?);
    let (first, i) = (site.operand(0)?, site.operand(n)?);
    ensure(i.dtype.is_int(), || format!("indices should be integers, not {i}"))?;
    distinct(
        "inserted_window_dims and input_batching_dims",
        &[d.inserted_window_dims.as_slice(), &d.input_batching_dims].concat(),
        first.rank(),
    )?;
    distinct("scatter_dims_to_operand_dims", &d.scatter_dims_to_operand_dims, first.rank())?;
    let (batch, length) = index_batch(i, d.index_vector_dim)?;
    ensure(d.scatter_dims_to_operand_dims.len() == length as usize, || {
        format!(
            "index vectors have {length} entries, `scatter_dims_to_operand_dims` {}",
            d.scatter_dims_to_operand_dims.len()
        )
    })?;
    batching(&d.input_batching_dims, &d.scatter_indices_batching_dims, first, i, d.index_vector_dim)?;
    let along = window_dims(d, first.rank());
    let mut dtypes = Vec::new();
    for k in 0..n {
        let (x, u) = (site.operand(k)?, site.operand(n + 1 + k)?);
        ensure(x.dims == first.dims && u.dtype == x.dtype, || format!("input {x} and update {u} do not fit"))?;
        ensure(u.rank() == batch.len() + along.len(), || format!("the update {u} has the wrong rank"))?;
        let window = distinct("update_window_dims", &d.update_window_dims, u.rank())?;
        ensure(window.len() == along.len(), || format!("`update_window_dims` should have {} entries", along.len()))?;
        let fits = window.iter().zip(&along).all(|(&w, &a)| u.dims[w] <= x.dims[a]);
        ensure(fits, || format!("the windows of {u} do not fit into {x}"))?;
        let rest: Vec<i64> = (0..u.rank()).filter(|k| !window.contains(k)).map(|k| u.dims[k]).collect();
        ensure(rest == batch, || format!("the update {u} does not have the batch dimensions {batch:?}"))?;
        dtypes.push(x.dtype);
    }
    reducer_rule(site, site.block(0)?, &dtypes)?;
    (0..n).map(|k| site.operand_type(k).cloned()).collect()
}

fn scatter<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let (n, d, block) = (inputs(site)?, dims(site)?, site.block(0)?);
    let tensors: Vec<&Tensor> = operands.iter().filter_map(Value::tensor).collect();
    let indices = Indices::new(tensors[n], d.index_vector_dim)?;
    let mut out: Vec<Vec<Num>> = tensors[..n].iter().map(|t| decode(t)).collect();
    let updates: Vec<Vec<Num>> = tensors[n + 1..].iter().map(|t| decode(t)).collect();
    let mut f = ScalarFn::new(frame, site, block)?;
    let sizes = tensors[0].dims();
    let (own, along) = (strides(&tensors[0].shape()), window_dims(d, sizes.len()));
    let update_shape = tensors[n + 1].shape();
    let is_window: Vec<bool> = (0..update_shape.len()).map(|k| d.update_window_dims.contains(&(k as i64))).collect();
    let (mut flat, mut args, mut result) = (0, Vec::new(), Vec::new());
    let (mut at, mut start): (Vec<usize>, Vec<i128>) = (vec![usize::MAX; indices.batch.len()], Vec::new());
    each_index(&update_shape, |index| {
        let update = flat;
        flat += 1;
        let here = || index.iter().zip(&is_window).filter(|(_, w)| !**w).map(|(i, _)| *i);
        if start.is_empty() || !here().eq(at.iter().copied()) {
            at = here().collect();
            let batching = (d.input_batching_dims.as_slice(), d.scatter_indices_batching_dims.as_slice());
            start = indices.start(&at, sizes.len(), &d.scatter_dims_to_operand_dims, batching);
        }
        let mut place = start.clone();
        for (&a, &w) in along.iter().zip(&d.update_window_dims) {
            place[a] += index[w as usize] as i128;
        }
        // An element outside of the operand is dropped.
        if place.iter().zip(sizes).any(|(&p, &s)| p < 0 || p >= i128::from(s)) {
            return Ok(());
        }
        let to = place.iter().zip(&own).map(|(&p, &s)| p as isize * s).sum::<isize>() as usize;
        args.clear();
        args.extend(out.iter().map(|o| o[to]));
        args.extend(updates.iter().map(|u| u[update]));
        f.call(frame, &args, &mut result)?;
        out.iter_mut().zip(&result).for_each(|(o, v)| o[to] = *v);
        Ok(())
    })?;
    out.iter().enumerate().map(|(k, v)| Ok(encode(site.result(k)?, v).into())).collect()
}
