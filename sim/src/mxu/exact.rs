//! What an MXU computes: shadow and active weights, the result queue and the accumulators.
//!
//! A `vmatmul` copies its rows and leaves the arithmetic for later, as a [`Job`]. It is done when a result is asked for or the
//! weights are about to change, by then for all jobs of all MXUs of the core, so that host threads can share them. Each job
//! gives the same bits wherever it runs, and results are handed on in the order of the program.

use std::collections::VecDeque;

use tpusim_isa::num::{DTypeKind, Format};

use super::kernel::{self, Aligned};
use crate::fault::FaultKind;
use crate::simd::{Work, widest};
use crate::vpu::format::{table8, widen};
use crate::vpu::regs::{LANES, Reg, SUBLANES, WORDS, Words};

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
    /// Products to be computed, in program order.
    jobs: Vec<Job>,
    /// Registers and jobs to use again.
    free: Vec<Box<Reg>>,
    idle: Vec<Job>,
}

/// Jobs that wait at most, per MXU.
pub(crate) const MAX_JOBS: usize = 32;

/// A product to be computed against the active weights.
#[derive(Debug)]
pub(crate) struct Job {
    lhs: Aligned,
    /// Numbers in `lhs`.
    len: usize,
    integer: bool,
    /// Accumulator register of the first result, and whether to overwrite; else results are queued.
    accumulate: Option<(usize, bool)>,
    out: Vec<Box<Reg>>,
}

impl Job {
    /// Computes the results.
    pub fn run(&mut self, weights: &[f32], dim: usize) {
        kernel::multiply_registers(&self.lhs.get()[..self.len], weights, dim, &mut self.out);
        if self.integer {
            // Only weights that were never pushed can be NaN.
            let whole = |w: u32| f32::from_bits(w) as i32 as u32;
            let words = self.out.iter_mut().flat_map(|r| r.0.iter_mut());
            words.for_each(|w| *w = if f32::from_bits(*w).is_nan() { *w } else { whole(*w) });
        }
    }
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
            jobs: Vec::new(),
            free: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// Rows and columns of the array.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Writes a register of weights into slot `slot` of the shadow weights.
    pub fn push(&mut self, a: &Words, f: Format, slot: usize, transposed: bool) {
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
    pub fn multiply(&mut self, a: &Words, b: &Words, f: Format) -> Result<(), FaultKind> {
        self.stream(a, b, f, None)
    }

    /// Streams rows into accumulators from buffer `at`, adding to what is there unless `fresh`.
    pub fn accumulate(&mut self, a: &Words, b: &Words, f: Format, at: usize, fresh: bool) -> Result<(), FaultKind> {
        self.stream(a, b, f, Some((at * (self.dim / LANES), fresh)))
    }

    /// Whether there are jobs to be done before a result can be popped.
    pub fn pops_wait(&self) -> bool {
        self.queue.is_empty() && !self.jobs.is_empty()
    }

    /// Jobs to be done.
    pub fn waiting(&self) -> usize {
        self.jobs.len()
    }

    /// The jobs to be done, with the weights they need and the size of the array.
    pub fn jobs(&mut self) -> impl Iterator<Item = (&mut Job, &[f32], usize)> {
        let (weights, dim) = (self.active.values.get(), self.dim);
        self.jobs.iter_mut().map(move |j| (j, weights, dim))
    }

    /// Hands on the results of all jobs, which have run.
    pub fn finish(&mut self) {
        for mut job in self.jobs.drain(..) {
            match job.accumulate {
                None => self.queue.extend(job.out.drain(..)),
                Some((first, fresh)) => {
                    let need = (first + job.out.len()).min(self.limit);
                    while self.accumulators.len() < need {
                        self.accumulators.push(Box::new(Reg([self.fill; WORDS])));
                    }
                    for (acc, r) in self.accumulators.iter_mut().skip(first).zip(&job.out) {
                        add(acc, r, fresh, job.integer);
                    }
                    self.free.append(&mut job.out);
                }
            }
            self.idle.push(job);
        }
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

    fn stream(&mut self, a: &Words, b: &Words, f: Format, to: Option<(usize, bool)>) -> Result<(), FaultKind> {
        if self.active.integer.is_some_and(|i| i != is_integer(f)) {
            return Err(FaultKind::WeightFamily { format: f });
        }
        let (d, rows) = (self.dim, SUBLANES * f.packing());
        let mut job = self.idle.pop().unwrap_or_else(|| Job {
            lhs: Aligned::new(SUBLANES * 4 * d, 0.0),
            len: 0,
            integer: false,
            accumulate: None,
            out: Vec::new(),
        });
        (job.len, job.integer, job.accumulate) = (rows * d, is_integer(f), to);
        for (h, a) in [a, b].into_iter().take(d / LANES).enumerate() {
            let to = job.lhs.get_mut();
            widest(Unpack { a, f, to, base: h * LANES, row_stride: d, lane_stride: 1 });
        }
        job.out.extend((0..f.packing() * (d / LANES)).map(|_| self.free.pop().unwrap_or_default()));
        self.jobs.push(job);
        Ok(())
    }
}

/// Adds `r` to an accumulator, or overwrites it.
fn add(acc: &mut Reg, r: &Reg, fresh: bool, integer: bool) {
    let pairs = acc.0.iter_mut().zip(&r.0);
    match (fresh, integer) {
        (true, _) => pairs.for_each(|(s, x)| *s = *x),
        (false, true) => pairs.for_each(|(s, x)| *s = s.wrapping_add(*x)),
        (false, false) => pairs.for_each(|(s, x)| *s = (f32::from_bits(*s) + f32::from_bits(*x)).to_bits()),
    }
}

/// Writes each element of a packed register, widened, to `base + row * row_stride + lane * lane_stride`.
struct Unpack<'a> {
    a: &'a Words,
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
        for (s, words) in self.a.as_chunks::<LANES>().0.iter().enumerate() {
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
