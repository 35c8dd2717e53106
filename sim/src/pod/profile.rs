//! What a run of a pod looked like.

use tpusim_isa::time::Picos;
use tpusim_isa::topology::{ChipId, DeviceId};

use crate::network::{PORTS, Usage};
use crate::profile::{Assumption, OpProfile};

/// One run of an operation or a transfer on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index into the program's operations or transfers.
    pub index: u32,
    /// Start.
    pub start: Picos,
    /// End.
    pub end: Picos,
}

/// What one device did, which stands for all devices of its class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceProfile {
    /// The device.
    pub device: DeviceId,
    /// Devices of its class.
    pub members: u32,
    /// Operations of the main thread in order, up to a limit.
    pub ops: Vec<Run>,
    /// Runs of each operation on the main thread, and their time in all.
    pub op_totals: Vec<(u64, Picos)>,
    /// Transfers in order of their ends, up to the same limit.
    pub transfers: Vec<Run>,
    /// Runs of each transfer, their time from start to end in all, and the time the main thread waited for it.
    pub transfer_totals: Vec<(u64, Picos, Picos)>,
    /// End of its program.
    pub end: Picos,
}

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodProfile {
    /// When the last device was done.
    pub end: Picos,
    /// One device of each class, in order.
    pub devices: Vec<DeviceProfile>,
    /// The device that stands for each device.
    pub class: Vec<DeviceId>,
    /// The chip that stands for each chip.
    pub chip_class: Vec<ChipId>,
    /// What the ports of each chip did; those of a chip that another stands for are that one's.
    pub ports: Vec<[Usage; PORTS]>,
    /// Core profile of each operation that ran, at full clock.
    pub ops: Vec<Option<OpProfile>>,
    /// Events of the network.
    pub messages: u64,
    /// Loops and branches whose course was assumed.
    pub assumed: Vec<Assumption>,
}
