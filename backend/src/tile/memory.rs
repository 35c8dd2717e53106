//! HBM addresses: every stored array gets a range that no other array needs while it is alive.
//!
//! What a loop or a branch needs inside is laid out first, from zero: it becomes one array of the step that runs it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use tpusim_isa::program::{Buffer, BufferKind};

use super::fuse::{Plan, Step};
use super::overlap::ends;
use super::pipeline::Pipeline;
use crate::graph::{Graph, NodeId, NodeOp};

/// Arrays start at multiples of this.
const ALIGN: u64 = 512;

/// Addresses of all stored arrays.
#[derive(Clone, Debug, Default)]
pub struct MemoryPlan {
    /// Buffers of the program; `live` counts steps.
    pub buffers: Vec<Buffer>,
    /// First byte of each node's array; `None` if it is not stored.
    pub address: Vec<Option<u64>>,
    /// First byte of what steps with regions need inside, by node.
    pub scratch: BTreeMap<NodeId, u64>,
    /// Arrays that have a place for some of the steps.
    pub placed: Vec<Placed>,
    /// Bytes in use at the worst moment.
    pub peak: u64,
}

/// An array that has a place for some of the steps, or memory that a step needs inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its node, or the node of the step that needs it.
    pub node: NodeId,
    /// Whether it is memory that a step needs inside.
    pub scratch: bool,
    /// Length.
    pub bytes: u64,
    /// First and last step that need it.
    pub live: (u32, u32),
    /// First byte behind it.
    pub end: u64,
}

impl Placed {
    /// First byte.
    pub fn start(&self) -> u64 {
        self.end - self.room()
    }

    /// Its bytes with what lies idle up to the next array.
    fn room(&self) -> u64 {
        self.bytes.next_multiple_of(ALIGN)
    }
}

/// Where a region finds an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the array of this operand of the node that holds the region.
    Operand(usize),
    /// In the array of this result of that node.
    Result(usize),
    /// At this offset of the node's scratch memory.
    Scratch(u64),
}

/// The arrays of a region.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Place of each node's array; `None` if it is not stored.
    pub place: Vec<Option<Place>>,
    /// Offset of the scratch memory of the region's own steps with regions, by node.
    pub scratch: BTreeMap<NodeId, u64>,
    /// Arrays in scratch memory.
    pub placed: Vec<Placed>,
    /// Bytes of scratch memory.
    pub bytes: u64,
}

/// First and last steps at which nodes' arrays are needed.
struct Lives {
    first: Vec<Option<u32>>,
    last: Vec<u32>,
    /// Nodes that share the array of another one.
    shares: Vec<Option<NodeId>>,
    /// The parameter in whose array a node lies.
    donor: Vec<Option<NodeId>>,
}

fn lives(g: &Graph, plan: &Plan, wanted: &[NodeId], pipeline: Option<&Pipeline>) -> Lives {
    let mut first: Vec<Option<u32>> = vec![None; g.nodes.len()];
    let mut last = vec![0u32; g.nodes.len()];
    let mut shares: Vec<Option<NodeId>> = vec![None; g.nodes.len()];
    for (i, s) in plan.steps.iter().enumerate() {
        let i = i as u32;
        for r in s.reads(g) {
            last[r.ix()] = last[r.ix()].max(i);
        }
        for w in s.writes() {
            first[w.ix()].get_or_insert(i);
            last[w.ix()] = last[w.ix()].max(i);
        }
        if let Step::Kernel(f) = s
            && let Some(operand) = f.updates
        {
            shares[operand.ix()] = Some(f.root());
        }
        if let Step::Special(s) = s
            && let NodeOp::Special(what) = &g.node(s.node).op
        {
            for (result, operand) in what.in_place() {
                if let Some(Some(r)) = s.results.get(result) {
                    shares[g.node(s.node).args[operand].ix()] = Some(*r);
                }
            }
        }
    }
    for (old, out) in &plan.over {
        shares[old.ix()] = Some(*out);
    }
    // A transfer reads until it has been waited for.
    for (i, end) in ends(g, plan) {
        for r in plan.steps[i].reads(g) {
            last[r.ix()] = last[r.ix()].max(end as u32 - 1);
        }
    }
    for o in wanted {
        last[o.ix()] = plan.steps.len() as u32;
    }
    for k in pipeline.iter().flat_map(|p| &p.kept) {
        first[k.ix()] = first[k.ix()].and(Some(0));
        last[k.ix()] = plan.steps.len() as u32;
    }
    // The last of a chain of nodes that share an array stands for all of them; results come after their operands. A chain that starts
    // at a parameter lies in the parameter's array.
    let mut donor: Vec<Option<NodeId>> = vec![None; g.nodes.len()];
    plan.donors.iter().for_each(|(result, p)| donor[result.ix()] = Some(*p));
    for n in (0..g.nodes.len()).rev() {
        if let Some(r) = shares[n] {
            let end = shares[r.ix()].unwrap_or(r);
            shares[n] = Some(end);
            // Of two numbers the lower, of a number and nothing the number.
            first[end.ix()] = first[n].map_or(first[end.ix()], |f| Some(first[end.ix()].map_or(f, |e| e.min(f))));
            last[end.ix()] = last[end.ix()].max(last[n]);
            if let NodeOp::Param(_) = g.nodes[n].op {
                donor[end.ix()] = Some(NodeId(n as u32));
            }
        }
    }
    Lives { first, last, shares, donor }
}

/// Gives each array of `all` a place above `base` between those that are alive at the same time. Returns the end.
///
/// Arrays take the lowest gap one after the other, in order of their first step. Where that leaves holes, the largest first may leave
/// fewer, or those first that are large for long.
fn allocate(all: &mut [Placed], base: u64) -> u64 {
    let steps: Vec<usize> = (0..all.len()).collect();
    let mut top = stack(all, &steps, base);
    let least = base + most_alive(all);
    let size = |p: &Placed| Reverse(p.bytes);
    let area = |p: &Placed| Reverse(u128::from(p.bytes) * u128::from(p.live.1 - p.live.0 + 1));
    let (mut by_size, mut by_area) = (steps.clone(), steps);
    by_size.sort_by_key(|i| size(&all[*i]));
    by_area.sort_by_key(|i| area(&all[*i]));
    for order in [by_size, by_area] {
        if top <= least {
            break;
        }
        let mut other = all.to_vec();
        let end = stack(&mut other, &order, base);
        if end < top {
            all.copy_from_slice(&other);
            top = end;
        }
    }
    top
}

/// Gives arrays of `all` the lowest gap above `base`, in this order. Returns the end.
fn stack(all: &mut [Placed], order: &[usize], base: u64) -> u64 {
    let mut top = base;
    for (k, &i) in order.iter().enumerate() {
        let item = all[i];
        let (from, to) = item.live;
        let meets = |o: &&Placed| o.live.0 <= to && from <= o.live.1;
        let placed = order[..k].iter().map(|j| &all[*j]);
        let mut busy: Vec<(u64, u64)> = placed.filter(meets).map(|o| (o.start(), o.end)).collect();
        busy.sort_unstable();
        let mut at = base;
        for (lo, hi) in busy {
            if at + item.bytes <= lo {
                break;
            }
            at = at.max(hi);
        }
        all[i].end = at + item.room();
        top = top.max(all[i].end);
    }
    top
}

/// Bytes of arrays that are alive at the same time, at most.
fn most_alive(all: &[Placed]) -> u64 {
    // Those that start at a step come before those that are over at it.
    let mut changes: Vec<(u32, bool, u64)> =
        all.iter().flat_map(|p| [(p.live.0, false, p.room()), (p.live.1, true, p.room())]).collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0u64, 0);
    for (_, over, bytes) in changes {
        now = if over { now - bytes } else { now + bytes };
        most = most.max(now);
    }
    most
}

/// What needs a place for some of the steps: arrays of nodes for which `temporary` holds, and scratch memory of steps, in order of their
/// first step.
fn temporaries(
    g: &Graph,
    plan: &Plan,
    l: &Lives,
    pipeline: Option<&Pipeline>,
    temporary: &dyn Fn(usize) -> bool,
) -> Vec<Placed> {
    let mut all: Vec<Placed> = Vec::new();
    let mut add = |node: NodeId, scratch: bool, bytes: u64, live: (u32, u32)| {
        all.push(Placed { node, scratch, bytes, live, end: 0 });
    };
    for n in (0..g.nodes.len()).filter(|&n| l.shares[n].is_none() && temporary(n)) {
        if let Some(from) = l.first[n] {
            add(NodeId(n as u32), false, g.nodes[n].bytes(), (from, l.last[n]));
        }
    }
    let ends = ends(g, plan);
    for (i, s) in plan.steps.iter().enumerate() {
        if let Step::Special(s) = s
            && s.scratch() > 0
        {
            let end = ends.get(&i).map_or(i, |end| end - 1);
            let kept = pipeline.is_some_and(|p| p.kept.contains(&s.node));
            let live = if kept { (0, plan.steps.len() as u32) } else { (i as u32, end as u32) };
            add(s.node, true, s.scratch(), live);
        }
    }
    all.sort_by_key(|p| (p.live.0, p.node, p.scratch));
    all
}

/// Lays out the arrays of a plan. Parameters, constants and results stay for the whole program; temporaries take the lowest
/// range that is free from their first write to their last read.
pub fn plan(g: &Graph, plan: &Plan) -> MemoryPlan {
    let steps = plan.steps.len() as u32;
    let lives = lives(g, plan, &g.outputs, None);
    let mut out = MemoryPlan { address: vec![None; g.nodes.len()], ..MemoryPlan::default() };
    let mut fixed = 0u64;
    let end = steps.saturating_sub(1);
    let mut place = |out: &mut MemoryPlan, n: NodeId, kind: BufferKind, live: (u32, u32)| {
        let bytes = g.node(n).bytes();
        if let Some(offset) = lives.donor[n.ix()].and_then(|d| out.address[d.ix()]) {
            out.address[n.ix()] = Some(offset);
            out.buffers.push(Buffer { offset, bytes, kind, live });
            return;
        }
        out.address[n.ix()] = Some(fixed);
        out.buffers.push(Buffer { offset: fixed, bytes, kind, live });
        fixed += bytes.next_multiple_of(ALIGN);
    };
    for (i, &p) in g.params.iter().enumerate() {
        place(&mut out, p, BufferKind::Param(i as u32), (0, end));
    }
    for (i, &o) in g.outputs.iter().enumerate() {
        let from = lives.first[o.ix()].unwrap_or(0);
        place(&mut out, o, BufferKind::Output(i as u32), (from, end));
    }
    for (ix, n) in g.nodes.iter().enumerate() {
        if let NodeOp::Const(l) = &n.op
            && !l.is_splat()
        {
            let data: Arc<[u8]> = l.bytes.clone();
            place(&mut out, NodeId(ix as u32), BufferKind::Constant(data), (0, end));
        }
    }
    for (n, d) in lives.donor.iter().enumerate() {
        if let (Some(d), None) = (d, out.address[n]) {
            out.address[n] = out.address[d.ix()];
        }
    }
    let mut placed = temporaries(g, plan, &lives, None, &|n| out.address[n].is_none());
    out.peak = allocate(&mut placed, fixed);
    for p in &placed {
        let at = p.start();
        if p.scratch {
            out.scratch.insert(p.node, at);
        } else {
            out.address[p.node.ix()] = Some(at);
        }
        out.buffers.push(Buffer { offset: at, bytes: p.bytes, kind: BufferKind::Temp, live: p.live });
    }
    out.placed = placed;
    for (n, s) in lives.shares.iter().enumerate() {
        if let Some(s) = s {
            out.address[n] = out.address[s.ix()];
        }
    }
    out
}

/// Lays out the arrays of a region. Those of `pinned` nodes, parameters among them, lie elsewhere; `wanted` ones stay to the end, and what
/// `pipeline` keeps stays from one iteration to the next.
pub fn layout(
    g: &Graph,
    plan: &Plan,
    pinned: &BTreeMap<NodeId, Place>,
    wanted: &[NodeId],
    pipeline: Option<&Pipeline>,
) -> Layout {
    let lives = lives(g, plan, wanted, pipeline);
    let mut out = Layout { place: vec![None; g.nodes.len()], ..Layout::default() };
    for (n, p) in pinned {
        out.place[n.ix()] = Some(*p);
    }
    let mut placed = temporaries(g, plan, &lives, pipeline, &|n| out.place[n].is_none());
    out.bytes = allocate(&mut placed, 0);
    for p in &placed {
        if p.scratch {
            out.scratch.insert(p.node, p.start());
        } else {
            out.place[p.node.ix()] = Some(Place::Scratch(p.start()));
        }
    }
    out.placed = placed;
    for (n, s) in lives.shares.iter().enumerate() {
        if let Some(s) = s {
            out.place[n] = out.place[s.ix()];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(n: u32, bytes: u64, live: (u32, u32)) -> Placed {
        Placed { node: NodeId(n), scratch: false, bytes, live, end: 0 }
    }

    // Oracle: the most that is alive at once, which placing one after the other misses: a hole of one row cannot hold two.
    #[test]
    fn holes_are_filled_by_other_orders() {
        let mut all = [array(0, ALIGN, (0, 1)), array(1, ALIGN, (0, 3)), array(2, 2 * ALIGN, (2, 3))];
        let mut one_by_one = all;
        assert_eq!(stack(&mut one_by_one, &[0, 1, 2], 0), 4 * ALIGN);
        assert_eq!(most_alive(&all), 3 * ALIGN);
        assert_eq!(allocate(&mut all, 0), 3 * ALIGN);
        let apart = |a: &Placed, b: &Placed| {
            a.live.1 < b.live.0 || b.live.1 < a.live.0 || a.end <= b.start() || b.end <= a.start()
        };
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| apart(a, b)), "{all:?}");
        }
    }
}
