//! Reduce-scatter: one ring after the other, each leaving a device its part of what was left before, combined round the ring.
//!
//! On a ring, the parts of half of the other devices come one way and those of the other half the other way. What is sent first is a part
//! as it is; every device on its way adds its own.

use tpusim_isa::num::DType;
use tpusim_isa::op::Op;
use tpusim_isa::pod::SendDim;
use tpusim_isa::program::{Node as Code, SReg};

use super::code::{Control, at, fixed, held};
use super::share::{Share, Strand};
use super::{Cut, map_of};
use crate::compile::CompileError;
use crate::graph::{Counter, Graph, Node, NodeId, NodeOp, Ring};
use crate::lower::math::Combine;

/// Registers of a scatter: places of the parts that go ahead and back, the part at hand, the slot of messages, the slot at hand.
const AHEAD: u32 = 0;
const BACK: u32 = 1;
const PART: u32 = 2;
const SLOT: u32 = 3;
const TAKEN: u32 = 4;

/// Messages that a device has room for, each way.
const DEPTH: u64 = 2;

/// An array in which the parts of one ring lie: `outer` times `size` times `mid` runs of `run` bytes, of which `window` says what
/// belongs to the strand: outer ones, and bytes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    outer: u64,
    size: u64,
    mid: u64,
    run: u64,
    window: [(u64, u64); 2],
}

impl Parts {
    /// The parts of ring `i` in an array whose parts of rings `left` (and rows around) are there.
    fn new(cut: Cut, share: Option<Share>, left: &[Ring], ring: Ring) -> Parts {
        let above: u64 = left.iter().filter(|r| r.stride > ring.stride).map(|r| r.size).product();
        let below: u64 = left.iter().filter(|r| r.stride < ring.stride).map(|r| r.size).product();
        let share = share.unwrap_or(Share::all(cut));
        let window = [(share.row * above, share.rows * above), (share.at, share.run)];
        let p = Parts { outer: cut.rows * above, size: ring.size, mid: below, run: cut.run, window };
        match share.run == cut.run {
            // Runs that belong to it whole are one.
            true => Parts { mid: 1, run: cut.run * below, window: [window[0], (0, cut.run * below)], ..p },
            false => p,
        }
    }

    /// Bytes of what belongs to the strand of one part.
    fn bytes(&self) -> u64 {
        self.window[0].1 * self.mid * self.window[1].1
    }

    /// Offset of the first byte of part 0 that belongs to the strand, and bytes from part to part.
    fn place(&self) -> (i64, u64) {
        let step = self.mid * self.run;
        ((self.window[0].0 * self.size * step + self.window[1].0) as i64, step)
    }

    /// A part as dimensions of a message that packs it.
    fn dims(&self) -> Vec<SendDim> {
        let (rows, run) = (self.window[0].1, self.window[1].1);
        let dim = |count: u64, from: u64, to: u64| SendDim {
            count: count as u32,
            from_stride: from as i64,
            to_stride: to as i64,
        };
        vec![dim(rows, self.size * self.mid * self.run, self.mid * run), dim(self.mid, self.run, run)]
    }
}

/// One ring of a scatter.
struct Phase {
    ring: usize,
    parts: Parts,
    from: i64,
    to: i64,
    /// Room for the messages of both ways, and for what goes out.
    work: i64,
    dtype: DType,
    how: Combine,
}

/// Messages from one side, and the flags of both ends.
#[derive(Clone, Copy)]
struct Way {
    peer: u32,
    /// Whom it comes from.
    source: u32,
    place: SReg,
    hops: u64,
    by: i64,
    credit: u32,
    data: u32,
    /// First slot.
    slot: u64,
}

fn ways(size: u64) -> (u64, u64) {
    (size / 2, (size - 1) / 2)
}

/// Slots for messages, and whether there is one for what goes out.
fn slots(size: u64) -> (u64, u64) {
    let (far, near) = ways(size);
    (far.min(DEPTH) + near.min(DEPTH), u64::from(far > 1))
}

/// Rings in the order of a scatter, each with the parts it sees and bytes of room it needs besides its result.
fn phases(cut: Cut, s: &Strand, rings: &[Ring]) -> Vec<(usize, Parts, u64)> {
    let all = |i: &usize| rings.get(*i).copied().unwrap_or(Ring::whole(cut.parts));
    let mut left: Vec<Ring> = s.order.iter().map(all).collect();
    let mut out = Vec::new();
    for &i in s.order.iter().rev() {
        let ring = all(&i);
        // Only the first reads the array of everybody; then the strand has one of its own.
        let parts = match out.is_empty() {
            true => Parts::new(cut, Some(s.share), &left, ring),
            false => Parts::new(Cut { rows: s.share.rows, parts: cut.parts, run: s.share.run }, None, &left, ring),
        };
        left.retain(|r| *r != ring);
        let (messages, partial) = slots(ring.size);
        out.push((i, parts, (messages + partial) * parts.bytes()));
    }
    out
}

/// Bytes of room that a strand needs besides its result.
pub(super) fn room(cut: Cut, s: &Strand, rings: &[Ring]) -> u64 {
    phases(cut, s, rings).iter().map(|(_, parts, room)| room + parts.bytes()).sum::<u64>() - s.share.bytes()
}

impl Control<'_, '_> {
    /// The combination of the strand's share of everybody's own part of the arrays at `from`, densely to `to`. `work` has [`room`].
    pub(super) fn scatter(
        &mut self,
        cut: Cut,
        s: &Strand,
        (dtype, how): (DType, Combine),
        from: i64,
        to: i64,
        work: i64,
    ) -> Result<(), CompileError> {
        let list = phases(cut, s, &self.what.rings);
        let (mut from, mut work, last) = (from, work, list.len());
        let mut all = Vec::new();
        for (k, (ring, parts, room)) in list.into_iter().enumerate() {
            let result = if k + 1 == last { to } else { work + room as i64 };
            let phase = Phase { ring, parts, from, to: result, work, dtype, how };
            (from, work) = (result, work + (room + parts.bytes()) as i64);
            let ways = self.ways(&phase, s.mirrored);
            all.push((phase, ways));
        }
        // There is room for the first messages on every ring.
        for w in all.iter().flat_map(|(_, ways)| ways) {
            (0..w.hops.min(DEPTH)).for_each(|_| self.signal(w.source, w.credit));
        }
        all.iter().try_for_each(|(p, ways)| self.scatter_ring(p, ways))
    }

    fn ways(&mut self, p: &Phase, mirrored: bool) -> [Way; 2] {
        let (next, prev) = self.neighbours(p.ring);
        let (far, near) = ways(self.ring(p.ring).size);
        let mut way = |peer, source, place: u32, hops, by, slot| {
            let (credit, data) = (self.flag(), self.flag());
            Way { peer, source, place: self.reg(place), hops, by, credit, data, slot }
        };
        match mirrored {
            false => [way(next, prev, AHEAD, far, -1, 0), way(prev, next, BACK, near, 1, far.min(DEPTH))],
            true => [way(prev, next, BACK, far, 1, 0), way(next, prev, AHEAD, near, -1, far.min(DEPTH))],
        }
    }

    fn scatter_ring(&mut self, p: &Phase, ways: &[Way; 2]) -> Result<(), CompileError> {
        let ring = self.ring(p.ring);
        let [part, slot, taken] = [PART, SLOT, TAKEN].map(|k| self.reg(k));
        let bytes = p.parts.bytes();
        let (start, step) = p.parts.place();
        let partial = p.work + (slots(ring.size).0 * bytes) as i64;
        self.along(p.ring, taken);
        for w in ways.iter().filter(|w| w.hops > 0) {
            // The part that has furthest to go.
            self.step(w.place, taken, -w.by * w.hops as i64, ring.size);
        }
        for w in ways.iter().filter(|w| w.hops > 0) {
            self.digit(part, w.place, ring);
            self.wait(w.credit, 1);
            let there = p.work + (w.slot * bytes) as i64;
            self.send(
                w.peer,
                w.data,
                p.parts.dims(),
                p.parts.window[1].1,
                at(p.from + start, part, step),
                fixed(there),
            );
        }
        let [far, near] = ways.map(|w| w.hops);
        self.instr(Op::SLi, &[i32::from(slot.0), 0]);
        let add = match far > 1 {
            true => self.add(p, &[None], partial)?,
            false => Vec::new(),
        };
        let on = |k: &mut Self, w: &Way, again: bool| {
            k.wait(w.data, 1);
            k.step(w.place, w.place, w.by, ring.size);
            k.digit(part, w.place, ring);
            k.instr(Op::SAddi, &[i32::from(taken.0), i32::from(slot.0), w.slot as i32]);
            k.run(add.clone());
            if again {
                k.signal(w.source, w.credit);
            }
            k.wait(w.credit, 1);
            k.instr(Op::SXori, &[i32::from(taken.0), i32::from(slot.0), 1]);
            let there = at(p.work + (w.slot * bytes) as i64, taken, bytes);
            k.send(w.peer, w.data, Vec::new(), bytes, fixed(partial), there);
        };
        let flip = |k: &mut Self| k.instr(Op::SXori, &[i32::from(slot.0), i32::from(slot.0), 1]);
        // Message `k` each way; the last two are told apart, as nobody needs their room again.
        let both = near.saturating_sub(DEPTH);
        self.repeat_sure(both, |k| {
            ways.iter().for_each(|w| on(k, w, true));
            flip(k);
        });
        for message in both + 1..far {
            for w in ways.iter().filter(|w| message < w.hops) {
                on(self, w, message + 1 < w.hops);
            }
            flip(self);
        }
        let mut last = Vec::new();
        for w in ways.iter().filter(|w| w.hops > 0) {
            self.wait(w.data, 1);
            last.push(Some(w.slot + (w.hops - 1) % DEPTH));
        }
        self.along(p.ring, taken);
        self.digit(part, taken, ring);
        let code = self.add(p, &last, p.to)?;
        self.run(code);
        Ok(())
    }

    /// Kernels that combine one's own part with messages in these slots, or in the slot at hand.
    fn add(&mut self, p: &Phase, messages: &[Option<u64>], to: i64) -> Result<Vec<Code>, CompileError> {
        let elem = p.dtype.bytes() as u64;
        let q = p.parts;
        let [(row, rows), (at, run)] = q.window.map(|(a, n)| (a, n));
        let (at, run, whole) = (at / elem, run / elem, q.run / elem);
        let slots = slots(q.size).0;
        let node = |op: NodeOp, args: &[usize], dims: &[u64], dtype: DType| Node {
            op,
            args: args.iter().map(|i| NodeId(*i as u32)).collect(),
            dims: dims.to_vec(),
            dtype,
            source: self.node.source.clone(),
            location: self.node.location.clone(),
            name: "combine",
        };
        let counter = |k: u32| NodeOp::Counter(Counter { level: held(k), start: 0, step: 1 });
        // Dimensions that count, and those of an array of one part.
        let flat: Vec<u64> = if q.mid == 1 { vec![rows, run] } else { vec![rows, q.mid, run] };
        let with = |head: &[u64], tail: &[u64]| [head, tail].concat();
        let mut nodes = vec![
            node(NodeOp::Param(0), &[], &with(&[slots], &flat), p.dtype),
            node(NodeOp::Param(1), &[], &[q.outer, q.size, q.mid, whole], p.dtype),
            node(counter(PART), &[], &[], DType::I32),
            node(NodeOp::DynSlice(vec![1]), &[1, 2], &[q.outer, 1, q.mid, whole], p.dtype),
        ];
        let window = NodeOp::Slice { start: vec![row, 0, 0, at], step: vec![1; 4] };
        nodes.push(node(window, &[3], &[rows, 1, q.mid, run], p.dtype));
        nodes.push(node(NodeOp::Reshape, &[4], &flat, p.dtype));
        let mut sum = 5;
        for m in messages {
            let op = match m {
                None => {
                    nodes.push(node(counter(TAKEN), &[], &[], DType::I32));
                    node(NodeOp::DynSlice(vec![0]), &[0, nodes.len() - 1], &with(&[1], &flat), p.dtype)
                }
                Some(slot) => {
                    let start = with(&[*slot], &vec![0; flat.len()]);
                    let step = vec![1; flat.len() + 1];
                    node(NodeOp::Slice { start, step }, &[0], &with(&[1], &flat), p.dtype)
                }
            };
            nodes.push(op);
            nodes.push(node(NodeOp::Reshape, &[nodes.len() - 1], &flat, p.dtype));
            nodes.push(node(NodeOp::Map(map_of(p.how)), &[nodes.len() - 1, sum], &flat, p.dtype));
            sum = nodes.len() - 1;
        }
        let mut address = vec![None; nodes.len()];
        (address[0], address[1], address[sum]) = (Some(p.work as u64), Some(p.from as u64), Some(to as u64));
        let params = vec![NodeId(0), NodeId(1)];
        let g = Graph { nodes, params, outputs: vec![NodeId(sum as u32)], ..Graph::default() };
        self.kernels(&g, &address)
    }
}
