//! Kernels that write over what they are the last to read: a softmax over its scores, a gradient over the one it is computed from.
//!
//! The kernel has to read every element just where it writes it, in blocks that do not overlap, so it is done for arrays that are worth
//! it. Products are left alone: their blocks rarely divide what they cover.

use std::collections::BTreeSet;

use super::fuse::{Plan, Step};
use super::overlap::ends;
use super::region::{Uses, over};
use crate::graph::{Graph, NodeId, NodeOp};

/// Rows of whole lanes are cut without overlap where they are one block, at most so long, or as many blocks of that length. Others would
/// take blocks that are smaller than they could be.
const BLOCK: u64 = 4096;
const LANES: u64 = 128;

/// Marks kernels of `plan` that write arrays of `least` bytes or more over others, in [`Plan::over`]. Arrays of `fixed` nodes have a place
/// of their own.
pub fn reuse(g: &Graph, plan: &mut Plan, fixed: &dyn Fn(NodeId) -> bool, least: u64) {
    let uses = Uses::of(g, plan);
    let ends = ends(g, plan);
    let mut taken: BTreeSet<NodeId> = uses.taken().collect();
    for at in 0..plan.steps.len() {
        let Step::Kernel(f) = &plan.steps[at] else { continue };
        if f.product.is_some() || f.in_place || f.updates.is_some() {
            continue;
        }
        let own = |n: &NodeId| {
            !fixed(*n) && !uses.shared(*n) && !matches!(g.node(*n).op, NodeOp::Param(_) | NodeOp::Const(_))
        };
        let large = |n: &NodeId| {
            let (dims, bytes) = (&g.node(*n).dims, g.node(*n).bytes());
            bytes >= least
                && dims.last().is_some_and(|d| d.is_multiple_of(LANES) && (*d <= BLOCK || d.is_multiple_of(BLOCK)))
        };
        let roots: Vec<NodeId> = f.roots.iter().copied().filter(|n| own(n) && large(n)).collect();
        let reads: Vec<NodeId> = f.reads.iter().copied().filter(|n| own(n) && !taken.contains(n)).collect();
        // What a transfer sends has to stay until it is waited for.
        let busy = |n: &NodeId| {
            ends.iter().any(|(start, end)| *start < at && *end > at && plan.steps[*start].reads(g).contains(n))
        };
        let alike = |a: NodeId, b: NodeId| {
            g.node(a).elements() == g.node(b).elements() && g.node(a).dtype.bytes() == g.node(b).dtype.bytes()
        };
        let pairs: Vec<(NodeId, NodeId)> = roots
            .iter()
            .flat_map(|out| reads.iter().map(|old| (*old, *out)))
            .filter(|(old, out)| alike(*old, *out) && !busy(old))
            .collect();
        let found = pairs.into_iter().find(|(old, out)| over(plan, &uses, *old, *out));
        if let Some((old, out)) = found {
            taken.insert(old);
            plan.over.insert(old, out);
        }
    }
}
