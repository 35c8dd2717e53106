//! The pod itself: devices with their threads of control, the network between them, and the events that move both.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::pod::MAIN_QUEUES;
use tpusim_isa::program::{Addr, FlowInfo, FlowKind, Node, Program};
use tpusim_isa::time::{Cycles, Picos};
use tpusim_isa::topology::{ChipId, DeviceId};

use super::PodOptions;
use super::classes::{Classes, classes};
use super::control::{Control, Machine, Stop};
use super::data::Data;
use super::events::{Event, Events, Message, Origin};
use super::plan::{Times, tables, targets};
use super::profile::{DeviceProfile, PodProfile, Run};
use crate::code::Code;
use crate::fault::{Fault, FaultKind};
use crate::network::{Cluster, Network, PORTS, Port};

/// Most runs of operations and transfers that are listed for one device.
const MAX_RUNS: usize = 1 << 18;

/// A thread of control of a device: the main one, or that of a transfer queue.
#[derive(Debug)]
struct Thread<'a> {
    control: Option<Control<'a>>,
    stop: Stop,
    /// The transfer it runs, when it started, and when the code was handed over.
    transfer: Option<(u32, Picos)>,
    waiting: VecDeque<(u32, &'a [Node], Picos)>,
    /// When it is free again.
    free: Picos,
    sends: u64,
}

impl Thread<'_> {
    fn idle() -> Self {
        Thread { control: None, stop: Stop::End, transfer: None, waiting: VecDeque::new(), free: Picos(0), sends: 0 }
    }
}

/// Ports of a message, each with its chip.
type Route = Arc<[(ChipId, Port)]>;

/// Signals on a flag of a transfer, and how many of them are taken.
#[derive(Debug, Default)]
struct Flag {
    arrived: VecDeque<Picos>,
}

/// A device that runs, which may stand for others.
struct Device<'a> {
    id: DeviceId,
    /// Clock.
    hz: u64,
    threads: Vec<Thread<'a>>,
    flags: FxHashMap<(u32, u32), Flag>,
    /// Ends of transfers nobody has waited for.
    finished: Vec<VecDeque<Picos>>,
    /// When the operations of transfers so far are over.
    combined: Picos,
    profile: DeviceProfile,
}

/// Everything about a pod that runs.
pub(super) struct Pod<'a, D> {
    program: &'a Program,
    chip: &'a ChipSpec,
    opts: &'a PodOptions,
    network: Network,
    classes: Classes,
    /// Where each device is among those that run.
    place: Vec<u32>,
    targets: Vec<Vec<Option<DeviceId>>>,
    tables: Vec<Vec<u32>>,
    times: Times<'a>,
    data: D,
    devices: Vec<Device<'a>>,
    events: Events,
    routes: FxHashMap<(u32, u32), Route>,
    messages: u64,
}

impl<'a, D: Data> Pod<'a, D> {
    pub fn new(
        program: &'a Program,
        chip: &'a ChipSpec,
        cluster: &Cluster,
        opts: &'a PodOptions,
        code: &'a Code,
        data: D,
        fold: bool,
    ) -> Result<Self, FaultKind> {
        let mut network = Network::new(chip, cluster.clone());
        for &(c, d) in &opts.failed {
            network.fail(c, d)?;
        }
        let n = cluster.devices();
        let mut hz = vec![*chip.clock_hz; n as usize];
        for &(c, share) in &opts.slow {
            if c.0 >= cluster.chips() || !(share > 0.0 && share <= 1.0) {
                let m = format!(
                    "chip {} at {share} of its clock: there are {} chips, and shares are above 0 and at most 1",
                    c.0,
                    cluster.chips()
                );
                return Err(FaultKind::Malformed(m));
            }
            for d in 0..cluster.slice.devices_per_chip() {
                let i = c.0 * cluster.slice.devices_per_chip() + d;
                hz[i as usize] = ((*chip.clock_hz as f64 * share) as u64).max(1);
            }
        }
        let targets = targets(program, n)?;
        let tables = tables(program, n)?;
        let classes = match fold {
            true => classes(&network, &targets, &hz)?,
            false => Classes::all(n, cluster.chips()),
        };
        let representatives = classes.representatives();
        let mut place = vec![0; n as usize];
        let mut members = vec![0u32; representatives.len()];
        for (k, d) in representatives.iter().enumerate() {
            place[d.0 as usize] = k as u32;
        }
        for d in 0..n as usize {
            place[d] = place[classes.device[d].0 as usize];
            members[place[d] as usize] += 1;
        }
        let queues = program.transfers.iter().map(|t| t.queue + 1).max().unwrap_or(0);
        let device = |(k, id): (usize, &DeviceId)| {
            let mut threads = vec![Thread {
                control: Some(Control::new(&program.body, Picos(0), *chip.regs.scalar as usize)),
                ..Thread::idle()
            }];
            threads.extend((0..queues).map(|_| Thread::idle()));
            Device {
                id: *id,
                hz: hz[id.0 as usize],
                threads,
                flags: FxHashMap::default(),
                finished: vec![VecDeque::new(); program.transfers.len()],
                combined: Picos(0),
                profile: DeviceProfile {
                    device: *id,
                    members: members[k],
                    op_totals: vec![(0, Picos(0)); program.ops.len()],
                    transfer_totals: vec![(0, Picos(0), Picos(0)); program.transfers.len()],
                    ..DeviceProfile::default()
                },
            }
        };
        let devices: Vec<Device<'a>> = representatives.iter().enumerate().map(device).collect();
        Ok(Pod {
            program,
            chip,
            opts,
            network,
            classes,
            place,
            targets,
            tables,
            times: Times::new(program, chip, &opts.run, code),
            data,
            devices,
            events: Events::default(),
            routes: FxHashMap::default(),
            messages: 0,
        })
    }

    /// Runs until nothing happens any more.
    ///
    /// # Errors
    /// What goes wrong on a device, with its number; and devices that wait for ever.
    pub fn run(&mut self) -> Result<(), Fault> {
        for d in 0..self.devices.len() as u32 {
            self.events.wake(Picos(0), d, 0);
        }
        while let Some((at, event)) = self.events.next() {
            let result = match event {
                Event::Wake { device, thread } => self.go_on(device, thread),
                Event::Head { message } => self.head(message, at),
            };
            result.map_err(|kind| Fault {
                pc: Vec::new(),
                op: None,
                cycle: at.cycles(*self.chip.clock_hz).0,
                kind: Box::new(kind),
            })?;
        }
        self.stuck().map_or(Ok(()), |kind| Err(Fault { pc: Vec::new(), op: None, cycle: 0, kind: Box::new(kind) }))
    }

    /// A device that has not come to its end.
    fn stuck(&self) -> Option<FaultKind> {
        let name = |t: u32| self.program.transfers.get(t as usize).map_or("a transfer", |t| t.name.as_str());
        let blocked = |d: &'_ Device<'a>| -> Option<String> {
            let t = d.threads.iter().rev().find(|t| t.control.is_some())?;
            Some(match (t.stop, t.transfer) {
                (Stop::Flag { flag, n }, Some((transfer, _))) => {
                    format!("`{}` waits for {n} signals on its flag {flag} that nobody sends", name(transfer))
                }
                (Stop::Transfer(t), _) => format!("it waits for `{}`, which does not end", name(t)),
                _ => "it waits for nothing that could come".to_owned(),
            })
        };
        self.devices.iter().find_map(|d| {
            let what = blocked(d)?;
            Some(FaultKind::Malformed(format!("device {} is stuck: {what}", d.id.0)))
        })
    }

    fn go_on(&mut self, device: u32, thread: u32) -> Result<(), FaultKind> {
        let branch = u64::from(*self.chip.latency.branch);
        loop {
            let Some(mut control) = self.thread(device, thread).control.take() else {
                if !self.begin(device, thread) {
                    return Ok(());
                }
                continue;
            };
            let mut view = View { pod: self, device, thread };
            let stop = control.run(&mut view, branch)?;
            let t = self.thread(device, thread);
            t.stop = stop;
            match stop {
                Stop::End if thread == 0 => {
                    self.devices[device as usize].profile.end = control.time;
                    return Ok(());
                }
                Stop::End => self.end_transfer(device, thread, control.time),
                _ => {
                    t.control = Some(control);
                    return Ok(());
                }
            }
        }
    }

    fn thread(&mut self, device: u32, thread: u32) -> &mut Thread<'a> {
        &mut self.devices[device as usize].threads[thread as usize]
    }

    /// Starts the next transfer of a queue, if there is one.
    fn begin(&mut self, device: u32, thread: u32) -> bool {
        let scalars = *self.chip.regs.scalar as usize;
        // What a transfer starts of its own is part of it.
        let launch =
            if thread <= MAIN_QUEUES { Picos::from_seconds(*self.chip.overhead.transfer_launch_s) } else { Picos(0) };
        let t = self.thread(device, thread);
        let Some((transfer, body, at)) = t.waiting.pop_front() else { return false };
        let start = at.max(t.free);
        t.transfer = Some((transfer, start));
        t.control = Some(Control::new(body, start + launch, scalars));
        true
    }

    fn end_transfer(&mut self, device: u32, thread: u32, end: Picos) {
        let t = self.thread(device, thread);
        t.free = end;
        let Some((transfer, start)) = t.transfer.take() else { return };
        let d = &mut self.devices[device as usize];
        d.finished[transfer as usize].push_back(end);
        if d.profile.transfers.len() < MAX_RUNS {
            d.profile.transfers.push(Run { index: transfer, start, end });
        }
        let total = &mut d.profile.transfer_totals[transfer as usize];
        (total.0, total.1) = (total.0 + 1, total.1 + (end - start));
        let waits = |t: &Thread<'_>| t.control.is_some() && t.stop == Stop::Transfer(transfer);
        if let Some(waiting) = d.threads.iter().position(waits) {
            self.events.wake(end, device, waiting as u32);
        }
    }

    /// The head of a message is at its next port, or its tail at the receiver.
    fn head(&mut self, id: u32, at: Picos) -> Result<(), FaultKind> {
        let Some(m) = self.events.message(id) else { return Ok(()) };
        if m.hop < m.route.len() {
            let (chip, port) = m.route[m.hop];
            m.hop += 1;
            let (last, bytes) = (m.hop == m.route.len(), m.bytes);
            let chip = self.classes.chip[chip.0 as usize];
            let (head, tail) = self.network.cross(chip, port, at, bytes);
            self.messages += 1;
            // What arrives still has to be written.
            let landed = tail + Picos::from_seconds(*self.chip.hbm.latency_s);
            self.events.head(if last { landed } else { head }, id);
            return Ok(());
        }
        let Some(m) = self.events.take(id) else { return Ok(()) };
        let Some(d) = self.program.sends.get(m.desc as usize) else { return Ok(()) };
        if D::DATA {
            self.data.write(m.to, d, m.address, &m.payload)?;
        }
        let to = &mut self.devices[m.to as usize];
        let flag = to.flags.entry((m.transfer, d.flag)).or_default();
        flag.arrived.push_back(at);
        let have = flag.arrived.len() as u32;
        let waits = to.threads.iter().position(|t| {
            t.transfer.is_some_and(|(t, _)| t == m.transfer)
                && matches!(t.stop, Stop::Flag { flag, n } if flag == d.flag && n <= have)
                && t.control.is_some()
        });
        if let Some(thread) = waits {
            self.events.wake(at, m.to, thread as u32);
        }
        Ok(())
    }

    /// The data, and how the run went.
    pub fn finish(self) -> (D, PodProfile) {
        let chips = self.network.cluster().chips();
        let usage = |c: u32| std::array::from_fn(|p| self.network.usage(self.classes.chip[c as usize], Port::ALL[p]));
        let ports: Vec<[crate::network::Usage; PORTS]> = (0..chips).map(usage).collect();
        let devices: Vec<DeviceProfile> = self.devices.into_iter().map(|d| d.profile).collect();
        let profile = PodProfile {
            end: devices.iter().map(|d| d.end).max().unwrap_or_default(),
            devices,
            class: self.classes.device,
            chip_class: self.classes.chip,
            ports,
            ops: self.times.finish(),
            messages: self.messages,
            assumed: Vec::new(),
        };
        (self.data, profile)
    }
}

/// A pod as one thread of control sees it.
struct View<'p, 'a, D> {
    pod: &'p mut Pod<'a, D>,
    device: u32,
    thread: u32,
}

fn address(a: &Addr, scalars: &[u32]) -> i128 {
    a.terms.iter().fold(i128::from(a.base), |sum, (r, scale)| {
        let value = scalars.get(usize::from(r.0)).copied().unwrap_or(0) as i32;
        sum + i128::from(value) * i128::from(*scale)
    })
}

impl<'a, D: Data> View<'_, 'a, D> {
    fn own(&mut self) -> &mut Device<'a> {
        &mut self.pod.devices[self.device as usize]
    }
}

impl<'a, D: Data> Machine<'a> for View<'_, 'a, D> {
    fn operation(&mut self, op: u32, _: &'a Node, at: Picos, scalars: &mut [u32]) -> Result<Picos, FaultKind> {
        let cycles = self.pod.times.cycles(op)?;
        if D::DATA {
            self.pod.data.operation(self.device, op, scalars)?;
        }
        let main = self.thread == 0;
        // The code of a transfer is one program: its operations need no launch of their own, and share the units that run them.
        let launch = if main { 0 } else { self.pod.chip.cycles(*self.pod.chip.overhead.op_launch_s) };
        let d = self.own();
        let at = if main { at } else { at.max(d.combined) };
        let end = at + Cycles(cycles.saturating_sub(launch)).picos(d.hz);
        if !main {
            d.combined = end;
        } else {
            if d.profile.ops.len() < MAX_RUNS {
                d.profile.ops.push(Run { index: op, start: at, end });
            }
            let total = &mut d.profile.op_totals[op as usize];
            *total = (total.0 + 1, total.1 + (end - at));
        }
        Ok(end)
    }

    fn start(&mut self, transfer: u32, body: &'a [Node], at: Picos) -> Result<(), FaultKind> {
        let Some(info) = self.pod.program.transfers.get(transfer as usize) else {
            return Err(FaultKind::Malformed(format!("transfer {transfer} of {}", self.pod.program.transfers.len())));
        };
        let (thread, device) = (info.queue + 1, self.device);
        let t = &mut self.own().threads[thread as usize];
        t.waiting.push_back((transfer, body, at));
        let (idle, free) = (t.control.is_none() && t.waiting.len() == 1, t.free);
        if idle {
            self.pod.events.wake(at.max(free), device, thread);
        }
        Ok(())
    }

    fn finished(&mut self, transfer: u32, at: Picos) -> Option<Picos> {
        let d = self.own();
        let end = d.finished.get_mut(transfer as usize)?.pop_front()?;
        if let Some(total) = d.profile.transfer_totals.get_mut(transfer as usize) {
            total.2 += end - at;
        }
        Some(end)
    }

    fn send(&mut self, desc: u32, at: Picos, scalars: &[u32]) -> Result<(), FaultKind> {
        let (device, thread) = (self.device, self.thread);
        let pod = &mut *self.pod;
        let Some(d) = pod.program.sends.get(desc as usize) else {
            return Err(FaultKind::Malformed(format!("send descriptor {desc} of {}", pod.program.sends.len())));
        };
        let own = &mut pod.devices[device as usize];
        let Some(target) = pod.targets.get(d.peer as usize).and_then(|t| t[own.id.0 as usize]) else { return Ok(()) };
        let t = &mut own.threads[thread as usize];
        let Some((transfer, _)) = t.transfer else {
            return Err(FaultKind::Malformed("a message outside a transfer".to_owned()));
        };
        t.sends += 1;
        let per_chip = pod.network.cluster().slice.devices_per_chip();
        let origin = Origin { core: own.id.0 % per_chip, thread, sequence: t.sends };
        let from = own.id;
        let route = match pod.routes.get(&(from.0, target.0)) {
            Some(r) => r.clone(),
            None => {
                let r: Route = pod.network.route(from, target)?.into();
                pod.routes.insert((from.0, target.0), r.clone());
                r
            }
        };
        let payload = if D::DATA { pod.data.read(device, d, address(&d.from, scalars))? } else { Box::default() };
        let message = Message {
            route,
            hop: 0,
            bytes: d.payload(),
            to: pod.place[target.0 as usize],
            desc,
            address: address(&d.to, scalars),
            transfer,
            payload,
            origin,
        };
        // What is sent has to be read first.
        let start =
            at + Picos::from_seconds(*pod.chip.overhead.dma_issue_s) + Picos::from_seconds(*pod.chip.hbm.latency_s);
        pod.events.send(start, message);
        Ok(())
    }

    fn take(&mut self, flag: u32, n: u32) -> Option<Picos> {
        let thread = self.thread as usize;
        let d = self.own();
        let (transfer, _) = d.threads[thread].transfer?;
        let f = d.flags.entry((transfer, flag)).or_default();
        if n == 0 {
            return Some(Picos(0));
        }
        if f.arrived.len() < n as usize {
            return None;
        }
        f.arrived.drain(..n as usize).next_back()
    }

    fn table(&self, table: u32) -> Result<u32, FaultKind> {
        let id = self.pod.devices[self.device as usize].id.0;
        let value = self.pod.tables.get(table as usize).and_then(|t| t.get(id as usize)).copied();
        value.ok_or_else(|| FaultKind::Malformed(format!("table {table} of {}", self.pod.tables.len())))
    }

    fn cycles(&self, cycles: u64) -> Picos {
        Cycles(cycles).picos(self.pod.devices[self.device as usize].hz)
    }

    fn trip_count(&mut self, info: u32) -> Result<Option<u32>, FaultKind> {
        if D::DATA {
            return Ok(None);
        }
        let trips = &self.pod.opts.run.trip_counts;
        let (key, name, flow) = self.flow(info, FlowKind::While);
        let given = trips.by_name.get(&key).or_else(|| trips.by_name.get(&name)).copied().or(trips.all);
        given.map(Some).ok_or(FaultKind::TripCount { flow, key })
    }

    fn branch(&mut self, info: u32, branches: &'a [Vec<Node>]) -> Result<Option<u32>, FaultKind> {
        let counted = |f: &FlowInfo| f.kind == FlowKind::Counted;
        if D::DATA || self.pod.program.flows.get(info as usize).is_some_and(counted) {
            return Ok(None);
        }
        let given = &self.pod.opts.run.branches;
        let (key, name, _) = self.flow(info, FlowKind::Case);
        if let Some(k) = given.get(&key).or_else(|| given.get(&name)) {
            return Ok(Some(*k));
        }
        // The branch whose operations take longest.
        let mut best = (0, 0);
        for (k, nodes) in (0u32..).zip(branches) {
            let cycles = self.pod.work(nodes)?;
            if cycles > best.1 {
                best = (k, cycles);
            }
        }
        Ok(Some(best.0))
    }
}

impl<D: Data> View<'_, '_, D> {
    /// What a loop or branch is called in options, in the source, and in messages.
    fn flow(&self, info: u32, kind: FlowKind) -> (String, String, String) {
        let key = format!("{}.{info}", kind.name());
        let name = self.pod.program.flows.get(info as usize).map_or(String::new(), |f| f.name.clone());
        let at = self.pod.program.flows.get(info as usize).map_or("", |f| f.location.as_str());
        let flow = if at.is_empty() { key.clone() } else { format!("{key} (`{name}` at {at})") };
        (key, name, flow)
    }
}

impl<D: Data> Pod<'_, D> {
    /// Cycles of the operations in some code, loops of unknown length once.
    fn work(&mut self, nodes: &[Node]) -> Result<u64, FaultKind> {
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
