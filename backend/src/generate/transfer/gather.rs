//! All-gather: one ring after the other, so that what a device passes on grows from ring to ring.

use tpusim_isa::pod::SendDim;
use tpusim_isa::program::{Addr, SReg};

use super::Cut;
use super::code::Control;
use super::share::{Share, Strand};

/// Registers of a gather.
const PLACE: u32 = 0;
const AHEAD: u32 = 1;
const BACK: u32 = 2;
const DIGIT: u32 = 3;
const OFFSET: u32 = 4;

/// A device's own part where it comes from: first byte of the share, bytes between rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub at: i64,
    pub row: u64,
}

/// One ring of a gather.
struct Phase<'s> {
    cut: Cut,
    share: Share,
    ring: usize,
    /// Rings gathered before.
    done: &'s [usize],
    to: i64,
}

impl Control<'_, '_> {
    /// Tells the neighbours round every ring to go ahead, and waits until they have said so.
    pub(super) fn greet(&mut self) {
        let ready = self.flag();
        let mut signals = 0;
        for i in 0..self.what.rings.len() {
            let (next, prev) = self.neighbours(i);
            let peers = if self.ring(i).size > 2 { vec![next, prev] } else { vec![next] };
            signals += peers.len() as u64;
            peers.into_iter().for_each(|p| self.signal(p, ready));
        }
        self.wait(ready, signals);
    }

    /// Everybody's share of their own part to everybody's array at `to`, which is cut as `cut` says.
    pub(super) fn gather(&mut self, cut: Cut, s: &Strand, own: Own, to: i64) {
        for (k, &ring) in s.order.iter().enumerate() {
            let phase = Phase { cut, share: s.share, ring, done: &s.order[..k], to };
            let offset = (k + 1 < s.order.len()).then(|| {
                let r = self.reg(OFFSET);
                self.offset(&s.order[k + 1..], r);
                r
            });
            let first = (k == 0).then_some(own);
            self.gather_ring(&phase, offset, first, s.mirrored);
        }
    }

    fn gather_ring(&mut self, p: &Phase<'_>, offset: Option<SReg>, first: Option<Own>, mirrored: bool) {
        let ring = self.ring(p.ring);
        let [place, ahead, back, digit] = [PLACE, AHEAD, BACK, DIGIT].map(|k| self.reg(k));
        let (next, prev) = self.along(p.ring, place);
        // One way, how far it goes, what it does to the place; and the other.
        let (far, near) = (ring.size / 2, (ring.size - 1) / 2);
        let ways = match mirrored {
            false => [(next, ahead, far, -1), (prev, back, near, 1)],
            true => [(prev, back, far, 1), (next, ahead, near, -1)],
        };
        let flags = [self.flag(), self.flag()];
        let row = p.cut.parts * p.cut.run;
        let start = p.to + (p.share.row * row + p.share.at) as i64;
        let block = |d: SReg| -> Addr {
            let mut terms = vec![(d, (ring.stride * p.cut.run) as i64)];
            terms.extend(offset.map(|o| (o, p.cut.run as i64)));
            Addr { base: start, terms }
        };
        let outer = |k: &Self, from_row: u64| -> Vec<SendDim> {
            let rows = SendDim { count: p.share.rows as u32, from_stride: from_row as i64, to_stride: row as i64 };
            let mut done: Vec<_> = p.done.iter().map(|i| k.ring(*i)).collect();
            done.sort_by_key(|r| std::cmp::Reverse(r.stride));
            let one = |r: crate::graph::Ring| {
                let stride = (r.stride * p.cut.run) as i64;
                SendDim { count: r.size as u32, from_stride: stride, to_stride: stride }
            };
            std::iter::once(rows).chain(done.into_iter().map(one)).collect()
        };
        // One's own.
        self.digit(digit, place, ring);
        let kept = first.map(|own| {
            let kept = self.flag();
            let me = self.shift(0);
            let (outer, from) = (outer(self, own.row), super::code::fixed(own.at));
            self.send(me, kept, outer, p.share.run, from, block(digit));
            kept
        });
        for ((peer, at, hops, _), flag) in ways.into_iter().zip(flags) {
            if hops > 0 {
                self.step(at, place, 0, ring.size);
                let (from, outer) = match first {
                    Some(own) => (super::code::fixed(own.at), outer(self, own.row)),
                    None => (block(digit), outer(self, row)),
                };
                self.send(peer, flag, outer, p.share.run, from, block(digit));
            }
        }
        // What comes from one side goes on to the other.
        let whole = outer(self, row);
        let on = |k: &mut Self, w: usize| {
            let (peer, at, _, by) = ways[w];
            k.wait(flags[w], 1);
            k.step(at, at, by, ring.size);
            k.digit(digit, at, ring);
            k.send(peer, flags[w], whole.clone(), p.share.run, block(digit), block(digit));
        };
        let both = near.saturating_sub(1);
        self.repeat_sure(both, |k| {
            on(k, 0);
            on(k, 1);
        });
        for _ in both + 1..far {
            on(self, 0);
        }
        self.wait(flags[0], 1);
        self.wait(flags[1], u64::from(near > 0));
        if let Some(kept) = kept {
            self.wait(kept, 1);
        }
    }
}
