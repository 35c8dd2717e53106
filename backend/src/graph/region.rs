//! Regions: the graphs inside loops and branches.
//!
//! A region is a graph of its own. Its parameters are bound to operands of the node that holds it; what it reads of the graph around
//! it is an operand too, so that every graph can be planned by itself.

use std::collections::BTreeSet;

use super::{Graph, NodeId, NodeOp, Special};

/// A graph inside a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Region {
    /// The graph.
    pub graph: Graph,
    /// The operand of the node that each parameter is bound to.
    pub binds: Vec<usize>,
}

/// A loop. Result `k` is carried value `k` after the last iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct While {
    /// Gives the carried values of the next iteration.
    pub body: Region,
    /// Gives an `i1` scalar: whether there is another iteration. Not needed where `trip` is known.
    pub cond: Region,
    /// Number of iterations, where the program says it.
    pub trip: Option<u32>,
}

/// A choice. Every branch gives all results; a selector out of range takes the last one.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The branches in order of the selector.
    pub branches: Vec<Region>,
}

impl Region {
    /// Operands that `output` is computed from.
    fn needs(&self, output: usize) -> BTreeSet<usize> {
        let g = &self.graph;
        let mut seen = vec![false; g.nodes.len()];
        let mut work: Vec<NodeId> = g.outputs.get(output).copied().into_iter().collect();
        while let Some(n) = work.pop() {
            if !std::mem::replace(&mut seen[n.ix()], true) {
                work.extend(&g.node(n).args);
            }
        }
        g.params.iter().zip(&self.binds).filter(|(p, _)| seen[p.ix()]).map(|(_, b)| *b).collect()
    }

    /// Keeps the outputs for which `keep` holds, and what they need.
    fn keep_outputs(&mut self, keep: &dyn Fn(usize) -> bool) {
        let mut k = 0..;
        self.graph.outputs.retain(|_| k.next().is_some_and(keep));
        let kept = self.graph.prune(false);
        let mut i = kept.iter();
        self.binds.retain(|_| i.next() == Some(&true));
    }

    fn rebind(&mut self, new: &[Option<usize>]) {
        for b in &mut self.binds {
            *b = new[*b].unwrap_or(0);
        }
    }
}

/// New indices of what `keep` keeps of `n` things.
fn renumber(n: usize, keep: &dyn Fn(usize) -> bool) -> Vec<Option<usize>> {
    let mut next = 0..;
    (0..n).map(|i| if keep(i) { next.next() } else { None }).collect()
}

/// Drops the operands that nothing reads; the first `fixed` stay.
fn drop_operands(fixed: usize, regions: &mut [&mut Region], args: &mut Vec<NodeId>) {
    let used: BTreeSet<usize> = regions.iter().flat_map(|r| r.binds.iter().copied()).collect();
    let new = renumber(args.len(), &|i| i < fixed || used.contains(&i));
    let mut i = new.iter();
    args.retain(|_| i.next().is_some_and(Option::is_some));
    regions.iter_mut().for_each(|r| r.rebind(&new));
}

impl While {
    /// Number of carried values.
    pub fn carried(&self) -> usize {
        self.body.graph.outputs.len()
    }

    /// Drops carried values that neither `wanted` results nor the condition depend on.
    fn prune(&mut self, wanted: &BTreeSet<usize>, args: &mut Vec<NodeId>) -> Vec<Option<usize>> {
        let n = self.carried();
        if self.trip.is_some() {
            self.cond = Region::default();
        }
        let mut live = BTreeSet::new();
        let mut work: Vec<usize> = wanted.iter().copied().collect();
        work.extend(self.cond.needs(0));
        while let Some(k) = work.pop() {
            if k < n && live.insert(k) {
                work.extend(self.body.needs(k));
            }
        }
        self.body.keep_outputs(&|k| live.contains(&k));
        self.cond.keep_outputs(&|_| true);
        let new = renumber(args.len(), &|k| k >= n || live.contains(&k));
        let mut i = new.iter();
        args.retain(|_| i.next().is_some_and(Option::is_some));
        self.body.rebind(&new);
        self.cond.rebind(&new);
        drop_operands(live.len(), &mut [&mut self.body, &mut self.cond], args);
        renumber(n, &|k| live.contains(&k))
    }
}

impl Case {
    fn prune(&mut self, wanted: &BTreeSet<usize>, args: &mut Vec<NodeId>) -> Vec<Option<usize>> {
        let n = self.branches.first().map_or(0, |b| b.graph.outputs.len());
        self.branches.iter_mut().for_each(|b| b.keep_outputs(&|k| wanted.contains(&k)));
        drop_operands(1, &mut self.branches.iter_mut().collect::<Vec<_>>(), args);
        renumber(n, &|k| wanted.contains(&k))
    }
}

impl Graph {
    /// Drops what no output needs, in regions too. Says which parameters were kept: all if `keep_params`.
    pub fn prune(&mut self, keep_params: bool) -> Vec<bool> {
        let n = self.nodes.len();
        let mut need = vec![false; n];
        // Results that are read, and their new numbers.
        let mut wanted = vec![BTreeSet::new(); n];
        let mut results = vec![Vec::new(); n];
        for o in self.outputs.iter().chain(self.params.iter().filter(|_| keep_params)) {
            need[o.ix()] = true;
        }
        // Users come after their operands.
        for ix in (0..n).rev() {
            if !need[ix] {
                continue;
            }
            let node = &mut self.nodes[ix];
            match &mut node.op {
                NodeOp::Result(k) => {
                    wanted[node.args[0].ix()].insert(*k);
                }
                NodeOp::Special(Special::While(w)) => results[ix] = w.prune(&wanted[ix], &mut node.args),
                NodeOp::Special(Special::Case(c)) => results[ix] = c.prune(&wanted[ix], &mut node.args),
                _ => {}
            }
            self.nodes[ix].args.iter().for_each(|a| need[a.ix()] = true);
        }
        let kept = self.params.iter().map(|p| need[p.ix()]).collect();
        self.params.retain(|p| need[p.ix()]);
        self.donated.retain(|p| need[p.ix()]);
        let mut at = vec![NodeId(0); n];
        let mut nodes = Vec::new();
        for (ix, mut node) in std::mem::take(&mut self.nodes).into_iter().enumerate().filter(|(ix, _)| need[*ix]) {
            if let NodeOp::Result(k) = &mut node.op
                && let Some(Some(new)) = results[node.args[0].ix()].get(*k)
            {
                *k = *new;
            }
            node.args.iter_mut().for_each(|a| *a = at[a.ix()]);
            at[ix] = NodeId(nodes.len() as u32);
            nodes.push(node);
        }
        self.nodes = nodes;
        self.outputs.iter_mut().chain(&mut self.params).chain(&mut self.donated).for_each(|n| *n = at[n.ix()]);
        kept
    }
}
