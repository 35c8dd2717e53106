//! Operands of products as narrow as the MXU takes them.
//!
//! A product at default precision rounds f32 operands to bf16. What only such products read is rounded where it is computed: the numbers
//! are the same, and half the bytes are stored and read.

use tpusim_isa::num::DType;

use super::{Graph, Node, NodeId, NodeOp, Special};
use crate::lower::math::MapOp;

/// Rounds what only products of `g` and of its regions read.
pub fn narrow_operands(g: &mut Graph) {
    for n in &mut g.nodes {
        match &mut n.op {
            NodeOp::Special(Special::While(w)) => narrow_operands(&mut w.body.graph),
            NodeOp::Special(Special::Case(c)) => c.branches.iter_mut().for_each(|b| narrow_operands(&mut b.graph)),
            _ => {}
        }
    }
    let read = only_multiplied(g);
    let computed = |g: &Graph, id: NodeId| match g.node(id).op {
        NodeOp::Map(op) => op != MapOp::Copy,
        NodeOp::Reduce(..) | NodeOp::Dot(_) => true,
        _ => false,
    };
    // A bf16 number made wider is as narrow as before.
    let widened = |g: &Graph, id: NodeId| match (&g.node(id).op, &g.node(id).args[..]) {
        (NodeOp::Map(MapOp::Convert), &[a]) if g.node(a).dtype == DType::BF16 => Some(a),
        _ => None,
    };
    if !(0..g.nodes.len()).any(|i| read[i] && computed(g, NodeId(i as u32))) {
        return;
    }
    let old = std::mem::take(&mut g.nodes);
    let mut at = vec![NodeId(0); old.len()];
    for (ix, mut node) in old.into_iter().enumerate() {
        node.args.iter_mut().for_each(|a| *a = at[a.ix()]);
        let id = NodeId(g.nodes.len() as u32);
        at[ix] = id;
        if read[ix] && moves(&node.op) {
            // What it moves may be rounded.
            node.dtype = g.node(node.args[0]).dtype;
        }
        g.nodes.push(node);
        if !read[ix] {
            continue;
        }
        if let Some(before) = widened(g, id) {
            at[ix] = before;
        } else if computed(g, id) {
            let n = g.node(id);
            let rounded = Node {
                op: NodeOp::Map(MapOp::Convert),
                args: vec![id],
                dtype: DType::BF16,
                name: "convert",
                ..n.clone()
            };
            at[ix] = NodeId(g.nodes.len() as u32);
            g.nodes.push(rounded);
        }
    }
    g.outputs.iter_mut().chain(&mut g.params).chain(&mut g.donated).for_each(|n| *n = at[n.ix()]);
}

/// Whether an operation gives elements of its only operand, as they are.
fn moves(op: &NodeOp) -> bool {
    matches!(
        op,
        NodeOp::Reshape | NodeOp::Transpose(_) | NodeOp::Broadcast(_) | NodeOp::Slice { .. } | NodeOp::Map(MapOp::Copy)
    )
}

/// For each node, whether it is f32 and nothing but products has its elements.
fn only_multiplied(g: &Graph) -> Vec<bool> {
    let users = g.users();
    let mut out = vec![false; g.nodes.len()];
    // Users come after what they read.
    for (ix, n) in g.nodes.iter().enumerate().rev() {
        let fits = |u: &NodeId| match &g.node(*u).op {
            NodeOp::Dot(_) => true,
            op => moves(op) && out[u.ix()],
        };
        out[ix] = n.dtype == DType::F32
            && !users[ix].is_empty()
            && users[ix].iter().all(fits)
            && !g.outputs.contains(&NodeId(ix as u32));
    }
    out
}
