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
//! movement through a [`View`] of the stored array behind it.

mod dynamic;

pub use dynamic::Decision;

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use tpusim_isa::num::DType;

use super::region::{RegionPlan, regions};
use super::view::{View, dense_strides};
use crate::graph::{ConvSpec, DotSpec, Graph, NodeId, NodeOp, Special};
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
    /// The node it stores.
    pub root: NodeId,
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
    /// The stored node whose array becomes that of the root: the kernel writes a part of it.
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

/// How to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// About how many nodes a kernel may hold.
    pub max_nodes: usize,
    /// Whether kernels of loop bodies may write over what they read.
    pub in_place: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { max_nodes: MAX_NODES, in_place: true }
    }
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
            Step::Kernel(f) => vec![f.root],
            Step::Special(s) => s.results.iter().flatten().copied().collect(),
        }
    }
}

/// Steps in order; each reads what earlier ones stored.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
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
    let g = p.g;
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
    Plan { steps: super::overlap::hoist(g, steps) }
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
            | NodeOp::DynUpdate { .. }
            | NodeOp::Special(_)
            | NodeOp::Result(_) => 1000,
            _ => 0,
        };
        // Indices are the scalar unit's work.
        let args = if let NodeOp::DynSlice(_) = n.op { &n.args[..1] } else { &n.args[..] };
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

    /// Whether `n` may be computed inside the kernel that has `inside` already.
    fn fusable(&self, n: NodeId, inside: &BTreeSet<NodeId>) -> bool {
        if self.stored.contains(&n) {
            return false;
        }
        let own = self.users[n.ix()].iter().all(|&u| self.covers(u, n, inside)) && !self.g.outputs.contains(&n);
        own || self.cost[n.ix()] <= CHEAP
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

struct Build<'b, 'g> {
    p: &'b Planner<'g>,
    root: NodeId,
    value: NodeId,
    kept: &'b BTreeSet<NodeId>,
    inside: BTreeSet<NodeId>,
    dims: Vec<u64>,
    nodes: Vec<Node>,
    memo: FxHashMap<(NodeId, DimMap), NodeIx>,
    product: Option<Product>,
    scalars: Vec<Scalar>,
    scalar_memo: FxHashMap<NodeId, ScalarIx>,
    /// The ways loads are moved.
    moved: Vec<Vec<Shift>>,
    reads: BTreeSet<NodeId>,
    sources: Vec<String>,
    flops: u64,
    /// Canonical dimension that row reductions remove.
    reduced: Option<usize>,
}

impl<'b, 'g> Build<'b, 'g> {
    fn new(p: &'b Planner<'g>, root: NodeId, value: NodeId, kept: &'b BTreeSet<NodeId>) -> Self {
        Build {
            p,
            root,
            value,
            kept,
            inside: BTreeSet::new(),
            dims: Vec::new(),
            nodes: Vec::new(),
            memo: FxHashMap::default(),
            product: None,
            scalars: Vec::new(),
            scalar_memo: FxHashMap::default(),
            moved: Vec::new(),
            reads: BTreeSet::new(),
            sources: Vec::new(),
            flops: 0,
            reduced: None,
        }
    }

    /// Decides which nodes are inside: all users of a node come before it in descending order.
    fn collect(&mut self) {
        let g = self.p.g;
        let mut todo: BTreeSet<NodeId> = BTreeSet::from([self.value]);
        let mut product = None;
        let mut reduces = false;
        let columns = matches!(&g.node(self.value).op, NodeOp::Reduce(_, d) if d[..] != [g.node(g.node(self.value).args[0]).dims.len() - 1]);
        // Products that this kernel cannot take in.
        let mut others = Vec::new();
        while let Some(n) = todo.pop_last() {
            let is_root = n == self.value && (n == self.root || !self.p.stored.contains(&n));
            let node = g.node(n);
            if !is_root && (self.kept.contains(&n) || !self.p.fusable(n, &self.inside)) {
                continue;
            }
            if self.inside.len() >= self.p.options.max_nodes {
                break;
            }
            let take = match &node.op {
                NodeOp::Map(_) | NodeOp::Broadcast(_) | NodeOp::Iota(_) | NodeOp::Counter(_) => true,
                NodeOp::Const(l) => l.is_splat(),
                NodeOp::Reduce(_, dims) => {
                    let row = dims[..] == [g.node(node.args[0]).dims.len() - 1];
                    let ok = n == self.value || row && product.is_none() && !columns;
                    reduces |= ok;
                    ok
                }
                NodeOp::Dot(_) | NodeOp::Conv(_) => {
                    let ok = product.is_none() && !reduces;
                    if ok {
                        product = Some(n);
                    } else {
                        others.push(n);
                    }
                    ok
                }
                // Data movement of something computed here; of stored arrays it is a load.
                NodeOp::Transpose(_) => {
                    self.p.fusable(node.args[0], &BTreeSet::from([n])) && !self.kept.contains(&node.args[0])
                }
                NodeOp::Reshape => {
                    let from = &g.node(node.args[0]).dims;
                    squeeze(from) == squeeze(&node.dims) && self.p.fusable(node.args[0], &BTreeSet::from([n]))
                }
                _ => false,
            };
            if take {
                self.inside.insert(n);
                let dear = |a: NodeId| {
                    // Small operands that are dear to compute are not computed again for every repetition.
                    matches!(node.op, NodeOp::Broadcast(_))
                        && (CHEAP + 1..1000).contains(&self.p.cost[a.ix()])
                        && g.node(a).elements() * 2 <= node.elements()
                };
                if !matches!(node.op, NodeOp::Dot(_) | NodeOp::Conv(_)) {
                    todo.extend(node.args.iter().filter(|&&a| !dear(a)));
                }
            }
        }
        for n in others {
            // It is stored anyway: better as the narrower type that it becomes.
            let [user] = self.p.users[n.ix()][..] else { continue };
            let narrows = matches!(g.node(user).op, NodeOp::Map(MapOp::Convert))
                && g.node(user).dtype.bits() < g.node(n).dtype.bits();
            if narrows && user != self.value {
                self.inside.remove(&user);
            }
        }
    }

    fn run(&mut self, view: &View) -> Result<Fusion, NodeId> {
        self.collect();
        let g = self.p.g;
        let root = g.node(self.root);
        let value = g.node(self.value);
        let fills = value.dims.is_empty() && !root.dims.is_empty() && view.strides.len() == root.dims.len();
        let shape = if fills { root.dims.clone() } else { value.dims.clone() };
        // A reducing root iterates over its operand.
        let (map, ix);
        match &value.op {
            NodeOp::Reduce(how, dims) if self.inside.contains(&self.value) && !fills => {
                let operand = g.node(value.args[0]);
                self.dims = operand.dims.clone();
                let opmap: DimMap = (0..operand.dims.len()).map(|d| (operand.dims[d] > 1).then_some(d)).collect();
                map = (0..operand.dims.len()).filter(|d| !dims.contains(d)).map(|d| opmap[d]).collect::<DimMap>();
                let row = dims[..] == [operand.dims.len() - 1];
                if row {
                    self.reduced = Some(dims[0]);
                }
                let arg = self.pull(value.args[0], &opmap)?;
                let removed = dims.iter().fold(0u32, |m, &d| m | 1 << d);
                if self.nodes[arg].varies & removed != removed {
                    // What repeats along a reduced dimension is multiplied out first.
                    return Err(value.args[0]);
                }
                let kind = if row { Kind::RowReduce(*how) } else { Kind::ColReduce(*how, removed) };
                ix = self.reduce_node(kind, arg, value.dtype, removed);
                self.note(self.value);
            }
            _ => {
                self.dims = shape.clone();
                map = (0..shape.len()).map(|d| (shape[d] > 1).then_some(d)).collect();
                let own: DimMap = if fills { vec![] } else { map.clone() };
                ix = self.pull(self.value, &own)?;
            }
        }
        let bytes = root.dtype.bytes() as i64;
        let mut strides = vec![0i64; self.dims.len()];
        for (d, m) in map.iter().enumerate() {
            if let Some(c) = m {
                strides[*c] = view.strides[d] * bytes;
            }
        }
        if let Some(p) = &self.product
            && let Contraction::Conv(_) = p.spec
            && p.node != self.value
        {
            // A convolution's blocks have output features along lanes, and do not know where in the whole they are.
            let lanes = p.map.last().copied().flatten().is_none_or(|c| strides[c] == bytes);
            if !lanes || self.nodes.iter().any(|n| matches!(n.kind, Kind::Iota(_))) {
                return Err(p.node);
            }
        }
        let shifts = self.shifts(&view.shifts, bytes);
        let access = Access { buffer: self.root.ix(), offset: view.offset * bytes, strides, shifts };
        Ok(Fusion {
            root: self.root,
            dims: std::mem::take(&mut self.dims),
            nodes: std::mem::take(&mut self.nodes),
            stores: vec![(ix, access)],
            product: self.product.take(),
            scalars: std::mem::take(&mut self.scalars),
            updates: None,
            reads: self.reads.iter().copied().collect(),
            sources: std::mem::take(&mut self.sources),
            vector_flops: self.flops,
            in_place: false,
        })
    }

    fn note(&mut self, n: NodeId) {
        let source = &self.p.g.node(n).source;
        if !source.is_empty() && !self.sources.contains(source) {
            self.sources.push(source.clone());
        }
    }

    fn add(&mut self, node: Node) -> NodeIx {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn reduce_node(&mut self, kind: Kind, arg: NodeIx, dtype: DType, removed: u32) -> NodeIx {
        let varies = self.nodes[arg].varies & !removed;
        self.flops += self.size(self.nodes[arg].varies | removed);
        self.add(Node { kind, args: vec![arg], dtype, varies })
    }

    /// Elements of a value that varies over `mask`.
    fn size(&self, mask: u32) -> u64 {
        self.dims.iter().enumerate().filter(|(d, _)| mask >> d & 1 == 1).map(|(_, &s)| s).product()
    }

    /// The value of `n`, whose dimensions are canonical dimensions `map`. An error names a node that must be stored instead.
    fn pull(&mut self, n: NodeId, map: &DimMap) -> Result<NodeIx, NodeId> {
        if let Some(&ix) = self.memo.get(&(n, map.clone())) {
            return Ok(ix);
        }
        let ix = if self.inside.contains(&n) { self.compute(n, map)? } else { self.load(n, map)? };
        self.memo.insert((n, map.clone()), ix);
        Ok(ix)
    }

    fn compute(&mut self, n: NodeId, map: &DimMap) -> Result<NodeIx, NodeId> {
        let g = self.p.g;
        let node = g.node(n);
        let used = map.iter().flatten().fold(0u32, |m, &d| m | 1 << d);
        match &node.op {
            NodeOp::Const(l) => {
                let bits = crate::graph::register_bits(l.element(0), node.dtype);
                Ok(self.add(Node { kind: Kind::Splat(bits), args: vec![], dtype: node.dtype, varies: 0 }))
            }
            NodeOp::Counter(c) => {
                Ok(self.add(Node { kind: Kind::Counter(*c), args: vec![], dtype: node.dtype, varies: 0 }))
            }
            NodeOp::Iota(d) => Ok(match map[*d] {
                Some(c) => self.add(Node { kind: Kind::Iota(c), args: vec![], dtype: node.dtype, varies: 1 << c }),
                None => self.add(Node { kind: Kind::Splat(0), args: vec![], dtype: node.dtype, varies: 0 }),
            }),
            NodeOp::Map(op) => {
                let mut args = Vec::new();
                for &a in &node.args {
                    args.push(self.pull(a, map)?);
                }
                let varies = args.iter().fold(0, |m, &a| m | self.nodes[a].varies);
                let operand = if *op == MapOp::Select { 1 } else { 0 };
                let operand = g.node(node.args[operand]).dtype;
                self.note(n);
                self.flops += self.size(varies);
                Ok(self.add(Node { kind: Kind::Map(*op, operand), args, dtype: node.dtype, varies }))
            }
            NodeOp::Broadcast(to) => {
                let operand = g.node(node.args[0]);
                let inner =
                    to.iter().enumerate().map(|(i, &d)| if operand.dims[i] == 1 { None } else { map[d] }).collect();
                self.pull(node.args[0], &inner)
            }
            NodeOp::Transpose(perm) => {
                let mut inner = vec![None; perm.len()];
                for (i, &p) in perm.iter().enumerate() {
                    inner[p] = map[i];
                }
                self.note(n);
                self.pull(node.args[0], &inner)
            }
            NodeOp::Reshape => {
                let mut full = map.iter().zip(&node.dims).filter(|(_, d)| **d > 1).map(|(m, _)| *m);
                let operand = g.node(node.args[0]);
                let inner = operand.dims.iter().map(|&d| if d > 1 { full.next().flatten() } else { None }).collect();
                self.pull(node.args[0], &inner)
            }
            NodeOp::Reduce(how, _) => self.row_reduce(n, *how, map, used),
            NodeOp::Dot(spec) => self.product(n, map, used, Contraction::Dot(spec.clone())),
            NodeOp::Conv(spec) => self.product(n, map, used, Contraction::Conv(spec.clone())),
            _ => Err(n),
        }
    }

    /// The matrix product or convolution `n`.
    fn product(&mut self, n: NodeId, map: &DimMap, used: u32, spec: Contraction) -> Result<NodeIx, NodeId> {
        let node = self.p.g.node(n);
        // It must cover the whole kernel, each dimension once.
        let all = self.dims.iter().enumerate().filter(|(_, d)| **d > 1).fold(0u32, |m, (d, _)| m | 1 << d);
        if used != all || self.product.is_some() || used.count_ones() as usize != map.iter().flatten().count() {
            return Err(n);
        }
        let operands = [node.args[0], node.args[1]].map(|a| self.base(a));
        if let Contraction::Conv(spec) = &spec {
            // An operand that cannot be read as it lies is stored in order first.
            let unfit = super::conv::unfit(self.p.g, n, spec, &operands).map(|side| node.args[side]);
            if let Some(arg) = unfit.filter(|a| !self.is_stored(*a)) {
                return Err(arg);
            }
        }
        self.reads.extend(operands.iter().map(|(b, _)| *b));
        let side = |b: &mut Self, i: usize| {
            let bytes = b.p.g.node(node.args[i]).dtype.bytes() as i64;
            b.shifts(&operands[i].1.shifts, bytes)
        };
        let shifts = [side(self, 0), side(self, 1)];
        self.product = Some(Product { node: n, spec, map: map.clone(), operands, shifts });
        self.note(n);
        Ok(self.add(Node { kind: Kind::Product, args: vec![], dtype: node.dtype, varies: used }))
    }

    /// A reduction over the last dimension of its operand: that dimension becomes the kernel's columns.
    fn row_reduce(&mut self, n: NodeId, how: Combine, map: &DimMap, used: u32) -> Result<NodeIx, NodeId> {
        let g = self.p.g;
        let node = g.node(n);
        let operand = g.node(node.args[0]);
        let Some(&size) = operand.dims.last() else { return Err(n) };
        let all = self.dims.iter().enumerate().filter(|(_, d)| **d > 1).fold(0u32, |m, (d, _)| m | 1 << d);
        let column = match self.reduced {
            Some(c) => c,
            // Nothing here has columns yet: the reduced dimension becomes them.
            None if used == all => {
                self.dims.push(size);
                self.extend_strides();
                self.dims.len() - 1
            }
            None => match (0..self.dims.len()).rev().find(|&d| self.dims[d] > 1) {
                Some(d) => d,
                None => return Err(n),
            },
        };
        if self.dims[column] != size || used >> column & 1 == 1 {
            return Err(n);
        }
        self.reduced = Some(column);
        let mut inner = map.clone();
        inner.push(Some(column));
        let arg = self.pull(node.args[0], &inner)?;
        if self.nodes[arg].varies >> column & 1 == 0 {
            // The operand repeats along the columns; let a kernel of its own multiply it out.
            return Err(n);
        }
        self.note(n);
        Ok(self.reduce_node(Kind::RowReduce(how), arg, node.dtype, 1 << column))
    }

    /// Gives accesses made so far a stride along a dimension just added.
    fn extend_strides(&mut self) {
        for n in &mut self.nodes {
            if let Kind::Load(a) = &mut n.kind {
                a.strides.resize(self.dims.len(), 0);
            }
        }
    }

    fn load(&mut self, n: NodeId, map: &DimMap) -> Result<NodeIx, NodeId> {
        // What the kernel stores itself is read through what lies behind it.
        let (base, view) = if n == self.root {
            base_of(self.p.g, n, &|x| x != n && self.is_stored(x), &self.p.users)
        } else {
            self.base(n)
        };
        self.reads.insert(base);
        let node = self.p.g.node(n);
        let bytes = node.dtype.bytes() as i64;
        let mut strides = vec![0i64; self.dims.len()];
        let mut varies = 0;
        for (d, m) in map.iter().enumerate() {
            if let Some(c) = m
                && view.strides[d] != 0
            {
                strides[*c] += view.strides[d] * bytes;
                varies |= 1 << c;
            }
        }
        let shifts = self.shifts(&view.shifts, bytes);
        if !self.holds(&shifts) {
            return Err(n);
        }
        let access = Access { buffer: base.ix(), offset: view.offset * bytes, strides, shifts };
        Ok(self.add(Node { kind: Kind::Load(access), args: vec![], dtype: node.dtype, varies }))
    }

    fn base(&self, n: NodeId) -> (NodeId, View) {
        base_of(self.p.g, n, &|x| self.is_stored(x), &self.p.users)
    }

    fn is_stored(&self, n: NodeId) -> bool {
        self.p.stored.contains(&n) || self.kept.contains(&n)
    }
}

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
