//! Copies between linear HBM and tiled VMEM. The whole extent of a transfer is checked first; then planes are moved in pieces of
//! up to 128 lanes, with the common case (columns next to each other in HBM, whole words of packed rows) kept tight.

use tpusim_isa::program::{DmaDesc, DmaDir};

use crate::fault::FaultKind;
use crate::memory::vmem::Vmem;
use crate::simd::{Work, widest};
use crate::vpu::regs::LANES;

/// Moves the data of `d` between `hbm` and `vmem`, with the block at byte `hbm_at` and row `vmem_at`.
pub(crate) fn transfer(
    d: &DmaDesc,
    hbm_at: i128,
    vmem_at: i128,
    hbm: &mut [u8],
    vmem: &mut Vmem,
) -> Result<(), FaultKind> {
    if d.rows == 0 || d.cols == 0 || d.outer.iter().any(|o| o.count == 0) {
        return Ok(());
    }
    hbm_bytes(d, hbm_at, hbm.len())?;
    let (first, last) = rows(d, vmem_at);
    let words = vmem.rows(first, last)?;
    planes(d, hbm_at as i64, vmem_at as i64, |byte, row| {
        let plane = Plane { d, hbm: byte, row: row as usize };
        widest(Move { plane, hbm, words });
    });
    Ok(())
}

/// Checks that every byte of HBM that `d` touches, with its block at byte `at`, is one of the `len` there are. Some are touched.
pub(super) fn hbm_bytes(d: &DmaDesc, at: i128, len: usize) -> Result<(), FaultKind> {
    let dims = [(d.cols, d.col_stride), (d.rows, d.row_stride)];
    let (first, high) = extent(at, dims.into_iter().chain(d.outer.iter().map(|o| (o.count, o.hbm_stride))));
    let last = high + i128::from(d.elem_bytes) - 1;
    if first < 0 || last >= len as i128 {
        return Err(FaultKind::Hbm { first, last, bytes: len as u64 });
    }
    Ok(())
}

/// Calls `f` with where each outer step of `d` starts in HBM and in the core's memory.
pub(super) fn planes(d: &DmaDesc, hbm_at: i64, local_at: i64, mut f: impl FnMut(i64, i64)) {
    let mut steps = vec![0u32; d.outer.len()];
    let (mut h, mut v) = (hbm_at, local_at);
    loop {
        f(h, v);
        let mut k = steps.len();
        loop {
            let Some(below) = k.checked_sub(1) else { return };
            k = below;
            let o = &d.outer[k];
            steps[k] += 1;
            if steps[k] < o.count {
                h += o.hbm_stride;
                v += o.local_stride;
                break;
            }
            h -= i64::from(o.count - 1) * o.hbm_stride;
            v -= i64::from(o.count - 1) * o.local_stride;
            steps[k] = 0;
        }
    }
}

/// First and last row of VMEM that `d` touches with its block at row `vmem_at`; more than that only for descriptors of no data.
pub(crate) fn rows(d: &DmaDesc, vmem_at: i128) -> (i128, i128) {
    let packing = 4 / i128::from(d.elem_bytes.max(1));
    let (first, last) = extent(vmem_at, d.outer.iter().map(|o| (o.count.max(1), o.local_stride)));
    let last_row = i128::from(d.rows.max(1) - 1);
    let tile_rows = last_row / (8 * packing);
    let row_in_tile = if tile_rows > 0 { 7 } else { last_row % (8 * packing) / packing };
    let cols = i128::from((d.cols.max(1) - 1) / 128);
    (first, last + (tile_rows * i128::from(d.lane_tiles) + cols) * 8 + row_in_tile)
}

/// Least and greatest of `at` plus multiples of strides.
pub(super) fn extent(at: i128, dims: impl Iterator<Item = (u32, i64)>) -> (i128, i128) {
    dims.fold((at, at), |(low, high), (count, stride)| {
        let span = i128::from(count - 1) * i128::from(stride);
        (low + span.min(0), high + span.max(0))
    })
}

/// One outer step.
struct Plane<'a> {
    d: &'a DmaDesc,
    hbm: i64,
    row: usize,
}

/// Moves one outer step.
struct Move<'a> {
    plane: Plane<'a>,
    hbm: &'a mut [u8],
    words: &'a mut [u32],
}

impl Work for Move<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const WIDE: bool>(self) {
        let Move { plane, hbm, words } = self;
        match (plane.d.elem_bytes, plane.d.dir) {
            (4, DmaDir::Load) => plane.load::<1>(hbm, words),
            (2, DmaDir::Load) => plane.load::<2>(hbm, words),
            (_, DmaDir::Load) => plane.load::<4>(hbm, words),
            (4, DmaDir::Store) => plane.store::<1>(hbm, words),
            (2, DmaDir::Store) => plane.store::<2>(hbm, words),
            (_, DmaDir::Store) => plane.store::<4>(hbm, words),
        }
    }
}

impl Plane<'_> {
    /// Calls `f` for each piece: first row, number of rows (up to P, in one word), byte of the first element, first word, lanes.
    #[inline(always)]
    fn pieces<const P: usize>(&self, mut f: impl FnMut(usize, usize, i64, usize, usize)) {
        let d = self.d;
        let (rows, cols, tile) = (d.rows as usize, d.cols as usize, 8 * P);
        for r in (0..rows).step_by(P) {
            for c in (0..cols).step_by(LANES) {
                let row = self.row + ((r / tile) * d.lane_tiles as usize + c / LANES) * 8 + (r % tile) / P;
                let byte = self.hbm + r as i64 * d.row_stride + c as i64 * d.col_stride;
                f(r, P.min(rows - r), byte, row * LANES, LANES.min(cols - c));
            }
        }
    }

    #[inline(always)]
    fn load<const P: usize>(&self, hbm: &[u8], words: &mut [u32]) {
        let (rs, cs) = (self.d.row_stride, self.d.col_stride);
        let size = 4 / P;
        self.pieces::<P>(|_, rows, byte, word, lanes| {
            let out = &mut words[word..word + lanes];
            if cs == size as i64 && rows == P {
                let parts: [&[u8]; P] = std::array::from_fn(|p| {
                    let at = (byte + p as i64 * rs) as usize;
                    &hbm[at..at + lanes * size]
                });
                interleave(out, parts);
                return;
            }
            for p in 0..rows {
                let (shift, keep) = part::<P>(p);
                for (l, w) in out.iter_mut().enumerate() {
                    let at = (byte + p as i64 * rs + l as i64 * cs) as usize;
                    *w = (*w & !keep) | element::<P>(hbm, at) << shift;
                }
            }
        });
    }

    #[inline(always)]
    fn store<const P: usize>(&self, hbm: &mut [u8], words: &[u32]) {
        let (rs, cs) = (self.d.row_stride, self.d.col_stride);
        let size = 4 / P;
        self.pieces::<P>(|_, rows, byte, word, lanes| {
            let source = &words[word..word + lanes];
            for p in 0..rows {
                let (shift, _) = part::<P>(p);
                let at = (byte + p as i64 * rs) as usize;
                if cs == size as i64 {
                    spread::<P>(&mut hbm[at..at + lanes * size], source, shift);
                    continue;
                }
                for (l, w) in source.iter().enumerate() {
                    let at = (at as i64 + l as i64 * cs) as usize;
                    hbm[at..at + size].copy_from_slice(&(w >> shift).to_le_bytes()[..size]);
                }
            }
        });
    }
}

/// Shift and mask of part `p` of a word.
#[inline(always)]
fn part<const P: usize>(p: usize) -> (u32, u32) {
    let bits = 32 / P as u32;
    let shift = p as u32 * bits;
    (shift, (u32::MAX >> (32 - bits)) << shift)
}

#[inline(always)]
fn element<const P: usize>(hbm: &[u8], at: usize) -> u32 {
    match P {
        1 => u32::from_le_bytes([hbm[at], hbm[at + 1], hbm[at + 2], hbm[at + 3]]),
        2 => u32::from(u16::from_le_bytes([hbm[at], hbm[at + 1]])),
        _ => u32::from(hbm[at]),
    }
}

/// Words from `P` rows of neighbouring elements.
#[inline(always)]
fn interleave<const P: usize>(out: &mut [u32], parts: [&[u8]; P]) {
    match P {
        1 => {
            for (w, b) in out.iter_mut().zip(parts[0].as_chunks::<4>().0) {
                *w = u32::from_le_bytes(*b);
            }
        }
        2 => {
            let rows = parts[0].as_chunks::<2>().0.iter().zip(parts[1].as_chunks::<2>().0);
            for (w, (a, b)) in out.iter_mut().zip(rows) {
                *w = u32::from(u16::from_le_bytes(*a)) | u32::from(u16::from_le_bytes(*b)) << 16;
            }
        }
        _ => {
            let rows = parts[0].iter().zip(parts[1]).zip(parts[2].iter().zip(parts[3]));
            for (w, ((a, b), (c, d))) in out.iter_mut().zip(rows) {
                *w = u32::from_le_bytes([*a, *b, *c, *d]);
            }
        }
    }
}

/// One part of each word to neighbouring elements.
#[inline(always)]
fn spread<const P: usize>(out: &mut [u8], source: &[u32], shift: u32) {
    match P {
        1 => {
            for (b, w) in out.as_chunks_mut::<4>().0.iter_mut().zip(source) {
                *b = w.to_le_bytes();
            }
        }
        2 => {
            for (b, w) in out.as_chunks_mut::<2>().0.iter_mut().zip(source) {
                *b = ((w >> shift) as u16).to_le_bytes();
            }
        }
        _ => {
            for (b, w) in out.iter_mut().zip(source) {
                *b = (w >> shift) as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tpusim_isa::program::{Addr, DmaDim, OnChip};

    fn byte(i: usize) -> u8 {
        (i.wrapping_mul(2_654_435_761) >> 13) as u8
    }

    fn desc(elem: u8, dir: DmaDir, rows: u32, cols: u32, row_stride: i64, col_stride: i64) -> DmaDesc {
        DmaDesc {
            dir,
            mem: OnChip::Vmem,
            elem_bytes: elem,
            outer: vec![DmaDim { count: 2, hbm_stride: 3000, local_stride: 100 }],
            rows,
            row_stride,
            cols,
            col_stride,
            lane_tiles: cols.div_ceil(128) + 1,
            hbm: Addr::default(),
            local: Addr::default(),
        }
    }

    // Oracle: the address formula of `DmaDesc`, element by element; what no element covers stays as it was.
    #[test]
    fn loads_and_stores_follow_the_formula() {
        for elem in [1u8, 2, 4] {
            let e = i64::from(elem);
            for (rows, cols, rs, cs) in
                [(5, 130, 140 * e, e), (40, 7, 7 * e, e), (3, 5, e, 64 * e), (9, 130, -140 * e, e), (33, 1, e, 0)]
            {
                let hbm_at = if rs < 0 { 8000 } else { 16 };
                let mut hbm: Vec<u8> = (0..20_000).map(byte).collect();
                let before = hbm.clone();
                let mut vmem = Vmem::new(1 << 20, 0xaaaa_aaaa);
                let d = desc(elem, DmaDir::Load, rows, cols, rs, cs);
                transfer(&d, hbm_at, 8, &mut hbm, &mut vmem).unwrap();
                let p = 4 / elem as usize;
                let tile = 8 * p;
                let mut want = vec![0xaau8; 300 * 512];
                let places: Vec<(usize, usize)> = (0..2i64)
                    .flat_map(|o| (0..rows as usize).flat_map(move |r| (0..cols as usize).map(move |c| (o, r, c))))
                    .map(|(o, r, c)| {
                        let h = hbm_at as i64 + o * 3000 + r as i64 * rs + c as i64 * cs;
                        let row =
                            8 + o as usize * 100 + ((r / tile) * d.lane_tiles as usize + c / 128) * 8 + (r % tile) / p;
                        (h as usize, row * 512 + c % 128 * 4 + r % p * elem as usize)
                    })
                    .collect();
                for &(h, v) in &places {
                    want[v..v + elem as usize].copy_from_slice(&before[h..h + elem as usize]);
                }
                let got: Vec<u8> =
                    vmem.rows(0, 299).unwrap()[..300 * 128].iter().flat_map(|w| w.to_le_bytes()).collect();
                assert!(got == want, "load {elem} {rows}x{cols}");
                let mut target = vec![0x55u8; 20_000];
                let mut want = target.clone();
                for &(h, v) in &places {
                    want[h..h + elem as usize].copy_from_slice(&got[v..v + elem as usize]);
                }
                transfer(&DmaDesc { dir: DmaDir::Store, ..d }, hbm_at, 8, &mut target, &mut vmem).unwrap();
                assert!(target == want, "store {elem} {rows}x{cols}");
            }
        }
    }

    // Oracle: one byte or row beyond the end is a fault, the last one is not.
    #[test]
    fn bounds_are_exact() {
        let mut vmem = Vmem::new(512 * 108, 0);
        let d = desc(4, DmaDir::Load, 8, 128, 512, 4);
        let mut hbm = vec![0u8; 3000 + 4096];
        assert!(transfer(&d, 0, 0, &mut hbm, &mut vmem).is_ok());
        assert!(matches!(transfer(&d, 1, 0, &mut hbm, &mut vmem), Err(FaultKind::Hbm { .. })));
        assert!(matches!(transfer(&d, 0, 1, &mut hbm, &mut vmem), Err(FaultKind::Vmem { .. })));
        assert!(matches!(transfer(&d, -1, 0, &mut hbm, &mut vmem), Err(FaultKind::Hbm { .. })));
    }
}
