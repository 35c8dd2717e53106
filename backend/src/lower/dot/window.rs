//! Windows that slide over the stream operand: convolutions as products whose contraction runs over window positions too.
//!
//! Spatial dimensions are *planes*: each point of the output is one plane of `rows x cols`, each point of the input one of `rows x k`.
//! A block of the input lies in VMEM plane by plane, with planes of zeros where the window sees padding or the gaps of a dilated
//! operand: zeroed once, since no DMA touches them. At a window position, a plane of the output needs the input's plane a constant
//! number of planes further on, so that moving the window costs an addition per step and reads nothing twice.
//!
//! A block may be a part of the first spatial dimension. Then what it needs may begin before the input or end behind it, by amounts that
//! differ from block to block; the DMA is moved ([`Shift`]) and planes outside the input are zeroed when their block has arrived.
//!
//! Rows are counted in groups of 8. A plane whose groups fill packed registers is pushed as it lies; other planes are unpacked, or
//! converted, and neighbours are packed together on their way to the array.

use std::collections::BTreeMap;

use tpusim_isa::op::Op;

use super::super::cells::packing;
use super::super::emit::{EmitError, Emitter};
use super::super::nest::{Iter, Nest, Outer, Shift};
use super::super::vcode::{M, Object, Place, V};
use super::*;

/// Most dimensions along which windows slide.
pub const MAX_SLIDES: usize = 4;

/// A dimension of the output along which a window slides over the stream operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slide {
    /// Elements of the window.
    pub size: u64,
    /// Elements of the dilated input from one window to the next.
    pub stride: u64,
    /// Elements of the dilated input from one element of the window to the next.
    pub dilation: u64,
    /// Elements of the dilated input from one element of the input to the next.
    pub base: u64,
    /// Zeros in front of the input.
    pub low: u64,
    /// Elements of the input.
    pub extent: u64,
    /// Bytes from one element of the input to the next.
    pub step: i64,
    /// Bytes from the weights of one element of the window to those of the next.
    pub weights: i64,
}

impl Slide {
    /// Elements of the dilated input that `count` windows see.
    pub fn span(&self, count: u64) -> u64 {
        count.saturating_sub(1) * self.stride + (self.size - 1) * self.dilation + 1
    }

    /// Elements of the input that the first `count` windows see.
    pub fn seen(&self, count: u64) -> u64 {
        let inside = self.span(count).saturating_sub(self.low);
        inside.div_ceil(self.base).min(self.extent)
    }

    /// Whether some windows of `count` see zeros.
    pub fn pads(&self, count: u64) -> bool {
        self.low > 0 || self.span(count) > self.extent
    }

    /// Whether `count` windows can be worked through in blocks.
    pub fn divisible(&self) -> bool {
        self.base == 1
    }
}

/// Planes of a block of `block` windows out of `count` beside those it sees: in front and behind, so that a moved DMA stays inside; and
/// how many of the last it sees may be zeros.
pub fn slack(s: &Slide, count: u64, block: u64) -> (u64, u64, u64) {
    let span = s.span(block);
    let loaded = span.min(s.extent);
    let last_start = (count - block) * s.stride;
    let high = (last_start + span).saturating_sub(s.low + s.extent).min(span);
    let before = (last_start + loaded).saturating_sub(s.low + s.extent);
    let after = (s.low + loaded).saturating_sub(span);
    (before, after, high)
}

/// A counter of a step's place. Innermost first, digits step and carry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digit {
    pub count: u32,
    /// VMEM rows per step in the stream operand, the weights and the output.
    pub stream: u32,
    pub weights: u32,
    pub out: u32,
    /// Contracted elements per step.
    pub features: u32,
}

/// Where the planes of a block are.
#[derive(Clone, Debug, Default)]
pub(super) struct Planes {
    pub slides: Vec<Slide>,
    /// Planes of a block along each dimension.
    counts: Vec<u32>,
    /// Planes of a chunk.
    boxes: Vec<u32>,
    /// Chunks of a block.
    pub trips: Vec<u32>,
    /// Groups of 8 rows of a plane.
    pub groups: u32,
    /// Planes of the input in the buffer.
    spans: Vec<u32>,
    /// VMEM rows between planes of the input.
    pitch: Vec<u32>,
    /// The grid level that cuts the first dimension, where blocks go beyond the input.
    cut: Option<Cut>,
    /// VMEM rows between planes of the accumulators.
    pub acc_pitch: Vec<u32>,
    /// VMEM rows between planes of each stream of the epilogue.
    pub blocks: BTreeMap<usize, Vec<u32>>,
    /// VMEM rows between the weights of two window positions.
    pub weights_plane: u32,
}

#[derive(Clone, Copy, Debug)]
struct Cut {
    level: usize,
    /// Planes in the buffer before the block.
    before: u32,
    /// Planes at the end of the block that may lie behind the input.
    high: u32,
    /// A plane that nothing reads.
    spare: u32,
}

/// Where a stream operand's planes go.
pub(super) struct Layout {
    pub outer: Vec<Outer>,
    pub first: u32,
    pub reserve: u32,
    pub shift: Option<Shift>,
}

impl Planes {
    pub fn new(k: &DotKernel, t: &DotTiling, out_tiles: u32) -> Planes {
        let first = k.dims.len() - 2 - k.slides.len();
        let count = |i: usize| if i == 0 { t.outer } else { k.dims[first + i] };
        let counts: Vec<u32> = (0..k.slides.len()).map(|i| count(i) as u32).collect();
        let boxes: Vec<u32> = t.boxes[..k.slides.len()].to_vec();
        let trips: Vec<u32> = counts.iter().zip(&boxes).map(|(c, b)| c.div_ceil(*b)).collect();
        let groups = (t.rows as u32).div_ceil(8);
        let spans = k.slides.iter().zip(&counts).map(|(s, &c)| s.span(u64::from(c)) as u32).collect();
        let mut p = Planes { slides: k.slides.clone(), counts, boxes, trips, groups, spans, ..Planes::default() };
        p.acc_pitch = p.pitches(groups * out_tiles * 8);
        p
    }

    pub fn is_empty(&self) -> bool {
        self.slides.is_empty()
    }

    /// Planes of the output along dimension `i` as VMEM has them: whole chunks.
    fn padded(&self, i: usize) -> u32 {
        self.trips[i] * self.boxes[i]
    }

    /// VMEM rows between planes of something of the output's shape, whose planes take `rows` each.
    fn pitches(&self, rows: u32) -> Vec<u32> {
        let mut out = vec![rows; self.slides.len()];
        for i in (0..out.len().saturating_sub(1)).rev() {
            out[i] = out[i + 1] * self.padded(i + 1);
        }
        out
    }

    /// Planes of a chunk.
    pub fn chunk_planes(&self) -> u32 {
        self.boxes.iter().product()
    }

    /// Planes of the output in VMEM.
    pub fn outputs(&self) -> u32 {
        (0..self.slides.len()).map(|i| self.padded(i)).product()
    }

    /// The planes of an epilogue's block: VMEM rows between them along each dimension, the dimensions a DMA walks, and VMEM rows in all.
    pub fn block(&self, strides: &[i64], plane_rows: u32) -> (Vec<u32>, Vec<Outer>, u32) {
        let (mut pitch, mut outer, mut rows) = (vec![0; self.slides.len()], Vec::new(), plane_rows);
        for i in (0..self.slides.len()).rev() {
            if strides[i] != 0 {
                pitch[i] = rows;
                outer.insert(0, Outer { count: self.counts[i], hbm_stride: strides[i], pitch: rows });
                rows *= self.padded(i);
            }
        }
        (pitch, outer, rows)
    }

    /// Lays out the input, of `plane_rows` VMEM rows a plane. `cut` is the level that works through the first dimension in blocks and its
    /// number of windows.
    pub fn layout(&mut self, plane_rows: u32, cut: Option<(usize, u64)>) -> Layout {
        let n = self.slides.len();
        self.pitch = vec![plane_rows; n];
        for i in (0..n.saturating_sub(1)).rev() {
            self.pitch[i] = self.pitch[i + 1] * self.spans[i + 1];
        }
        let mut l = Layout { outer: Vec::new(), first: 0, reserve: 0, shift: None };
        // Chunks that do not divide read on behind the block.
        let beyond: u32 =
            (0..n).map(|i| (self.padded(i) - self.counts[i]) * self.slides[i].stride as u32 * self.pitch[i]).sum();
        for (i, s) in self.slides.iter().enumerate() {
            let (count, pitch) = (u64::from(self.counts[i]), self.pitch[i]);
            let moved = cut.filter(|(_, all)| i == 0 && s.pads(*all));
            let seen = if moved.is_some() { s.span(count).min(s.extent) } else { s.seen(count) };
            l.outer.push(Outer { count: seen as u32, hbm_stride: s.step, pitch: pitch * s.base as u32 });
            match moved {
                Some((level, all)) => {
                    let (before, after, high) = slack(s, all, count);
                    l.first += before as u32 * pitch;
                    let spare = before as u32 + self.spans[0] + after as u32;
                    l.reserve = (spare + 1) * pitch;
                    self.cut = Some(Cut { level, before: before as u32, high: high as u32, spare });
                    l.shift = Some(Shift {
                        level,
                        stride: s.stride as u32,
                        low: s.low as u32,
                        last: (s.extent - seen) as u32,
                        hbm: s.step,
                        vmem: pitch,
                    });
                }
                None => {
                    l.first += s.low as u32 * pitch;
                    if i == 0 {
                        l.reserve = self.spans[0] * pitch;
                    }
                }
            }
        }
        l.reserve += beyond;
        l
    }

    /// VMEM rows from the block's start to its first plane.
    pub fn origin(&self) -> u32 {
        self.cut.map_or(0, |c| c.before * self.pitch[0])
    }

    /// VMEM rows in the input from one chunk to the next along dimension `i`.
    pub fn chunk_step(&self, i: usize) -> u32 {
        self.boxes[i] * self.slides[i].stride as u32 * self.pitch[i]
    }

    /// As [`Self::chunk_step`], in something of the output's shape with planes `pitch` apart.
    pub fn chunk_out(&self, i: usize, pitch: &[u32]) -> u32 {
        self.boxes[i] * pitch[i]
    }

    /// The plane in its chunk, and the group in its plane, of a chunk's group `r`; none behind the last.
    pub fn group(&self, r: u32) -> Option<(Vec<u32>, u32)> {
        if self.is_empty() {
            return Some((Vec::new(), r));
        }
        let (mut plane, g) = (r / self.groups, r % self.groups);
        let mut at = vec![0; self.boxes.len()];
        for (x, &size) in at.iter_mut().zip(&self.boxes).rev() {
            (*x, plane) = (plane % size, plane / size);
        }
        (plane == 0).then_some((at, g))
    }

    /// VMEM rows from a chunk's first plane to the one at `at`, in the input.
    fn input(&self, at: &[u32]) -> u32 {
        at.iter().zip(&self.slides).zip(&self.pitch).map(|((x, s), p)| x * s.stride as u32 * p).sum()
    }

    /// As [`Self::input`], in something of the output's shape.
    pub fn output(at: &[u32], pitch: &[u32]) -> u32 {
        at.iter().zip(pitch).map(|(x, p)| x * p).sum()
    }

    /// Digits of a step over the window's positions, innermost first.
    pub fn positions(&self, pair: Option<usize>) -> Vec<Digit> {
        let mut weights = self.weights_plane;
        let mut out = Vec::new();
        for (i, (s, pitch)) in self.slides.iter().zip(&self.pitch).enumerate().rev() {
            let stream = s.dilation as u32 * pitch;
            let digit = Digit { count: s.size as u32, stream, weights, out: 0, features: 0 };
            out.push(match pair == Some(i) {
                // Each position counts as the features of half an array.
                true => Digit {
                    count: digit.count.div_ceil(2),
                    stream: 2 * stream,
                    weights: 2 * weights,
                    features: 256,
                    ..digit
                },
                false => digit,
            });
            weights *= s.size as u32;
        }
        out
    }
}

/// Stores `rows` VMEM rows of zeros from `base + offset`.
fn zeros(e: &mut Emitter<'_>, object: Object, base: SReg, offset: u32, rows: u32) -> Result<(), EmitError> {
    const UNROLL: u32 = 16;
    let stores = rows / 8;
    let fill = |e: &mut Emitter<'_>, base: SReg, offset: u32, n: u32| -> Result<(), EmitError> {
        let z = e.code.imm(0);
        for i in 0..n {
            e.code.store(z, Place { object, base, offset: (offset + i * 8) as i32 });
        }
        e.flush()
    };
    let whole = stores / UNROLL;
    e.repeat(whole, |e, c| {
        let at = e.affine(c, (UNROLL * 8) as i32, offset as i32)?;
        e.ss(Op::SAdd, at, at, base);
        fill(e, at, 0, UNROLL)?;
        e.free(at);
        Ok(())
    })?;
    match stores % UNROLL {
        0 => Ok(()),
        rest => fill(e, base, offset + whole * UNROLL * 8, rest),
    }
}

impl Lowering<'_> {
    /// Zeroes the planes of the input that no DMA writes and that do not depend on the block.
    pub(super) fn zero_planes(&self, e: &mut Emitter<'_>, nest: &Nest) -> Result<(), EmitError> {
        let p = &self.planes;
        for (at, _) in nest.buffers(self.stream.stream) {
            let object = e.object();
            // Rows of planes along the dimensions so far.
            let mut above = 1;
            for (i, s) in p.slides.iter().enumerate() {
                let (span, pitch) = (p.spans[i], p.pitch[i]);
                let length = p.cut.filter(|_| i == 0).map_or(span, |c| c.spare + 1);
                if length == span || i > 0 {
                    let (seen, base, low) = (s.seen(u64::from(p.counts[i])) as u32, s.base as u32, s.low as u32);
                    let end = low + (seen.saturating_sub(1)) * base + 1;
                    if low == 0 && end == span && base == 1 {
                        above *= length;
                        continue;
                    }
                    e.repeat(above, |e, row| {
                        let start = e.affine(row, (span * pitch) as i32, at as i32)?;
                        zeros(e, object, start, 0, low * pitch)?;
                        zeros(e, object, start, end * pitch, (span - end) * pitch)?;
                        if base > 1 {
                            e.repeat(seen - 1, |e, gap| {
                                let first = (low + 1) * pitch;
                                let gap = e.affine(gap, (base * pitch) as i32, first as i32)?;
                                e.ss(Op::SAdd, gap, gap, start);
                                zeros(e, object, gap, 0, (base - 1) * pitch)?;
                                e.free(gap);
                                Ok(())
                            })?;
                        }
                        e.free(start);
                        Ok(())
                    })?;
                }
                above *= length;
            }
        }
        Ok(())
    }

    /// Zeroes the planes of the block that lie outside the input, wherever this block is. What needs none is done to a spare plane, so
    /// that every block takes the same time.
    pub(super) fn zero_outside(&self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        let p = &self.planes;
        let Some(cut) = p.cut else { return Ok(()) };
        let (s, pitch, span) = (p.slides[0], p.pitch[0], p.spans[0]);
        let place = nest.place(self.stream.stream, it);
        let start = nest.start(e, it, cut.level)?;
        e.si(Op::SMuli, start, start, s.stride as i32);
        e.si(Op::SAddi, start, start, -(s.low as i32));
        let low = (0..(s.low as u32).min(span)).map(|j| (j, true));
        let high = (span - cut.high..span).map(|j| (j, false));
        for (j, below) in low.chain(high) {
            let (c, at, spare) = (e.sreg()?, e.sreg()?, e.sreg()?);
            e.sli(at, ((cut.before + j) * pitch) as i32);
            e.sli(spare, (cut.spare * pitch) as i32);
            if below {
                e.si(Op::SLti, c, start, -(j as i32));
                e.ss4(Op::SSel, at, c, at, spare);
            } else {
                e.si(Op::SLti, c, start, s.extent as i32 - j as i32);
                e.ss4(Op::SSel, at, c, spare, at);
            }
            e.ss(Op::SAdd, at, at, place.base);
            zeros(e, place.object, at, place.offset as u32, pitch)?;
            for r in [c, at, spare] {
                e.free(r);
            }
        }
        e.free(start);
        Ok(())
    }

    /// Which lanes of the stream operand's registers hold contracted elements when `left` of them are left; `None` if all do.
    pub(super) fn lane_masks(&self, e: &mut Emitter<'_>, left: Option<SReg>) -> Vec<Option<M>> {
        let tiles = self.t.k_split * self.halves();
        (0..tiles).map(|tile| left.map(|s| e.code.below(Op::MLaneLt, s, -((tile * 128) as i32)))).collect()
    }

    /// Whether the last features leave lanes empty, which hold whatever was there.
    pub(super) fn ragged(&self) -> bool {
        !self.planes.is_empty() && !self.features().is_multiple_of(self.dim * self.t.k_split)
    }

    /// Contracted features that steps count down: those of a block, or of all positions that go in pairs.
    pub(super) fn features(&self) -> u32 {
        let pair = self.k.paired(u64::from(self.dim)).and_then(|i| self.planes.slides.get(i));
        self.t.k as u32 * pair.map_or(1, |s| s.size as u32)
    }

    /// The registers of lane tile `tile` that push `row` of a chunk streams.
    pub(super) fn plane_rows(
        &self,
        e: &mut Emitter<'_>,
        object: Object,
        base: SReg,
        row: u32,
        tile: u32,
        mask: Option<M>,
    ) -> V {
        let (p, q, src_q) = (&self.planes, self.q(), packing(self.stream.dtype));
        let last = p.chunk_planes() * p.groups - 1;
        let groups: Vec<(Vec<u32>, u32)> = (0..q).filter_map(|g| p.group((row * q + g).min(last))).collect();
        let lanes = self.stream.lane_tiles;
        // The second half of an array takes the next position.
        let pair = self.k.paired(u64::from(self.dim)).filter(|_| tile > 0);
        let next = pair.map_or(0, |i| p.slides[i].dilation as u32 * p.pitch[i]);
        let tile = if pair.is_some() { 0 } else { tile };
        let place = |(at, g): &(Vec<u32>, u32)| Place {
            object,
            base,
            offset: (next + p.input(at) + (g / src_q * lanes + tile) * 8) as i32,
        };
        let same = groups.iter().zip(0..).all(|((at, g), i)| *at == groups[0].0 && *g == groups[0].1 + i);
        let v = if same && src_q == q && !self.stream.route.convert && groups[0].1.is_multiple_of(q) {
            e.code.load(place(&groups[0]))
        } else {
            let mut loaded: Option<(i32, V)> = None;
            let mut parts = Vec::with_capacity(groups.len());
            for group in &groups {
                let from = place(group);
                let v = match loaded {
                    Some((offset, v)) if offset == from.offset => v,
                    _ => e.code.load(from),
                };
                loaded = Some((from.offset, v));
                let v = self.part(e, v, self.stream.dtype, group.1 % src_q);
                parts.push(v);
            }
            e.code.pack(&parts, self.k.format)
        };
        match mask {
            Some(m) => {
                let zero = e.code.imm(0);
                e.code.sel(m, v, zero)
            }
            None => v,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether element `i` of the dilated and padded input is one of the input.
    fn inside(s: &Slide, i: i64) -> bool {
        let i = i - s.low as i64;
        i >= 0 && i % s.base as i64 == 0 && i / (s.base as i64) < s.extent as i64
    }

    // Oracle: every element of every window, counted.
    #[test]
    fn windows_see_what_counting_says() {
        let some = |size, stride, dilation, base, low, extent| Slide {
            size,
            stride,
            dilation,
            base,
            low,
            extent,
            step: 1,
            weights: 1,
        };
        let all = [
            some(3, 1, 1, 1, 1, 7),
            some(3, 2, 2, 1, 0, 9),
            some(2, 1, 3, 2, 1, 4),
            some(5, 3, 1, 3, 4, 2),
            some(1, 1, 1, 1, 0, 5),
        ];
        for s in all {
            for count in 1..6 {
                let seen: Vec<i64> =
                    (0..count).flat_map(|w| (0..s.size).map(move |p| (w * s.stride + p * s.dilation) as i64)).collect();
                let end = seen.iter().max().unwrap() + 1;
                assert_eq!(s.span(count) as i64, end, "{s:?} {count}");
                let elements = (0..end).filter(|&i| inside(&s, i)).count() as u64;
                assert_eq!(s.seen(count), elements, "{s:?} {count}");
            }
        }
    }

    // Oracle: each block's start, one by one.
    #[test]
    fn slack_holds_every_moved_block() {
        for (low, extent, size, stride, count, block) in
            [(1, 7, 3, 1, 7, 2), (3, 5, 7, 2, 6, 4), (0, 9, 3, 2, 5, 2), (4, 3, 5, 1, 7, 3), (2, 2, 5, 3, 2, 1)]
        {
            let s = Slide { size, stride, dilation: 1, base: 1, low, extent, step: 1, weights: 1 };
            let (before, after, high) = slack(&s, count, block);
            let (span, loaded) = (s.span(block) as i64, s.span(block).min(extent) as i64);
            for first in 0..=count - block {
                let wanted = (first * stride) as i64 - low as i64;
                let from = wanted.clamp(0, extent as i64 - loaded);
                // Planes that the transfer writes, from the block's first.
                let to = from - wanted;
                assert!(to >= -(before as i64) && to + loaded <= span + after as i64, "{s:?} block {first}");
                let outside = (0..span).filter(|j| wanted + j >= extent as i64).count() as u64;
                assert!(outside <= high, "{s:?} block {first}: {outside} of {high}");
            }
        }
    }
}
