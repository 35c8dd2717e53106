//! Communication beside computation: transfers start as soon as their operand is there and are waited for where their result is read.
//!
//! Between the two other steps run. A transfer reads its operand and writes its result and its scratch memory all that time, so these
//! stay alive until then, and all that is on its way takes memory. That is bounded by a number of bytes ([`Plan::in_flight`]): a transfer
//! starts early only while what is on its way fits, and where what a new one needs does not fit, the oldest is waited for. Links serve
//! transfers in the order in which they start, so that of several that could start the one whose result is read first does. Steps that
//! write over what a transfer works on, as updates in place do, wait for it too, which is for code generation to see.

use std::collections::{BTreeMap, BTreeSet};

use super::fuse::{Plan, Step};
use crate::graph::{Graph, NodeId, NodeOp, Special};

/// Whether a step is a collective.
pub fn is_transfer(g: &Graph, s: &Step) -> bool {
    matches!(s, Step::Special(s) if matches!(g.node(s.node).op, NodeOp::Special(Special::Collective(_))))
}

/// Bytes of HBM that only the transfer needs while it runs: its scratch memory, and its operand.
fn held(g: &Graph, s: &Step) -> u64 {
    let work = if let Step::Special(s) = s { s.scratch() } else { 0 };
    s.reads(g).iter().map(|r| g.node(*r).bytes()).sum::<u64>() + work
}

/// A transfer that may start before its place.
struct Early {
    /// Its place.
    place: usize,
    /// The first step before which it may start.
    from: usize,
    /// The first step that reads its result.
    read: usize,
    /// What its result takes meanwhile, in bytes.
    bytes: u64,
}

/// Moves transfers up to behind what they need, while no more than `in_flight` bytes of results are on their way early.
pub fn hoist(g: &Graph, steps: Vec<Step>, in_flight: u64) -> Vec<Step> {
    if !steps.iter().any(|s| is_transfer(g, s)) {
        return steps;
    }
    let n = steps.len();
    let mut written: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut early: Vec<Early> = Vec::new();
    for (i, s) in steps.iter().enumerate() {
        if is_transfer(g, s) {
            let results = s.writes();
            let last = s.reads(g).iter().filter_map(|r| written.get(r)).max().copied();
            let read = steps[i + 1..].iter().position(|o| o.reads(g).iter().any(|r| results.contains(r)));
            // What another transfer brings is not there before that one has been waited for.
            let from = match last {
                Some(l) if is_transfer(g, &steps[l]) => i,
                Some(l) => l + 1,
                None => 0,
            };
            // One loop is enough to run beside: the links have other work before it.
            let regions = |s: &Step| matches!(s, Step::Special(s) if !s.regions.is_empty());
            let from = (from..i).rfind(|k| regions(&steps[*k])).unwrap_or(from);
            let bytes = results.iter().map(|r| g.node(*r).bytes()).sum();
            early.push(Early { place: i, from, read: read.map_or(n, |r| i + 1 + r), bytes });
        }
        s.writes().into_iter().for_each(|w| _ = written.insert(w, i));
    }
    early.sort_by_key(|e| (e.read, e.place));
    // Those that start in front of each step, in order.
    let mut order = Vec::with_capacity(n);
    let mut started: BTreeSet<usize> = BTreeSet::new();
    for (i, s) in steps.iter().enumerate() {
        let mut busy: u64 = early.iter().filter(|e| started.contains(&e.place) && e.read > i).map(|e| e.bytes).sum();
        for e in early.iter().filter(|e| e.from <= i && e.place >= i) {
            let fits = busy.saturating_add(e.bytes) <= in_flight;
            if (fits || e.place == i) && started.insert(e.place) {
                busy = busy.saturating_add(e.bytes);
                order.push(e.place);
            }
        }
        if !is_transfer(g, s) {
            order.push(i);
        }
    }
    let mut steps: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
    order.into_iter().filter_map(|i| steps[i].take()).collect()
}

/// For each step that is a transfer, the later step that waits for it, or the number of steps: the first that reads its result, or the
/// first transfer whose own needs do not fit what may be on its way beside it.
pub fn ends(g: &Graph, plan: &Plan) -> BTreeMap<usize, usize> {
    let mut out = BTreeMap::new();
    // Step and bytes of what runs, the oldest first.
    let mut open: Vec<(usize, u64)> = Vec::new();
    for (i, s) in plan.steps.iter().enumerate() {
        let reads = s.reads(g);
        let wanted = |t: usize| plan.steps[t].writes().iter().any(|w| reads.contains(w));
        open.iter().filter(|(t, _)| wanted(*t)).for_each(|(t, _)| _ = out.insert(*t, i));
        open.retain(|(t, _)| !wanted(*t));
        if is_transfer(g, s) {
            let own = held(g, s);
            while !open.is_empty() && open.iter().fold(own, |sum, o| sum.saturating_add(o.1)) > plan.in_flight {
                out.insert(open.remove(0).0, i);
            }
            open.push((i, own));
        }
    }
    out.extend(open.into_iter().map(|(t, _)| (t, plan.steps.len())));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::parse_text;
    use crate::graph::from_module;
    use crate::hlo::verify;
    use crate::tile::fuse::{Options, plan_with};

    const GROUPS: &str = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids";

    /// Two gathers of parameters, the second of which is read first. The steps, the parameters that transfers read in the order in which
    /// they start, and for each the number of steps until it is waited for.
    fn planned(in_flight: u64) -> Vec<(usize, usize)> {
        let text = format!(
            "module @m attributes {{mhlo.num_partitions = 2 : i32}} {{
  func.func public @main(%arg0: tensor<64x64xf32>, %arg1: tensor<64x64xf32>, %arg2: tensor<64x128xf32>) -> tensor<64x128xf32> {{
    %0 = \"stablehlo.all_gather\"(%arg0) <{{all_gather_dim = 1 : i64, {GROUPS}}}> : (tensor<64x64xf32>) -> tensor<64x128xf32>
    %1 = \"stablehlo.all_gather\"(%arg1) <{{all_gather_dim = 0 : i64, {GROUPS}}}> : (tensor<64x64xf32>) -> tensor<128x64xf32>
    %2 = stablehlo.dot_general %arg2, %1, contracting_dims = [1] x [0] : (tensor<64x128xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
    %3 = stablehlo.dot_general %2, %0, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x128xf32>) -> tensor<64x128xf32>
    return %3 : tensor<64x128xf32>
  }}
}}"
        );
        let m = verify(parse_text(&text, "m.mlir").unwrap()).unwrap();
        let g = from_module(&m).unwrap();
        let plan = plan_with(&g, Options { in_flight, ..Options::default() });
        let param = |i: usize| g.params.iter().position(|p| plan.steps[i].reads(&g).contains(p)).unwrap();
        ends(&g, &plan).into_iter().map(|(i, end)| (param(i), end - i)).collect()
    }

    // Oracle: what is read first starts first, and each is waited for where it is read.
    #[test]
    fn transfers_start_in_the_order_of_their_readers() {
        assert_eq!(planned(1 << 20), [(1, 2), (0, 2)]);
    }

    // Oracle: with no bytes to spare, each starts at its place and is over before the next starts.
    #[test]
    fn without_memory_one_follows_the_other() {
        assert_eq!(planned(0), [(0, 1), (1, 1)]);
    }
}
