//! Plans of loops and branches.
//!
//! What a loop carries lies in one array per value. A body writes the next value straight into it where nothing reads the old one
//! afterwards; else into an array of its own that is copied at the end of the iteration. Branches write into the arrays of the results.

use std::collections::{BTreeMap, BTreeSet};

use super::fuse::{Fusion, Options, Plan, Step, copy, plan_with};
use super::memory::{Layout, Place, layout};
use crate::graph::{Case, Graph, Node, NodeId, NodeOp, Region, Special, While, own_operands};
use crate::lower::expr::Kind;
use crate::lower::math::MapOp;

/// A region cut into steps, with places for its arrays.
#[derive(Clone, Debug, Default)]
pub struct RegionPlan {
    /// Its graph.
    pub graph: Graph,
    /// Its steps.
    pub plan: Plan,
    /// Its arrays.
    pub layout: Layout,
}

/// Plans of a special node's regions: the body and, where the number of iterations is not known, the condition of a loop; the branches
/// of a choice.
pub fn regions(special: &Special, options: Options) -> Vec<RegionPlan> {
    match special {
        Special::While(w) => {
            let mut all = vec![body(w, options)];
            if w.trip.is_none() {
                all.push(simple(&w.cond, options, false));
            }
            all
        }
        Special::Case(c) => {
            let Case { branches } = &**c;
            branches.iter().map(|b| simple(b, options, true)).collect()
        }
        Special::Gather(_) | Special::Scatter(_) | Special::Sort(_) => Vec::new(),
    }
}

/// A region that overwrites nothing that is there already. If `results` holds, its outputs are the node's results.
fn simple(r: &Region, options: Options, results: bool) -> RegionPlan {
    let mut graph = r.graph.clone();
    let mut pinned = BTreeMap::new();
    own_operands(&mut graph, &|_, _| false);
    let plan = plan_with(&graph, options);
    pinned.extend(graph.params.iter().zip(&r.binds).map(|(p, b)| (*p, Place::Operand(*b))));
    if results {
        pinned.extend(graph.outputs.iter().enumerate().map(|(k, o)| (*o, Place::Result(k))));
    }
    let layout = layout(&graph, &plan, &pinned);
    RegionPlan { graph, plan, layout }
}

/// The steps at which a node's array is read and written.
struct Uses {
    reads: Vec<BTreeSet<usize>>,
    writes: Vec<BTreeSet<usize>>,
}

impl Uses {
    fn of(g: &Graph, plan: &Plan) -> Uses {
        let mut u = Uses { reads: vec![BTreeSet::new(); g.nodes.len()], writes: vec![BTreeSet::new(); g.nodes.len()] };
        for (i, s) in plan.steps.iter().enumerate() {
            s.reads(g).iter().for_each(|n| _ = u.reads[n.ix()].insert(i));
            s.writes().iter().for_each(|n| _ = u.writes[n.ix()].insert(i));
        }
        u
    }

    /// The first step that writes the array of `n`, where it is overwritten in place also what was there before.
    fn first_write(&self, g: &Graph, n: NodeId) -> Option<usize> {
        let own = self.writes[n.ix()].first().copied();
        match before(g, n) {
            Some(b) if !matches!(g.node(b).op, NodeOp::Param(_)) => self.first_write(g, b).min(own).or(own),
            _ => own,
        }
    }
}

/// The node whose array `n` takes over.
fn before(g: &Graph, n: NodeId) -> Option<NodeId> {
    let node = g.node(n);
    let NodeOp::Result(k) = node.op else { return None };
    let special = g.node(node.args[0]);
    let NodeOp::Special(s) = &special.op else { return None };
    s.in_place().into_iter().find(|(r, _)| *r == k).map(|(_, o)| special.args[o])
}

/// The parameter whose array `n` ends up in.
fn origin(g: &Graph, n: NodeId) -> NodeId {
    let mut at = n;
    while let Some(b) = before(g, at) {
        at = b;
    }
    at
}

/// Whether a kernel that writes its result over `old` reads every element of `old` just where it writes it.
fn elementwise(f: &Fusion, old: NodeId) -> bool {
    let [(_, store)] = &f.stores[..] else { return false };
    let covered = f.dims.iter().zip(&store.strides).all(|(d, s)| *d == 1 || *s != 0);
    let exact = f.nodes.iter().all(|n| match &n.kind {
        Kind::Load(a) if a.buffer == old.ix() => a.offset == store.offset && a.strides == store.strides,
        _ => true,
    });
    let product = f.product.as_ref().is_some_and(|p| p.operands.iter().any(|(b, _)| *b == old));
    covered && exact && !product
}

fn body(w: &While, options: Options) -> RegionPlan {
    let n = w.carried();
    // Carried values whose old contents are read after they were overwritten: these are copied first.
    let mut kept: BTreeSet<usize> = BTreeSet::new();
    loop {
        let mut graph = w.body.graph.clone();
        let carried: BTreeMap<NodeId, usize> =
            graph.params.iter().zip(&w.body.binds).filter(|(_, b)| **b < n).map(|(p, b)| (*p, *b)).collect();
        let outputs = graph.outputs.clone();
        own_operands(&mut graph, &|param, end| {
            carried.get(&param).is_some_and(|k| !kept.contains(k) && outputs[*k] == end)
        });
        let mut plan = plan_with(&graph, options);
        let uses = Uses::of(&graph, &plan);
        let params: BTreeMap<usize, NodeId> =
            w.body.binds.iter().zip(&graph.params).filter(|(b, _)| **b < n).map(|(b, p)| (*b, *p)).collect();
        let late: Vec<usize> = (0..n)
            .filter(|k| {
                let Some(p) = params.get(k) else { return false };
                let lent = origin(&graph, graph.outputs[*k]) == *p;
                let first = uses.first_write(&graph, graph.outputs[*k]);
                lent && uses.reads[p.ix()].last().copied() > first
            })
            .collect();
        if !late.is_empty() {
            kept.extend(late);
            continue;
        }
        let mut pinned: BTreeMap<NodeId, Place> =
            graph.params.iter().zip(&w.body.binds).map(|(p, b)| (*p, Place::Operand(*b))).collect();
        let mut copies = Vec::new();
        for (k, out) in graph.outputs.clone().into_iter().enumerate() {
            let direct = match params.get(&k) {
                Some(p) if origin(&graph, out) == *p => true,
                Some(p) => {
                    let first = uses.first_write(&graph, out);
                    let last_read = uses.reads[p.ix()].last().copied();
                    last_read < first || last_read.is_none() || options.in_place && over(&mut plan, &uses, *p, out)
                }
                None => true,
            };
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
        let layout = layout(&graph, &plan, &pinned);
        return RegionPlan { graph, plan, layout };
    }
}

/// Whether the only kernel that writes `out` can write it over `old`, which it is the last to read; marks it if so.
fn over(plan: &mut Plan, uses: &Uses, old: NodeId, out: NodeId) -> bool {
    let (Some(&read), Some(&first)) = (uses.reads[old.ix()].last(), uses.writes[out.ix()].first()) else {
        return false;
    };
    if uses.writes[out.ix()].len() != 1 || read != first {
        return false;
    }
    let Some(Step::Kernel(f)) = plan.steps.get_mut(first) else { return false };
    f.in_place = elementwise(f, old);
    f.in_place
}
