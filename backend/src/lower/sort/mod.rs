//! Sorting: a bitonic network over words in VMEM.
//!
//! An element is a few 32-bit *words*: the operands, perhaps a key that orders them, and last the element's index, which breaks ties.
//! With it the order is strict, so the network's result is that of a stable sort, whatever the comparator says. Elements past the
//! end of the dimension have indices from `n` on and come last.
//!
//! A position in the sorted dimension is a number of `p` bits, and each bit is a bit of the row of VMEM or of the lane
//! (`Place`). Stage `s` of the network merges runs of `2^s` elements by comparing those whose positions differ in bit `s - 1`, then
//! `s - 2`, down to 0: pairs in different rows are pairs of registers, whatever the distance, since loads take rows at a stride;
//! pairs in different lanes are met by rotations (`network`). Where the bits lie is the layout (`plan`).
//!
//! The `k` first of many are selected instead of sorted: runs of `k` are sorted along rows, and of two runs the lower half is kept,
//! until one is left, then the same across lanes.

mod blocks;
mod kernel;
mod network;
mod order;
mod plan;

use super::math::MapOp;
use tpusim_isa::num::DType;

pub use kernel::SortKernel;
pub use plan::prefers_columns;

/// A sort of arrays of 32-bit words, dense and row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct SortSpec {
    /// Sizes: the product of those before the sorted dimension, the sorted one, the product of those after it.
    pub dims: [u64; 3],
    /// Elements of the sorted dimension that are kept.
    pub keep: u64,
    /// Words that are loaded.
    pub loads: usize,
    /// What comes first.
    pub order: Order,
    /// Whether a word more, the index, breaks ties.
    pub index: bool,
    /// The word that each result holds.
    pub results: Vec<usize>,
}

impl SortSpec {
    /// Words of an element, the index among them.
    pub fn words(&self) -> usize {
        self.loads + usize::from(self.index)
    }

    /// Comparisons that a sort on an ordinary computer takes: `n log2 n`.
    pub fn comparisons(&self) -> u64 {
        let [o, n, i] = self.dims;
        let depth = u64::from(self.keep.min(n).next_power_of_two().trailing_zeros()).max(1);
        o.saturating_mul(n).saturating_mul(i).saturating_mul(depth)
    }
}

/// An order of elements.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// By word 0 as a signed integer, ascending.
    Key,
    /// By a comparator; the last step says whether the first element comes before the second.
    By(Vec<Step>),
}

impl Order {
    /// Rough number of vector instructions of one comparison.
    fn cost(&self) -> u64 {
        match self {
            Order::Key => 5,
            Order::By(steps) => {
                let one: u64 = steps
                    .iter()
                    .map(|s| match s.what {
                        StepKind::Map(op, _) => u64::from(op.cost()) * 2,
                        _ => 1,
                    })
                    .sum();
                2 * one + 5
            }
        }
    }
}

/// One value of a comparator.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What it is.
    pub what: StepKind,
    /// Earlier steps it works on.
    pub args: Vec<usize>,
    /// Type.
    pub dtype: DType,
}

/// What a step of a comparator is.
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// A word of the first or the second element.
    Word {
        /// Which word.
        word: usize,
        /// Whether it is the second element's.
        second: bool,
    },
    /// A constant as registers hold it.
    Splat(i32),
    /// An elementwise operation, with the type of its first operand that is not a predicate.
    Map(MapOp, DType),
}

/// Where a bit of a position lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Bit of the row of VMEM.
    Row(u32),
    /// Bit of the lane.
    Lane(u32),
}

/// Which of two elements goes to the lower position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dir {
    /// The one that comes first.
    Up,
    /// The first where the bit is 0, the last where it is 1.
    Bit(Place),
}
