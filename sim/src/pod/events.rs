//! Events of the network, in an order that is the same everywhere on the torus.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use tpusim_isa::time::Picos;
use tpusim_isa::topology::ChipId;

use super::data::Payload;
use crate::network::Port;

/// Sends of a thread of control, told apart for the order of events: which device of its chip, which thread, how many before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
pub(super) struct Message {
    /// Ports to go through.
    pub route: Arc<[(ChipId, Port)]>,
    /// Ports passed.
    pub hop: usize,
    /// Bytes.
    pub bytes: u64,
    /// Device that runs and receives it.
    pub to: u32,
    /// Descriptor, which says where it lands.
    pub desc: u32,
    /// First byte at the receiver.
    pub address: i128,
    /// Transfer whose flag counts up.
    pub transfer: u32,
    /// Its bytes.
    pub payload: Payload,
    /// Where it comes from.
    pub origin: Origin,
}

/// What orders events of one picosecond. Nothing in it depends on where on the torus the event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    at: Picos,
    /// Threads go on before heads of messages move, so that what they send is there.
    head: bool,
    hop: u32,
    origin: Origin,
    /// Unique; decides nothing that could be seen.
    id: u32,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A thread of a device goes on.
    Wake { device: u32, thread: u32 },
    /// The head of a message reaches its next port, or its tail the receiver.
    Head { message: u32 },
}

/// Events to come.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(Key, u32, u32)>>,
    messages: Vec<Option<Message>>,
    free: Vec<u32>,
}

impl Events {
    pub fn wake(&mut self, at: Picos, device: u32, thread: u32) {
        let origin = Origin { core: 0, thread, sequence: 0 };
        self.heap.push(Reverse((Key { at, head: false, hop: 0, origin, id: device }, device, thread)));
    }

    /// A new message whose head is at its first port at `at`.
    pub fn send(&mut self, at: Picos, m: Message) {
        let id = self.free.pop().unwrap_or(self.messages.len() as u32);
        if id as usize == self.messages.len() {
            self.messages.push(None);
        }
        self.messages[id as usize] = Some(m);
        self.head(at, id);
    }

    /// The head of a message goes on at `at`.
    pub fn head(&mut self, at: Picos, id: u32) {
        if let Some(m) = &self.messages[id as usize] {
            let key = Key { at, head: true, hop: m.hop as u32, origin: m.origin, id };
            self.heap.push(Reverse((key, id, 0)));
        }
    }

    pub fn message(&mut self, id: u32) -> Option<&mut Message> {
        self.messages.get_mut(id as usize)?.as_mut()
    }

    /// Takes a message that has arrived.
    pub fn take(&mut self, id: u32) -> Option<Message> {
        let m = self.messages.get_mut(id as usize)?.take();
        self.free.push(id);
        m
    }

    pub fn next(&mut self) -> Option<(Picos, Event)> {
        let Reverse((key, a, b)) = self.heap.pop()?;
        Some((key.at, if key.head { Event::Head { message: a } } else { Event::Wake { device: a, thread: b } }))
    }
}
