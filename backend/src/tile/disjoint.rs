//! Block sizes of kernels that write over what they read: blocks do not overlap, so that each element is computed once.

use tpusim_isa::chip::ChipSpec;

use super::choose::{dot_tilings, outer_trip, vector_tilings};
use crate::lower::dot::{DotKernel, DotTiling};
use crate::lower::vector::{Tiling, VectorKernel};

/// `block` or the next smaller one that divides `extent` and is a multiple of `unit`; else all of it.
fn dividing(extent: u64, block: u64, unit: u64) -> u64 {
    if extent.is_multiple_of(block) {
        return block;
    }
    (1..=block / unit).rev().map(|b| b * unit).find(|b| extent.is_multiple_of(*b)).unwrap_or(extent)
}

/// Blocks of about `block` rows that divide `extent`, best first. Whole groups of rows if some divide it, else first those whose padding to
/// whole groups is a quarter at most.
fn row_blocks(extent: u64, block: u64, group: u64) -> Vec<u64> {
    let whole = dividing(extent, block, group);
    if whole.is_multiple_of(group) || whole <= block {
        return vec![whole];
    }
    let padded = |d: u64| d.next_multiple_of(group) * 4 > d * 5;
    let small = (1..).take_while(|d| d * d <= extent);
    let mut all: Vec<u64> = small.filter(|d| extent.is_multiple_of(*d)).flat_map(|d| [d, extent / d]).collect();
    let off = |d: u64| (d.max(block) * 64) / d.min(block).max(1);
    all.sort_unstable_by_key(|d| (padded(*d), off(*d), *d));
    all.dedup();
    all
}

/// As [`vector_tilings`], with blocks that do not overlap, so that each is computed once: for kernels that write over what they read.
pub fn disjoint_vector_tilings(k: &VectorKernel, chip: &ChipSpec) -> Vec<Tiling> {
    let n = k.dims.len();
    let mut out = Vec::new();
    for mut t in vector_tilings(k, chip) {
        let (cols, group) = (t.cols.max(1), u64::from(k.group_rows()));
        t.cols = dividing(k.dims[n - 1], t.cols, 128);
        // Wider blocks have fewer rows.
        let rows = if t.cols > cols { t.rows * cols / t.cols } else { t.rows };
        let planes = if n >= 3 { k.dims[n - 3] } else { 1 };
        for rows in row_blocks(k.dims[n - 2], (rows / group * group).max(group).min(t.rows), group) {
            let mut t = Tiling { rows, ..t };
            t.planes = if t.rows == k.dims[n - 2] { dividing(planes, t.planes, 1) } else { 1 };
            let trip = |d: usize| {
                k.dims[d]
                    / match n - d {
                        1 => t.cols,
                        2 => t.rows,
                        3 => t.planes,
                        _ => 1,
                    }
            };
            let first = (0..n).map(trip).find(|&blocks| blocks > 1).unwrap_or(1);
            if !first.is_multiple_of(u64::from(t.cores)) {
                t.cores = 1;
            }
            out.push(t);
        }
    }
    out.dedup();
    out
}

/// As [`dot_tilings`], without those whose blocks overlap.
pub fn disjoint_dot_tilings(k: &DotKernel, chip: &ChipSpec) -> Vec<DotTiling> {
    let n = k.dims.len();
    let once = |t: &DotTiling| {
        k.dims[n - 2].is_multiple_of(t.rows)
            && k.dims[n - 1].is_multiple_of(t.cols)
            && outer_trip(k, t).is_multiple_of(u64::from(t.cores))
    };
    dot_tilings(k, chip).into_iter().filter(once).collect()
}

#[cfg(test)]
mod tests {
    use tpusim_isa::num::DType;

    use super::*;
    use crate::lower::expr::{Access, Kind, Node};
    use crate::lower::vector::Store;

    // Oracle: by hand. 201088 x 45 elements have seven factors of two: 14139 rows of 640, and no whole groups of rows divide 14139, which
    // is 9 x 1571.
    #[test]
    fn odd_numbers_of_rows_have_blocks_that_fit() {
        assert_eq!(row_blocks(14_139, 432, 8), [1571, 4713, 14_139, 9, 3, 1]);
        assert_eq!(row_blocks(1215, 32, 8), [27, 45, 15, 81, 135, 243, 405, 1215, 9, 5, 3, 1]);
        assert_eq!(row_blocks(2880, 100, 16), [96]);
        assert_eq!(row_blocks(3, 3, 8), [3]);
        let chip = ChipSpec::load("v7x").unwrap();
        let access = || Access { buffer: 0, offset: 0, strides: vec![2560, 4], shifts: Vec::new() };
        let load = Node { kind: Kind::Load(access()), dtype: DType::F32, args: Vec::new(), varies: 0b11 };
        let k = VectorKernel {
            dims: vec![14_139, 640],
            nodes: vec![load],
            stores: vec![Store { node: 0, access: access() }],
            scalars: Vec::new(),
        };
        let all = disjoint_vector_tilings(&k, &chip);
        assert!(all.iter().all(|t| 14_139 % t.rows == 0 && 640 % t.cols == 0), "{all:?}");
        // A load and a store, each with two buffers.
        let bytes = |t: &Tiling| t.rows * t.cols * 4 * 4;
        assert!(all.iter().any(|t| bytes(t) < 4 << 20), "{all:?}");
    }
}
