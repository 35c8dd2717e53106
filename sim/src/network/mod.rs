//! The network between chips: ICI links, the wires between the dies of a chip, and the data center network between slices.
//!
//! A link carries one message after the other, first come, first served, in each direction separately. A message goes cut-through: its
//! head moves on after one hop's latency, and it holds each link for its bytes over the link's rate, so that a route without
//! contention takes `hops * latency + bytes / rate`, and contention on any link of it delays everything behind. Two messages that
//! reach a link in the same picosecond go in an order that does not depend on where in the torus they are, so chips that are
//! alike stay alike.
//!
//! Links may fail: routes then go round them on a shortest way that is left.

mod route;

use bitvec::vec::BitVec;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::time::Picos;
use tpusim_isa::topology::{AXES, ChipId, DeviceId, Direction, Topology};

pub use route::Port;

/// Ports of one chip that are counted: the torus links, the wires between dies, and the way out to and in from other slices.
pub const PORTS: usize = 2 * AXES + 4;

/// A link or chip that does not exist, or a network cut in two.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// No such link.
    #[error("chip {} has no link {direction} in a slice of {topology}", chip.0)]
    NoLink {
        /// Chip.
        chip: ChipId,
        /// Direction.
        direction: Direction,
        /// Slice.
        topology: String,
    },
    /// No way is left.
    #[error("no way is left from chip {} to chip {}: too many links have failed", from.0, to.0)]
    Cut {
        /// Sender.
        from: ChipId,
        /// Receiver.
        to: ChipId,
    },
}

/// Slices of one shape, joined by the data center network. Devices are numbered slice by slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Shape of each slice.
    pub slice: Topology,
    /// Number of slices.
    pub slices: u32,
}

impl Cluster {
    /// Chips of all slices.
    pub fn chips(&self) -> u32 {
        self.slice.chips() * self.slices
    }

    /// Devices of all slices.
    pub fn devices(&self) -> u32 {
        self.slice.devices() * self.slices
    }

    /// The slice a chip is in, and its number there.
    pub fn place(&self, chip: ChipId) -> (u32, ChipId) {
        (chip.0 / self.slice.chips(), ChipId(chip.0 % self.slice.chips()))
    }

    /// The chip of a device, and which of its devices it is.
    pub fn chip_of(&self, d: DeviceId) -> (ChipId, u32) {
        let n = self.slice.devices_per_chip();
        (ChipId(d.0 / n), d.0 % n)
    }

    /// The chip one link away.
    pub fn neighbor(&self, chip: ChipId, d: Direction) -> Option<ChipId> {
        let (slice, at) = self.place(chip);
        self.slice.neighbor(at, d).map(|n| ChipId(n.0 + slice * self.slice.chips()))
    }
}

/// What one port of a chip has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time it was taken.
    pub busy: Picos,
    /// Bytes that went out.
    pub bytes: u64,
}

/// Rates and latencies of the network's parts.
#[derive(Clone, Debug)]
struct Rates {
    ici: u64,
    die: u64,
    dcn: u64,
    hop: Picos,
    dcn_latency: Picos,
}

/// The chips and what joins them.
#[derive(Clone, Debug)]
pub struct Network {
    cluster: Cluster,
    rates: Rates,
    failed: BitVec,
}

/// The ports of one chip as they are used.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// First moment each is free.
    free: [Picos; PORTS],
    usage: [Usage; PORTS],
}

/// What a message of some size costs at the ports of a chip.
#[derive(Clone, Copy, Debug)]
pub struct Wire {
    bytes: u64,
    /// Time a port is taken, by kind: links of the torus, wires between dies, the data center network.
    times: [Picos; 3],
}

impl Ports {
    /// A message is at `port` at time `at`. Returns when its head is at the other end, and when its last byte is.
    pub fn cross(&mut self, port: usize, at: Picos, wire: &Wire, latencies: &[Picos; PORTS]) -> (Picos, Picos) {
        let (latency, time) = (latencies[port], wire.times[KINDS[port]]);
        let start = at.max(self.free[port]);
        self.free[port] = start + time;
        self.usage[port].busy += time;
        self.usage[port].bytes += wire.bytes;
        (start + latency, start + latency + time)
    }

    /// What each port has done.
    pub fn usage(&self) -> &[Usage; PORTS] {
        &self.usage
    }

    /// How much longer each port is taken at `now`.
    pub(crate) fn taken(&self, now: Picos) -> impl Iterator<Item = u64> {
        self.free.iter().map(move |f| f.0.saturating_sub(now.0))
    }

    /// Lets `shift` pass, in which `times` times as much is done as since `before`.
    pub(crate) fn jump(&mut self, shift: Picos, times: u64, before: &[Usage; PORTS]) {
        for (i, old) in before.iter().enumerate() {
            let u = &mut self.usage[i];
            u.busy += Picos((u.busy - old.busy).0 * times);
            u.bytes += (u.bytes - old.bytes) * times;
            self.free[i] += shift;
        }
    }
}

impl Network {
    /// The network between the chips of `cluster`.
    pub fn new(chip: &ChipSpec, cluster: Cluster) -> Network {
        let ports = cluster.chips() as usize * PORTS;
        let ici = *chip.ici.link_oneway_bps as f64 * *chip.ici.link_efficiency;
        // Dies without wires of their own share their HBM: what one writes the other reads.
        let die = if *chip.ici.d2d_bps > 0 { *chip.ici.d2d_bps } else { *chip.hbm.bps_chip / 2 };
        Network {
            rates: Rates {
                ici: (ici as u64).max(1),
                die: die.max(1),
                dcn: (*chip.ici.dcn_bps_chip).max(1),
                hop: Picos::from_seconds(*chip.ici.hop_latency_s),
                dcn_latency: Picos::from_seconds(*chip.ici.dcn_latency_s),
            },
            failed: BitVec::repeat(false, ports),
            cluster,
        }
    }

    /// The slices it joins.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The least time a message takes from one chip to another.
    pub fn lookahead(&self) -> Picos {
        if self.cluster.slices > 1 { self.rates.hop.min(self.rates.dcn_latency) } else { self.rates.hop }
    }

    /// Takes the link out of `chip` in direction `d` out of service, both ways.
    ///
    /// # Errors
    /// [`NetworkError::NoLink`].
    pub fn fail(&mut self, chip: ChipId, d: Direction) -> Result<(), NetworkError> {
        let known = (chip.0 < self.cluster.chips()).then(|| self.cluster.neighbor(chip, d)).flatten();
        let Some(other) = known else {
            return Err(NetworkError::NoLink { chip, direction: d, topology: self.cluster.slice.to_string() });
        };
        self.failed.set(port_index(chip, Port::Ici(d)), true);
        self.failed.set(port_index(other, Port::Ici(d.opposite())), true);
        Ok(())
    }

    /// Whether a link of the torus works.
    pub fn works(&self, chip: ChipId, d: Direction) -> bool {
        !self.failed[port_index(chip, Port::Ici(d))]
    }

    /// Whether any link has failed.
    pub fn any_failed(&self) -> bool {
        self.failed.any()
    }

    /// What a message of `bytes` costs.
    pub fn wire(&self, bytes: u64) -> Wire {
        let r = &self.rates;
        Wire { bytes, times: [r.ici, r.die, r.dcn].map(|rate| serialise(bytes, rate)) }
    }

    /// From a port to what is behind it.
    pub fn latencies(&self) -> [Picos; PORTS] {
        Port::ALL.map(|port| match port {
            Port::Ici(_) => self.rates.hop,
            Port::Die { .. } | Port::In => Picos(0),
            Port::Out => self.rates.dcn_latency,
        })
    }
}

/// The kind of each port, as [`Wire`] counts them.
const KINDS: [usize; PORTS] = {
    let mut kinds = [0; PORTS];
    (kinds[2 * AXES], kinds[2 * AXES + 1]) = (1, 1);
    (kinds[2 * AXES + 2], kinds[2 * AXES + 3]) = (2, 2);
    kinds
};

fn port_index(chip: ChipId, port: Port) -> usize {
    chip.0 as usize * PORTS + port.index()
}

/// Time `bytes` hold a link of `rate` bytes per second.
fn serialise(bytes: u64, rate: u64) -> Picos {
    let ps = (u128::from(bytes) * 1_000_000_000_000).div_ceil(u128::from(rate.max(1)));
    Picos(u64::try_from(ps).unwrap_or(u64::MAX))
}
