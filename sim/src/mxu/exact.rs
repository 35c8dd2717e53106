//! What an MXU computes: shadow and active weights, the result queue and the accumulators.

use std::collections::VecDeque;

use tpusim_isa::num::{DTypeKind, Format};

use super::kernel;
use crate::fault::FaultKind;
use crate::vpu::format::{table8, widen};
use crate::vpu::regs::{LANES, Reg, SUBLANES, WORDS};

/// Weights, widened to 32 bits.
#[derive(Clone, Debug)]
struct Weights {
    /// Row-major, dim x dim; words of f32 or i32.
    words: Vec<u32>,
    integer: Option<bool>,
}

/// Data of one MXU.
#[derive(Debug)]
pub(crate) struct MxuData {
    dim: usize,
    shadow: Weights,
    active: Vec<f32>,
    active_int: Vec<i32>,
    integer: Option<bool>,
    queue: VecDeque<Box<Reg>>,
    accumulators: Vec<Box<Reg>>,
    fill: u32,
    limit: usize,
    lhs: Vec<f32>,
    lhs_int: Vec<i32>,
    out: Vec<f32>,
    out_int: Vec<i32>,
    free: Vec<Box<Reg>>,
}

fn is_integer(f: Format) -> bool {
    f.dtype().kind() != DTypeKind::Float
}

impl MxuData {
    /// An array of `dim` x `dim` whose weights and accumulators start as `fill`; `limit` is how many accumulator registers it has.
    pub fn new(dim: usize, limit: usize, fill: u32) -> Self {
        MxuData {
            dim,
            shadow: Weights { words: vec![fill; dim * dim], integer: None },
            active: vec![f32::from_bits(fill); dim * dim],
            active_int: Vec::new(),
            integer: None,
            queue: VecDeque::new(),
            accumulators: Vec::new(),
            fill,
            limit,
            lhs: Vec::new(),
            lhs_int: Vec::new(),
            out: Vec::new(),
            out_int: Vec::new(),
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
        if self.shadow.integer.is_some_and(|i| i != is_integer(f)) {
            self.shadow.words.fill(self.fill);
        }
        self.shadow.integer = Some(is_integer(f));
        unpack(a, f, |row, lane, w| {
            let (r, c) = (row0 + row, col0 + lane);
            let at = if transposed { c * d + r } else { r * d + c };
            self.shadow.words[at] = w;
        });
    }

    /// Makes the shadow weights active.
    pub fn latch(&mut self) {
        self.integer = self.shadow.integer;
        let w = &self.shadow.words;
        if self.integer == Some(true) {
            self.active_int.clear();
            self.active_int.extend(w.iter().map(|x| *x as i32));
        } else {
            self.active.clear();
            self.active.extend(w.iter().map(|x| f32::from_bits(*x)));
        }
    }

    /// Streams the rows of `a` (and `b` when the array is 256 wide) and queues the results.
    pub fn multiply(&mut self, a: &Reg, b: &Reg, f: Format) -> Result<(), FaultKind> {
        self.stream(a, b, f)?;
        for i in 0..f.packing() * (self.dim / LANES) {
            let mut r = self.free.pop().unwrap_or_default();
            self.result(i, is_integer(f), &mut r);
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
            self.result(i, is_integer(f), &mut r);
            let Some(acc) = self.accumulators.get_mut(first + i) else { break };
            for (s, x) in acc.0.iter_mut().zip(&r.0) {
                *s = match (fresh, is_integer(f)) {
                    (true, _) => *x,
                    (false, true) => s.wrapping_add(*x),
                    (false, false) => (f32::from_bits(*s) + f32::from_bits(*x)).to_bits(),
                };
            }
        }
        self.free.push(r);
        Ok(())
    }

    /// Next queued result into `out`.
    pub fn pop(&mut self, out: &mut Reg) -> Result<(), FaultKind> {
        let r = self.queue.pop_front().ok_or(FaultKind::EmptyQueue { unit: "MXU result" })?;
        out.0.copy_from_slice(&r.0);
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
        if self.integer.is_some_and(|i| i != is_integer(f)) {
            return Err(FaultKind::WeightFamily { format: f });
        }
        let (d, rows) = (self.dim, SUBLANES * f.packing());
        let halves = [a, b];
        if is_integer(f) {
            self.lhs_int.resize(rows * d, 0);
            self.out_int.resize(rows * d, 0);
            for (h, x) in halves.iter().take(d / LANES).enumerate() {
                unpack(x, f, |row, lane, w| self.lhs_int[row * d + h * LANES + lane] = w as i32);
            }
            self.active_int.resize(d * d, self.fill as i32);
            kernel::multiply_i32(&self.lhs_int[..rows * d], &self.active_int, d, &mut self.out_int[..rows * d]);
        } else {
            self.lhs.resize(rows * d, 0.0);
            self.out.resize(rows * d, 0.0);
            for (h, x) in halves.iter().take(d / LANES).enumerate() {
                unpack(x, f, |row, lane, w| self.lhs[row * d + h * LANES + lane] = f32::from_bits(w));
            }
            kernel::multiply_f32(&self.lhs[..rows * d], &self.active, d, &mut self.out[..rows * d]);
        }
        Ok(())
    }

    /// Register `i` of the results: group `i / halves` of 8 rows, half `i % halves`.
    fn result(&self, i: usize, integer: bool, r: &mut Reg) {
        let halves = self.dim / LANES;
        let (row0, col0) = (i / halves * SUBLANES, i % halves * LANES);
        for (s, o) in r.0.chunks_exact_mut(LANES).enumerate() {
            let at = (row0 + s) * self.dim + col0;
            if integer {
                o.iter_mut().zip(&self.out_int[at..at + LANES]).for_each(|(o, x)| *o = *x as u32);
            } else {
                o.iter_mut().zip(&self.out[at..at + LANES]).for_each(|(o, x)| *o = x.to_bits());
            }
        }
    }
}

/// Calls `f(row, lane, word)` for each element of a packed register, widened.
#[inline(always)]
fn unpack(a: &Reg, f: Format, mut put: impl FnMut(usize, usize, u32)) {
    let rows = a.0.chunks_exact(LANES).enumerate();
    match f {
        Format::Bf16 => rows.for_each(|(s, words)| {
            words.iter().enumerate().for_each(|(l, w)| put(2 * s, l, w << 16));
            words.iter().enumerate().for_each(|(l, w)| put(2 * s + 1, l, w & 0xffff_0000));
        }),
        _ if f.packing() == 2 => rows.for_each(|(s, words)| {
            words.iter().enumerate().for_each(|(l, w)| put(2 * s, l, widen(f, w & 0xffff)));
            words.iter().enumerate().for_each(|(l, w)| put(2 * s + 1, l, widen(f, w >> 16)));
        }),
        _ => {
            let table = table8(f);
            for (s, words) in rows {
                for p in 0..4 {
                    let code = |w: &u32| table[(w >> (8 * p)) as usize & 0xff];
                    words.iter().enumerate().for_each(|(l, w)| put(4 * s + p, l, code(w)));
                }
            }
        }
    }
}
