//! Gathers: slices of a tensor at computed places.

use tpusim_isa::num::convert::int_value;

use super::site::{distinct, ensure};
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, rules};
use crate::eval::strided::{next_index, read, strides, write};
use crate::eval::{Fault, Tensor};
use crate::hlo::{Attr, GatherDims, Opcode, TensorType, Type};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::Gather, Arity::Exactly(2), Rule::Infer(rule), Eval::Tensor(gather)).quantized(),
    OpDef::new(Opcode::TorchIndexSelect, Arity::Exactly(2), Rule::Infer(select_rule), Eval::Tensor(index_select))
        .quantized(),
];

fn dims<'a>(site: &Site<'a>) -> Result<&'a GatherDims, RuleError> {
    match site.op.attrs.get("dimension_numbers") {
        Some(Attr::Gather(d)) => Ok(d),
        _ => Err(RuleError::new("needs `dimension_numbers`")),
    }
}

/// Sizes of the index tensor's dimensions without the one that holds index vectors, and the length of those vectors.
pub(super) fn index_batch(indices: &TensorType, vector_dim: i64) -> Result<(Vec<i64>, i64), RuleError> {
    let v = usize::try_from(vector_dim).ok().filter(|&v| v <= indices.rank());
    let v = v.ok_or_else(|| RuleError(format!("`index_vector_dim` is out of range for {indices}")))?;
    let mut batch = indices.dims.clone();
    let length = if v < batch.len() { batch.remove(v) } else { 1 };
    Ok((batch, length))
}

fn rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let sizes = site.ints("slice_sizes")?;
    shape_rule(site, sizes)
}

/// The type of the result of a gather of slices of shape `sizes`.
pub(super) fn shape_rule(site: &Site<'_>, sizes: &[i64]) -> Result<Vec<Type>, RuleError> {
    let (x, i, d) = (site.operand(0)?, site.operand(1)?, dims(site)?);
    ensure(i.dtype.is_int(), || format!("indices should be integers, not {i}"))?;
    ensure(sizes.len() == x.rank(), || format!("`slice_sizes` should have {} entries", x.rank()))?;
    let fits = sizes.iter().zip(&x.dims).all(|(&s, &n)| 0 <= s && s <= n);
    ensure(fits, || format!("no slice of sizes {sizes:?} fits into {x}"))?;
    let dropped = [d.collapsed_slice_dims.as_slice(), &d.operand_batching_dims].concat();
    for k in distinct("collapsed_slice_dims and operand_batching_dims", &dropped, x.rank())? {
        ensure(sizes[k] == 1, || format!("dimension {k} is dropped, its slice size should be 1"))?;
    }
    let (batch, length) = index_batch(i, d.index_vector_dim)?;
    let map = distinct(
        "start_index_map and operand_batching_dims",
        &[d.start_index_map.as_slice(), &d.operand_batching_dims].concat(),
        x.rank(),
    )?;
    ensure(map.len() - d.operand_batching_dims.len() == length as usize, || {
        format!("index vectors have {length} entries, `start_index_map` {}", d.start_index_map.len())
    })?;
    batching(&d.operand_batching_dims, &d.start_indices_batching_dims, x, i, d.index_vector_dim)?;
    let kept: Vec<i64> = (0..x.rank()).filter(|k| !dropped.contains(&(*k as i64))).map(|k| sizes[k]).collect();
    let rank = batch.len() + kept.len();
    let offset = distinct("offset_dims", &d.offset_dims, rank)?;
    ensure(offset.len() == kept.len(), || format!("`offset_dims` should have {} entries", kept.len()))?;
    let (mut batch, mut kept) = (batch.into_iter(), kept.into_iter());
    let dims = (0..rank).filter_map(|k| if offset.contains(&k) { kept.next() } else { batch.next() });
    Ok(vec![rules::reshaped(x, dims.collect())])
}

/// Batching dimensions of operand and indices come in pairs of one size.
pub(super) fn batching(
    operand_dims: &[i64],
    index_dims: &[i64],
    x: &TensorType,
    i: &TensorType,
    vector_dim: i64,
) -> Result<(), RuleError> {
    let a = distinct("batching dimensions of the operand", operand_dims, x.rank())?;
    let b = distinct("batching dimensions of the indices", index_dims, i.rank())?;
    let fits = a.len() == b.len() && a.iter().zip(&b).all(|(&a, &b)| x.dims[a] == i.dims[b] && b as i64 != vector_dim);
    ensure(fits, || format!("batching dimensions of {x} and {i} do not fit"))
}

/// The index tensor of a gather or scatter.
pub(super) struct Indices {
    values: Vec<i128>,
    strides: Vec<isize>,
    /// Sizes without the dimension of the vectors.
    pub batch: Vec<usize>,
    vector_dim: usize,
    rank: usize,
}

impl Indices {
    pub(super) fn new(t: &Tensor, vector_dim: i64) -> Result<Indices, RuleError> {
        let (batch, _) = index_batch(t.ty(), vector_dim)?;
        Ok(Indices {
            values: t.to_i64().into_iter().map(|v| int_value(t.dtype(), v)).collect(),
            strides: strides(&t.shape()),
            batch: batch.iter().map(|&d| d as usize).collect(),
            vector_dim: vector_dim as usize,
            rank: t.dims().len(),
        })
    }

    /// The start of the slice in an operand of rank `rank`: entries of the index vector at `map`, batch positions at `batching`.
    pub(super) fn start(&self, at: &[usize], rank: usize, map: &[i64], batching: (&[i64], &[i64])) -> Vec<i128> {
        let mut start = vec![0; rank];
        // Position in the index tensor, its vector dimension at 0.
        let full: Vec<usize> = (0..self.rank)
            .map(|d| match d.cmp(&self.vector_dim) {
                std::cmp::Ordering::Less => at[d],
                std::cmp::Ordering::Equal => 0,
                std::cmp::Ordering::Greater => at[d - 1],
            })
            .collect();
        let base: isize = full.iter().zip(&self.strides).map(|(&i, s)| i as isize * s).sum();
        let step = self.strides.get(self.vector_dim).copied().unwrap_or(0);
        for (k, &d) in map.iter().enumerate() {
            start[d as usize] = self.values[(base + k as isize * step) as usize];
        }
        for (&d, &i) in batching.0.iter().zip(batching.1) {
            start[d as usize] = full[i as usize] as i128;
        }
        start
    }
}

fn gather(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    gather_slices(site, operands, site.ints("slice_sizes")?)
}

/// A gather of slices of shape `sizes`.
pub(super) fn gather_slices(site: &Site<'_>, operands: &[&Tensor], sizes: &[i64]) -> Result<Tensor, Fault> {
    let (x, d, ty) = (operands[0], dims(site)?, site.result(0)?);
    let indices = Indices::new(operands[1], d.index_vector_dim)?;
    let w = x.dtype().bytes();
    let out: Vec<usize> = ty.dims.iter().map(|&d| d as usize).collect();
    let (own, target) = (strides(&x.shape()), strides(&out));
    let mut bytes = vec![0; out.iter().product::<usize>() * w];
    if bytes.is_empty() {
        return Ok(Tensor::make(ty.clone(), bytes));
    }
    let is_offset = |k: usize| d.offset_dims.contains(&(k as i64));
    let batch_strides: Vec<isize> = (0..out.len()).filter(|&k| !is_offset(k)).map(|k| target[k]).collect();
    let offset_strides: Vec<isize> = (0..out.len()).filter(|&k| is_offset(k)).map(|k| target[k]).collect();
    let dropped =
        |k: usize| d.collapsed_slice_dims.contains(&(k as i64)) || d.operand_batching_dims.contains(&(k as i64));
    let slice: Vec<usize> = sizes.iter().map(|&s| s as usize).collect();
    let kept: Vec<usize> = (0..slice.len()).filter(|&k| !dropped(k)).map(|k| slice[k]).collect();
    let mut at = vec![0; indices.batch.len()];
    loop {
        let batching = (d.operand_batching_dims.as_slice(), d.start_indices_batching_dims.as_slice());
        let start = indices.start(&at, x.dims().len(), &d.start_index_map, batching);
        let base: isize = (start.iter().enumerate())
            .map(|(k, &s)| s.clamp(0, i128::from(x.dims()[k] - sizes[k])) as isize * own[k])
            .sum();
        let part = read(x.bytes(), w, &slice, &own, base);
        let to: isize = at.iter().zip(&batch_strides).map(|(&i, s)| i as isize * s).sum();
        write(&mut bytes, &part, w, &kept, &offset_strides, to);
        if !next_index(&mut at, &indices.batch) {
            break;
        }
    }
    Ok(Tensor::make(ty.clone(), bytes))
}

/// The indexed dimension, and how many dimensions before it are batching ones.
fn select_dims(site: &Site<'_>) -> Result<(usize, usize), RuleError> {
    let (x, i) = (site.operand(0)?, site.operand(1)?);
    let (dim, batch) = (site.dim("dim", x.rank())?, site.int("batch_dims")?);
    let batch = usize::try_from(batch).ok().filter(|&b| b <= dim && b <= i.rank());
    let batch =
        batch.ok_or_else(|| RuleError::new("`batch_dims` should be at most `dim` and the rank of the indices"))?;
    ensure(x.dims[..batch] == i.dims[..batch], || format!("batching dimensions of {x} and {i} differ"))?;
    ensure(i.dtype.is_int(), || format!("indices should be integers, not {i}"))?;
    Ok((dim, batch))
}

fn select_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let ((dim, batch), x, i) = (select_dims(site)?, site.operand(0)?, site.operand(1)?);
    Ok(vec![rules::reshaped(x, [&x.dims[..dim], &i.dims[batch..], &x.dims[dim + 1..]].concat())])
}

/// Slices along one dimension. Indices outside are moved to its ends.
fn index_select(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let ((dim, batch), x, ty) = (select_dims(site)?, operands[0], site.result(0)?);
    let (shape, w) = (x.shape(), x.dtype().bytes());
    let product = |d: &[usize]| d.iter().product::<usize>();
    let (batches, outer, inner) = (product(&shape[..batch]), product(&shape[batch..dim]), product(&shape[dim + 1..]));
    let indices: Vec<i128> = operands[1].to_i64().into_iter().map(|v| int_value(operands[1].dtype(), v)).collect();
    let per_batch = indices.len() / batches.max(1);
    let mut bytes = Vec::with_capacity(ty.bytes().unwrap_or(0) as usize);
    if inner * per_batch > 0 && shape[dim] == 0 && batches * outer > 0 {
        return Err(Fault::invalid(format!("dimension {dim} of {} has no slices", x.ty())));
    }
    for b in 0..batches {
        for o in 0..outer {
            for &i in &indices[b * per_batch..(b + 1) * per_batch] {
                let at = i.clamp(0, shape[dim] as i128 - 1) as usize;
                let from = (((b * outer + o) * shape[dim] + at) * inner) * w;
                bytes.extend_from_slice(&x.bytes()[from..from + inner * w]);
            }
        }
    }
    Ok(Tensor::make(ty.clone(), bytes))
}
