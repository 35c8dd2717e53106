//! Makes nodes, sharing equal ones and simplifying data movement.

use std::sync::Arc;

use super::super::{Node, NodeId, NodeOp};
use super::*;
use crate::hlo::{Literal, TensorType};
use crate::lower::math::MapOp;

impl Builder<'_> {
    pub(super) fn push(
        &mut self,
        op: NodeOp,
        args: Vec<NodeId>,
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        if matches!(&op, NodeOp::Const(l) if !l.is_splat()) && !self.outer.is_empty() {
            return self.hoist(op, args, t, name, site);
        }
        let key = match &op {
            NodeOp::Param(_) | NodeOp::Special(_) => None,
            NodeOp::Const(l) if !l.is_splat() => None,
            _ => Some(Key { op: format!("{op:?}"), args: args.clone(), dims: t.dims.clone(), dtype: t.dtype }),
        };
        if let Some(id) = key.as_ref().and_then(|k| self.seen.get(k)) {
            return *id;
        }
        let id = NodeId(self.graph.nodes.len() as u32);
        self.graph.nodes.push(Node {
            op,
            args,
            dims: t.dims.clone(),
            dtype: t.dtype,
            source: site.0,
            location: site.1,
            name,
        });
        if let Some(k) = key {
            self.seen.insert(k, id);
        }
        id
    }

    pub(super) fn map(
        &mut self,
        m: MapOp,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        if m == MapOp::Convert && self.node(args[0]).dtype == t.dtype {
            return args[0];
        }
        // Bits that were reinterpreted as a type of the same width and back.
        if m == MapOp::Bitcast
            && let NodeOp::Map(MapOp::Bitcast) = self.node(args[0]).op
            && let [inner] = self.node(args[0]).args[..]
            && self.node(inner).dtype == t.dtype
            && t.dtype.is_int()
        {
            return inner;
        }
        // What is put together is made narrow before.
        if m == MapOp::Convert
            && let NodeOp::Concat(d) = self.node(args[0]).op
            && t.dtype.bits() < self.node(args[0]).dtype.bits()
        {
            let parts = self.node(args[0]).args.clone();
            let narrow = |b: &mut Self, x: NodeId| {
                let part = Shape { dims: b.node(x).dims.clone(), dtype: t.dtype };
                b.map(m, &[x], &part, name, site.clone())
            };
            let parts = parts.into_iter().map(|x| narrow(self, x)).collect();
            return self.push(NodeOp::Concat(d), parts, t, name, site);
        }
        // A scalar predicate selects whole tensors: broadcast it.
        let mut args = args.to_vec();
        for a in &mut args {
            if self.node(*a).dims.is_empty() && !t.dims.is_empty() {
                let s = Shape { dims: t.dims.clone(), dtype: self.node(*a).dtype };
                *a = self.broadcast(*a, vec![], &s, name, site.clone());
            }
        }
        self.push(NodeOp::Map(m), args, t, name, site)
    }

    /// What `a` only makes wider: data is moved before that, while it is narrow.
    pub(super) fn widened(&self, a: NodeId) -> Option<NodeId> {
        let node = self.node(a);
        let x = *node.args.first().filter(|_| matches!(node.op, NodeOp::Map(MapOp::Convert)))?;
        (self.node(x).dtype.bits() < node.dtype.bits()).then_some(x)
    }

    pub(super) fn splat_of(&self, a: NodeId) -> Option<Arc<[u8]>> {
        match &self.node(a).op {
            NodeOp::Const(l) if l.is_splat() => Some(l.bytes.clone()),
            _ => None,
        }
    }

    pub(super) fn constant(
        &mut self,
        bytes: Arc<[u8]>,
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        let ty = TensorType::new(t.dims.iter().map(|&d| d as i64).collect::<Vec<_>>(), t.dtype);
        self.push(NodeOp::Const(Literal { ty, bytes }), vec![], t, name, site)
    }

    pub(super) fn broadcast(
        &mut self,
        a: NodeId,
        map: Vec<usize>,
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        if let Some(bytes) = self.splat_of(a) {
            return self.constant(bytes, t, name, site);
        }
        if self.node(a).dims == t.dims && map.iter().enumerate().all(|(i, &d)| i == d) {
            return a;
        }
        // An index repeated along other dimensions is an index of the whole.
        if let NodeOp::Iota(d) = self.node(a).op
            && self.node(a).dims[d] == t.dims[map[d]]
        {
            return self.push(NodeOp::Iota(map[d]), vec![], t, name, site);
        }
        self.push(NodeOp::Broadcast(map), vec![a], t, name, site)
    }

    pub(super) fn reshape(&mut self, a: NodeId, t: &Shape, name: &'static str, site: (String, String)) -> NodeId {
        if self.node(a).dims == t.dims {
            return a;
        }
        if let Some(bytes) = self.splat_of(a) {
            return self.constant(bytes, t, name, site);
        }
        if let Some(x) = self.widened(a) {
            let x = self.reshape(x, &Shape { dims: t.dims.clone(), dtype: self.node(x).dtype }, name, site.clone());
            return self.map(MapOp::Convert, &[x], t, name, site);
        }
        self.push(NodeOp::Reshape, vec![a], t, name, site)
    }

    pub(super) fn transpose(
        &mut self,
        a: NodeId,
        perm: Vec<usize>,
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        if let Some(bytes) = self.splat_of(a) {
            return self.constant(bytes, t, name, site);
        }
        if perm.iter().enumerate().all(|(i, &d)| i == d) {
            return a;
        }
        if let Some(x) = self.widened(a) {
            let moved = Shape { dims: t.dims.clone(), dtype: self.node(x).dtype };
            let x = self.transpose(x, perm, &moved, name, site.clone());
            return self.map(MapOp::Convert, &[x], t, name, site);
        }
        self.push(NodeOp::Transpose(perm), vec![a], t, name, site)
    }

    pub(super) fn slice(
        &mut self,
        a: NodeId,
        start: Vec<u64>,
        step: Vec<i64>,
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        if let Some(bytes) = self.splat_of(a) {
            return self.constant(bytes, t, name, site);
        }
        if self.node(a).dims == t.dims && step.iter().all(|&s| s == 1) {
            return a;
        }
        if let Some(x) = self.widened(a) {
            let part = Shape { dims: t.dims.clone(), dtype: self.node(x).dtype };
            let x = self.slice(x, start, step, &part, name, site.clone());
            return self.map(MapOp::Convert, &[x], t, name, site);
        }
        self.push(NodeOp::Slice { start, step }, vec![a], t, name, site)
    }
}
