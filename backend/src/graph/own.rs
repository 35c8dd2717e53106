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

    /// Operands that special nodes overwrite.
    fn overwritten(&self) -> Vec<(NodeId, usize)> {
        let mut out = Vec::new();
        for (ix, n) in self.nodes.iter().enumerate() {
            if let NodeOp::Special(s) = &n.op {
                out.extend(s.in_place().into_iter().map(|(_, o)| (NodeId(ix as u32), o)));
            }
        }
        out
    }
}

/// The nodes whose arrays are that of `n`, written over by them.
fn heirs(g: &Graph, users: &[Vec<NodeId>], n: NodeId) -> Vec<NodeId> {
    let mut out = Vec::new();
    for &u in &users[n.ix()] {
        match &g.node(u).op {
            NodeOp::Special(s) => {
                let over = s.in_place().into_iter().filter(|(_, o)| g.node(u).args[*o] == n);
                out.extend(
                    over.filter_map(|(r, _)| users[u.ix()].iter().find(|x| g.node(**x).op == NodeOp::Result(r))),
                );
            }
            NodeOp::DynUpdate { .. } if g.node(u).args[0] == n => out.push(u),
            NodeOp::Reshape if users[u.ix()].len() == 1 => out.extend(heirs(g, users, u)),
            _ => {}
        }
    }
    out
}

/// The node that holds what is left in the array of a parameter at the end, if just one node writes over it, and over the result of
/// that, and so on.
pub fn last_heir(g: &Graph, users: &[Vec<NodeId>], param: NodeId) -> Option<NodeId> {
    let mut last = None;
    let mut at = param;
    while let [next] = heirs(g, users, at)[..] {
        last = Some(next);
        if g.outputs.contains(&next) {
            break;
        }
        at = next;
    }
    last
}

/// Copies what special nodes overwrite although somebody else has it: constants, outputs, what has other users, and parameters that are
/// not donated. If `checked`, donated parameters may have other users: the caller sees to it that they come first.
pub fn own_operands(g: &mut Graph, checked: bool) {
    let users = g.users();
    let mut copies: Vec<(NodeId, usize)> = Vec::new();
    for (node, operand) in g.overwritten() {
        let a = g.node(node).args[operand];
        let alone = users[a.ix()].len() == 1 && !g.outputs.contains(&a);
        let owned = match &g.node(a).op {
            NodeOp::Const(_) => false,
            NodeOp::Param(_) => {
                let once = users[a.ix()].iter().filter(|u| **u == node).count() == 1;
                g.donated.contains(&a) && (alone || checked && once)
            }
            _ => alone,
        };
        if !owned {
            copies.push((node, operand));
        }
    }
    if copies.is_empty() {
        return;
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
    g.outputs.iter_mut().chain(&mut g.params).chain(&mut g.donated).for_each(|n| *n = at[n.ix()]);
}
