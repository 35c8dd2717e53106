//! Slices whose place is computed: `dynamic_slice` and `dynamic_update_slice`.

use super::super::{NodeId, NodeOp};
use super::*;

impl Builder<'_> {
    /// The part of `args[0]` at the indices `args[1..]`. Indices that are constants make it smaller by a plain slice first.
    pub(super) fn dynamic_slice(
        &mut self,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        let Some((&x, indices)) = args.split_first() else { return NodeId(0) };
        if t.dims.contains(&0) {
            // Nothing of it is read, wherever it is.
            return self.slice(x, vec![0; t.dims.len()], vec![1; t.dims.len()], t, name, site);
        }
        let (start, axes, indices) = self.starts(x, indices, &t.dims);
        let mut inner = Shape { dims: self.node(x).dims.clone(), dtype: t.dtype };
        for d in (0..t.dims.len()).filter(|d| !axes.contains(d)) {
            inner.dims[d] = t.dims[d];
        }
        let x = self.slice(x, start, vec![1; t.dims.len()], &inner, name, site.clone());
        if axes.is_empty() {
            return x;
        }
        if let Some(bytes) = self.splat_of(x) {
            return self.constant(bytes, t, name, site);
        }
        let args = std::iter::once(x).chain(indices).collect();
        self.push(NodeOp::DynSlice(axes), args, t, name, site)
    }

    /// `args[0]` with `args[1]` at the indices `args[2..]`.
    pub(super) fn dynamic_update_slice(
        &mut self,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        let [x, update, indices @ ..] = args else { return NodeId(0) };
        let part = self.node(*update).dims.clone();
        if part.contains(&0) {
            return *x;
        }
        if part == t.dims {
            return *update;
        }
        let (start, axes, indices) = self.starts(*x, indices, &part);
        let args = [*x, *update].into_iter().chain(indices).collect();
        self.push(NodeOp::DynUpdate { start, axes }, args, t, name, site)
    }

    /// Where a part of sizes `part` starts in `x`: what is known now, and the dimensions that an index decides, with those indices.
    fn starts(&self, x: NodeId, indices: &[NodeId], part: &[u64]) -> (Vec<u64>, Vec<usize>, Vec<NodeId>) {
        let mut start = vec![0; part.len()];
        let (mut axes, mut dynamic) = (Vec::new(), Vec::new());
        for (d, &i) in indices.iter().enumerate() {
            let limit = self.node(x).dims[d] - part[d];
            if limit == 0 {
                continue;
            }
            match &self.node(i).op {
                NodeOp::Const(l) => start[d] = clamped(l.element(0), self.node(i).dtype, limit),
                _ => {
                    axes.push(d);
                    dynamic.push(i);
                }
            }
        }
        (start, axes, dynamic)
    }
}

/// The little-endian integer `bytes` between 0 and `limit`.
fn clamped(bytes: &[u8], dtype: DType, limit: u64) -> u64 {
    let negative = dtype.is_signed() && bytes.last().is_some_and(|b| b >> 7 == 1);
    let value = bytes.iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b));
    if negative { 0 } else { value.min(limit) }
}
