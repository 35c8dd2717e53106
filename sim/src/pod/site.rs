//! One chip of a pod: its devices, its ports and its events. Nothing that another chip does reaches it sooner than one link latency
//! later, so it can run that far by itself.

use tpusim_isa::program::Node;
use tpusim_isa::time::{Cycles, Picos};
use tpusim_isa::topology::DeviceId;

use super::control::{Control, Machine, Stop};
use super::data::Data;
use super::device::{Device, Waiting};
use super::events::{Event, Events, Origin};
use super::profile::Run;
use super::world::World;
use crate::fault::FaultKind;
use crate::network::Ports;
use tpusim_isa::pod::MAIN_QUEUES;

/// A chip that runs.
pub(super) struct Site<'a, M> {
    /// Its number among those that run.
    pub number: u32,
    pub devices: Vec<Device<'a>>,
    pub ports: Ports,
    pub events: Events<M>,
    /// Ports that messages have passed.
    pub messages: u64,
    /// The loop of the first device's main code that has begun another iteration, and when.
    pub mark: Option<(&'a [Node], Picos)>,
    /// Time of the event that is going on.
    now: Picos,
}

/// A message between chips: the chip it comes to, what it is and carries.
pub(super) type Flight<M> = (u32, Event, M);

impl<'a, M: Default> Site<'a, M> {
    /// The chip with this number, whose devices stand for so many each.
    pub fn new(world: &World<'a>, number: u32, members: &[u32]) -> Self {
        let first = world.chips[number as usize].0 * world.per_chip;
        let device = |(core, n): (u32, &u32)| Device::new(world, DeviceId(first + core), *n);
        let mut events = Events::default();
        (0..world.per_chip).for_each(|core| events.push(Event::wake(Picos(0), core, 0), M::default()));
        Site {
            number,
            devices: (0..world.per_chip).zip(members).map(device).collect(),
            ports: Ports::default(),
            events,
            messages: 0,
            mark: None,
            now: Picos(0),
        }
    }
}

/// A chip at work.
pub(super) struct Turn<'p, 'a, D: Data> {
    pub world: &'p World<'a>,
    pub data: &'p mut D,
    pub site: &'p mut Site<'a, D::Mail>,
    /// Messages that leave it.
    pub out: &'p mut Vec<Flight<D::Mail>>,
}

impl<'a, D: Data> Turn<'_, 'a, D> {
    /// Runs all events before `end`.
    ///
    /// # Errors
    /// What goes wrong, and when.
    pub fn run(&mut self, end: Picos) -> Result<(), (Picos, FaultKind)> {
        while let Some((event, mail)) = self.site.events.take(end) {
            self.site.now = event.at;
            let result = if event.wakes() {
                self.go_on(u32::from(event.core), event.thread(), event.at)
            } else {
                self.head(event, mail)
            };
            result.map_err(|kind| (event.at, kind))?;
        }
        Ok(())
    }

    fn wake(&mut self, at: Picos, core: u32, thread: u32) {
        self.site.events.push(Event::wake(at, core, thread), D::Mail::default());
    }

    fn go_on(&mut self, core: u32, thread: u32, at: Picos) -> Result<(), FaultKind> {
        let branch = self.world.delays.branch;
        loop {
            let t = &mut self.site.devices[core as usize].threads[thread as usize];
            if !t.running {
                if !self.begin(core, thread) {
                    return Ok(());
                }
                continue;
            }
            let mut control = std::mem::take(&mut t.control);
            if let Stop::Flag { .. } = t.stop {
                control.time = control.time.max(at);
            }
            let mut view = View { turn: self, core, thread };
            let stop = control.run(&mut view, branch)?;
            let time = control.time;
            let t = &mut self.site.devices[core as usize].threads[thread as usize];
            (t.control, t.stop, t.running) = (control, stop, stop != Stop::End);
            match stop {
                Stop::End if thread == 0 => {
                    self.site.devices[core as usize].profile.end = time;
                    return Ok(());
                }
                Stop::End => self.end_transfer(core, thread, time),
                _ => return Ok(()),
            }
        }
    }

    /// Starts the next transfer of a queue, if there is one.
    fn begin(&mut self, core: u32, thread: u32) -> bool {
        // What a transfer starts of its own is part of it.
        let launch = if thread <= MAIN_QUEUES { self.world.delays.transfer } else { Picos(0) };
        let t = &mut self.site.devices[core as usize].threads[thread as usize];
        let Some(Waiting { transfer, body, at }) = t.waiting.pop_front() else { return false };
        let start = at.max(t.free);
        t.transfer = Some((transfer, start));
        t.control.begin(body, start + launch, *self.world.chip.regs.scalar as usize);
        t.running = true;
        true
    }

    fn end_transfer(&mut self, core: u32, thread: u32, end: Picos) {
        let d = &mut self.site.devices[core as usize];
        let t = &mut d.threads[thread as usize];
        t.free = end;
        let Some((transfer, start)) = t.transfer.take() else { return };
        d.finished[transfer as usize].push_back(end);
        d.transferred(Run { index: transfer, start, end });
        if let Some(waiting) = d.threads.iter().position(|t| t.running && t.stop == Stop::Transfer(transfer)) {
            self.wake(end, core, waiting as u32);
        }
    }

    /// The head of a message is at its next port, or its tail at the receiver.
    fn head(&mut self, m: Event, mail: D::Mail) -> Result<(), FaultKind> {
        let world = self.world;
        let (port, last) = match world.route(m.route).get(m.hop() as usize..) {
            Some([port]) => (usize::from(*port), true),
            Some([port, ..]) => (usize::from(*port), false),
            _ => return self.land(m, mail),
        };
        let (head, tail) = self.site.ports.cross(port, m.at, &world.wires[m.desc as usize], &world.latencies);
        self.site.messages += 1;
        let there = if last { m.to } else { world.behind(self.site.number, port, m.to) };
        let m = m.passed(if last { tail + world.delays.land } else { head });
        if there == self.site.number {
            self.site.events.push(m, mail);
        } else {
            self.out.push((there, m, mail));
        }
        Ok(())
    }

    /// A message has arrived.
    fn land(&mut self, m: Event, mail: D::Mail) -> Result<(), FaultKind> {
        let core = u32::from(m.core);
        let Some(d) = self.world.program.sends.get(m.desc as usize) else { return Ok(()) };
        let Some(flag) = self.world.flag(m.transfer, d.flag) else {
            return Err(FaultKind::Malformed(format!("flag {} of transfer {}", d.flag, m.transfer)));
        };
        let to = &mut self.site.devices[core as usize];
        self.data.write(to.id.0, d, mail)?;
        to.flags[flag] += 1;
        let have = to.flags[flag];
        let thread = self.world.program.transfers[m.transfer as usize].queue as usize + 1;
        let t = &to.threads[thread];
        let waits = t.running
            && t.transfer.is_some_and(|(t, _)| t == m.transfer)
            && matches!(t.stop, Stop::Flag { flag, n } if flag == d.flag && n <= have);
        if waits {
            self.wake(m.at, core, thread as u32);
        }
        Ok(())
    }
}

/// A pod as one thread of control sees it.
struct View<'t, 'p, 'a, D: Data> {
    turn: &'t mut Turn<'p, 'a, D>,
    core: u32,
    thread: u32,
}

impl<'a, D: Data> View<'_, '_, 'a, D> {
    fn own(&mut self) -> &mut Device<'a> {
        &mut self.turn.site.devices[self.core as usize]
    }

    fn is_main(&self) -> bool {
        self.thread == 0
    }
}

impl<'a, D: Data> Machine<'a> for View<'_, '_, 'a, D> {
    fn operation(&mut self, op: u32, _: &'a Node, at: Picos, scalars: &mut [u32]) -> Result<Picos, FaultKind> {
        let cycles = self.turn.world.times.cycles(op)?;
        let id = self.own().id;
        self.turn.data.operation(id.0, op, scalars)?;
        let main = self.is_main();
        // The code of a transfer is one program: its operations need no launch of their own, and share the units that run them.
        let launch = if main { 0 } else { self.turn.world.delays.launch };
        let d = self.own();
        let at = if main { at } else { at.max(d.combined) };
        let end = at + Cycles(cycles.saturating_sub(launch)).picos(d.hz);
        if main {
            d.ran(Run { index: op, start: at, end });
        } else {
            d.combined = end;
        }
        Ok(end)
    }

    fn start(&mut self, transfer: u32, body: &'a [Node], at: Picos) -> Result<(), FaultKind> {
        let Some(info) = self.turn.world.program.transfers.get(transfer as usize) else {
            return Err(FaultKind::Malformed(format!("transfer {transfer} of a program that has fewer")));
        };
        let (thread, core) = (info.queue + 1, self.core);
        let t = &mut self.own().threads[thread as usize];
        t.waiting.push_back(Waiting { transfer, body, at });
        let (idle, free) = (!t.running && t.waiting.len() == 1, t.free);
        if idle {
            self.turn.wake(at.max(free), core, thread);
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
        let (core, thread, world) = (self.core, self.thread, self.turn.world);
        let Some(d) = world.program.sends.get(desc as usize) else {
            return Err(FaultKind::Malformed(format!("send descriptor {desc} of {}", world.program.sends.len())));
        };
        let Some(way) = world.way(self.turn.site.number, core, d.peer) else { return Ok(()) };
        let own = self.own();
        let t = &mut own.threads[thread as usize];
        let Some((transfer, _)) = t.transfer else {
            return Err(FaultKind::Malformed("a message outside a transfer".to_owned()));
        };
        t.sends += 1;
        let origin = Origin { core, thread, sequence: t.sends };
        let from = own.id.0;
        let mail = self.turn.data.read(from, d, scalars)?;
        let at = at + world.delays.send;
        let (route, to, core) = (way.route, way.to.0, way.to.1 as u16);
        let message = Event { desc, route, from, to, transfer, core, ..Event::head(at, origin) };
        self.turn.site.events.push(message, mail);
        Ok(())
    }

    fn take(&mut self, flag: u32, n: u32) -> bool {
        let thread = self.thread as usize;
        let Some((transfer, _)) = self.own().threads[thread].transfer else { return false };
        let Some(flag) = self.turn.world.flag(transfer, flag) else { return false };
        let have = &mut self.own().flags[flag];
        let enough = *have >= n;
        if enough {
            *have -= n;
        }
        enough
    }

    fn table(&self, table: u32) -> Result<u32, FaultKind> {
        self.turn.world.table(table, self.turn.site.devices[self.core as usize].id)
    }

    fn cycles(&self, cycles: u64) -> Picos {
        Cycles(cycles).picos(self.turn.site.devices[self.core as usize].hz)
    }

    fn trip_count(&mut self, info: u32) -> Result<Option<u32>, FaultKind> {
        if D::DATA { Ok(None) } else { self.turn.world.trip_count(info).map(Some) }
    }

    fn branch(&mut self, info: u32, branches: &'a [Vec<Node>]) -> Result<Option<u32>, FaultKind> {
        if D::DATA { Ok(None) } else { self.turn.world.branch(info, branches) }
    }

    fn iteration(&mut self, body: &'a [Node], _: u32, _: u32) {
        if self.is_main() && self.core == 0 {
            let site = &mut self.turn.site;
            site.mark = site.mark.or(Some((body, site.now)));
        }
    }
}

/// Control code of a main thread by itself, without time: which branches it takes.
pub(super) struct Dry<'p, 'a> {
    pub world: &'p World<'a>,
    pub device: DeviceId,
    /// Branches it took.
    pub taken: Vec<u32>,
}

impl<'a> Machine<'a> for Dry<'_, 'a> {
    fn operation(&mut self, _: u32, _: &'a Node, at: Picos, _: &mut [u32]) -> Result<Picos, FaultKind> {
        Ok(at)
    }

    fn start(&mut self, _: u32, _: &'a [Node], _: Picos) -> Result<(), FaultKind> {
        Ok(())
    }

    fn finished(&mut self, _: u32, at: Picos) -> Option<Picos> {
        Some(at)
    }

    fn send(&mut self, _: u32, _: Picos, _: &[u32]) -> Result<(), FaultKind> {
        Ok(())
    }

    fn take(&mut self, _: u32, _: u32) -> bool {
        true
    }

    fn table(&self, table: u32) -> Result<u32, FaultKind> {
        self.world.table(table, self.device)
    }

    fn cycles(&self, _: u64) -> Picos {
        Picos(0)
    }

    fn trip_count(&mut self, info: u32) -> Result<Option<u32>, FaultKind> {
        self.world.trip_count(info).map(Some)
    }

    fn branch(&mut self, info: u32, branches: &'a [Vec<Node>]) -> Result<Option<u32>, FaultKind> {
        self.world.branch(info, branches)
    }

    fn chosen(&mut self, branch: u32) {
        self.taken.push(branch);
    }
}

impl<'a> Dry<'_, 'a> {
    /// Runs `control`, which is in the loop with body `folded`, until it is where it is now, `iterations` iterations later. `false` if it
    /// does not come there.
    ///
    /// # Errors
    /// What goes wrong in the code.
    pub fn advance(&mut self, control: &mut Control<'a>, folded: &[Node], iterations: u32) -> Result<bool, FaultKind> {
        let Some((from, trip)) = control.iteration_of(folded) else { return Ok(false) };
        let target = from + iterations;
        if target >= trip {
            return Ok(false);
        }
        let (mut want, mut here) = (Vec::new(), Vec::new());
        control.position(folded, from, &mut want);
        loop {
            if control.step(self, self.world.delays.branch)?.is_some() {
                return Ok(false);
            }
            match control.iteration_of(folded) {
                Some((i, _)) if i == target => {
                    here.clear();
                    control.position(folded, target, &mut here);
                    if here == want {
                        return Ok(true);
                    }
                }
                Some((i, _)) if i < target => {}
                _ => return Ok(false),
            }
        }
    }
}
