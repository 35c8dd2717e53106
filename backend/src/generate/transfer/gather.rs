//! All-gather: one ring after the other, so that what a device passes on grows from ring to ring. What arrives goes to the other die of the
//! chip at once.

use std::cmp::Reverse;
use std::ops::Range;

use tpusim_isa::placement::Level;
use tpusim_isa::pod::SendDim;
use tpusim_isa::program::{Addr, SReg};

use super::code::{Control, fixed};
use super::share::{Along, Share, Strand};
use super::{Cut, Ends, strands};
use crate::compile::CompileError;
use crate::graph::Ring;

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
    /// The other die of the chip, and its flag for what it is given.
    twin: Option<(u32, u32)>,
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

    /// Everybody's own part to everybody's array at `to`, which is cut as `cut` says. `own` gives a strand's share of it.
    pub(super) fn gather(
        &mut self,
        cut: Cut,
        strands: &[Strand],
        mut own: impl FnMut(usize) -> Own,
        to: i64,
    ) -> Result<(), CompileError> {
        for stage in self.stages() {
            let mut number = 0..;
            self.beside(strands, |k, s| {
                let own = own(number.next().unwrap_or(0));
                k.gather_stage(cut, s, stage.clone(), own, to);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Rings that strands go through before they wait for each other: small messages of one would else wait for large ones of another.
    /// Where all axes are alike strands stay together by themselves, but not between slices, where they share one way.
    fn stages(&self) -> Vec<Range<usize>> {
        let rings = &self.what.rings;
        let count = |l: Level| rings.iter().filter(|r| r.level == l).count();
        let (slices, torus) = (count(Level::Slices), count(Level::Torus));
        let mut kinds = rings.iter().filter(|r| r.level == Level::Torus).map(|r| (r.size, r.closed));
        let first = kinds.next();
        let mut ends: Vec<usize> = vec![slices];
        if !kinds.all(|k| Some(k) == first) {
            ends.extend(slices + 1..slices + torus);
        }
        ends.push(rings.len());
        let mut start = 0;
        let stage = |end| {
            let stage = start..end;
            start = end;
            stage
        };
        ends.into_iter().map(stage).filter(|s| !s.is_empty()).collect()
    }

    /// Gathers a strand along the next rings of its order.
    fn gather_stage(&mut self, cut: Cut, s: &Strand, stage: Range<usize>, own: Own, to: i64) {
        // The other one of two dies is given each block as it comes, instead of all in the end.
        let last = s.order.last().copied().unwrap_or(0);
        let pair = self.ring(last).level == Level::Die && self.ring(last).size == 2 && s.order.len() > 1;
        let end = if pair { stage.end.min(s.order.len() - 1) } else { stage.end };
        let twin = pair.then(|| (self.neighbours(last).0, self.flag()));
        let mut blocks = u64::from(stage.start == 0);
        for k in stage.start..end {
            let phase = Phase { cut, share: s.share, ring: s.order[k], done: &s.order[..k], to, twin };
            let rest = &s.order[k + 1..];
            let offset = (!rest.is_empty()).then(|| {
                let r = self.reg(OFFSET);
                self.offset(rest, r);
                r
            });
            self.gather_ring(&phase, offset, (k == 0).then_some(own), s.mirrored);
            blocks += self.ring(phase.ring).size - 1;
        }
        if let Some((_, flag)) = twin {
            self.wait(flag, blocks);
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
            done.sort_by_key(|r| Reverse(r.stride));
            let one = |r: Ring| {
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
            let (outer, from) = (outer(self, own.row), fixed(own.at));
            self.send(me, kept, outer.clone(), p.share.run, from.clone(), block(digit));
            if let Some((peer, flag)) = p.twin {
                self.send(peer, flag, outer, p.share.run, from, block(digit));
            }
            kept
        });
        for ((peer, at, hops, _), flag) in ways.into_iter().zip(flags) {
            if hops > 0 {
                self.step(at, place, 0, ring.size);
                let (from, outer) = match first {
                    Some(own) => (fixed(own.at), outer(self, own.row)),
                    None => (block(digit), outer(self, row)),
                };
                self.send(peer, flag, outer, p.share.run, from, block(digit));
            }
        }
        // What comes from one side goes on to the other.
        let whole = outer(self, row);
        let take = |k: &mut Self, w: usize, on: bool| {
            let (peer, at, _, by) = ways[w];
            k.wait(flags[w], 1);
            k.step(at, at, by, ring.size);
            k.digit(digit, at, ring);
            let onward = on.then_some((peer, flags[w]));
            for (peer, flag) in onward.into_iter().chain(p.twin) {
                k.send(peer, flag, whole.clone(), p.share.run, block(digit), block(digit));
            }
        };
        let both = near.saturating_sub(1);
        self.repeat_sure(both, |k| {
            take(k, 0, true);
            take(k, 1, true);
        });
        for _ in both + 1..far {
            take(self, 0, true);
        }
        take(self, 0, false);
        if near > 0 {
            take(self, 1, false);
        }
        if let Some(kept) = kept {
            self.wait(kept, 1);
        }
    }

    /// The array of each group's first member to everybody: every member gets a part of it, and all gather them.
    pub(super) fn broadcast(&mut self, ends: &Ends<'_>) -> Result<(), CompileError> {
        let elem = ends.x.dtype.bytes() as u64;
        let part = ends.x.elements() / self.n * elem;
        let rest = ends.x.bytes() - part * self.n;
        let groups = &self.what.groups;
        let pair = |k: usize| groups.iter().filter_map(move |g| Some((*g.first()?, *g.get(k)?)));
        let members = || (1..self.n as usize).flat_map(pair);
        let (back, idle) = (members().map(|(a, b)| (b, a)).collect(), members().map(|(_, b)| (b, b)).collect());
        let peers: Vec<Vec<(u32, u32)>> = (0..self.n as usize).map(|k| pair(k).collect()).collect();
        self.greet();
        let (ready, data) = (self.flag(), self.flag());
        let (back, idle) = (self.pairs(back), self.pairs(idle));
        // The first hears from all others; these hear themselves as often.
        self.signal(back, ready);
        self.repeat_sure(self.n - 1, |k| k.signal(idle, ready));
        self.wait(ready, self.n - 1);
        let end = (part * self.n) as i64;
        for (k, pairs) in (0i64..).zip(peers) {
            let peer = self.pairs(pairs);
            if part > 0 {
                self.send(peer, data, Vec::new(), part, fixed(ends.from + k * part as i64), fixed(ends.work));
            }
            if rest > 0 {
                self.send(peer, data, Vec::new(), rest, fixed(ends.from + end), fixed(ends.to + end));
            }
        }
        self.wait(data, u64::from(part > 0) + u64::from(rest > 0));
        if part == 0 {
            return Ok(());
        }
        let cut = Cut { rows: 1, parts: self.n, run: part };
        let all = strands(cut, 1, &self.what.rings, Along::Gather);
        let own = |k: usize| Own { at: ends.work + all.get(k).map_or(0, |s| s.share.at as i64), row: part };
        self.gather(cut, &all, own, ends.to)
    }
}
