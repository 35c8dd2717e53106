//! Communication between devices as nodes.

use tpusim_isa::placement::Placement;

use super::rings::{Ring, rings};
use super::{Graph, NodeOp, Special};
use crate::lower::math::Combine;

/// What a collective does with an array that every device of a group has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// The arrays of the group one after the other along a dimension.
    AllGather {
        /// The dimension.
        dim: usize,
    },
    /// The combination of the group's arrays, everywhere.
    AllReduce {
        /// How they combine.
        how: Combine,
    },
    /// One part along a dimension of the combination, by the position in the group.
    ReduceScatter {
        /// The dimension.
        dim: usize,
        /// How they combine.
        how: Combine,
    },
    /// Part `j` along `split` goes to member `j`; what arrives is joined along `concat`, by the sender's position.
    AllToAll {
        /// Dimension that is cut.
        split: usize,
        /// Dimension along which parts are joined.
        concat: usize,
    },
    /// The array of the group's first device, everywhere.
    Broadcast,
    /// Arrays move from the first device of each pair to the second; who gets none has zeros.
    Permute {
        /// Pairs of devices.
        pairs: Vec<(u32, u32)>,
    },
}

/// A collective: its operand, its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// What is done.
    pub exchange: Exchange,
    /// Devices that work together, in order. All groups have one size.
    pub groups: Vec<Vec<u32>>,
    /// All devices of the program.
    pub devices: u32,
    /// Mesh axes it goes along, for reports; empty if unknown.
    pub axes: String,
    /// Axes of the network that its groups extend along, fastest in the group's order first.
    pub rings: Vec<Ring>,
}

/// Works out along which axes of the network the groups of each collective lie.
pub fn place(g: &mut Graph, placement: &Placement) {
    for node in &mut g.nodes {
        match &mut node.op {
            NodeOp::Special(Special::Collective(c)) => c.rings = rings(&c.groups, Some(placement)),
            NodeOp::Special(Special::While(w)) => {
                place(&mut w.body.graph, placement);
                place(&mut w.cond.graph, placement);
            }
            NodeOp::Special(Special::Case(c)) => {
                c.branches.iter_mut().for_each(|b| place(&mut b.graph, placement));
            }
            _ => {}
        }
    }
}

impl Collective {
    /// Devices of a group.
    pub fn size(&self) -> u64 {
        self.groups.first().map_or(1, |g| g.len() as u64)
    }
}
