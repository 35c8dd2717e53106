//! Results in the arrays of donated parameters: the caller gives up what it passes, so that a result may lie where a parameter lay.

use std::collections::BTreeSet;

use super::fuse::{Plan, Step};
use super::region::{Uses, over};
use crate::graph::{Graph, NodeId, NodeOp};

/// Gives results of `g` the arrays of donated parameters of the same type: those whose kernel reads the parameter just where it writes,
/// else those that are stored after the last step that reads the parameter.
pub fn donate(g: &Graph, plan: &mut Plan) {
    if g.donated.is_empty() {
        return;
    }
    let uses = Uses::of(g, plan);
    let mut free: BTreeSet<NodeId> = g.donated.iter().copied().collect();
    // Those that updates lie in already.
    uses.taken().for_each(|p| _ = free.remove(&p));
    let own = |out: &&NodeId| !uses.shared(**out) && !matches!(g.node(**out).op, NodeOp::Param(_));
    let mut left: Vec<NodeId> = g.outputs.iter().filter(own).copied().collect();
    for exact in [true, false] {
        let mut rest = Vec::new();
        for out in left {
            let alike = |p: &&NodeId| g.node(**p).dims == g.node(out).dims && g.node(**p).dtype == g.node(out).dtype;
            // Blocks of products rarely divide what they cover.
            let plain = |plan: &Plan| {
                let at = uses.first_write(out).and_then(|k| plan.steps.get(k));
                matches!(at, Some(Step::Kernel(f)) if f.product.is_none())
            };
            let fits = |p: &NodeId, plan: &mut Plan| match exact {
                true => plain(plan) && over(plan, &uses, *p, out),
                false => uses.last_read(*p) < uses.first_write(out),
            };
            let alike: Vec<NodeId> = free.iter().filter(alike).copied().collect();
            match alike.into_iter().find(|p| fits(p, plan)) {
                Some(p) => {
                    free.remove(&p);
                    plan.donors.insert(out, p);
                }
                None => rest.push(out),
            }
        }
        left = rest;
    }
}
