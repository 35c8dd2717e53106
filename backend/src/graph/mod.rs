//! The program as lowering sees it: one flat, typed dataflow graph.
//!
//! Calls are inlined, composites decomposed, and StableHLO's operations reduced to a few kinds: elementwise maps, reductions,
//! matrix products, and operations that only move data. What the code generator has no code for is an error here, with the
//! operation's name and source line.

mod attention;
mod build;
mod collective;
mod expand;
mod narrow;
mod own;
mod region;
mod rings;
mod windows;

use tpusim_isa::num::DType;

use crate::hlo::Literal;
use crate::lower::math::{Combine, MapOp};
use crate::lower::sort::SortSpec;
use crate::ops::attention::Attention;

pub use attention::Fused;
pub(crate) use build::elementwise;
pub use build::{GraphOptions, K_MULTIPLE, LowerError, from_module, from_module_with, register_bits};
pub use collective::{Collective, Exchange, place};
pub use own::{last_heir, own_operands};
pub use region::{Case, Region, While};
pub use rings::Ring;
pub use windows::{Function, Scatter, Term, What, Windows};

/// Index of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// As an index.
    pub fn ix(self) -> usize {
        self.0 as usize
    }
}

/// Dimensions of a matrix product.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DotSpec {
    /// Batch dimensions of the operands, pairwise.
    pub batch: [Vec<usize>; 2],
    /// Contracted dimensions of the operands, pairwise.
    pub contract: [Vec<usize>; 2],
    /// Whether its multiply-adds count as useful work: the correcting passes of precision HIGH and HIGHEST do not.
    pub useful: bool,
}

impl DotSpec {
    /// Dimensions of operand `side` that are neither batch nor contracted.
    pub fn free(&self, side: usize, rank: usize) -> Vec<usize> {
        (0..rank).filter(|d| !self.batch[side].contains(d) && !self.contract[side].contains(d)).collect()
    }
}

/// How the window of a convolution lies along one spatial dimension. The operand may be dilated and has zeros in front and behind, as
/// many as the window sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvWindow {
    /// Elements of the window.
    pub size: u64,
    /// From one window to the next.
    pub stride: u64,
    /// From one element of the window to the next.
    pub dilation: u64,
    /// From one element of the operand to the next.
    pub base: u64,
    /// Zeros in front of the operand.
    pub low: u64,
}

/// Dimensions of a convolution: of (groups, batch, spatial, features) by (groups, spatial, features, output features) into (groups,
/// batch, spatial, output features).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvSpec {
    /// The window along each spatial dimension.
    pub windows: Vec<ConvWindow>,
    /// Whether the last dimension of the window is contracted together with the features, which lie next to it in memory: it is not
    /// dilated, and sees no zeros.
    pub folded: bool,
    /// As [`DotSpec::useful`].
    pub useful: bool,
}

/// What a node computes.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeOp {
    /// Parameter of the entry function.
    Param(u32),
    /// Constant.
    Const(Literal),
    /// Index along a dimension.
    Iota(usize),
    /// Scalar that follows the iterations of a loop around.
    Counter(Counter),
    /// Elementwise operation on operands of the node's own shape (predicates may be scalars).
    Map(MapOp),
    /// Operand dimension `i` becomes dimension `map[i]`; sizes of 1 repeat.
    Broadcast(Vec<usize>),
    /// Same elements in row-major order, other dimensions.
    Reshape,
    /// Result dimension `i` is operand dimension `perm[i]`.
    Transpose(Vec<usize>),
    /// Every `step[i]`-th element from `start[i]`; a negative step runs backwards.
    Slice {
        /// First element of each dimension.
        start: Vec<u64>,
        /// Step of each dimension.
        step: Vec<i64>,
    },
    /// The part of the first operand that starts, along each of these dimensions, at the index that the next operand gives; the
    /// others are whole. Indices are integer scalars and clamped so that the part lies inside.
    DynSlice(Vec<usize>),
    /// The first operand with the second one in place of a part of it, which starts along each of `axes` at the index that the next
    /// operand gives, clamped as in [`NodeOp::DynSlice`].
    DynUpdate {
        /// First element along each dimension that is not listed; 0 for those that are.
        start: Vec<u64>,
        /// Dimensions along which an operand gives the start.
        axes: Vec<usize>,
    },
    /// Operands one after the other along a dimension.
    Concat(usize),
    /// First operand with the second (a scalar) around and between its elements.
    Pad {
        /// Elements before each dimension, not negative.
        low: Vec<u64>,
        /// Elements between two of each dimension.
        interior: Vec<u64>,
    },
    /// Reduction over dimensions.
    Reduce(Combine, Vec<usize>),
    /// Matrix product.
    Dot(DotSpec),
    /// Convolution.
    Conv(ConvSpec),
    /// Work with code of its own that is never fused. The node itself has no elements; its results are [`NodeOp::Result`] nodes.
    Special(Special),
    /// Result of a special node, its only operand.
    Result(usize),
}

/// `start + step * i` in 32 bits, `i` being the number of the iteration of a loop of known length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counter {
    /// Regions around that loop.
    pub level: u32,
    /// Value in the first iteration.
    pub start: i32,
    /// What each iteration adds.
    pub step: i32,
}

/// Work with code of its own. Operands are stored arrays, dense and row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum Special {
    /// A loop: operands are the initial values of what it carries, then what its regions read besides.
    While(Box<While>),
    /// One of several regions: operands are the scalar that selects, then what the regions read.
    Case(Box<Case>),
    /// Windows of the first operand at the places in the second. Its result is the windows one after the other.
    Gather(Windows),
    /// Windows that are updated.
    Scatter(Scatter),
    /// Sorts words of 32 bits along a dimension.
    Sort(SortSpec),
    /// Communication with other devices.
    Collective(Box<Collective>),
    /// Attention, or its gradient.
    Attention(Box<Attention>),
    /// A number of each device, by its own.
    DeviceNumber(Vec<i32>),
}

impl Special {
    /// Results that start as the contents of an operand and overwrite it: `(result, operand)`. The operand has no other user.
    pub fn in_place(&self) -> Vec<(usize, usize)> {
        match self {
            Special::While(w) => (0..w.carried()).map(|k| (k, k)).collect(),
            Special::Case(_)
            | Special::Gather(_)
            | Special::Sort(_)
            | Special::Attention(_)
            | Special::Collective(_)
            | Special::DeviceNumber(_) => Vec::new(),
            Special::Scatter(s) => (0..s.arrays()).map(|k| (k, k)).collect(),
        }
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it computes.
    pub op: NodeOp,
    /// Operands.
    pub args: Vec<NodeId>,
    /// Sizes.
    pub dims: Vec<u64>,
    /// Element type.
    pub dtype: DType,
    /// Name of the source's operation, e.g. `jit(f)/add`.
    pub source: String,
    /// `file:line` of the source, empty if unknown.
    pub location: String,
    /// StableHLO name without the dialect, e.g. `add`.
    pub name: &'static str,
}

impl Node {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Bytes of a dense copy.
    pub fn bytes(&self) -> u64 {
        self.elements() * self.dtype.bytes() as u64
    }
}

/// A flat program. Operands come before their users.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Name of the program.
    pub name: String,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// Parameters in order.
    pub params: Vec<NodeId>,
    /// Results in order.
    pub outputs: Vec<NodeId>,
    /// Parameters whose arrays the program may overwrite.
    pub donated: Vec<NodeId>,
}

impl Graph {
    /// The node behind an id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.ix()]
    }

    /// Users of each node.
    pub fn users(&self) -> Vec<Vec<NodeId>> {
        let mut users = vec![Vec::new(); self.nodes.len()];
        for (ix, n) in self.nodes.iter().enumerate() {
            for a in &n.args {
                users[a.ix()].push(NodeId(ix as u32));
            }
        }
        users
    }
}
