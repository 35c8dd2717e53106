//! Fusion: the graph cut into kernels.
//!
//! Only some nodes are *stored* in HBM: results, and what a kernel must read from memory. Going from the results backwards, each
//! stored node roots one kernel, which takes in the producers it can compute itself:
//!
//! - elementwise operations, broadcasts, transposes without stored operand, indices and constants;
//! - reductions over the kernel's columns (softmax and norms become one kernel);
//! - one matrix product whose result covers the whole kernel: the kernel is then that product's epilogue.
//!
//! A producer with users outside the kernel is computed again if that is cheap, else stored. Everything else is loaded: data
//! movement through a [`View`] of the stored array behind it. Kernels that then read the same arrays are joined (`join`).

mod build;
mod dynamic;
mod join;
mod options;

pub use dynamic::Decision;
pub use options::Options;

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use tpusim_isa::num::DType;

use build::Build;

use super::region::{RegionPlan, regions};
use super::view::{View, dense_strides};
use crate::graph::{ConvSpec, DotSpec, Graph, Node as GraphNode, NodeId, NodeOp, Special};
use crate::lower::expr::{Access, Kind, Node, NodeIx, Shift};
use crate::lower::math::{Combine, MapOp};
use crate::lower::scalar::{Scalar, ScalarIx};

/// Nodes one kernel may hold.
pub const MAX_NODES: usize = 160;
/// Vector instructions above which a value with other users is stored rather than computed twice.
const CHEAP: u32 = 12;

/// A fused computation over canonical dimensions, before its dimensions are put in order.
#[derive(Clone, Debug)]
pub struct Fusion {
    /// The nodes it stores, one for each of `stores`.
    pub roots: Vec<NodeId>,
    /// Sizes of the canonical dimensions: those of the root, and for a reducing root those of its operand.
    pub dims: Vec<u64>,
    /// Values; loads have strides in bytes over `dims` and name buffers by the stored node's index.
    pub nodes: Vec<Node>,
    /// What is written, in the same terms.
    pub stores: Vec<(NodeIx, Access)>,
    /// The matrix product it is the epilogue of.
    pub product: Option<Product>,
    /// Scalars that move what is read and written.
    pub scalars: Vec<Scalar>,
    /// The stored node whose array becomes that of the only root: the kernel writes a part of it.
    pub updates: Option<NodeId>,
    /// Stored nodes it reads.
    pub reads: Vec<NodeId>,
    /// Names of the source's operations in it.
    pub sources: Vec<String>,
    /// Elementwise operations on elements.
    pub vector_flops: u64,
    /// Whether it writes over an array that it reads: no element may be read after one of another block was written.
    pub in_place: bool,
}

impl Fusion {
    /// The node it was made for, and names it.
    pub fn root(&self) -> NodeId {
        self.roots.last().copied().unwrap_or(NodeId(0))
    }
}

/// The matrix product of a fusion.
#[derive(Clone, Debug)]
pub struct Product {
    /// The product's node.
    pub node: NodeId,
    /// What it contracts.
    pub spec: Contraction,
    /// Canonical dimension of each of its dimensions; `None` for sizes of one.
    pub map: DimMap,
    /// Stored array behind each operand, and how the operand reads it (in elements, over the operand's dimensions).
    pub operands: [(NodeId, View); 2],
    /// What moves each operand, in bytes.
    pub shifts: [Vec<Shift>; 2],
}

/// What a product contracts.
#[derive(Clone, Debug)]
pub enum Contraction {
    /// Dimensions of a matrix product.
    Dot(DotSpec),
    /// The window and the features of a convolution.
    Conv(ConvSpec),
}

/// A special node with what it reads and writes.
#[derive(Clone, Debug)]
pub struct SpecialStep {
    /// The node.
    pub node: NodeId,
    /// The stored nodes of its results, in order; `None` for those nobody wants.
    pub results: Vec<Option<NodeId>>,
    /// Its regions, as [`regions`] lists them.
    pub regions: Vec<RegionPlan>,
    /// What selects one of them.
    pub decision: Option<Decision>,
    /// Bytes of HBM that the node itself needs to work in.
    pub work: u64,
}

impl SpecialStep {
    /// Bytes of HBM that it needs besides its operands and results. Its regions never run at the same time.
    pub fn scratch(&self) -> u64 {
        self.regions.iter().map(|r| r.layout.bytes).max().unwrap_or(0).max(self.work)
    }
}

/// One step of a program.
#[derive(Clone, Debug)]
pub enum Step {
    /// A fused kernel.
    Kernel(Box<Fusion>),
    /// A special node.
    Special(SpecialStep),
}

impl Step {
    /// Stored nodes it reads.
    pub fn reads(&self, g: &Graph) -> Vec<NodeId> {
        match self {
            Step::Kernel(f) => f.reads.clone(),
            Step::Special(s) => match &s.decision {
                // The selector is computed from these.
                Some(d) => g.node(s.node).args.iter().skip(1).chain(&d.reads).copied().collect(),
                None => g.node(s.node).args.clone(),
            },
        }
    }

    /// Stored nodes it writes.
    pub fn writes(&self) -> Vec<NodeId> {
        match self {
            Step::Kernel(f) => f.roots.clone(),
            Step::Special(s) => s.results.iter().flatten().copied().collect(),
        }
    }
}

/// Steps in order; each reads what earlier ones stored.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// Bytes of HBM that transfers may take beside other steps.
    pub in_flight: u64,
    /// Results that lie in the arrays of donated parameters, and these.
    pub donors: BTreeMap<NodeId, NodeId>,
    /// Nodes whose arrays are written over by the kernel that is the last to read them, and what that kernel stores there.
    pub over: BTreeMap<NodeId, NodeId>,
}

struct Planner<'g> {
    g: &'g Graph,
    options: Options,
    users: Vec<Vec<NodeId>>,
    stored: BTreeSet<NodeId>,
    /// Cost of computing a node from what is loaded, per element.
    cost: Vec<u32>,
}

/// Cuts `g` into kernels.
pub fn plan(g: &Graph) -> Plan {
    plan_with(g, Options::default())
}

/// A kernel that copies the stored array of `from` to that of `root`.
pub fn copy(g: &Graph, root: NodeId, from: NodeId) -> Fusion {
    let mut p = Planner { g, options: Options::default(), users: g.users(), stored: BTreeSet::new(), cost: costs(g) };
    p.stored.extend([root, from]);
    p.part(root, root, View::dense(&g.node(root).dims))
}

fn planner(g: &Graph, options: Options) -> Planner<'_> {
    let mut p = Planner { g, options, users: g.users(), stored: BTreeSet::new(), cost: costs(g) };
    for (ix, n) in g.nodes.iter().enumerate() {
        let id = NodeId(ix as u32);
        if matches!(n.op, NodeOp::Param(_)) || matches!(&n.op, NodeOp::Const(l) if !l.is_splat()) {
            p.stored.insert(id);
        }
        // A copy in another order reads what lies there.
        if let (NodeOp::Map(MapOp::Copy), [a]) = (&n.op, &n.args[..])
            && let NodeOp::Transpose(_) = g.node(*a).op
        {
            p.stored.insert(behind(g, *a));
        }
    }
    p
}

/// Cuts `g` into kernels in a certain way.
pub fn plan_with(g: &Graph, options: Options) -> Plan {
    steps(planner(g, options), &g.outputs)
}

/// Cuts `g`, whose output is a scalar that decides something, into kernels that store what it is computed from.
pub fn plan_decision(g: &Graph, options: Options) -> (Plan, Decision) {
    let p = planner(g, options);
    let decision = g.outputs.first().map_or_else(Decision::default, |o| p.decision(*o));
    (steps(p, &decision.reads), decision)
}

/// The steps that store `wanted` nodes.
fn steps(mut p: Planner<'_>, wanted: &[NodeId]) -> Plan {
    let (g, options) = (p.g, p.options);
    let mut todo: BTreeSet<NodeId> = wanted.iter().copied().filter(|n| p.rooted(*n)).collect();
    let mut steps = Vec::new();
    // What later steps read, parameters too.
    let mut later: BTreeSet<NodeId> = BTreeSet::new();
    // Highest first: by the time a node is looked at, all its users have been.
    while let Some(root) = todo.pop_last() {
        if let NodeOp::Special(_) = g.node(root).op {
            let step = p.special(root);
            let step = Step::Special(step);
            let reads = step.reads(g);
            later.extend(&reads);
            todo.extend(reads.into_iter().filter(|r| p.rooted(*r)));
            steps.push(step);
            continue;
        }
        p.stored.insert(root);
        if let NodeOp::Result(_) = g.node(root).op {
            todo.extend(&g.node(root).args);
            continue;
        }
        if g.node(root).elements() == 0 {
            continue;
        }
        let kernels = match &g.node(root).op {
            NodeOp::DynUpdate { .. } => p.update(root, &later),
            _ => p.kernels(root),
        };
        for f in kernels {
            later.extend(&f.reads);
            todo.extend(f.reads.iter().copied().filter(|r| p.rooted(*r) && *r != root));
            steps.push(Step::Kernel(Box::new(f)));
        }
    }
    steps.reverse();
    if options.join {
        join::join(g, options, &mut steps, wanted);
    }
    let in_flight = options.in_flight;
    Plan {
        steps: super::overlap::hoist(g, steps, in_flight),
        in_flight,
        donors: BTreeMap::new(),
        over: BTreeMap::new(),
    }
}

/// Whether `n` only makes its operand wider.
fn widens(g: &Graph, n: &GraphNode) -> bool {
    let narrower = |a: &NodeId| g.node(*a).dtype.bits() < n.dtype.bits();
    matches!(n.op, NodeOp::Map(MapOp::Convert)) && n.args.first().is_some_and(narrower)
}

/// Whether `n` repeats its operand, which is small beside it.
fn small(g: &Graph, n: &GraphNode) -> bool {
    n.args.first().is_some_and(|a| g.node(*a).elements().saturating_mul(2) <= n.elements())
}

/// The array that `n` is a part or another order of.
fn behind(g: &Graph, mut n: NodeId) -> NodeId {
    while let NodeOp::Reshape | NodeOp::Slice { .. } | NodeOp::Transpose(_) = g.node(n).op {
        n = g.node(n).args[0];
    }
    n
}

fn costs(g: &Graph) -> Vec<u32> {
    let mut cost = vec![0u32; g.nodes.len()];
    for (ix, n) in g.nodes.iter().enumerate() {
        let own = match &n.op {
            NodeOp::Map(op) => op.cost(),
            NodeOp::Reduce(..)
            | NodeOp::Dot(_)
            | NodeOp::Conv(_)
            | NodeOp::Concat(_)
            | NodeOp::Pad { .. }
            | NodeOp::DynUpdate { .. } => 1000,
            _ => 0,
        };
        // Indices are the scalar unit's work.
        let args = match n.op {
            NodeOp::DynSlice(_) => &n.args[..1],
            // Stored whatever becomes of it.
            NodeOp::Result(_) => &[],
            // What is small beside its repetitions is stored if it is dear.
            NodeOp::Broadcast(_) if small(g, n) => &[],
            // What is made wider for several is stored as it was before.
            NodeOp::Map(MapOp::Convert) if widens(g, n) => &[],
            _ => &n.args[..],
        };
        cost[ix] = args.iter().fold(own, |c, a| c.saturating_add(cost[a.ix()]));
    }
    cost
}

impl Planner<'_> {
    /// Whether a node needs a kernel of its own when it is stored.
    fn rooted(&self, n: NodeId) -> bool {
        !matches!(self.g.node(n).op, NodeOp::Param(_))
            && !matches!(&self.g.node(n).op, NodeOp::Const(l) if !l.is_splat())
    }

    /// The step of a special node.
    fn special(&self, node: NodeId) -> SpecialStep {
        let mut results = Vec::new();
        for &user in &self.users[node.ix()] {
            if let NodeOp::Result(k) = self.g.node(user).op {
                results.resize(results.len().max(k + 1), None);
                results[k] = Some(user);
            }
        }
        let regions = match &self.g.node(node).op {
            NodeOp::Special(s) => regions(s, self.options),
            _ => Vec::new(),
        };
        let decision = match (&self.g.node(node).op, self.g.node(node).args.first()) {
            (NodeOp::Special(Special::Case(_)), Some(&selector)) => Some(self.decision(selector)),
            _ => None,
        };
        let work = match &self.g.node(node).op {
            NodeOp::Special(Special::Collective(c)) => crate::generate::transfer::work(self.g, node, c),
            _ => 0,
        };
        SpecialStep { node, results, regions, decision, work }
    }

    /// The kernels that store `root`: one, but several for concatenations and pads.
    fn kernels(&mut self, root: NodeId) -> Vec<Fusion> {
        let n = self.g.node(root);
        let row_major = dense_strides(&n.dims);
        match &n.op {
            NodeOp::Concat(d) => {
                let mut at = 0;
                let mut out = Vec::new();
                for &a in &n.args {
                    let offset = at * row_major[*d];
                    at += self.g.node(a).dims[*d] as i64;
                    let strides = strides_for(&self.g.node(a).dims, &row_major);
                    out.push(self.part(root, a, View { offset, strides, shifts: Vec::new() }));
                }
                out.reverse();
                out
            }
            NodeOp::Pad { low, interior } => {
                let inner = self.g.node(n.args[0]).dims.clone();
                let step: Vec<i64> = interior.iter().map(|&i| i as i64 + 1).collect();
                let mut out = Vec::new();
                if self.g.node(n.args[0]).elements() > 0 {
                    let strides: Vec<i64> = full_strides(&n.dims);
                    let v = View { offset: 0, strides, shifts: Vec::new() }.slice(low, &step);
                    let v = View { strides: strides_for(&inner, &v.strides), ..v };
                    out.push(self.part(root, n.args[0], v));
                }
                // The padding goes everywhere first.
                out.push(self.part(root, n.args[1], View::dense(&n.dims)));
                out
            }
            _ => vec![self.part(root, root, View::dense(&n.dims))],
        }
    }

    /// A kernel that computes `value` and writes it into the array of `root` through `view`. A scalar value fills the whole root.
    fn part(&mut self, root: NodeId, value: NodeId, view: View) -> Fusion {
        let mut kept: BTreeSet<NodeId> = BTreeSet::new();
        loop {
            let mut b = Build::new(self, root, value, &kept);
            match b.run(&view) {
                Ok(f) => return f,
                Err(node) => {
                    // This one cannot be computed here: store it and load it.
                    kept.insert(node);
                }
            }
        }
    }

    /// Whether `n` may be computed inside the kernel that has `inside` already, some of that for others too.
    fn fusable(&self, n: NodeId, inside: &BTreeSet<NodeId>, again: &BTreeSet<NodeId>) -> bool {
        !self.stored.contains(&n) && (self.own(n, inside, again) || self.cheap(n))
    }

    /// Whether only the kernel with `inside` needs `n`.
    fn own(&self, n: NodeId, inside: &BTreeSet<NodeId>, again: &BTreeSet<NodeId>) -> bool {
        let own = |&u: &NodeId| !again.contains(&u) && self.covers(u, n, inside);
        self.users[n.ix()].iter().all(own) && !self.g.outputs.contains(&n)
    }

    /// Whether `n` is computed again for each kernel that needs it. What only makes its operand wider is, whatever the operand took: that
    /// is what is worth storing.
    fn cheap(&self, n: NodeId) -> bool {
        widens(self.g, self.g.node(n)) || self.cost[n.ix()] <= CHEAP
    }
}

impl Planner<'_> {
    /// Whether the kernel with `inside` does the work of `user`: either register of an operation on pairs is computed with the other, so
    /// what only the two of them read is computed with both, if it takes no pass over memory of its own.
    fn covers(&self, user: NodeId, n: NodeId, inside: &BTreeSet<NodeId>) -> bool {
        if inside.contains(&user) {
            return true;
        }
        let node = self.g.node(user);
        let NodeOp::Map(MapOp::Wide(op, part)) = node.op else { return false };
        let other = NodeOp::Map(MapOp::Wide(op, 1 - part));
        let twin = |&t: &NodeId| self.g.node(t).op == other && self.g.node(t).args == node.args && inside.contains(&t);
        self.cost[n.ix()] < 1000 && self.users[n.ix()].iter().any(twin)
    }
}

/// Strides of an array part with sizes `dims` inside an array of strides `outer`.
fn strides_for(dims: &[u64], outer: &[i64]) -> Vec<i64> {
    dims.iter().zip(outer).map(|(&d, &s)| if d == 1 { 0 } else { s }).collect()
}

fn full_strides(dims: &[u64]) -> Vec<i64> {
    let mut s = vec![1i64; dims.len()];
    for d in (0..dims.len().saturating_sub(1)).rev() {
        s[d] = s[d + 1] * dims[d + 1] as i64;
    }
    s
}

/// Canonical dimension of each of a tensor's dimensions; `None` for sizes of one.
pub type DimMap = Vec<Option<usize>>;

fn squeeze(dims: &[u64]) -> Vec<u64> {
    dims.iter().copied().filter(|&d| d > 1).collect()
}

/// The stored node behind `n` and how `n` reads it. Data movement that has no view, and what is computed, is stored itself.
pub fn base_of(g: &Graph, n: NodeId, stored: &dyn Fn(NodeId) -> bool, users: &[Vec<NodeId>]) -> (NodeId, View) {
    let node = g.node(n);
    if stored(n) || node.args.is_empty() || matches!(node.op, NodeOp::Result(_)) {
        return (n, View::dense(&node.dims));
    }
    let operand = node.args[0];
    let from = &g.node(operand).dims;
    // A transposed value nobody else wants is stored transposed by the kernel that computes it.
    let computed = |x: NodeId| {
        let product = matches!(g.node(x).op, NodeOp::Map(_) | NodeOp::Dot(_) | NodeOp::Conv(_));
        product && !stored(x) && users[x.ix()].len() == 1 && !g.outputs.contains(&x)
    };
    match &node.op {
        NodeOp::Broadcast(map) => {
            let (b, v) = base_of(g, operand, stored, users);
            (b, v.broadcast(from, map, &node.dims))
        }
        NodeOp::Transpose(perm) if !computed(operand) => {
            let (b, v) = base_of(g, operand, stored, users);
            (b, v.transpose(perm))
        }
        NodeOp::Slice { start, step } => {
            let (b, v) = base_of(g, operand, stored, users);
            (b, v.slice(start, step))
        }
        NodeOp::DynSlice(axes) => {
            let (b, v) = base_of(g, operand, stored, users);
            (b, v.dynamic_slice(from, &node.dims, axes, &node.args[1..]))
        }
        NodeOp::Reshape => {
            let (b, v) = base_of(g, operand, stored, users);
            match v.reshape(from, &node.dims) {
                Some(v) => (b, v),
                // The operand, stored densely, can be read in any shape.
                None => {
                    let v = View::dense(from);
                    let shaped = v.reshape(from, &node.dims).unwrap_or_else(|| View::dense(&node.dims));
                    (operand, shaped)
                }
            }
        }
        _ => (n, View::dense(&node.dims)),
    }
}
