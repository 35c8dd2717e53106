//! What a program says to other devices: who they are, what is sent, and the transfers it belongs to.
//!
//! Every device of a pod runs the same program. What differs is looked up by the device's number: a [`Table`] gives it a scalar, a
//! [`Peer`] another device.
//!
//! # Transfers
//!
//! A *transfer* is a piece of communication, such as an all-gather, with code of its own: [`Node::Start`](crate::program::Node::Start)
//! hands that code to one of the device's *transfer queues* and goes on; [`Node::Done`](crate::program::Node::Done) waits until it has
//! run. A queue runs its transfers in order, beside the cores, as the DMA engines and sequencers of a chip do. The code consists of
//! scalar instructions, sends, waits, loops, and operations that do local work (adding what has arrived). The main code uses the
//! first [`MAIN_QUEUES`]; a transfer may start others on queues behind its own, its *strands*, and wait for them.
//!
//! Each transfer has scalar registers and sync flags of its own; flags count from 0 when the program starts and keep their counts
//! from one run of the transfer to the next. `dma.send` of a [`SendDesc`] reads the sender's HBM at once and, when the last byte has
//! arrived at the peer, writes it there and adds 1 to the flag of the same transfer there. Nothing else keeps a fast sender from
//! overwriting what a slow receiver still needs: programs send a message without bytes ahead to say that they are ready.

use crate::program::Addr;

/// Queues that the main code uses. Those behind them are for strands.
pub const MAIN_QUEUES: u32 = 3;

/// Disjoint groups of devices, each in its own order. All have the same size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Groups {
    /// Devices of each group.
    pub members: Vec<Vec<u32>>,
}

impl Groups {
    /// Group and position of every device of `devices`; `None` for those in no group.
    pub fn positions(&self, devices: u32) -> Vec<Option<(u32, u32)>> {
        let mut at = vec![None; devices as usize];
        for (g, members) in self.members.iter().enumerate() {
            for (i, &d) in members.iter().enumerate() {
                if let Some(slot) = at.get_mut(d as usize) {
                    *slot = Some((g as u32, i as u32));
                }
            }
        }
        at
    }

    /// Devices in a group, 0 if there are no groups.
    pub fn size(&self) -> u32 {
        self.members.first().map_or(0, |m| m.len() as u32)
    }
}

/// Another device, by one's own number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The member `shift` places further round the device's group.
    Shift {
        /// Index into [`Program::groups`](crate::program::Program::groups).
        groups: u32,
        /// Places, negative backwards.
        shift: i32,
    },
    /// Named pairs `(from, to)`; devices that are no `from` send nothing.
    Pairs(Vec<(u32, u32)>),
}

/// A scalar of each device, read by `s.dev`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// Position in the device's group, 0 in none.
    Position {
        /// Index into [`Program::groups`](crate::program::Program::groups).
        groups: u32,
    },
    /// A value for each device.
    Values(Vec<i32>),
}

/// A dimension of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SendDim {
    /// Steps.
    pub count: u32,
    /// Bytes between steps in the sender's HBM.
    pub from_stride: i64,
    /// Bytes between steps in the receiver's HBM.
    pub to_stride: i64,
}

/// A message from HBM to the HBM of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SendDesc {
    /// Index into [`Program::peers`](crate::program::Program::peers).
    pub peer: u32,
    /// Flag of the transfer that counts up at the receiver.
    pub flag: u32,
    /// Outer dimensions.
    pub outer: Vec<SendDim>,
    /// Contiguous bytes of each step; 0 for a bare signal.
    pub bytes: u64,
    /// First byte at the sender.
    pub from: Addr,
    /// First byte at the receiver, from the sender's registers.
    pub to: Addr,
}

impl SendDesc {
    /// Bytes of the whole message.
    pub fn payload(&self) -> u64 {
        self.outer.iter().fold(self.bytes, |n, d| n.saturating_mul(u64::from(d.count)))
    }
}

/// What a transfer is, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferInfo {
    /// Short name, e.g. `all-gather.3`.
    pub name: String,
    /// Names of the source's operations.
    pub source: String,
    /// `file:line`, empty if unknown.
    pub location: String,
    /// Mesh axes it goes along, as the source calls them, e.g. `fsdp`; empty if unknown.
    pub axes: String,
    /// Queue that runs it.
    pub queue: u32,
    /// Bytes of the result on one device.
    pub bytes: u64,
    /// Sync flags it uses.
    pub flags: u32,
}
