//! Communication beside computation: transfers start as soon as their operand is there and are waited for where their result is read.
//!
//! Between the two other steps run. A transfer reads its operand and writes its result and its scratch memory all that time, so these
//! stay alive until then; steps that write over any of them, as updates in place do, wait for it too, which is for code generation to see.

use std::collections::{BTreeMap, BTreeSet};

use super::fuse::{Plan, Step};
use crate::graph::{Graph, NodeId, NodeOp, Special};

/// Steps that a transfer may start ahead of its place: what it brings has to lie somewhere meanwhile.
const AHEAD: usize = 8;
/// Steps that a transfer may take longer than its own: its operand has to stay meanwhile.
pub const BEHIND: usize = 12;

fn is_transfer(g: &Graph, s: &Step) -> bool {
    matches!(s, Step::Special(s) if matches!(g.node(s.node).op, NodeOp::Special(Special::Collective(_))))
}

/// Moves transfers up to right behind what they need. They keep their order, which all devices have to agree on.
pub fn hoist(g: &Graph, steps: Vec<Step>) -> Vec<Step> {
    if !steps.iter().any(|s| is_transfer(g, s)) {
        return steps;
    }
    let mut out: Vec<Step> = Vec::with_capacity(steps.len());
    for s in steps {
        let mut at = out.len();
        if is_transfer(g, &s) {
            let needs: BTreeSet<NodeId> = s.reads(g).into_iter().collect();
            let behind = |o: &Step| is_transfer(g, o) || o.writes().iter().any(|w| needs.contains(w));
            while at > 0 && out.len() - at < AHEAD && !behind(&out[at - 1]) {
                at -= 1;
            }
        }
        out.insert(at, s);
    }
    out
}

/// For each step that is a transfer, the later step that waits for it: the first that reads its result, at most so many steps later, or
/// the number of steps.
pub fn ends(g: &Graph, plan: &Plan) -> BTreeMap<usize, usize> {
    let mut out = BTreeMap::new();
    for (i, s) in plan.steps.iter().enumerate().filter(|(_, s)| is_transfer(g, s)) {
        let results = s.writes();
        let reads = |o: &Step| o.reads(g).iter().any(|r| results.contains(r));
        let end = plan.steps[i + 1..].iter().take(BEHIND).position(reads).unwrap_or(BEHIND);
        out.insert(i, (i + 1 + end).min(plan.steps.len()));
    }
    out
}
