//! Communication beside the computation of another iteration.
//!
//! What a loop of known length gathers often depends on nothing but its counter: a layer's weights. And what it reduces often goes
//! nowhere but into a stack: a layer's gradients. Neither has to happen in its own iteration. So steps of a loop's body have *stages*:
//!
//! - [`Stage::Ahead`]: for the next iteration. The collective and the kernels that make its operand come right behind the last step that
//!   reads what the collective brought for this iteration, and it is waited for where the next iteration first reads it. There is one
//!   buffer, and no copy.
//! - [`Stage::Behind`]: for the iteration before. A collective starts where its operand is there, and the kernels that put its result away
//!   run in the next iteration, right before the collective starts again.
//!
//! The first iteration's share of what is ahead comes before the loop, the last one's share of what is behind after it. Kernels of these
//! stages compute from the counter of the iteration they belong to ([`shifted`]).

use std::collections::{BTreeMap, BTreeSet};

use super::fuse::{Fusion, Plan, Step};
use super::overlap::is_transfer;
use crate::graph::{Counter, Graph, NodeId};
use crate::lower::expr::Kind;
use crate::lower::scalar::ScalarKind;

/// A share of a body's steps, as one over this, that is little time.
const SHORT: usize = 3;

/// The iteration that a step of a loop's body works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The next one.
    Ahead,
    /// The one at hand.
    Now,
    /// The one before.
    Behind,
}

/// The stages of a loop's body.
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    /// The stage of each step.
    pub stages: Vec<Stage>,
    /// Collectives that are waited for in the iteration after the one in which they start, as steps.
    pub crossing: BTreeSet<usize>,
    /// Nodes whose arrays, and collectives whose scratch memory, are in use from one iteration to the next.
    pub kept: BTreeSet<NodeId>,
}

/// Where the arrays of a body's nodes lie outside.
pub struct Outside<'a> {
    /// Parameters that no iteration changes.
    pub invariant: BTreeSet<NodeId>,
    /// The carried value in whose array a node lies: parameters, and what becomes of them.
    pub carried: &'a dyn Fn(NodeId) -> Option<usize>,
}

struct Body<'a> {
    steps: &'a [Step],
    outside: &'a Outside<'a>,
    reads: Vec<Vec<NodeId>>,
    writers: BTreeMap<NodeId, Vec<usize>>,
    readers: BTreeMap<NodeId, Vec<usize>>,
}

impl<'a> Body<'a> {
    fn new(g: &'a Graph, steps: &'a [Step], outside: &'a Outside<'a>) -> Self {
        let reads: Vec<Vec<NodeId>> = steps.iter().map(|s| s.reads(g)).collect();
        let (mut writers, mut readers) = (BTreeMap::<_, Vec<usize>>::new(), BTreeMap::<_, Vec<usize>>::new());
        for (i, s) in steps.iter().enumerate() {
            s.writes().into_iter().for_each(|n| writers.entry(n).or_default().push(i));
            reads[i].iter().for_each(|n| readers.entry(*n).or_default().push(i));
        }
        Body { steps, outside, reads, writers, readers }
    }

    fn results(&self, step: usize) -> Vec<NodeId> {
        self.steps[step].writes()
    }

    /// The steps that make what step `at` reads, if that depends on the loop's counter alone.
    fn sources(&self, at: usize) -> Option<BTreeSet<usize>> {
        let (mut found, mut work) = (BTreeSet::new(), vec![at]);
        while let Some(step) = work.pop() {
            let plain = match &self.steps[step] {
                Step::Kernel(f) => f.updates.is_none(),
                Step::Special(_) => step == at,
            };
            if !plain || self.results(step).iter().any(|n| (self.outside.carried)(*n).is_some()) {
                return None;
            }
            for r in &self.reads[step] {
                match self.writers.get(r) {
                    _ if self.outside.invariant.contains(r) => {}
                    Some(w) => work.extend(w.iter().copied().filter(|w| found.insert(*w))),
                    None => return None,
                }
            }
        }
        found.insert(at);
        Some(found)
    }

    /// The steps that work on what step `at` brings, if they are kernels.
    fn sinks(&self, at: usize) -> Option<BTreeSet<usize>> {
        let mut found = BTreeSet::new();
        let mut work = self.results(at);
        while let Some(n) = work.pop() {
            for &r in self.readers.get(&n).into_iter().flatten().filter(|r| **r != at) {
                let Step::Kernel(_) = &self.steps[r] else { return None };
                if found.insert(r) {
                    work.extend(self.results(r));
                }
            }
        }
        (!found.is_empty() && self.results(at).iter().all(|n| (self.outside.carried)(*n).is_none())).then_some(found)
    }

    /// Whether `step`, one of `late`, gets on with what `late` steps, `starts` and earlier iterations leave.
    fn alone(&self, step: usize, late: &BTreeSet<usize>, starts: &BTreeSet<usize>) -> bool {
        let carried = |n: NodeId| (self.outside.carried)(n);
        let mine = |w: &usize| late.contains(w) || starts.contains(w);
        // What lies in the array of a carried value is touched by late steps only.
        let private = |k: usize| {
            (0..self.steps.len()).filter(|s| !late.contains(s)).all(|s| {
                let touched = |n: &NodeId| carried(*n) == Some(k);
                !self.reads[s].iter().any(touched) && !self.results(s).iter().any(touched)
            })
        };
        let fine = |n: &NodeId| {
            self.outside.invariant.contains(n)
                || match (carried(*n), self.writers.get(n)) {
                    (Some(k), _) => private(k),
                    (None, Some(w)) => w.iter().all(mine),
                    (None, None) => false,
                }
        };
        self.reads[step].iter().chain(&self.results(step)).all(fine)
    }
}

/// Moves the kernels that are last to read what is gathered up to where they can run, if little time is left from there to the first
/// reader in the next iteration.
fn advance(g: &Graph, plan: &mut Plan, outside: &Outside<'_>) {
    let n = plan.steps.len();
    let body = Body::new(g, &plan.steps, outside);
    let mut key: Vec<(usize, bool, usize)> = (0..n).map(|i| (i, true, i)).collect();
    for at in (0..n).filter(|i| is_transfer(g, &plan.steps[*i]) && body.sources(*i).is_some()) {
        let results = body.results(at);
        let readers = || results.iter().flat_map(|r| body.readers.get(r)).flatten().copied();
        let (Some(first), Some(last)) = (readers().min(), readers().max()) else { continue };
        let Step::Kernel(f) = &plan.steps[last] else { continue };
        let own = |r: &NodeId| body.writers.get(r).is_some_and(|w| w.len() == 1) && (outside.carried)(*r).is_none();
        if !f.roots.iter().all(own) || f.updates.is_some() || f.in_place || SHORT * (n - last + first) > n {
            continue;
        }
        let writers = body.reads[last].iter().flat_map(|r| body.writers.get(r)).flatten().filter(|w| **w < last);
        key[last] = (writers.max().map_or(0, |w| w + 1), false, last);
    }
    key.sort_unstable();
    let mut old: Vec<Option<Step>> = std::mem::take(&mut plan.steps).into_iter().map(Some).collect();
    plan.steps.extend(key.into_iter().filter_map(|(_, _, s)| old[s].take()));
}

/// Gives the steps of a loop's body stages, and the order these need. `None` if all belong to the iteration at hand.
pub fn pipeline(g: &Graph, plan: &mut Plan, outside: &Outside<'_>) -> Option<Pipeline> {
    advance(g, plan, outside);
    let body = Body::new(g, &plan.steps, outside);
    let n = plan.steps.len();
    let starts: Vec<usize> = (0..n).filter(|i| is_transfer(g, &plan.steps[*i])).collect();
    let mut ahead: BTreeSet<usize> = BTreeSet::new();
    let mut gathers = BTreeSet::new();
    for &at in &starts {
        if let Some(s) = body.sources(at) {
            ahead.extend(s);
            gathers.insert(at);
        }
    }
    let (reduces, behind) = late(&body, starts.iter().copied().filter(|s| !ahead.contains(s)));
    if gathers.is_empty() && reduces.is_empty() {
        return None;
    }
    // The step of the iteration at hand that each other one stands in front of.
    let mut front: Vec<(usize, usize)> = Vec::new();
    let now = |s: &usize| !ahead.contains(s) && !behind.contains(s);
    let free = |s: usize| {
        let results = body.results(s);
        let last = results.iter().flat_map(|r| body.readers.get(r)).flatten().filter(|s| now(s)).max();
        last.map_or(0, |l| l + 1)
    };
    let first = |s: usize| {
        let results = body.results(s);
        results.iter().flat_map(|r| body.readers.get(r)).flatten().filter(|s| now(s)).min().copied().unwrap_or(n)
    };
    let mut order: Vec<usize> = gathers.iter().copied().collect();
    order.sort_by_key(|s| (free(*s), first(*s)));
    let mut placed = BTreeSet::new();
    let mut to = 0;
    for at in order {
        let made: Vec<usize> = body.sources(at).into_iter().flatten().filter(|s| placed.insert(*s)).collect();
        to = made.iter().map(|s| free(*s)).max().unwrap_or(0).max(to);
        front.extend(made.into_iter().map(|s| (to, s)));
    }
    let mut before: BTreeMap<usize, usize> = BTreeMap::new();
    for &at in reduces.iter().rev() {
        before.extend(body.sinks(at).into_iter().flatten().map(|s| (s, at)));
    }
    // They keep their order.
    let mut to = n;
    for (&s, at) in before.iter_mut().rev() {
        to = to.min(*at);
        *at = to;
        placed.insert(s);
    }
    front.extend(before.into_iter().map(|(s, at)| (at, s)));
    let mut kept: BTreeSet<NodeId> = ahead.iter().flat_map(|s| body.results(*s)).collect();
    for &r in &reduces {
        kept.extend(body.results(r).into_iter().chain(body.reads[r].iter().copied()));
    }
    let crossing: BTreeSet<usize> = gathers.union(&reduces).copied().collect();
    kept.extend(
        crossing.iter().filter_map(|s| if let Step::Special(s) = &plan.steps[*s] { Some(s.node) } else { None }),
    );
    // Steps that stand in front of the same one keep the order in which they are listed.
    let mut all: Vec<(usize, bool, usize, usize)> = Vec::new();
    all.extend((0..n).filter(|s| !placed.contains(s)).map(|s| (s, true, 0, s)));
    all.extend(front.into_iter().enumerate().map(|(i, (to, s))| (to, false, i, s)));
    all.sort_unstable();
    let mut old: Vec<Option<Step>> = std::mem::take(&mut plan.steps).into_iter().map(Some).collect();
    let mut out = Pipeline { kept, ..Pipeline::default() };
    for (_, _, _, s) in all {
        let Some(step) = old[s].take() else { continue };
        if crossing.contains(&s) {
            out.crossing.insert(plan.steps.len());
        }
        out.stages.push(match (ahead.contains(&s), behind.contains(&s)) {
            (true, _) => Stage::Ahead,
            (_, true) => Stage::Behind,
            _ => Stage::Now,
        });
        plan.steps.push(step);
    }
    Some(out)
}

/// Those of `starts` whose results may be put away an iteration later, and the steps that do it.
fn late(body: &Body<'_>, starts: impl Iterator<Item = usize>) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let mut sinks: BTreeMap<usize, BTreeSet<usize>> = starts.filter_map(|s| Some((s, body.sinks(s)?))).collect();
    loop {
        let starts: BTreeSet<usize> = sinks.keys().copied().collect();
        let late: BTreeSet<usize> = sinks.values().flatten().copied().collect();
        let before = sinks.len();
        sinks.retain(|_, sinks| sinks.iter().all(|s| body.alone(*s, &late, &starts)));
        if sinks.len() == before {
            return (starts, late);
        }
    }
}

/// A kernel that works for another iteration: its counters of loop `level` are `by` iterations further.
pub fn shifted(f: &Fusion, level: u32, by: i32) -> Fusion {
    let mut f = f.clone();
    let shift = |c: &mut Counter| {
        if c.level == level {
            c.start = c.start.wrapping_add(c.step.wrapping_mul(by));
        }
    };
    f.nodes.iter_mut().for_each(|n| {
        if let Kind::Counter(c) = &mut n.kind {
            shift(c)
        }
    });
    f.scalars.iter_mut().for_each(|s| {
        if let ScalarKind::Counter(c) = &mut s.kind {
            shift(c)
        }
    });
    f
}
