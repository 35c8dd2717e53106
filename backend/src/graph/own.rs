//! Arrays of their own: what is given out twice, and what is overwritten while somebody else reads it, is copied.

use std::collections::BTreeSet;

use super::{Graph, Node, NodeId, NodeOp, Special};
use crate::lower::math::MapOp;

fn copy_of(g: &Graph, id: NodeId) -> Node {
    let n = g.node(id);
    Node { op: NodeOp::Map(MapOp::Copy), args: vec![id], name: "copy", ..n.clone() }
}

impl Graph {
    /// Every output becomes a node of its own: parameters, constants and outputs given twice are copied. In loop bodies and branches too.
    pub fn separate_outputs(&mut self) {
        let mut taken = BTreeSet::new();
        for i in 0..self.outputs.len() {
            let id = self.outputs[i];
            if taken.insert(id) && !matches!(self.node(id).op, NodeOp::Param(_) | NodeOp::Const(_)) {
                continue;
            }
            let copy = copy_of(self, id);
            self.outputs[i] = NodeId(self.nodes.len() as u32);
            self.nodes.push(copy);
        }
        for n in &mut self.nodes {
            match &mut n.op {
                NodeOp::Special(Special::While(w)) => w.body.graph.separate_outputs(),
                NodeOp::Special(Special::Case(c)) => c.branches.iter_mut().for_each(|b| b.graph.separate_outputs()),
                _ => {}
            }
        }
    }

    /// Operands that nodes overwrite: `(node, operand, result)`.
    fn overwritten(&self) -> Vec<(NodeId, usize, usize)> {
        let mut out = Vec::new();
        for (ix, n) in self.nodes.iter().enumerate() {
            if let NodeOp::Special(s) = &n.op {
                out.extend(s.in_place().into_iter().map(|(r, o)| (NodeId(ix as u32), o, r)));
            }
        }
        out
    }
}

/// The node that holds what is left in an array at the end, if `result` of `node` is written to it and all later writes are in place.
fn end_of(g: &Graph, users: &[Vec<NodeId>], mut node: NodeId, mut result: usize) -> Option<NodeId> {
    loop {
        let r = *users[node.ix()].iter().find(|u| g.node(**u).op == NodeOp::Result(result))?;
        let [next] = users[r.ix()][..] else { return Some(r) };
        let NodeOp::Special(s) = &g.node(next).op else { return Some(r) };
        if g.outputs.contains(&r) {
            return Some(r);
        }
        let Some((k, _)) = s.in_place().into_iter().find(|(_, o)| g.node(next).args[*o] == r) else { return Some(r) };
        (node, result) = (next, k);
    }
}

/// Copies what a node overwrites although somebody else has it: parameters, constants, outputs, and what has other users. A parameter
/// for which `lent` holds, given the node whose contents end up in its array, may be overwritten; other users must come first.
/// Returns the parameters that are.
pub fn own_operands(g: &mut Graph, lent: &dyn Fn(NodeId, NodeId) -> bool) -> Vec<NodeId> {
    let users = g.users();
    let mut given = Vec::new();
    let mut copies: Vec<(NodeId, usize)> = Vec::new();
    let overwritten = g.overwritten();
    for &(node, operand, result) in &overwritten {
        let a = g.node(node).args[operand];
        let owned = match &g.node(a).op {
            NodeOp::Const(_) => false,
            NodeOp::Param(_) => {
                let once = users[a.ix()].iter().filter(|u| **u == node).count() == 1
                    && overwritten.iter().filter(|(n, o, _)| g.node(*n).args[*o] == a).count() == 1;
                let ok = once && end_of(g, &users, node, result).is_some_and(|end| lent(a, end));
                given.extend(ok.then_some(a));
                ok
            }
            _ => users[a.ix()].len() == 1 && !g.outputs.contains(&a),
        };
        if !owned {
            copies.push((node, operand));
        }
    }
    if copies.is_empty() {
        return given;
    }
    // Each copy goes right before the node that overwrites it.
    let old = std::mem::take(&mut g.nodes);
    let mut at = vec![NodeId(0); old.len()];
    for (ix, mut node) in old.into_iter().enumerate() {
        node.args.iter_mut().for_each(|a| *a = at[a.ix()]);
        for (_, operand) in copies.iter().filter(|(n, _)| n.ix() == ix) {
            let copy = copy_of(g, node.args[*operand]);
            node.args[*operand] = NodeId(g.nodes.len() as u32);
            g.nodes.push(copy);
        }
        at[ix] = NodeId(g.nodes.len() as u32);
        g.nodes.push(node);
    }
    g.outputs.iter_mut().chain(&mut g.params).chain(&mut given).for_each(|n| *n = at[n.ix()]);
    given
}
