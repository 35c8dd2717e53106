//! What does not change while a pod runs: the program, which chips run, who sends to whom and which way, how long things take.

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::{FlowInfo, FlowKind, Node, Program};
use tpusim_isa::time::Picos;
use tpusim_isa::topology::{ChipId, DeviceId};

use super::PodOptions;
use super::classes::{Classes, classes};
use super::events::{MAX_HOPS, MAX_THREADS};
use super::plan::{Times, tables, targets};
use super::routes::Routes;
use crate::code::Code;
use crate::fault::FaultKind;
use crate::network::{Cluster, Network, PORTS, Port, Wire};

/// Most flags of all transfers, of which every device keeps counts.
const MAX_FLAGS: u32 = 1 << 20;

/// Delays that are the same everywhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delays {
    /// Cycles of a branch.
    pub branch: u64,
    /// Cycles that launch an operation.
    pub launch: u64,
    /// From the start of a transfer to its code.
    pub transfer: Picos,
    /// From a send to the message's head at its first port: it has to be read.
    pub send: Picos,
    /// From the last byte's arrival to its signal: it has to be written.
    pub land: Picos,
}

/// How a device reaches a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// Number of the route.
    pub route: u32,
    /// The chip that runs and receives for the peer, and which of its devices.
    pub to: (u32, u32),
}

/// See the module. A *site* is a chip that runs, by its number among those that do.
pub(super) struct World<'a> {
    pub program: &'a Program,
    pub chip: &'a ChipSpec,
    pub opts: &'a PodOptions,
    pub network: Network,
    pub classes: Classes,
    pub times: Times<'a>,
    pub delays: Delays,
    /// Devices of a chip.
    pub per_chip: u32,
    /// The chip of each site.
    pub chips: Vec<ChipId>,
    /// Clock of each device.
    pub hz: Vec<u64>,
    /// What each send costs.
    pub wires: Vec<Wire>,
    /// From each port to what is behind it.
    pub latencies: [Picos; PORTS],
    /// Threads of control of a device.
    pub threads: usize,
    tables: Vec<Vec<u32>>,
    /// By device that runs and peer.
    ways: Vec<Option<Way>>,
    /// Ports of all routes that a message may take, and where each begins.
    ports: Vec<u8>,
    routes: Vec<u32>,
    /// The site behind each port of each site.
    next: Vec<u32>,
    /// The first flag of each transfer, and the number of all.
    flags: Vec<u32>,
}

impl<'a> World<'a> {
    /// # Errors
    /// Links, chips and devices that do not exist, and links that are missing.
    pub fn new(
        program: &'a Program,
        chip: &'a ChipSpec,
        cluster: &Cluster,
        opts: &'a PodOptions,
        code: &'a Code,
        fold: bool,
    ) -> Result<Self, FaultKind> {
        let mut network = Network::new(chip, cluster.clone());
        for &(c, d) in &opts.failed {
            network.fail(c, d)?;
        }
        let devices = cluster.devices();
        let hz = clocks(chip, cluster, &opts.slow)?;
        let targets = targets(program, devices)?;
        let classes = match fold {
            true => classes(&network, &targets, &hz)?,
            false => Classes::all(devices, cluster.chips()),
        };
        let mut site = vec![0; cluster.chips() as usize];
        let mut chips = Vec::new();
        for (c, of) in (0u32..).zip(&classes.chip) {
            if of.0 == c {
                site[c as usize] = chips.len() as u32;
                chips.push(*of);
            }
        }
        for (c, of) in classes.chip.iter().enumerate() {
            site[c] = site[of.0 as usize];
        }
        let per_chip = cluster.slice.devices_per_chip();
        let behind = |c: &ChipId, port: &Port| match port {
            Port::Ici(d) => cluster.neighbor(*c, *d).map_or(u32::MAX, |n| site[n.0 as usize]),
            Port::Die { .. } | Port::In | Port::Out => site[c.0 as usize],
        };
        let next = chips.iter().flat_map(|c| Port::ALL.iter().map(move |p| behind(c, p))).collect();
        let running = || chips.iter().flat_map(|c| (0..per_chip).map(move |core| DeviceId(c.0 * per_chip + core)));
        let routes = Routes::new(&network, running(), &targets)?;
        let way = |(k, from): (usize, DeviceId)| {
            let (routes, targets, site) = (&routes, &targets, &site);
            (0..targets.len()).map(move |peer| {
                let (chip, core) = cluster.chip_of(targets[peer][from.0 as usize]?);
                Some(Way { route: routes.of(k, peer)?, to: (site[chip.0 as usize], core) })
            })
        };
        let ways = running().enumerate().flat_map(way).collect();
        let mut starts = vec![0u32];
        for r in &routes.all {
            starts.push(starts[starts.len() - 1] + r.len() as u32);
        }
        let threads = program.transfers.iter().map(|t| t.queue as usize + 2).max().unwrap_or(1);
        let hops = routes.all.iter().map(|r| r.len()).max().unwrap_or(0);
        if threads > MAX_THREADS || hops > MAX_HOPS {
            let m = format!(
                "{threads} queues, or a route of {hops} links: at most {MAX_THREADS} and {MAX_HOPS} are simulated"
            );
            return Err(FaultKind::Malformed(m));
        }
        let mut flags = vec![0u32];
        let mut all = 0u32;
        for t in &program.transfers {
            all = all.saturating_add(t.flags);
            flags.push(all);
        }
        if all > MAX_FLAGS {
            return Err(FaultKind::Malformed(format!("{all} flags of transfers: at most {MAX_FLAGS} are simulated")));
        }
        let hbm = Picos::from_seconds(*chip.hbm.latency_s);
        Ok(World {
            delays: Delays {
                branch: u64::from(*chip.latency.branch),
                launch: chip.cycles(*chip.overhead.op_launch_s),
                transfer: Picos::from_seconds(*chip.overhead.transfer_launch_s),
                send: Picos::from_seconds(*chip.overhead.dma_issue_s) + hbm,
                land: hbm,
            },
            times: Times::new(program, chip, &opts.run, code),
            latencies: network.latencies(),
            wires: program.sends.iter().map(|d| network.wire(d.payload())).collect(),
            threads,
            tables: tables(program, devices)?,
            program,
            chip,
            opts,
            network,
            classes,
            per_chip,
            chips,
            hz,
            routes: starts,
            ports: routes.all.concat(),
            ways,
            next,
            flags,
        })
    }

    /// The site a message comes to behind a port of a site, on its way to `to`.
    pub fn behind(&self, site: u32, port: usize, to: u32) -> u32 {
        if port == Port::Out.index() { to } else { self.next[site as usize * PORTS + port] }
    }

    /// Ports of a route.
    pub fn route(&self, number: u32) -> &[u8] {
        let k = number as usize;
        match (self.routes.get(k), self.routes.get(k + 1)) {
            (Some(from), Some(to)) => self.ports.get(*from as usize..*to as usize).unwrap_or_default(),
            _ => &[],
        }
    }

    /// How a device that runs reaches a peer; `None` if it has no such peer.
    pub fn way(&self, site: u32, core: u32, peer: u32) -> Option<Way> {
        let device = (site * self.per_chip + core) as usize;
        *self.ways.get(device * self.program.peers.len()..)?.get(peer as usize)?
    }

    /// A device's value in a table.
    ///
    /// # Errors
    /// No such table.
    pub fn table(&self, table: u32, device: DeviceId) -> Result<u32, FaultKind> {
        let value = self.tables.get(table as usize).and_then(|t| t.get(device.0 as usize)).copied();
        value.ok_or_else(|| FaultKind::Malformed(format!("table {table} of {}", self.tables.len())))
    }

    /// Flags of a device.
    pub fn flags(&self) -> usize {
        self.flags.last().map_or(0, |n| *n as usize)
    }

    /// Where a flag of a transfer is among those of a device; `None` if it has no such flag.
    pub fn flag(&self, transfer: u32, flag: u32) -> Option<usize> {
        let (first, end) = (*self.flags.get(transfer as usize)?, *self.flags.get(transfer as usize + 1)?);
        first.checked_add(flag).filter(|f| *f < end).map(|f| f as usize)
    }

    /// How often a `while` runs in a run without data.
    ///
    /// # Errors
    /// Nobody has said.
    pub fn trip_count(&self, info: u32) -> Result<u32, FaultKind> {
        let trips = &self.opts.run.trip_counts;
        let (key, name, flow) = self.flow(info, FlowKind::While);
        let given = trips.by_name.get(&key).or_else(|| trips.by_name.get(&name)).copied().or(trips.all);
        given.ok_or(FaultKind::TripCount { flow, key })
    }

    /// The branch that a `case` takes in a run without data; `None` if its code computes it.
    ///
    /// # Errors
    /// Operations without code.
    pub fn branch(&self, info: u32, branches: &[Vec<Node>]) -> Result<Option<u32>, FaultKind> {
        let counted = |f: &FlowInfo| f.kind == FlowKind::Counted;
        if self.program.flows.get(info as usize).is_some_and(counted) {
            return Ok(None);
        }
        let given = &self.opts.run.branches;
        let (key, name, _) = self.flow(info, FlowKind::Case);
        if let Some(k) = given.get(&key).or_else(|| given.get(&name)) {
            return Ok(Some(*k));
        }
        // The branch whose operations take longest.
        let mut best = (0, 0);
        for (k, nodes) in (0u32..).zip(branches) {
            let cycles = self.work(nodes)?;
            if cycles > best.1 {
                best = (k, cycles);
            }
        }
        Ok(Some(best.0))
    }

    /// What a loop or branch is called in options, in the source, and in messages.
    fn flow(&self, info: u32, kind: FlowKind) -> (String, String, String) {
        let key = format!("{}.{info}", kind.name());
        let name = self.program.flows.get(info as usize).map_or(String::new(), |f| f.name.clone());
        let at = self.program.flows.get(info as usize).map_or("", |f| f.location.as_str());
        let flow = if at.is_empty() { key.clone() } else { format!("{key} (`{name}` at {at})") };
        (key, name, flow)
    }

    /// Cycles of the operations in some code, loops of unknown length once.
    fn work(&self, nodes: &[Node]) -> Result<u64, FaultKind> {
        let mut sum = 0u64;
        for n in nodes {
            sum = sum.saturating_add(match n {
                Node::Bundle(_) | Node::Done { .. } => 0,
                Node::Op { op, .. } => self.times.cycles(*op)?,
                Node::Loop { trip, body, .. } => self.work(body)?.saturating_mul(u64::from(*trip)),
                Node::Start { body, .. } => self.work(body)?,
                Node::While { body, .. } => self.work(body)?,
                Node::Case { branches, .. } => {
                    let mut most = 0;
                    for b in branches {
                        most = most.max(self.work(b)?);
                    }
                    most
                }
            });
        }
        Ok(sum)
    }
}

/// The clock of each device.
fn clocks(chip: &ChipSpec, cluster: &Cluster, slow: &[(ChipId, f64)]) -> Result<Vec<u64>, FaultKind> {
    let per_chip = cluster.slice.devices_per_chip();
    let mut hz = vec![*chip.clock_hz; cluster.devices() as usize];
    for &(c, share) in slow {
        if c.0 >= cluster.chips() || !(share > 0.0 && share <= 1.0) {
            let m = format!(
                "chip {} at {share} of its clock: there are {} chips, and shares are above 0 and at most 1",
                c.0,
                cluster.chips()
            );
            return Err(FaultKind::Malformed(m));
        }
        let own = (c.0 * per_chip) as usize..((c.0 + 1) * per_chip) as usize;
        hz[own].fill(((*chip.clock_hz as f64 * share) as u64).max(1));
    }
    Ok(hz)
}
