//! The inner product kernel of the fast MXU model: `out[t][n] = sum over k of x[t][k] * w[k][n]`, each output from zero, `k`
//! ascending, each product exact and each sum rounded once.
//!
//! That is a chain of fused multiply-adds, so every build gives the same bits, with the host's vector instructions or with the
//! software fused multiply-add of the standard library. 8-bit integers go the same way: sums of at most 256 of their products
//! stay below 2^24, where f32 is exact.

use crate::simd::{Work, widest};
use crate::vpu::regs::{LANES, Reg, SUBLANES};

/// Numbers in memory that starts on a cache line: vector loads that straddle two lines cost twice.
#[derive(Debug)]
pub struct Aligned {
    room: Vec<f32>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// `len` numbers, all `fill`.
    pub fn new(len: usize, fill: f32) -> Aligned {
        let room = vec![fill; len + 15];
        let start = room.as_ptr().align_offset(64).min(15);
        Aligned { room, start, len }
    }

    /// The numbers.
    pub fn get(&self) -> &[f32] {
        &self.room[self.start..self.start + self.len]
    }

    /// The numbers, to be changed.
    pub fn get_mut(&mut self) -> &mut [f32] {
        &mut self.room[self.start..self.start + self.len]
    }
}

/// Multiplies `rows` x `dim` by `dim` x `dim`, all row-major. `dim` is 128 or 256 (else nothing happens) and `rows` a multiple of
/// 8; `out` has as many rows as `x`.
pub fn multiply_f32(x: &[f32], w: &[f32], dim: usize, out: &mut [f32]) {
    match dim {
        128 => widest(Product::<128, _> { x, w, out: Rows { out, dim } }),
        256 => widest(Product::<256, _> { x, w, out: Rows { out, dim } }),
        _ => {}
    }
}

/// As [`multiply_f32`], with results as the MXU gives them: groups of 8 rows, of each `dim / 128` registers of 128 columns.
pub(crate) fn multiply_registers(x: &[f32], w: &[f32], dim: usize, out: &mut [Box<Reg>]) {
    match dim {
        128 => widest(Product::<128, _> { x, w, out: Registers { out, halves: 1 } }),
        256 => widest(Product::<256, _> { x, w, out: Registers { out, halves: 2 } }),
        _ => {}
    }
}

/// Where results go.
trait Sink {
    /// Columns from `col` on of row `row`; they do not cross a multiple of 128.
    fn put(&mut self, row: usize, col: usize, values: &[f32]);
}

struct Rows<'a> {
    out: &'a mut [f32],
    dim: usize,
}

impl Sink for Rows<'_> {
    #[inline(always)]
    fn put(&mut self, row: usize, col: usize, values: &[f32]) {
        let at = row * self.dim + col;
        self.out[at..at + values.len()].copy_from_slice(values);
    }
}

struct Registers<'a> {
    out: &'a mut [Box<Reg>],
    halves: usize,
}

impl Sink for Registers<'_> {
    #[inline(always)]
    fn put(&mut self, row: usize, col: usize, values: &[f32]) {
        let reg = &mut self.out[row / SUBLANES * self.halves + col / LANES].0;
        let at = row % SUBLANES * LANES + col % LANES;
        reg[at..at + values.len()].iter_mut().zip(values).for_each(|(o, x)| *o = x.to_bits());
    }
}

struct Product<'a, const D: usize, S> {
    x: &'a [f32],
    w: &'a [f32],
    out: S,
}

impl<const D: usize, S: Sink> Work for Product<'_, D, S> {
    type Out = ();

    #[inline(always)]
    fn run<const WIDE: bool>(self) {
        // As many accumulators as the host's registers hold: 16 of 16 lanes, or 8 of 8.
        if WIDE { blocks::<8, 32>(self.x, self.w, D, self.out) } else { blocks::<4, 16>(self.x, self.w, D, self.out) }
    }
}

#[inline(always)]
fn blocks<const MR: usize, const NR: usize>(x: &[f32], w: &[f32], dim: usize, mut out: impl Sink) {
    for (i, xs) in x.chunks_exact(MR * dim).enumerate() {
        let rows: [&[f32]; MR] = std::array::from_fn(|r| &xs[r * dim..(r + 1) * dim]);
        for n in (0..dim).step_by(NR) {
            let acc = block::<MR, NR>(rows, w, dim, n);
            for (r, a) in acc.iter().enumerate() {
                out.put(i * MR + r, n, a);
            }
        }
    }
}

/// One block of accumulators, kept in registers and returned by value.
#[inline(always)]
fn block<const MR: usize, const NR: usize>(rows: [&[f32]; MR], w: &[f32], dim: usize, n: usize) -> [[f32; NR]; MR] {
    let mut acc = [[0f32; NR]; MR];
    for (k, wr) in w.chunks_exact(dim).enumerate() {
        let Some(b) = wr[n..].first_chunk::<NR>() else { return acc };
        let b = *b;
        for r in 0..MR {
            let a = rows[r][k];
            for c in 0..NR {
                acc[r][c] = a.mul_add(b[c], acc[r][c]);
            }
        }
    }
    acc
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    // Oracle: the definition, one output at a time, with the standard library's fused multiply-add; and the path without vector
    // instructions.
    #[test]
    fn same_bits_as_the_definition() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        for dim in [128, 256] {
            let mut value = |tiny: bool| {
                let e = if tiny { rng.random_range(0u32..70) } else { rng.random_range(100u32..150) };
                f32::from_bits(rng.random::<u32>() & 0x807f_0000 | e << 23)
            };
            for tiny in [false, true] {
                let x: Vec<f32> = (0..16 * dim).map(|_| value(tiny)).collect();
                let w: Vec<f32> = (0..dim * dim).map(|_| value(tiny)).collect();
                let (mut a, mut b) = (vec![0.0; 16 * dim], vec![0.0; 16 * dim]);
                multiply_f32(&x, &w, dim, &mut a);
                let (x, w) = (&x[..], &w[..]);
                let out = Rows { out: &mut b[..], dim };
                if dim == 128 {
                    Product::<128, _> { x, w, out }.run::<false>();
                } else {
                    Product::<256, _> { x, w, out }.run::<true>();
                }
                let mut registers = vec![Box::<Reg>::default(); 2 * dim / 128];
                multiply_registers(x, w, dim, &mut registers);
                for (t, n) in (0..16).flat_map(|t| (0..dim).map(move |n| (t, n))) {
                    let word = registers[t / 8 * (dim / 128) + n / 128].0[t % 8 * 128 + n % 128];
                    assert_eq!(word, a[t * dim + n].to_bits());
                }
                for t in (0..16).step_by(5) {
                    for n in 0..dim {
                        let want = (0..dim).fold(0f32, |s, k| x[t * dim + k].mul_add(w[k * dim + n], s));
                        assert_eq!(a[t * dim + n].to_bits(), want.to_bits());
                    }
                }
                assert!(a.iter().zip(&b).all(|(p, q)| p.to_bits() == q.to_bits()));
            }
        }
    }
}
