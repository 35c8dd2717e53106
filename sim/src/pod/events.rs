//! Events of one chip, in an order that is the same everywhere on the torus.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tpusim_isa::time::Picos;

/// Sends of a thread of control, told apart for the order of events: which device of its chip, which thread, how many before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// Device of its chip.
    pub core: u32,
    /// Thread: 0 is the main one.
    pub thread: u32,
    /// Sends of the thread before this one.
    pub sequence: u64,
}

/// A thread that goes on, or the head of a message that reaches its next port, or its tail the receiver. Events are ordered by their
/// fields. Nothing in the first four depends on where on the torus the event is; the fifth decides nothing that could be seen, since
/// all else equal, messages have come the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    /// When.
    pub at: Picos,
    /// Threads go on before heads of messages move, so that what they send is there; then hops, device, thread and number of sends.
    pub(super) order: u64,
    /// Descriptor, which says where the message lands.
    pub desc: u32,
    /// The ports it goes through, a route of the world.
    pub route: u32,
    /// The device it comes from.
    pub from: u32,
    /// The chip that receives it.
    pub to: u32,
    /// Transfer whose flag counts up.
    pub transfer: u32,
    /// Which device of the chip receives it.
    pub core: u16,
}

const SEQUENCE_BITS: u32 = 40;
const HEAD: u64 = 1 << 63;

fn order(head: bool, hop: u32, o: Origin) -> u64 {
    let who = (u64::from(hop.min(0xfff)) << 11) | (u64::from(o.core.min(7)) << 8) | u64::from(o.thread.min(0xff));
    (if head { HEAD } else { 0 }) | (who << SEQUENCE_BITS) | (o.sequence & ((1 << SEQUENCE_BITS) - 1))
}

impl Event {
    /// A thread of a device goes on.
    pub fn wake(at: Picos, core: u32, thread: u32) -> Event {
        let order = order(false, 0, Origin { core, thread, sequence: 0 });
        Event { at, order, desc: 0, route: 0, from: 0, to: 0, transfer: 0, core: core as u16 }
    }

    /// The head of a message at its first port, of which everything else is still to be said.
    pub fn head(at: Picos, origin: Origin) -> Event {
        Event { order: order(true, 0, origin), ..Event::wake(at, 0, 0) }
    }

    /// Whether it is a thread that goes on.
    pub fn wakes(&self) -> bool {
        self.order & HEAD == 0
    }

    /// Ports the message has passed.
    pub fn hop(&self) -> u32 {
        (self.order >> (SEQUENCE_BITS + 11)) as u32 & 0xfff
    }

    /// The thread that goes on, or that sent the message.
    pub fn thread(&self) -> u32 {
        (self.order >> SEQUENCE_BITS) as u32 & 0xff
    }

    /// Sends of its thread before the message.
    pub fn sequence(&self) -> u64 {
        self.order & ((1 << SEQUENCE_BITS) - 1)
    }

    /// What orders events of one moment, but for how many sends came before.
    pub fn kind(&self) -> u64 {
        self.order >> SEQUENCE_BITS
    }

    /// The message behind its next port at `at`.
    pub fn passed(self, at: Picos) -> Event {
        Event { at, order: self.order + (1 << (SEQUENCE_BITS + 11)), ..self }
    }
}

/// Most ports of a route that are told apart.
pub(super) const MAX_HOPS: usize = 0xfff;

/// Most threads of control of a device, and devices of a chip, that are told apart.
pub(super) const MAX_THREADS: usize = 0xff;

#[derive(Debug)]
struct Entry<M> {
    event: Event,
    mail: M,
}

impl<M> PartialEq for Entry<M> {
    fn eq(&self, other: &Self) -> bool {
        self.event == other.event
    }
}

impl<M> Eq for Entry<M> {}

impl<M> PartialOrd for Entry<M> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for Entry<M> {
    // The earliest event is on top of the heap.
    fn cmp(&self, other: &Self) -> Ordering {
        other.event.cmp(&self.event)
    }
}

/// Events to come, with what messages carry.
#[derive(Debug)]
pub(super) struct Events<M> {
    heap: BinaryHeap<Entry<M>>,
}

impl<M> Default for Events<M> {
    fn default() -> Self {
        Events { heap: BinaryHeap::new() }
    }
}

impl<M> Events<M> {
    pub fn push(&mut self, event: Event, mail: M) {
        self.heap.push(Entry { event, mail });
    }

    /// When the next event is.
    pub fn next(&self) -> Option<Picos> {
        self.heap.peek().map(|e| e.event.at)
    }

    /// Takes the next event before `end`.
    pub fn take(&mut self, end: Picos) -> Option<(Event, M)> {
        let top = self.heap.peek()?;
        if top.event.at >= end {
            return None;
        }
        self.heap.pop().map(|e| (e.event, e.mail))
    }

    /// Every event in order.
    pub fn sorted(&self) -> Vec<Event> {
        let mut all: Vec<Event> = self.heap.iter().map(|e| e.event).collect();
        all.sort_unstable();
        all
    }

    /// Moves all events by `shift`, and numbers messages as if threads had sent `sent` of them by thread in the meantime.
    pub fn jump(&mut self, shift: Picos, sent: &[u64]) {
        let mut all = std::mem::take(&mut self.heap).into_vec();
        for Entry { event, .. } in &mut all {
            event.at += shift;
            if !event.wakes() {
                event.order += sent.get(event.thread() as usize).copied().unwrap_or(0);
            }
        }
        self.heap = all.into();
    }
}
