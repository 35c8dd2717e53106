//! Slices whose place is computed: `dynamic_slice` and `dynamic_update_slice`.

use super::super::{NodeId, NodeOp};
use super::special::Chain;
use super::wide::Value;
use super::*;
use crate::lower::math::Direction;
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

    /// `dynamic_slice` and `dynamic_update_slice` of pairs or with 64-bit indices; `args` are the operands of both.
    pub(super) fn dynamic_of_pairs(
        &mut self,
        opcode: Opcode,
        args: &[Value],
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> Value {
        let arrays = if opcode == Opcode::DynamicSlice { 1 } else { 2 };
        let (arrays, indices) = args.split_at(arrays.min(args.len()));
        let indices: Vec<NodeId> = indices.iter().map(|&v| self.index(v, name, &site)).collect();
        let mut part = |i: usize| {
            let own = arrays.iter().map(|a| a.pair().map_or_else(|| a.nodes().next(), |(_, p)| Some(p[i])));
            let args: Vec<NodeId> = own.flatten().chain(indices.iter().copied()).collect();
            let t = Shape { dims: t.dims.clone(), dtype: args.first().map_or(t.dtype, |&a| self.node(a).dtype) };
            match opcode {
                Opcode::DynamicSlice => self.dynamic_slice(&args, &t, name, site.clone()),
                _ => self.dynamic_update_slice(&args, &t, name, site.clone()),
            }
        };
        match arrays.first().and_then(|a| a.pair()) {
            Some((dtype, _)) => Value::Pair(dtype, [part(0), part(1)]),
            None => Value::One(part(0)),
        }
    }

    /// An index as one word. What lies outside of 32 bits is outside of every array, on the same side.
    fn index(&mut self, v: Value, name: &'static str, site: &(String, String)) -> NodeId {
        let (dtype, [low, high]) = match v {
            Value::One(n) => return n,
            Value::Pair(dtype, parts) => (dtype, parts),
        };
        let mut c = Chain { b: self, dims: vec![], name, site: site.clone() };
        let [zero, most] = [0, u32::MAX].map(|v| c.word(v));
        let fits = c.typed(MapOp::Compare(Direction::Eq, false), &[high, zero], DType::I1);
        let mut beyond = most;
        if dtype == DType::I64 {
            let sign = c.word(i32::MAX as u32);
            let negative = c.typed(MapOp::Compare(Direction::Gt, false), &[high, sign], DType::I1);
            beyond = c.typed(MapOp::Select, &[negative, zero, most], DType::U32);
        }
        c.typed(MapOp::Select, &[fits, low, beyond], DType::U32)
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
