//! Choices in cutting a graph into kernels.

use super::MAX_NODES;

/// How to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// About how many nodes a kernel may hold.
    pub max_nodes: usize,
    /// Whether kernels of loop bodies may write over what they read.
    pub in_place: bool,
    /// Whether kernels that read the same arrays, or one what the other stores, are joined.
    pub join: bool,
    /// Whether collectives of loop bodies may run beside other iterations, which takes memory.
    pub pipeline: bool,
    /// Bytes from which on arrays are written over others that are no longer needed, if at all.
    pub reuse: Option<u64>,
    /// Bytes of HBM that other transfers may take beside other steps: so much of results, and of operands and scratch memory.
    pub in_flight: u64,
}

/// Bytes in flight where nothing is known of the chip.
const IN_FLIGHT: u64 = 256 << 20;

/// Bytes from which on arrays are written over others where nothing is known of the chip.
const REUSE: u64 = 16 << 20;

impl Default for Options {
    fn default() -> Self {
        Options {
            max_nodes: MAX_NODES,
            in_place: true,
            join: true,
            pipeline: true,
            reuse: Some(REUSE),
            in_flight: IN_FLIGHT,
        }
    }
}
