//! How one window lies in VMEM.

use tpusim_isa::program::{Addr, DmaDesc, DmaDim, DmaDir, OnChip};

use super::super::nest::Outer;
use crate::graph::Windows;

/// A window as a DMA moves it: single rows of columns, at most 128 of them next to each other where they can be cut so. Runs are
/// moved as the widest words that divide them, so that narrow elements fill all of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a word.
    pub elem_bytes: u8,
    /// Dimensions beyond the columns, outermost first.
    pub outer: Vec<Dim>,
    /// Words next to each other in VMEM.
    pub cols: u32,
    /// Bytes between them in the array.
    pub col_stride: i64,
    /// Tiles of a row.
    pub lane_tiles: u32,
    /// VMEM rows that a row's tiles take.
    pub plane_rows: u32,
}

/// A dimension of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim {
    /// Steps.
    pub count: u32,
    /// Bytes between steps in the array.
    pub stride: i64,
    /// Bytes between steps in a dense window.
    pub dense: i64,
}

impl Layout {
    /// The layout of `windows` whose elements have `elem` bytes. Without `words`, elements are moved as what they are, so that windows of
    /// arrays of other types lie in the same lanes.
    pub fn new(windows: &Windows, elem: u64, words: bool) -> Layout {
        let mut dims = windows.dims.clone();
        let mut run = elem;
        if let Some(&(size, 1)) = dims.last() {
            run *= size;
            dims.pop();
        }
        let fits = |w: u64| {
            run.is_multiple_of(w)
                && (windows.unit * elem).is_multiple_of(w)
                && dims.iter().all(|d| (d.1 * elem).is_multiple_of(w))
        };
        let word = if words { [4, 2].into_iter().find(|&w| fits(w)).unwrap_or(1) } else { elem };
        let mut dense = run;
        let mut outer: Vec<Dim> = Vec::new();
        for &(size, stride) in dims.iter().rev() {
            outer.push(Dim { count: size as u32, stride: (stride * elem) as i64, dense: dense as i64 });
            dense *= size;
        }
        outer.reverse();
        let (mut cols, mut col_stride) = ((run / word) as u32, word as i64);
        // Words far from each other become columns too.
        if cols == 1
            && let Some(d) = outer.pop()
        {
            (cols, col_stride) = (d.count, d.stride);
        }
        let mut out = Layout { elem_bytes: word as u8, outer, cols, col_stride, lane_tiles: 1, plane_rows: 1 };
        if cols > 128 && cols.is_multiple_of(128) {
            let stride = col_stride * 128;
            out.outer.push(Dim { count: cols / 128, stride, dense: 128 * word as i64 });
            out.cols = 128;
        } else if cols > 128 {
            out.lane_tiles = cols.div_ceil(128);
            out.plane_rows = out.lane_tiles * 8;
        }
        out
    }

    /// VMEM rows of a window.
    pub fn rows(&self) -> u64 {
        self.outer.iter().map(|o| u64::from(o.count)).product::<u64>().saturating_mul(u64::from(self.plane_rows))
    }

    /// VMEM bytes of a window.
    pub fn bytes(&self) -> u64 {
        self.rows().saturating_mul(512)
    }

    /// Dimensions of dense windows in HBM.
    pub fn dense(&self) -> Vec<Outer> {
        self.outer.iter().map(|o| Outer { count: o.count, hbm_stride: o.dense, pitch: 0 }).collect()
    }

    /// Bytes of a dense window.
    pub fn dense_bytes(&self) -> i64 {
        self.outer.iter().map(|o| i64::from(o.count)).product::<i64>()
            * i64::from(self.cols)
            * i64::from(self.elem_bytes)
    }

    /// The DMA of one window between `hbm`, in an array or `dense`, and row `local`.
    pub fn dma(&self, dir: DmaDir, dense: bool, hbm: Addr, local: Addr) -> DmaDesc {
        let mut rows = i64::from(self.plane_rows);
        let mut outer = Vec::new();
        for o in self.outer.iter().rev() {
            let hbm_stride = if dense { o.dense } else { o.stride };
            outer.push(DmaDim { count: o.count, hbm_stride, local_stride: rows });
            rows *= i64::from(o.count);
        }
        outer.reverse();
        DmaDesc {
            dir,
            mem: OnChip::Vmem,
            elem_bytes: self.elem_bytes,
            outer,
            rows: 1,
            row_stride: 0,
            cols: self.cols,
            col_stride: if dense { i64::from(self.elem_bytes) } else { self.col_stride },
            lane_tiles: self.lane_tiles,
            hbm,
            local,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(dims: &[(u64, u64)], unit: u64, elem: u64) -> Layout {
        Layout::new(&Windows { count: 1, dims: dims.to_vec(), unit }, elem, true)
    }

    // Oracle: counting by hand.
    #[test]
    fn runs_become_full_rows_of_words() {
        let l = layout(&[(1024, 1)], 1024, 2);
        assert_eq!((l.elem_bytes, l.cols, l.rows(), l.dense_bytes()), (4, 128, 4, 2048));
        let l = layout(&[(7, 1)], 7, 2);
        assert_eq!((l.elem_bytes, l.cols, l.rows(), l.dense_bytes()), (2, 7, 1, 14));
        let l = layout(&[(200, 1)], 200, 4);
        assert_eq!((l.elem_bytes, l.cols, l.rows(), l.lane_tiles), (4, 200, 16, 2));
        let l = layout(&[(5, 12)], 1, 4);
        assert_eq!((l.cols, l.col_stride, l.rows(), l.dense_bytes()), (5, 48, 1, 20));
        let l = layout(&[(3, 100), (6, 1)], 100, 1);
        assert_eq!((l.elem_bytes, l.cols, l.outer[0].stride, l.outer[0].dense), (2, 3, 100, 6));
        let l = layout(&[], 1, 8);
        assert_eq!((l.elem_bytes, l.cols, l.rows()), (4, 2, 1));
    }
}
