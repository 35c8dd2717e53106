//! Ops whose local form is more than the same op on smaller tensors.

use tpusim_isa::num::DType;
use tpusim_isa::num::convert::{decode_f64, decode_i64};

use super::PartitionError;
use super::choose::Choice;
use super::mesh::{Axis, Sharding};
use super::reshard::Step;
use super::rewrite::Rewrite;
use super::rule::{Kind, Rule, reducer};
use crate::hlo::{Attr, Block, Op, Opcode, ReduceKind, TensorType, ValueId};

/// Notes the values of `block` whose elements are all one known number.
pub(super) fn known(block: &Block, out: &mut [Option<f64>]) {
    for op in &block.ops {
        let value = match op.opcode {
            Opcode::Constant => match op.attrs.get("value") {
                Some(Attr::Dense(l)) if l.is_splat() && l.ty.quant.is_none() && !complex(l.ty.dtype) => {
                    let float = l.ty.dtype.is_float();
                    if float {
                        decode_f64(l.ty.dtype, &l.bytes).first().copied()
                    } else {
                        decode_i64(l.ty.dtype, &l.bytes).first().map(|&v| v as f64)
                    }
                }
                _ => None,
            },
            Opcode::BroadcastInDim | Opcode::Reshape | Opcode::Transpose => {
                op.operands.first().and_then(|&v| out[usize::from(v)])
            }
            _ => None,
        };
        if let (Some(v), Some(&r)) = (value, op.results.first()) {
            out[usize::from(r)] = Some(v);
        }
        op.regions.iter().for_each(|r| known(&r.block, out));
    }
}

fn complex(d: DType) -> bool {
    matches!(d, DType::C64 | DType::C128)
}

fn ints(v: Vec<i64>) -> Attr {
    Attr::Ints(v)
}

/// The axes of the factor of dimension `d` of tensor `t`, if it is of `kind`.
fn cut_by(rule: &Rule, choice: &Choice, t: usize, d: usize, kind: Kind) -> Vec<Axis> {
    match rule.tensors.get(t).and_then(|t| t.get(d)).map(Vec::as_slice) {
        Some([f]) if rule.factors[*f].kind == kind => choice.factors[*f].clone(),
        _ => Vec::new(),
    }
}

/// Writes `op` on local operands; the results are cut as chosen, partial ones not yet combined.
pub(super) fn emit(
    r: &mut Rewrite<'_>,
    op: &Op,
    rule: &Rule,
    choice: &Choice,
    operands: Vec<ValueId>,
) -> Result<Vec<ValueId>, PartitionError> {
    let local = |r: &Rewrite<'_>, i: usize| choice.results[i].local(&r.global(op.results[i]).dims, r.e.mesh);
    match op.opcode {
        Opcode::Constant => match op.attrs.get("value") {
            Some(Attr::Dense(l)) if l.is_splat() => {
                let mut l = l.as_ref().clone();
                l.ty.dims = local(r, 0);
                r.copy(op, choice, &[], vec![("value", Attr::Dense(l.into()))])
            }
            _ => r.copy(op, choice, &[], Vec::new()),
        },
        Opcode::Iota => {
            let v = r.copy(op, choice, &[], Vec::new())?;
            let d = op.attrs.int("iota_dimension").and_then(|d| usize::try_from(d).ok()).unwrap_or(0);
            let axes = choice.results[0].dims.get(d).cloned().unwrap_or_default();
            if axes.is_empty() {
                return Ok(v);
            }
            let ty = r.e.ty(v[0]);
            let start = r.e.offset(&axes, ty.dims[d]);
            if ty.dtype.is_float() || complex(ty.dtype) {
                // Exactly as far as the whole iota is: integers first, rounded once.
                let whole = TensorType::new(ty.dims.clone(), DType::I32);
                let attrs = vec![("iota_dimension", super::emit::i64_attr(d as i64))];
                let i = r.e.one(Opcode::Iota, &[], attrs, whole);
                let start = r.e.broadcast(start, &[], &ty.dims);
                let sum = r.e.binary(Opcode::Add, i, start);
                return Ok(vec![r.e.convert(sum, ty.dtype)]);
            }
            let start = r.e.convert(start, ty.dtype);
            let start = r.e.broadcast(start, &[], &ty.dims);
            Ok(vec![r.e.binary(Opcode::Add, v[0], start)])
        }
        Opcode::Slice => {
            let (start, limit) = (op.attrs.ints("start_indices"), op.attrs.ints("limit_indices"));
            let (Some(start), Some(limit)) = (start, limit) else { return r.copy(op, choice, &operands, Vec::new()) };
            let dims = r.e.ty(operands[0]).dims;
            let global = r.global(op.operands[0]).dims;
            // A dimension that is cut is one that stays whole.
            let limit = (0..dims.len()).map(|d| if dims[d] == global[d] { limit[d] } else { dims[d] }).collect();
            let start = start.to_vec();
            r.copy(op, choice, &operands, vec![("start_indices", ints(start)), ("limit_indices", ints(limit))])
        }
        Opcode::DynamicSlice => {
            let (sizes, mut operands) = (local(r, 0), operands);
            let inside = part_index(r, op, rule, choice, &mut operands, 1);
            let v = r.copy(op, choice, &operands, vec![("slice_sizes", ints(sizes))])?;
            let Some(inside) = inside else { return Ok(v) };
            let zero = r.e.splat(r.e.ty(v[0]), 0.0);
            Ok(vec![r.e.select(inside, v[0], zero)])
        }
        Opcode::DynamicUpdateSlice => {
            let mut operands = operands;
            if let Some(inside) = part_index(r, op, rule, choice, &mut operands, 2) {
                // Elsewhere what is there is written again.
                let ty = r.e.ty(operands[1]);
                let sizes = vec![("slice_sizes", ints(ty.dims.clone()))];
                let from = [&operands[..1], &operands[2..]].concat();
                let old = r.e.one(Opcode::DynamicSlice, &from, sizes, ty);
                operands[1] = r.e.select(inside, operands[1], old);
            }
            r.copy(op, choice, &operands, Vec::new())
        }
        Opcode::GetDimensionSize => {
            let d = op.attrs.int("dimension").and_then(|d| usize::try_from(d).ok()).unwrap_or(0);
            let size = r.global(op.operands[0]).dims.get(d).copied().unwrap_or(0);
            Ok(vec![r.e.splat(r.global(op.results[0]), size as f64)])
        }
        Opcode::Reduce if needs_init(r, op, choice) => {
            let Some(kind) = reducer(r.from, op) else { return r.copy(op, choice, &operands, Vec::new()) };
            let ty = r.e.ty(operands[1]);
            let neutral = r.e.splat(ty.clone(), kind.identity(ty.dtype));
            r.copy(op, choice, &[operands[0], neutral], Vec::new())
        }
        Opcode::Reduce if !choice.fold.is_empty() => fold(r, op, choice, operands),
        Opcode::Gather => gather(r, op, rule, choice, operands),
        Opcode::Scatter => scatter(r, op, rule, choice, operands),
        Opcode::SdyReshard | Opcode::SdyShardingConstraint => Ok(operands),
        _ => r.copy(op, choice, &operands, Vec::new()),
    }
}

/// Makes the start indices, operands from `first` on, those of this device's part; whether the element is in it, where it may not be.
fn part_index(
    r: &mut Rewrite<'_>,
    op: &Op,
    rule: &Rule,
    choice: &Choice,
    operands: &mut [ValueId],
    first: usize,
) -> Option<ValueId> {
    let (whole, part) = (r.global(op.operands[0]).dims, r.e.ty(operands[0]).dims);
    let mut inside: Option<ValueId> = None;
    for d in 0..whole.len() {
        let axes = cut_by(rule, choice, 0, d, Kind::Indexed);
        if axes.is_empty() {
            continue;
        }
        let ty = r.e.ty(operands[first + d]);
        // The whole op clamps to the whole dimension.
        let zero = r.e.splat(ty.clone(), 0.0);
        let last = r.e.splat(ty.clone(), (whole[d] - 1) as f64);
        let clamped = r.e.one(Opcode::Clamp, &[zero, operands[first + d], last], Vec::new(), ty.clone());
        let start = r.e.offset(&axes, part[d]);
        let start = r.e.convert(start, ty.dtype);
        let index = r.e.binary(Opcode::Subtract, clamped, start);
        let size = r.e.splat(ty, part[d] as f64);
        let low = r.e.compare("GE", index, zero);
        let high = r.e.compare("LT", index, size);
        let ok = r.e.binary(Opcode::And, low, high);
        inside = Some(inside.map_or(ok, |other| r.e.binary(Opcode::And, other, ok)));
        operands[first + d] = index;
    }
    inside
}

/// Whether the initial value of a sum must be added once, not once per device.
fn needs_init(r: &Rewrite<'_>, op: &Op, choice: &Choice) -> bool {
    let Some(kind) = reducer(r.from, op) else { return false };
    let once = matches!(kind, ReduceKind::Sum | ReduceKind::Product);
    let dtype = r.global(op.operands[0]).dtype;
    op.operands.len() == 2
        && once
        && !choice.partial.is_empty()
        && r.constant(op.operands[1]) != Some(kind.identity(dtype))
}

/// Each device reduces its part; all reduce what they got.
fn fold(r: &mut Rewrite<'_>, op: &Op, choice: &Choice, operands: Vec<ValueId>) -> Result<Vec<ValueId>, PartitionError> {
    let parts = r.copy(op, choice, &operands, Vec::new())?;
    let mut all = Vec::new();
    for v in parts {
        let ty = r.e.ty(v);
        let row = TensorType { dims: [&[1], ty.dims.as_slice()].concat(), ..ty };
        let v = r.e.one(Opcode::Reshape, &[v], Vec::new(), row.clone());
        let whole = [&[r.e.mesh.count(&choice.fold) as i64], &row.dims[1..]].concat();
        let mut cur = Sharding::replicated(row.rank());
        cur.dims[0].clone_from(&choice.fold);
        let step = Step::AllGather { dim: 0, axes: choice.fold.clone() };
        all.push(r.e.step(v, &mut cur, &step, &whole, ReduceKind::Sum));
    }
    all.extend(&operands[operands.len() / 2..]);
    r.copy(op, choice, &all, vec![("dimensions", ints(vec![0]))])
}

/// What is left to do with a result that is in place: the initial value of a reduction.
pub(super) fn complete(r: &mut Rewrite<'_>, op: &Op, choice: &Choice, v: ValueId, _: &Sharding) -> ValueId {
    if op.opcode != Opcode::Reduce || !needs_init(r, op, choice) {
        return v;
    }
    let (Some(kind), Some(init)) = (reducer(r.from, op), r.value(op.operands[1])) else { return v };
    let dims = r.e.ty(v).dims;
    let init = r.e.broadcast(init, &[], &dims);
    r.e.binary(kind.opcode(), init, v)
}

/// `indices` less the first index of this device's part, at component `k` of the index vector.
fn shift(r: &mut Rewrite<'_>, indices: ValueId, vector: usize, k: usize, start: ValueId) -> ValueId {
    let ty = r.e.ty(indices);
    let start = r.e.convert(start, ty.dtype);
    let start = r.e.broadcast(start, &[], &ty.dims);
    let moved = r.e.binary(Opcode::Subtract, indices, start);
    if ty.dims.get(vector).is_none_or(|&n| n == 1) {
        return moved;
    }
    let ids = TensorType::new(ty.dims.clone(), DType::I32);
    let which = r.e.one(Opcode::Iota, &[], vec![("iota_dimension", super::emit::i64_attr(vector as i64))], ids.clone());
    let k = r.e.splat(ids, k as f64);
    let mine = r.e.compare("EQ", which, k);
    r.e.select(mine, moved, indices)
}

fn vector_dim(v: i64) -> usize {
    usize::try_from(v).unwrap_or(usize::MAX)
}

fn gather(
    r: &mut Rewrite<'_>,
    op: &Op,
    rule: &Rule,
    choice: &Choice,
    operands: Vec<ValueId>,
) -> Result<Vec<ValueId>, PartitionError> {
    let Some(Attr::Gather(g)) = op.attrs.get("dimension_numbers") else {
        return r.copy(op, choice, &operands, Vec::new());
    };
    let (whole, part) = (r.global(op.operands[0]).dims, r.e.ty(operands[0]).dims);
    let sizes = op.attrs.ints("slice_sizes").unwrap_or_default();
    let local = |d: usize| if sizes[d] == whole[d] { part[d] } else { sizes[d] };
    let sizes: Vec<i64> = (0..sizes.len()).map(local).collect();
    let vector = vector_dim(g.index_vector_dim);
    let mut indices = operands[1];
    let mut inside: Option<ValueId> = None;
    for (k, &d) in g.start_index_map.iter().enumerate() {
        let d = vector_dim(d);
        let axes = cut_by(rule, choice, 0, d, Kind::Indexed);
        if axes.is_empty() {
            continue;
        }
        // The whole op clamps indices to the whole dimension.
        let ty = r.e.ty(indices);
        let scalar = TensorType::new([], ty.dtype);
        let lowest = r.e.splat(scalar.clone(), 0.0);
        let highest = r.e.splat(scalar, (whole[d] - 1) as f64);
        let clamped = r.e.one(Opcode::Clamp, &[lowest, indices, highest], Vec::new(), ty.clone());
        let start = r.e.offset(&axes, part[d]);
        let moved = shift(r, clamped, vector, k, start);
        // Component `k`, without the dimension of the index vector.
        let mut shape = ty.dims.clone();
        let mut one = moved;
        if vector < shape.len() {
            if shape[vector] != 1 {
                let mut from = vec![0; shape.len()];
                let mut to = shape.clone();
                (from[vector], to[vector]) = (k as i64, k as i64 + 1);
                let strides = ints(vec![1; shape.len()]);
                shape[vector] = 1;
                let ty = TensorType::new(shape.clone(), ty.dtype);
                let attrs = vec![("start_indices", ints(from)), ("limit_indices", ints(to)), ("strides", strides)];
                one = r.e.one(Opcode::Slice, &[moved], attrs, ty);
            }
            shape.remove(vector);
            one = r.e.one(Opcode::Reshape, &[one], Vec::new(), TensorType::new(shape.clone(), ty.dtype));
        }
        let full = TensorType::new(shape, ty.dtype);
        let zero = r.e.splat(full.clone(), 0.0);
        let size = r.e.splat(full, part[d] as f64);
        let low = r.e.compare("GE", one, zero);
        let high = r.e.compare("LT", one, size);
        let ok = r.e.binary(Opcode::And, low, high);
        inside = Some(match inside {
            None => ok,
            Some(other) => r.e.binary(Opcode::And, other, ok),
        });
        // Other components of the index keep their own clamping.
        indices = if ty.dims.get(vector).is_none_or(|&n| n == 1) { moved } else { shift(r, indices, vector, k, start) };
    }
    let v = r.copy(op, choice, &[operands[0], indices], vec![("slice_sizes", ints(sizes))])?;
    let Some(inside) = inside else { return Ok(v) };
    let ty = r.e.ty(v[0]);
    let batch: Vec<i64> = (0..ty.rank() as i64).filter(|d| !g.offset_dims.contains(d)).collect();
    let mask = r.e.broadcast(inside, &batch, &ty.dims);
    let zero = r.e.splat(ty, 0.0);
    Ok(vec![r.e.select(mask, v[0], zero)])
}

/// Updates outside of a device's part are left out, as those outside of the operand are.
fn scatter(
    r: &mut Rewrite<'_>,
    op: &Op,
    rule: &Rule,
    choice: &Choice,
    mut operands: Vec<ValueId>,
) -> Result<Vec<ValueId>, PartitionError> {
    let Some(Attr::Scatter(s)) = op.attrs.get("scatter_dimension_numbers") else {
        return r.copy(op, choice, &operands, Vec::new());
    };
    for (k, &d) in s.scatter_dims_to_operand_dims.iter().enumerate() {
        let d = vector_dim(d);
        let axes = cut_by(rule, choice, 0, d, Kind::Indexed);
        if axes.is_empty() {
            continue;
        }
        let size = r.e.ty(operands[0]).dims[d];
        let start = r.e.offset(&axes, size);
        operands[1] = shift(r, operands[1], vector_dim(s.index_vector_dim), k, start);
    }
    if let (false, Some(kind)) = (choice.partial.is_empty(), reducer(r.from, op)) {
        let ty = r.e.ty(operands[0]);
        let neutral = kind.identity(ty.dtype);
        let once = matches!(kind, ReduceKind::Sum | ReduceKind::Product);
        // The operand itself counts on one device of each group.
        if once && r.constant(op.operands[0]) != Some(neutral) {
            let place = r.e.place(&choice.partial);
            let zero = r.e.splat(TensorType::new([], DType::I32), 0.0);
            let first = r.e.compare("EQ", place, zero);
            let neutral = r.e.splat(ty, neutral);
            operands[0] = r.e.select(first, operands[0], neutral);
        }
    }
    r.copy(op, choice, &operands, Vec::new())
}
