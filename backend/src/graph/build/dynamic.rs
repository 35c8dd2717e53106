//! Slices whose place is computed: `dynamic_slice` and `dynamic_update_slice`.

use super::super::{NodeId, NodeOp};
use super::*;
use crate::lower::scalar;

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
            match self.known(i, 8) {
                Some(v) => start[d] = v.clamp(0, i64::try_from(limit).unwrap_or(i64::MAX)) as u64,
                None => {
                    axes.push(d);
                    dynamic.push(i);
                }
            }
        }
        (start, axes, dynamic)
    }

    /// The value of an integer scalar that is computed from constants alone, by at most `depth` operations one after the other.
    fn known(&self, n: NodeId, depth: u32) -> Option<i64> {
        let node = self.node(n);
        match &node.op {
            NodeOp::Const(l) if l.is_splat() => known_integer(l.element(0), node.dtype),
            NodeOp::Map(op) if depth > 0 => {
                let operand = self.node(*node.args.get(usize::from(*op == MapOp::Select))?).dtype;
                if !scalar::computes(*op, operand, node.dtype) {
                    return None;
                }
                let args = node.args.iter().map(|&a| self.known(a, depth - 1)).collect::<Option<Vec<_>>>()?;
                scalar::fold(*op, node.dtype, &args)
            }
            _ => None,
        }
    }
}

/// A little-endian integer, extended. What is beyond an `i64` is its largest value.
fn known_integer(bytes: &[u8], dtype: DType) -> Option<i64> {
    if dtype == DType::I1 {
        return Some(i64::from(bytes.first()? & 1));
    }
    let free = 64 - dtype.bits().min(64);
    let v = bytes.iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b)) << free;
    Some(if dtype.is_signed() { v as i64 >> free } else { i64::try_from(v >> free).unwrap_or(i64::MAX) })
}
