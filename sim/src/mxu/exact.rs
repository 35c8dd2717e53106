//! What an MXU computes: shadow and active weights, the result queue and the accumulators.

use std::collections::VecDeque;

use tpusim_isa::num::{DTypeKind, Format};

use super::kernel::{self, Aligned};
use crate::fault::FaultKind;
use crate::simd::{Work, widest};
use crate::vpu::format::{table8, widen};
use crate::vpu::regs::{LANES, Reg, SUBLANES, WORDS};

/// Weights as f32, row-major, dim x dim. Integers of 8 bits are exact in it.
#[derive(Debug)]
struct Weights {
    values: Aligned,
    /// Whether they are integers, once anything was pushed.
    integer: Option<bool>,
}

/// Data of one MXU.
#[derive(Debug)]
pub(crate) struct MxuData {
    dim: usize,
    shadow: Weights,
    active: Weights,
    /// Blocks of 8 x 8 weights that were pushed since the last latch.
    pushed: Vec<bool>,
    queue: VecDeque<Box<Reg>>,
    accumulators: Vec<Box<Reg>>,
    fill: u32,
    limit: usize,
    lhs: Aligned,
    out: Aligned,
    /// Registers to use again.
    free: Vec<Box<Reg>>,
}

fn is_integer(f: Format) -> bool {
    f.dtype().kind() != DTypeKind::Float
}

impl MxuData {
    /// An array of `dim` x `dim` whose weights and accumulators start as `fill`; `limit` is how many accumulator registers it has.
    pub fn new(dim: usize, limit: usize, fill: u32) -> Self {
        let weights = || Weights { values: Aligned::new(dim * dim, f32::from_bits(fill)), integer: None };
        MxuData {
            dim,
            shadow: weights(),
            active: weights(),
            pushed: vec![false; (dim / 8) * (dim / 8)],
            queue: VecDeque::new(),
            accumulators: Vec::new(),
            fill,
            limit,
            lhs: Aligned::new(SUBLANES * 4 * dim, 0.0),
            out: Aligned::new(SUBLANES * 4 * dim, 0.0),
            free: Vec::new(),
        }
    }

    /// Rows and columns of the array.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Writes a register of weights into slot `slot` of the shadow weights.
    pub fn push(&mut self, a: &Reg, f: Format, slot: usize, transposed: bool) {
        let (d, p) = (self.dim, f.packing());
        let halves = d / LANES;
        let (row0, col0) = (slot / halves * SUBLANES * p, slot % halves * LANES);
        self.shadow.integer = Some(is_integer(f));
        for r in (row0..row0 + SUBLANES * p).step_by(8) {
            for c in (col0..col0 + LANES).step_by(8) {
                let (r, c) = if transposed { (c, r) } else { (r, c) };
                self.pushed[r / 8 * (d / 8) + c / 8] = true;
            }
        }
        let (to, base) = (self.shadow.values.get_mut(), if transposed { col0 * d + row0 } else { row0 * d + col0 });
        let (row_stride, lane_stride) = if transposed { (1, d) } else { (d, 1) };
        widest(Unpack { a, f, to, base, row_stride, lane_stride });
    }

    /// Makes the shadow weights active. The shadow keeps what it had, which matters only where nothing is pushed before the next
    /// latch; so the buffers change places, and what is missing is copied then.
    pub fn latch(&mut self) {
        let n = self.dim / 8;
        for (i, pushed) in self.pushed.iter_mut().enumerate() {
            if !std::mem::take(pushed) {
                let at = i / n * 8 * self.dim + i % n * 8;
                for r in 0..8 {
                    let range = at + r * self.dim..at + r * self.dim + 8;
                    self.shadow.values.get_mut()[range.clone()].copy_from_slice(&self.active.values.get()[range]);
                }
            }
        }
        if self.shadow.integer.is_none() {
            self.shadow.integer = self.active.integer;
        }
        std::mem::swap(&mut self.shadow, &mut self.active);
        self.shadow.integer = None;
    }

    /// Streams the rows of `a` (and `b` when the array is 256 wide) and queues the results.
    pub fn multiply(&mut self, a: &Reg, b: &Reg, f: Format) -> Result<(), FaultKind> {
        self.stream(a, b, f)?;
        for i in 0..f.packing() * (self.dim / LANES) {
            let mut r = self.free.pop().unwrap_or_default();
            self.result(i, f, &mut r);
            self.queue.push_back(r);
        }
        Ok(())
    }

    /// Streams rows into accumulators from buffer `at`, adding to what is there unless `fresh`.
    pub fn accumulate(&mut self, a: &Reg, b: &Reg, f: Format, at: usize, fresh: bool) -> Result<(), FaultKind> {
        self.stream(a, b, f)?;
        let halves = self.dim / LANES;
        let (first, count) = (at * halves, f.packing() * halves);
        let need = (first + count).min(self.limit);
        while self.accumulators.len() < need {
            self.accumulators.push(Box::new(Reg([self.fill; WORDS])));
        }
        let mut r = self.free.pop().unwrap_or_default();
        for i in 0..count {
            self.result(i, f, &mut r);
            let Some(acc) = self.accumulators.get_mut(first + i) else { break };
            let pairs = acc.0.iter_mut().zip(&r.0);
            match (fresh, is_integer(f)) {
                (true, _) => pairs.for_each(|(s, x)| *s = *x),
                (false, true) => pairs.for_each(|(s, x)| *s = s.wrapping_add(*x)),
                (false, false) => pairs.for_each(|(s, x)| *s = (f32::from_bits(*s) + f32::from_bits(*x)).to_bits()),
            }
        }
        self.free.push(r);
        Ok(())
    }

    /// Next queued result into `out`.
    pub fn pop(&mut self, out: &mut Box<Reg>) -> Result<(), FaultKind> {
        let mut r = self.queue.pop_front().ok_or(FaultKind::EmptyQueue { unit: "MXU result" })?;
        std::mem::swap(&mut r, out);
        self.free.push(r);
        Ok(())
    }

    /// Accumulator register `i` into `out`.
    pub fn read(&self, i: usize, out: &mut Reg) {
        match self.accumulators.get(i) {
            Some(r) => out.0.copy_from_slice(&r.0),
            None => out.0.fill(self.fill),
        }
    }

    fn stream(&mut self, a: &Reg, b: &Reg, f: Format) -> Result<(), FaultKind> {
        if self.active.integer.is_some_and(|i| i != is_integer(f)) {
            return Err(FaultKind::WeightFamily { format: f });
        }
        let (d, rows) = (self.dim, SUBLANES * f.packing());
        for (h, a) in [a, b].into_iter().take(d / LANES).enumerate() {
            let to = self.lhs.get_mut();
            widest(Unpack { a, f, to, base: h * LANES, row_stride: d, lane_stride: 1 });
        }
        let n = rows * d;
        kernel::multiply_f32(&self.lhs.get()[..n], self.active.values.get(), d, &mut self.out.get_mut()[..n]);
        Ok(())
    }

    /// Register `i` of the results: group `i / halves` of 8 rows, half `i % halves`.
    fn result(&self, i: usize, f: Format, r: &mut Reg) {
        let halves = self.dim / LANES;
        let (row0, col0) = (i / halves * SUBLANES, i % halves * LANES);
        for (s, o) in r.0.chunks_exact_mut(LANES).enumerate() {
            let at = (row0 + s) * self.dim + col0;
            let pairs = o.iter_mut().zip(&self.out.get()[at..at + LANES]);
            if is_integer(f) {
                // Only weights that were never pushed can be NaN.
                pairs.for_each(|(o, x)| *o = if x.is_nan() { x.to_bits() } else { *x as i32 as u32 });
            } else {
                pairs.for_each(|(o, x)| *o = x.to_bits());
            }
        }
    }
}

/// Writes each element of a packed register, widened, to `base + row * row_stride + lane * lane_stride`.
struct Unpack<'a> {
    a: &'a Reg,
    f: Format,
    to: &'a mut [f32],
    base: usize,
    row_stride: usize,
    lane_stride: usize,
}

impl Work for Unpack<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const WIDE: bool>(mut self) {
        let (f, integer) = (self.f, is_integer(self.f));
        if f == Format::Bf16 {
            self.rows(2, |w, p| f32::from_bits(if p == 0 { w << 16 } else { w & 0xffff_0000 }));
        } else if f.packing() == 2 {
            self.rows(2, |w, p| value(widen(f, (w >> (16 * p)) & 0xffff), integer));
        } else {
            let table = table8(f).map(|w| value(w, integer));
            self.rows(4, |w, p| table[(w >> (8 * p)) as usize & 0xff]);
        }
    }
}

impl Unpack<'_> {
    #[inline(always)]
    fn rows(&mut self, packing: usize, element: impl Fn(u32, usize) -> f32) {
        for (s, words) in self.a.0.as_chunks::<LANES>().0.iter().enumerate() {
            for p in 0..packing {
                let at = self.base + (s * packing + p) * self.row_stride;
                if self.lane_stride == 1 {
                    let to = &mut self.to[at..at + LANES];
                    to.iter_mut().zip(words).for_each(|(o, w)| *o = element(*w, p));
                } else {
                    let to = self.to[at..].iter_mut().step_by(self.lane_stride);
                    to.zip(words).for_each(|(o, w)| *o = element(*w, p));
                }
            }
        }
    }
}

/// A widened word as f32.
fn value(word: u32, integer: bool) -> f32 {
    if integer { word as i32 as f32 } else { f32::from_bits(word) }
}
