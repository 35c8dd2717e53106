//! Plans of loops and branches.
//!
//! What a loop carries lies in one array per value. A body writes the next value straight into it where nothing reads the old one
//! afterwards; else into an array of its own that is copied at the end of the iteration. Branches write into the arrays of the results.

use std::collections::{BTreeMap, BTreeSet};

use super::fuse::{Decision, Fusion, Options, Plan, Step, copy, plan_decision, plan_with};
use super::memory::{Layout, Place, layout};
use super::pipeline::{Outside, Pipeline, pipeline};
use super::reuse::reuse;
use crate::graph::{Case, Graph, Node, NodeId, NodeOp, Region, Special, While, last_heir, own_operands};
use crate::lower::expr::{Access, Kind};
use crate::lower::math::MapOp;
use crate::lower::scalar::ScalarKind;

/// A region cut into steps, with places for its arrays.
#[derive(Clone, Debug, Default)]
pub struct RegionPlan {
    /// Its graph.
    pub graph: Graph,
    /// Its steps.
    pub plan: Plan,
    /// Its arrays.
    pub layout: Layout,
    /// For the condition of a loop: its value.
    pub decision: Option<Decision>,
    /// For the body of a loop of known length: steps that work for other iterations, if there are any.
    pub pipeline: Option<Pipeline>,
}

/// Plans of a special node's regions: the body and, where the number of iterations is not known, the condition of a loop; the branches
/// of a choice.
pub fn regions(special: &Special, options: Options) -> Vec<RegionPlan> {
    match special {
        Special::While(w) => {
            let mut all = vec![body(w, options)];
            if w.trip.is_none() {
                all.push(condition(&w.cond, options));
            }
            all
        }
        Special::Case(c) => {
            let Case { branches } = &**c;
            branches.iter().map(|b| branch(b, options)).collect()
        }
        Special::Gather(_)
        | Special::Scatter(_)
        | Special::Sort(_)
        | Special::Attention(_)
        | Special::Collective(_)
        | Special::DeviceNumber(_) => Vec::new(),
    }
}

fn places(r: &Region, g: &Graph) -> BTreeMap<NodeId, Place> {
    g.params.iter().zip(&r.binds).map(|(p, b)| (*p, Place::Operand(*b))).collect()
}

/// The condition of a loop.
fn condition(r: &Region, options: Options) -> RegionPlan {
    let mut graph = r.graph.clone();
    own_operands(&mut graph, false);
    let (plan, decision) = plan_decision(&graph, options);
    let layout = layout(&graph, &plan, &places(r, &graph), &decision.reads, None);
    RegionPlan { graph, plan, layout, decision: Some(decision), pipeline: None }
}

/// A branch: it overwrites nothing that is there already, and its outputs are the node's results.
fn branch(r: &Region, options: Options) -> RegionPlan {
    let mut graph = r.graph.clone();
    own_operands(&mut graph, false);
    let plan = plan_with(&graph, options);
    let mut pinned = places(r, &graph);
    pinned.extend(graph.outputs.iter().enumerate().map(|(k, o)| (*o, Place::Result(k))));
    let layout = layout(&graph, &plan, &pinned, &[], None);
    RegionPlan { graph, plan, layout, decision: None, pipeline: None }
}

/// The steps at which a node's array is read and written.
pub(super) struct Uses {
    reads: Vec<BTreeSet<usize>>,
    writes: Vec<BTreeSet<usize>>,
    /// The node whose array another one takes over.
    before: BTreeMap<NodeId, NodeId>,
}

impl Uses {
    pub(super) fn of(g: &Graph, plan: &Plan) -> Uses {
        let none = vec![BTreeSet::new(); g.nodes.len()];
        let mut u = Uses { reads: none.clone(), writes: none, before: BTreeMap::new() };
        for (i, s) in plan.steps.iter().enumerate() {
            s.reads(g).iter().for_each(|n| _ = u.reads[n.ix()].insert(i));
            s.writes().iter().for_each(|n| _ = u.writes[n.ix()].insert(i));
            match s {
                Step::Kernel(f) => u.before.extend(f.updates.map(|o| (f.root(), o))),
                Step::Special(s) => {
                    let node = g.node(s.node);
                    let NodeOp::Special(what) = &node.op else { continue };
                    let result = |k: usize| s.results.get(k).copied().flatten();
                    u.before.extend(what.in_place().into_iter().filter_map(|(r, o)| Some((result(r)?, node.args[o]))));
                }
            }
        }
        u
    }

    /// The node at the start of the chain of those that share the array of `n`.
    fn origin(&self, n: NodeId) -> NodeId {
        let mut at = n;
        while let Some(b) = self.before.get(&at) {
            at = *b;
        }
        at
    }

    /// Whether `n` lies in the array of another node.
    pub(super) fn shared(&self, n: NodeId) -> bool {
        self.before.contains_key(&n)
    }

    /// Nodes whose arrays others lie in.
    pub(super) fn taken(&self) -> impl Iterator<Item = NodeId> {
        self.before.values().map(|n| self.origin(*n))
    }

    /// The first step that writes into the array of `n`.
    pub(super) fn first_write(&self, n: NodeId) -> Option<usize> {
        let mut first = self.writes[n.ix()].first().copied();
        let mut at = n;
        while let Some(b) = self.before.get(&at) {
            first = self.writes[b.ix()].first().copied().or(first);
            at = *b;
        }
        first
    }

    pub(super) fn last_read(&self, n: NodeId) -> Option<usize> {
        self.reads[n.ix()].last().copied()
    }
}

/// Whether a kernel that writes `out` over `old` reads every element of `old` just where it writes it.
fn elementwise(f: &Fusion, out: NodeId, old: NodeId) -> bool {
    let Some((_, store)) = f.stores.iter().find(|(_, s)| s.buffer == out.ix()) else { return false };
    let covered = f.dims.iter().zip(&store.strides).all(|(d, s)| *d == 1 || *s != 0);
    let exact = f.nodes.iter().all(|n| match &n.kind {
        Kind::Load(a) if a.buffer == old.ix() => *a == Access { buffer: old.ix(), ..store.clone() },
        _ => true,
    });
    let scalars = f.scalars.iter().any(|s| matches!(&s.kind, ScalarKind::Load(a) if a.buffer == old.ix()));
    let product = f.product.as_ref().is_some_and(|p| p.operands.iter().any(|(b, _)| *b == old));
    covered && exact && !product && !scalars && f.updates.is_none()
}

/// Moves the kernel that stores `out`, the next value of `old`, behind the last step that reads `old`, if nothing stands in its way.
fn sink(g: &Graph, plan: &mut Plan, old: NodeId, out: NodeId) {
    let uses = Uses::of(g, plan);
    let (Some(read), Some(from)) = (uses.last_read(old), uses.first_write(out)) else { return };
    let alone =
        uses.writes[out.ix()].len() == 1 && matches!(&plan.steps[from], Step::Kernel(f) if f.roots.contains(&out));
    if read <= from || !alone || uses.before.contains_key(&out) {
        return;
    }
    let arrays = |nodes: Vec<NodeId>| nodes.into_iter().map(|n| uses.origin(n)).collect::<BTreeSet<_>>();
    let (reads, writes) = (arrays(plan.steps[from].reads(g)), arrays(plan.steps[from].writes()));
    let free = plan.steps[from + 1..=read].iter().all(|s| {
        let (r, w) = (arrays(s.reads(g)), arrays(s.writes()));
        w.is_disjoint(&reads) && w.is_disjoint(&writes) && r.is_disjoint(&writes)
    });
    if free {
        plan.steps[from..=read].rotate_left(1);
    }
}

fn body(w: &While, options: Options) -> RegionPlan {
    let n = w.carried();
    // Carried values whose old contents are read after they would be overwritten: parts of these are written into a copy.
    let mut kept: BTreeSet<usize> = BTreeSet::new();
    loop {
        let mut graph = w.body.graph.clone();
        let users = graph.users();
        let carried = |g: &Graph| -> BTreeMap<usize, NodeId> {
            w.body.binds.iter().zip(&g.params).filter(|(b, _)| **b < n).map(|(b, p)| (*b, *p)).collect()
        };
        let lent = carried(&graph)
            .into_iter()
            .filter(|(k, p)| !kept.contains(k) && last_heir(&graph, &users, *p) == Some(graph.outputs[*k]));
        graph.donated = lent.map(|(_, p)| p).collect();
        own_operands(&mut graph, true);
        let mut plan = plan_with(&graph, options);
        let params = carried(&graph);
        params.iter().for_each(|(k, p)| sink(&graph, &mut plan, *p, graph.outputs[*k]));
        let uses = Uses::of(&graph, &plan);
        let spoilt = |(k, p): (&usize, &NodeId)| {
            let out = graph.outputs[*k];
            let early = uses.origin(out) == *p && uses.last_read(*p) <= uses.first_write(out);
            (graph.donated.contains(p) && !early).then_some(*k)
        };
        let found: Vec<usize> = params.iter().filter_map(spoilt).collect();
        if !found.is_empty() {
            kept.extend(found);
            continue;
        }
        let mut pinned = places(&w.body, &graph);
        let mut copies = Vec::new();
        for (k, out) in graph.outputs.clone().into_iter().enumerate() {
            let direct = params.get(&k).is_none_or(|p| {
                let (read, write) = (uses.last_read(*p), uses.first_write(out));
                uses.origin(out) == *p || read < write || options.in_place && over(&mut plan, &uses, *p, out)
            });
            if direct {
                pinned.insert(out, Place::Operand(k));
            } else if graph.node(out).elements() > 0 {
                copies.push((k, out));
            }
        }
        for (k, out) in copies {
            let id = NodeId(graph.nodes.len() as u32);
            let like = graph.node(out).clone();
            graph.nodes.push(Node { op: NodeOp::Map(MapOp::Copy), args: vec![out], name: "copy", ..like });
            plan.steps.push(Step::Kernel(Box::new(copy(&graph, id, out))));
            pinned.insert(id, Place::Operand(k));
        }
        let pipeline = match w.trip {
            Some(trip) if trip > 1 && options.pipeline => staged(w, &graph, &mut plan, &pinned),
            _ => None,
        };
        if let Some(least) = options.reuse {
            let kept = |n: &NodeId| pipeline.as_ref().is_some_and(|p| p.kept.contains(n));
            reuse(&graph, &mut plan, &|n| pinned.contains_key(&n) || kept(&n), least);
        }
        let layout = layout(&graph, &plan, &pinned, &[], pipeline.as_ref());
        return RegionPlan { graph, plan, layout, decision: None, pipeline };
    }
}

/// Stages of the body of a loop, whose arrays outside are `pinned`.
fn staged(w: &While, g: &Graph, plan: &mut Plan, pinned: &BTreeMap<NodeId, Place>) -> Option<Pipeline> {
    let n = w.carried();
    let uses = Uses::of(g, plan);
    let operand = |p: &Place| if let Place::Operand(k) = *p { (k < n).then_some(k) } else { None };
    let carried: BTreeMap<NodeId, usize> =
        pinned.iter().filter_map(|(node, p)| Some((uses.origin(*node), operand(p)?))).collect();
    let invariant = w.body.binds.iter().zip(&g.params).filter(|(b, _)| **b >= n).map(|(_, p)| *p).collect();
    pipeline(g, plan, &Outside { invariant, carried: &|node| carried.get(&uses.origin(node)).copied() })
}

/// Whether the only kernel that writes `out` can write it over `old`, which it is the last to read; marks it if so.
pub(super) fn over(plan: &mut Plan, uses: &Uses, old: NodeId, out: NodeId) -> bool {
    let (Some(read), Some(first)) = (uses.last_read(old), uses.first_write(out)) else { return false };
    if uses.writes[out.ix()].len() != 1 || read != first {
        return false;
    }
    let Some(Step::Kernel(f)) = plan.steps.get_mut(first) else { return false };
    let fits = elementwise(f, out, old);
    f.in_place |= fits;
    fits
}
