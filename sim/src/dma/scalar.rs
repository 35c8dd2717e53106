//! Copies between HBM and SMEM: one element a word, dense.

use tpusim_isa::program::{DmaDesc, DmaDir};

use super::copy::{extent, hbm_bytes, planes};
use crate::fault::FaultKind;
use crate::memory::smem::Smem;

/// Moves the data of `d` between `hbm` and `smem`, with the block at byte `hbm_at` and word `word_at`.
pub(crate) fn transfer(
    d: &DmaDesc,
    hbm_at: i128,
    word_at: i128,
    hbm: &mut [u8],
    smem: &mut Smem,
) -> Result<(), FaultKind> {
    if d.rows == 0 || d.cols == 0 || d.outer.iter().any(|o| o.count == 0) {
        return Ok(());
    }
    hbm_bytes(d, hbm_at, hbm.len())?;
    let block = i128::from(d.rows) * i128::from(d.cols);
    let (first, last) = extent(word_at, d.outer.iter().map(|o| (o.count, o.local_stride)));
    let words = smem.words(first, last + block - 1)?;
    let size = usize::from(d.elem_bytes);
    let (rows, cols) = (d.rows as usize, d.cols as usize);
    planes(d, hbm_at as i64, word_at as i64, |byte, word| {
        for r in 0..rows {
            let from = word as usize + r * cols;
            for (c, w) in words[from..from + cols].iter_mut().enumerate() {
                let at = (byte + r as i64 * d.row_stride + c as i64 * d.col_stride) as usize;
                let element = &mut hbm[at..at + size];
                if d.dir == DmaDir::Store {
                    element.copy_from_slice(&w.to_le_bytes()[..size]);
                    continue;
                }
                let mut wide = [0; 4];
                wide[..size].copy_from_slice(element);
                *w = u32::from_le_bytes(wide);
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tpusim_isa::program::{Addr, DmaDim, OnChip};

    fn desc(elem: u8, dir: DmaDir, rows: u32, cols: u32, row_stride: i64, col_stride: i64) -> DmaDesc {
        DmaDesc {
            dir,
            mem: OnChip::Smem,
            elem_bytes: elem,
            outer: vec![DmaDim { count: 2, hbm_stride: 300, local_stride: 50 }],
            rows,
            row_stride,
            cols,
            col_stride,
            lane_tiles: 0,
            hbm: Addr::default(),
            local: Addr::default(),
        }
    }

    // Oracle: the address formula of `DmaDesc`, element by element; what no element covers stays as it was.
    #[test]
    fn loads_and_stores_follow_the_formula() {
        for elem in [1u8, 2, 4] {
            let e = i64::from(elem);
            for (rows, cols, rs, cs) in [(3, 5, 6 * e, e), (7, 1, e, 9), (2, 4, -40, 3 * e), (4, 4, 0, e)] {
                let mut hbm: Vec<u8> = (0..1000usize).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
                let before = hbm.clone();
                let mut smem = Smem::new(4 * 200, 0xaaaa_aaaa);
                let d = desc(elem, DmaDir::Load, rows, cols, rs, cs);
                transfer(&d, 100, 7, &mut hbm, &mut smem).unwrap();
                let mut want = vec![0xaaaa_aaaau32; 200];
                let mut places = Vec::new();
                for (o, r, c) in (0..2).flat_map(|o| (0..rows).flat_map(move |r| (0..cols).map(move |c| (o, r, c)))) {
                    let h = (100 + 300 * o + i64::from(r) * rs + i64::from(c) * cs) as usize;
                    places.push((h, 7 + 50 * o as usize + (r * cols + c) as usize));
                }
                for &(h, w) in &places {
                    want[w] = (0..elem as usize).map(|b| u32::from(before[h + b]) << (8 * b)).sum();
                }
                assert_eq!(smem.words(0, 199).unwrap(), want, "load {elem} {rows}x{cols}");
                let mut target = vec![0x55u8; 1000];
                let mut stored = target.clone();
                for w in smem.words(0, 199).unwrap() {
                    *w |= 0x0100_0000 * u32::from(elem < 4);
                }
                for &(h, w) in &places {
                    stored[h..h + elem as usize].copy_from_slice(&want[w].to_le_bytes()[..elem as usize]);
                }
                transfer(&DmaDesc { dir: DmaDir::Store, ..d }, 100, 7, &mut target, &mut smem).unwrap();
                assert_eq!(target, stored, "store {elem} {rows}x{cols}");
            }
        }
    }

    // Oracle: one byte or word beyond the end is a fault, the last one is not.
    #[test]
    fn bounds_are_exact() {
        let mut smem = Smem::new(4 * 56, 0);
        let d = desc(4, DmaDir::Load, 2, 3, 12, 4);
        let mut hbm = vec![0u8; 324];
        assert_eq!(transfer(&d, 0, 0, &mut hbm, &mut smem), Ok(()));
        assert_eq!(transfer(&d, 1, 0, &mut hbm, &mut smem), Err(FaultKind::Hbm { first: 1, last: 324, bytes: 324 }));
        assert_eq!(transfer(&d, -1, 0, &mut hbm, &mut smem), Err(FaultKind::Hbm { first: -1, last: 322, bytes: 324 }));
        assert_eq!(transfer(&d, 0, 1, &mut hbm, &mut smem), Err(FaultKind::Smem { first: 1, last: 56, words: 56 }));
        assert_eq!(transfer(&d, 0, -1, &mut hbm, &mut smem), Err(FaultKind::Smem { first: -1, last: 54, words: 56 }));
    }
}
