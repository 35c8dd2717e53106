//! Events of one chip, in an order that is the same everywhere on the torus.

use std::cmp::Reverse;
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

/// A message on its way.
#[derive(Debug)]
pub(super) struct Message<M> {
    /// The ports to go through, an index into the world's routes.
    pub route: u32,
    /// Ports passed.
    pub hop: u32,
    /// The chip that receives it, and which of its devices.
    pub to: (u32, u32),
    /// Descriptor, which says where it lands.
    pub desc: u32,
    /// Transfer whose flag counts up.
    pub transfer: u32,
    /// Where it comes from.
    pub origin: Origin,
    /// The device it comes from.
    pub from: u32,
    /// What it carries.
    pub mail: M,
}

/// What happens.
#[derive(Debug)]
pub(super) enum Event<M> {
    /// A thread of a device goes on.
    Wake {
        /// Device of the chip.
        core: u32,
        /// Its thread.
        thread: u32,
    },
    /// The head of a message reaches its next port, or its tail the receiver.
    Head(Message<M>),
}

/// What orders events. Nothing but the last field depends on where on the torus the event is, and that decides nothing that could
/// be seen: all else equal, the messages have come the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub at: Picos,
    /// Threads go on before heads of messages move, so that what they send is there; then hops, device, thread and number of sends.
    order: u64,
    /// Descriptor and route.
    what: u64,
    from: u32,
}

impl Key {
    /// Device and thread that go on, if that is what happens.
    pub fn wakes(&self) -> [u64; 2] {
        [u64::from(self.from), self.what]
    }
}

const SEQUENCE_BITS: u32 = 40;
const HEAD: u64 = 1 << 63;

fn order(head: bool, hop: u32, o: Origin) -> u64 {
    let who = (u64::from(hop.min(0xfff)) << 11) | (u64::from(o.core.min(7)) << 8) | u64::from(o.thread.min(0xff));
    (if head { HEAD } else { 0 }) | (who << SEQUENCE_BITS) | (o.sequence & ((1 << SEQUENCE_BITS) - 1))
}

/// Events to come.
#[derive(Debug)]
pub(super) struct Events<M> {
    heap: BinaryHeap<Reverse<(Key, u32)>>,
    messages: Vec<Option<Message<M>>>,
    free: Vec<u32>,
}

impl<M> Default for Events<M> {
    fn default() -> Self {
        Events { heap: BinaryHeap::new(), messages: Vec::new(), free: Vec::new() }
    }
}

impl<M> Events<M> {
    /// A thread goes on at `at`.
    pub fn wake(&mut self, at: Picos, core: u32, thread: u32) {
        let origin = Origin { core, thread, sequence: 0 };
        let key = Key { at, order: order(false, 0, origin), what: u64::from(thread), from: core };
        self.heap.push(Reverse((key, u32::MAX)));
    }

    /// The head of a message is at its next port at `at`.
    pub fn head(&mut self, at: Picos, m: Message<M>) {
        let what = (u64::from(m.desc) << 32) | u64::from(m.route);
        let key = Key { at, order: order(true, m.hop, m.origin), what, from: m.from };
        let slot = self.free.pop().unwrap_or(self.messages.len() as u32);
        match self.messages.get_mut(slot as usize) {
            Some(place) => *place = Some(m),
            None => self.messages.push(Some(m)),
        }
        self.heap.push(Reverse((key, slot)));
    }

    /// When the next event is.
    pub fn next(&self) -> Option<Picos> {
        self.heap.peek().map(|Reverse((key, _))| key.at)
    }

    /// Takes the next event before `end`.
    pub fn take(&mut self, end: Picos) -> Option<(Picos, Event<M>)> {
        let Reverse((key, slot)) = *self.heap.peek().filter(|Reverse((key, _))| key.at < end)?;
        self.heap.pop();
        if key.order & HEAD == 0 {
            return Some((key.at, Event::Wake { core: key.from, thread: key.what as u32 }));
        }
        let m = self.messages.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some((key.at, Event::Head(m)))
    }

    /// Every event in order, with its message.
    pub fn sorted(&self) -> Vec<(Key, Option<&Message<M>>)> {
        let message = |slot: u32| self.messages.get(slot as usize).and_then(Option::as_ref);
        let mut all: Vec<_> = self.heap.iter().map(|Reverse((key, slot))| (*key, message(*slot))).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    /// Moves all events by `shift`, and numbers messages as if threads had sent `sent` of them by thread in the meantime.
    pub fn jump(&mut self, shift: Picos, sent: &[u64]) {
        let mut all = std::mem::take(&mut self.heap).into_vec();
        for Reverse((key, slot)) in &mut all {
            key.at += shift;
            if let Some(Some(m)) = self.messages.get_mut(*slot as usize) {
                m.origin.sequence += sent.get(m.origin.thread as usize).copied().unwrap_or(0);
                key.order = order(true, m.hop, m.origin);
            }
        }
        self.heap = all.into();
    }
}
