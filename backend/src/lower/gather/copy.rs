//! Gathers: windows of an array are copied one after the other.
//!
//! A grid over blocks of windows. The places of a block are loaded into SMEM while the block before is worked on; then one DMA for each
//! window brings it into its part of the block, and the block is stored densely while the next one fills.

use tpusim_isa::op::Op;
use tpusim_isa::program::{Addr, DmaDir, SReg};

use super::super::emit::{CORE, EmitError, Emitter};
use super::super::nest::{Body, Iter, Level, Nest, Stream};
use super::Layout;
use super::places::{Feed, Load, each, unroll};

/// Most windows of a block.
const MOST: u64 = 1024;

/// A gather.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatherKernel {
    /// Number of windows.
    pub count: u64,
    /// How each of them is moved.
    pub layout: Layout,
    /// Bytes that one step of a place moves.
    pub unit: i64,
    /// Byte of HBM where the array starts.
    pub array: i64,
    /// Where the places start.
    pub places: i64,
    /// Where the result starts.
    pub result: i64,
    /// Windows of a block.
    pub block: u32,
    /// Cores that share the work.
    pub cores: u32,
}

impl GatherKernel {
    /// Chooses how many windows make a block: enough that the latency of memory is small beside their transfers, few enough that blocks
    /// overlap and fit on-chip memory of `vmem` bytes; and how many of `cores` take part.
    pub fn tile(count: u64, rows: u64, vmem: u64, smem: u64, cores: u32) -> (u32, u32) {
        let cores = if count >= 2 * u64::from(cores) { cores } else { 1 };
        let most = (vmem / 512 / 4 / rows.max(1)).min(smem / 4 / 4).clamp(1, MOST);
        let share = count.div_ceil(u64::from(cores));
        let block = most.min(share.div_ceil(4).max(64)).min(share);
        // Blocks of about one size, so that the last one repeats little.
        let even = share.div_ceil(share.div_ceil(block));
        let block = if even == share { even } else { even.next_multiple_of(8).min(block) };
        (block as u32, cores)
    }

    /// Generates the code.
    ///
    /// # Errors
    /// [`EmitError`] if the blocks do not fit.
    pub fn emit(&self, e: &mut Emitter<'_>) -> Result<(), EmitError> {
        let mut outer =
            vec![super::super::nest::Outer { count: self.block, hbm_stride: self.layout.dense_bytes(), pitch: 0 }];
        outer.extend(self.layout.dense());
        let out = Stream {
            dir: DmaDir::Store,
            elem_bytes: self.layout.elem_bytes,
            base: Addr { base: self.result, terms: Vec::new() },
            level_strides: vec![self.layout.dense_bytes()],
            outer,
            rows: 1,
            row_stride: 0,
            cols: self.layout.cols,
            col_stride: i64::from(self.layout.elem_bytes),
            lane_tiles: self.layout.lane_tiles,
            plane_rows: self.layout.plane_rows,
            first: 0,
            reserve: 0,
            shift: None,
        };
        let level = Level { extent: self.count, block: u64::from(self.block), ends: false };
        let at = e.smem(2 * self.block)?;
        let feed = Feed::new(e, vec![Load::scalars(self.places, self.block, at)])?;
        let flag = e.flag()?;
        let nest = Nest::new(e, vec![level], vec![out], self.cores)?;
        nest.emit(e, &mut Copies { k: self, feed: &feed, flag, at: at as i32 })?;
        feed.wait(e);
        e.flush()
    }

    /// First window of block `index + ahead`.
    fn start(&self, e: &mut Emitter<'_>, index: SReg, ahead: i32) -> Result<SReg, EmitError> {
        let block = self.block as i32;
        let r = e.affine(index, block, ahead * block)?;
        e.si(Op::SMini, r, r, (self.count - u64::from(self.block)) as i32);
        Ok(r)
    }
}

struct Copies<'k> {
    k: &'k GatherKernel,
    feed: &'k Feed,
    flag: i32,
    at: i32,
}

impl Body for Copies<'_> {
    fn prepare(&mut self, e: &mut Emitter<'_>, _: &Nest) -> Result<(), EmitError> {
        e.sli(self.feed.parity, 0);
        let trip = self.k.count.div_ceil(u64::from(self.k.block)).div_ceil(u64::from(self.k.cores));
        let first = e.affine(CORE, if self.k.cores > 1 { trip as i32 } else { 0 }, 0)?;
        let start = self.k.start(e, first, 0)?;
        self.feed.request(e, start, self.feed.parity);
        e.free(start);
        e.free(first);
        Ok(())
    }

    fn compute(&mut self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        let (k, rows) = (self.k, self.k.layout.rows() as i64);
        self.feed.wait(e);
        let next = k.start(e, it.index[0], 1)?;
        self.feed.request_next(e, next)?;
        e.free(next);
        let places = e.affine(self.feed.parity, k.block as i32, self.at)?;
        let block = nest.place(0, it);
        e.flush()?;
        each(e, k.block, unroll(k.block), [places], |e, first, loaded| {
            for (i, [place]) in loaded.iter().enumerate() {
                let hbm = Addr { base: k.array, terms: vec![(*place, k.unit)] };
                let local = Addr {
                    base: i64::from(block.offset) + i as i64 * rows,
                    terms: vec![(block.base, 1), (first, rows)],
                };
                e.dma(k.layout.dma(DmaDir::Load, false, hbm, local), self.flag);
            }
            Ok(())
        })?;
        e.wait(self.flag, k.block as i32);
        self.feed.turn(e);
        e.free(places);
        e.flush()
    }
}
