//! Sizes of blocks and tiles, and where tiles lie.

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_isa::program::{Addr, DmaDir};

use super::super::nest::{Level, Outer, Stream};
use super::TILE;
use crate::ops::attention::Attention;

/// Pairs of tiles that a block should have, so that filling the pipeline does not matter.
const MANY_PAIRS: u64 = 256;

/// Whether the kernel can do `s`.
pub(super) fn supports(s: &Attention) -> bool {
    let fits = |d: u64| (16..=256).contains(&d) && d.is_multiple_of(16);
    // Tiles of queries and keys are at the same places: masks depend on their distance alone, and hide keys that are not there.
    let tile = u64::from(TILE);
    let placed = s.form.offset == 0 || s.form.offset.is_multiple_of(tile) && s.keys.is_multiple_of(tile);
    let causal = !s.form.causal || s.queries == s.keys && placed;
    let sizes = fits(s.dim) && fits(s.v_dim) && s.queries > 0 && s.keys > 0;
    s.dtype == DType::BF16 && sizes && causal && s.form.scale > 0.0
}

/// Heads of a block, and the order of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocking {
    /// Key heads.
    pub kv_heads: u64,
    /// Query heads of each of them.
    pub group: u64,
    /// Cores that share the grid.
    pub cores: u32,
    /// Dimensions of the grid, outermost first: 0 the batch, 1 key heads, 2 the query heads of a key head.
    pub order: [usize; 3],
    /// Whether instructions of different stages alternate, which takes registers.
    pub spread: bool,
}

impl Blocking {
    /// All that may fit, best first.
    pub fn all(s: &Attention, chip: &ChipSpec) -> Vec<Blocking> {
        let group = s.heads / s.kv_heads;
        let divisors = |n: u64| (1..=n).rev().filter(move |d| n.is_multiple_of(*d));
        let heads: Vec<(u64, u64)> =
            divisors(s.kv_heads).map(|k| (k, group)).chain(divisors(group).skip(1).map(|g| (1, g))).collect();
        let vmem = *chip.vmem_bytes;
        let mut list: Vec<Blocking> = heads.into_iter().map(|(k, g)| Blocking::of(s, chip, k, g)).collect();
        list.retain(|b| b.vmem(s) <= vmem);
        // The smallest of those with enough pairs, then larger ones' smaller neighbours.
        let pairs = |b: &Blocking| b.kv_heads * b.group * s.tile_pairs(u64::from(TILE));
        list.sort_by_key(|b| {
            let enough = pairs(b) >= MANY_PAIRS;
            (!enough, u64::from(b.cores == 1), if enough { pairs(b) } else { u64::MAX - pairs(b) })
        });
        list
    }

    fn of(s: &Attention, chip: &ChipSpec, kv_heads: u64, group: u64) -> Blocking {
        let trips = [s.batch, s.kv_heads / kv_heads, s.heads / s.kv_heads / group];
        let cores = u64::from(*chip.tensorcores_per_device);
        // Query heads of one key head add up in its gradient.
        let splits = if s.gradient { 0..2 } else { 0..3 };
        let first = splits.clone().find(|&d| trips[d].is_multiple_of(cores));
        let first = first.or(splits.clone().find(|&d| trips[d] > cores)).filter(|_| cores > 1);
        let order = match first {
            None | Some(0) => [0, 1, 2],
            Some(1) => [1, 0, 2],
            _ => [2, 0, 1],
        };
        Blocking { kv_heads, group, cores: if first.is_some() { cores as u32 } else { 1 }, order, spread: true }
    }

    fn levels_of(&self, s: &Attention) -> [Level; 3] {
        let level = |extent, block, ends| Level { extent, block, ends };
        let group = level(s.heads / s.kv_heads, self.group, s.gradient);
        [level(s.batch, 1, false), level(s.kv_heads, self.kv_heads, false), group]
    }

    /// Dimensions of the grid with more than one block, outermost first.
    fn stepping(&self, s: &Attention) -> impl Iterator<Item = usize> {
        let levels = self.levels_of(s);
        self.order.into_iter().filter(move |&d| levels[d].trip() > 1)
    }

    /// The grid.
    pub fn levels(&self, s: &Attention) -> Vec<Level> {
        self.stepping(s).map(|d| self.levels_of(s)[d]).collect()
    }

    /// Level of the grid over query heads of a key head.
    pub fn group_level(&self, s: &Attention) -> Option<usize> {
        self.stepping(s).position(|d| d == 2)
    }

    /// Bytes of VMEM, about.
    fn vmem(&self, s: &Attention) -> u64 {
        let up = |n: u64, to: u64| n.next_multiple_of(to);
        let (q, k) = (up(s.queries, 256), up(s.keys, 256));
        let (d, v) = (up(s.dim, 128), up(s.v_dim, 128));
        let heads = self.kv_heads * self.group;
        if s.gradient {
            let blocks = 2 * (heads * q * (4 * d + 2 * v + 64) + self.kv_heads * k * 4 * (d + v));
            let sums = (heads * q + 256) * 4 * d + (self.kv_heads * k + 256) * 4 * (d + v);
            return blocks + self.kv_heads * k * 2 * d + sums + (4 << 20);
        }
        let blocks = 2 * (heads * q * (2 * (d + v) + 64) + self.kv_heads * k * 2 * (d + v));
        blocks + self.kv_heads * k * 2 * v + (heads * q + 256) * (4 * v + 64) + (3 << 20)
    }
}

/// An array `(batch, seq, heads, dim)` or `(batch, heads, seq)` that blocks are read from or written to.
pub(super) struct Array {
    pub dir: DmaDir,
    pub base: i64,
    pub elem_bytes: u8,
    /// Positions, heads and elements of a head.
    pub dims: [u64; 3],
    /// Whether it is of key heads.
    pub keys: bool,
    /// Whether positions lie along lanes: one row for each head.
    pub rows_of_heads: bool,
}

impl Array {
    /// The stream of its blocks.
    pub fn stream(&self, s: &Attention, b: &Blocking) -> Stream {
        let [seq, heads, dim] = self.dims;
        let bytes = i64::from(self.elem_bytes);
        let tiles = (seq as u32).div_ceil(TILE);
        let (row, head, image) = match self.rows_of_heads {
            true => (bytes, seq as i64 * bytes, (seq * heads) as i64 * bytes),
            false => ((heads * dim) as i64 * bytes, dim as i64 * bytes, (seq * heads * dim) as i64 * bytes),
        };
        let group = (s.heads / s.kv_heads) as i64;
        let by_dim = if self.keys { [image, head, 0] } else { [image, group * head, head] };
        let mut outer = vec![Outer { count: b.kv_heads as u32, hbm_stride: by_dim[1], pitch: 0 }];
        if !self.keys {
            outer.push(Outer { count: b.group as u32, hbm_stride: head, pitch: 0 });
        }
        let lanes = (dim as u32).div_ceil(128);
        let packed = 8 * 4 / u32::from(self.elem_bytes);
        let (rows, row_stride, cols, col_stride, lane_tiles, plane_rows) = match self.rows_of_heads {
            true => (1, head, seq as u32, row, tiles * TILE / 128, tiles * TILE / 128 * 8),
            false => (seq as u32, row, dim as u32, bytes, lanes, tiles * TILE / packed * 8 * lanes),
        };
        Stream {
            dir: self.dir,
            elem_bytes: self.elem_bytes,
            base: Addr { base: self.base, terms: Vec::new() },
            level_strides: b.stepping(s).map(|d| by_dim[d]).collect(),
            outer,
            rows,
            row_stride,
            cols,
            col_stride,
            lane_tiles,
            plane_rows,
            first: 0,
            reserve: 0,
            shift: None,
        }
    }

    /// Whether blocks have padding that code reads.
    pub fn padded(&self) -> bool {
        let tiles = self.dims[0].is_multiple_of(u64::from(TILE));
        !tiles || !self.rows_of_heads && !self.dims[2].is_multiple_of(128)
    }
}
