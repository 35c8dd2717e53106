//! Scatters into one value everywhere, an update for each place at most: selections.
//!
//! The gradient of picking one logit of each row is such a scatter. As a selection (*is this column the one of its row?*) it is part of
//! the kernel that reads it and never lies in memory.

use tpusim_isa::num::DType;

use super::super::NodeId;
use super::contract::{combination, elementwise};
use super::gather::Ints;
use super::*;
use crate::hlo::{Op, ScatterDims};
use crate::lower::math::{Direction, MapOp};

/// How the dimensions of updates lie in the array.
struct Sides {
    /// Dimension of the array, for each dimension of the updates; `None` for sizes of one.
    update: Vec<Option<usize>>,
    /// The same for the batch dimensions of the indices.
    batch: Vec<Option<usize>>,
}

/// `None` if two updates may meet, or windows are neither single elements nor whole dimensions.
fn sides(d: &ScatterDims, array: &[u64], update: &[u64]) -> Option<Sides> {
    let batching = |k: usize| d.input_batching_dims.iter().position(|&b| b == k as i64);
    let absent = |k: usize| d.inserted_window_dims.contains(&(k as i64)) || batching(k).is_some();
    let indexed = |k: usize| d.scatter_dims_to_operand_dims.contains(&(k as i64));
    let mut windows = (0..array.len()).filter(|&k| !absent(k));
    let mut batches = 0..;
    let mut out = Sides { update: Vec::new(), batch: Vec::new() };
    for (u, &size) in update.iter().enumerate() {
        let to = if d.update_window_dims.contains(&(u as i64)) {
            let k = windows.next()?;
            if size != if indexed(k) { 1 } else { array[k] } {
                return None;
            }
            Some(k)
        } else {
            let i = batches.next()?;
            let place = if i >= d.index_vector_dim { i + 1 } else { i };
            let along = d.scatter_indices_batching_dims.iter().position(|&b| b == place);
            let to = along.and_then(|j| d.input_batching_dims.get(j)).map(|&k| k as usize);
            if to.is_none() && size != 1 {
                return None;
            }
            out.batch.push(to.filter(|_| size > 1));
            to
        };
        out.update.push(to.filter(|_| size > 1));
    }
    (windows.next().is_none()).then_some(out)
}

impl Builder<'_> {
    /// A scatter of `update` into `array`, whose elements are all the same, if no place has two updates.
    pub(super) fn one_hot(
        &mut self,
        op: &Op,
        d: &ScatterDims,
        array: NodeId,
        indices: Value,
        update: NodeId,
        site: &(String, String),
    ) -> Option<NodeId> {
        let name = "scatter";
        self.splat_of(array)?;
        let (dims, dtype) = (self.node(array).dims.clone(), self.node(array).dtype);
        let shape = self.node(update).dims.clone();
        let sides = sides(d, &dims, &shape)?;
        let block = &op.regions.first()?.block;
        let replaces = matches!((&block.ops[..], &block.args[..]), ([ret], [_, new]) if ret.operands == [*new]);
        let how = if replaces { None } else { Some(combination(block, dtype)?) };
        if dims.iter().any(|&n| n > i32::MAX as u64) || d.scatter_dims_to_operand_dims.is_empty() {
            return None;
        }
        let batch =
            (0..shape.len()).filter(|&u| !d.update_window_dims.contains(&(u as i64))).map(|u| shape[u]).collect();
        let mut value = update;
        if let Some(how) = how {
            let old = self.splat_of(array)?;
            let t = Shape { dims: shape, dtype };
            let old = self.constant(old, &t, name, site.clone());
            value = self.map(elementwise(how), &[old, update], &t, name, site.clone());
        }
        let value = self.laid_out(value, &sides.update, &dims, name, site);
        let mut c = Ints { b: self, dims: batch, name, site: site.clone() };
        let map: Vec<usize> = (0..c.dims.len()).collect();
        let mut hit = None;
        for (k, &a) in d.scatter_dims_to_operand_dims.iter().enumerate() {
            let index = c.index(indices, d.index_vector_dim as usize, k, &map);
            let index = c.b.laid_out(index, &sides.batch, &dims, name, site);
            let mut whole = Ints { b: c.b, dims: dims.clone(), name, site: site.clone() };
            let here = whole.iota(a as usize);
            let same = whole.map(MapOp::Compare(Direction::Eq, false), &[index, here], DType::I1);
            hit = Some(match hit {
                None => same,
                Some(h) => whole.map(MapOp::And, &[h, same], DType::I1),
            });
        }
        let t = Shape { dims, dtype };
        Some(self.map(MapOp::Select, &[hit?, value, array], &t, name, site.clone()))
    }

    /// `x`, dimension `i` of which is dimension `to[i]` of an array of sizes `dims`, repeated along the others.
    fn laid_out(
        &mut self,
        x: NodeId,
        to: &[Option<usize>],
        dims: &[u64],
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let dtype = self.node(x).dtype;
        let mut map: Vec<usize> = to.iter().copied().flatten().collect();
        let long = map.iter().map(|&k| dims[k]).collect();
        let x = self.reshaped(x, long, name, site);
        let mut perm: Vec<usize> = (0..map.len()).collect();
        perm.sort_by_key(|&i| map[i]);
        let x = self.ordered(x, &perm, name, site);
        map.sort_unstable();
        self.broadcast(x, map, &Shape { dims: dims.to_vec(), dtype }, name, site.clone())
    }
}
