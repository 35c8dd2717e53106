//! The inner product kernel of the fast MXU model: `out[t][n] = sum over k of x[t][k] * w[k][n]`, each output from zero, `k`
//! ascending, each product exact and each sum rounded once.
//!
//! That is a chain of fused multiply-adds, so every build gives the same bits: with AVX-512 or FMA found at run time, or with the
//! software fused multiply-add of the standard library. Products of bf16 or narrower floats are exact in f32 anyway except where
//! they are denormal.

/// Rows of a register block.
const MR: usize = 8;
/// Columns of a register block.
const NR: usize = 32;

/// Multiplies `rows` x `dim` by `dim` x `dim`, all row-major; `rows` is a multiple of 8 and `dim` of 32. Shorter slices leave the
/// rest of `out` as it was.
pub fn multiply_f32(x: &[f32], w: &[f32], dim: usize, out: &mut [f32]) {
    dispatch::multiply_f32(x, w, dim, out);
}

/// As [`multiply_f32`], in wrapping 32-bit integers.
pub fn multiply_i32(x: &[i32], w: &[i32], dim: usize, out: &mut [i32]) {
    for (row, o) in x.chunks_exact(dim).zip(out.chunks_exact_mut(dim)) {
        o.fill(0);
        for (a, wr) in row.iter().zip(w.chunks_exact(dim)) {
            for (o, b) in o.iter_mut().zip(wr) {
                *o = o.wrapping_add(a.wrapping_mul(*b));
            }
        }
    }
}

#[inline(always)]
fn blocks(x: &[f32], w: &[f32], dim: usize, out: &mut [f32]) {
    for (xs, os) in x.chunks_exact(MR * dim).zip(out.chunks_exact_mut(MR * dim)) {
        let rows: [&[f32]; MR] = std::array::from_fn(|r| &xs[r * dim..(r + 1) * dim]);
        for n in (0..dim).step_by(NR) {
            let acc = block(rows, w, dim, n);
            for (r, a) in acc.iter().enumerate() {
                os[r * dim + n..r * dim + n + NR].copy_from_slice(a);
            }
        }
    }
}

/// One block of accumulators, kept in registers and returned by value.
#[inline(always)]
fn block(rows: [&[f32]; MR], w: &[f32], dim: usize, n: usize) -> [[f32; NR]; MR] {
    let mut acc = [[0f32; NR]; MR];
    for (k, wr) in w.chunks_exact(dim).enumerate() {
        let Some(b) = wr[n..].first_chunk::<NR>() else { return acc };
        for r in 0..MR {
            let a = rows[r][k];
            for c in 0..NR {
                acc[r][c] = a.mul_add(b[c], acc[r][c]);
            }
        }
    }
    acc
}

#[cfg(target_arch = "x86_64")]
mod dispatch {
    use super::blocks;

    #[target_feature(enable = "avx512f")]
    fn avx512(x: &[f32], w: &[f32], dim: usize, out: &mut [f32]) {
        blocks(x, w, dim, out);
    }

    #[target_feature(enable = "avx2,fma")]
    fn fma(x: &[f32], w: &[f32], dim: usize, out: &mut [f32]) {
        blocks(x, w, dim, out);
    }

    pub(super) fn multiply_f32(x: &[f32], w: &[f32], dim: usize, out: &mut [f32]) {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature that the function is compiled for was just found on this processor.
            unsafe { avx512(x, w, dim, out) }
        } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the features that the function is compiled for were just found on this processor.
            unsafe { fma(x, w, dim, out) }
        } else {
            blocks(x, w, dim, out);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod dispatch {
    pub(super) fn multiply_f32(x: &[f32], w: &[f32], dim: usize, out: &mut [f32]) {
        super::blocks(x, w, dim, out);
    }
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
                let e = if tiny { rng.random_range(1u32..70) } else { rng.random_range(100u32..150) };
                f32::from_bits(rng.random::<u32>() & 0x807f_0000 | e << 23)
            };
            for tiny in [false, true] {
                let x: Vec<f32> = (0..16 * dim).map(|_| value(tiny)).collect();
                let w: Vec<f32> = (0..dim * dim).map(|_| value(tiny)).collect();
                let (mut a, mut b) = (vec![0.0; 16 * dim], vec![0.0; 16 * dim]);
                multiply_f32(&x, &w, dim, &mut a);
                blocks(&x, &w, dim, &mut b);
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
