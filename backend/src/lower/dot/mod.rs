//! Kernels of the matrix unit: one matrix product per batch element, with an elementwise epilogue.
//!
//! The product is `rows x cols`, contracted over `k`. The *stream* operand's rows flow through the arrays; the *weights* operand is
//! latched. A block of the grid is `rows x cols x k`; inside, the MXUs of a core are divided into `k_split * col_split * row_split`:
//! neighbours along `k` work on the same outputs and the vector unit adds their results, so that each output visits VMEM once per
//! `k_split * dim` of contraction.
//!
//! A *step* streams a chunk of rows through one set of weights. Steps are software-pipelined by hand, so that the arrays never
//! drain between them: while step `s` streams, the weights of step `s + 1` are pushed into the shadow buffers, and results are
//! popped `lag` pushes late, which carries the last results of a step into the next one's code. Three variants of a step differ in
//! what happens to results: the first slice of `k` overwrites the accumulators in VMEM, the middle ones add, the last applies the epilogue
//! and writes the output block.
//!
//! Where windows slide over the stream operand (`window`), a block has planes, and the contraction runs over the window's positions too.
//!
//! Operands that are not in the MXU's format are converted on their way to the array. Those whose contracted dimension does not run along
//! lanes are transposed by an XLU, once per block, into a scratch block. Padding along `k` is zeroed once, before the first DMA, and no
//! DMA touches it.

mod epilogue;
mod operands;
mod plan;
mod steps;
mod window;

use std::collections::BTreeMap;

use tpusim_isa::num::{DType, Format};
use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::cells::{packing, stored_bytes};
use super::emit::{EmitError, Emitter, ZERO};
use super::expr::{Access, Kind, Node};
use super::nest::{Body, Ends, Iter, Nest};
use super::scalar::{Bases, Scalar};
use super::vector::Store;
use plan::*;
pub use window::{MAX_SLIDES, Slide, slack};

/// One operand of a product, over `[batches.., own rows or columns, k]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// Where it is; the last two strides are along its own dimension and along `k`.
    pub access: Access,
    /// Element type in HBM.
    pub dtype: DType,
}

/// A matrix-product kernel over canonical dimensions `[batches.., rows, cols]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DotKernel {
    /// Sizes of the canonical dimensions.
    pub dims: Vec<u64>,
    /// Contracted size.
    pub k: u64,
    /// Operand whose rows are streamed.
    pub stream: Operand,
    /// Operand that is latched.
    pub weights: Operand,
    /// Format in which the MXU takes the rows of the stream operand.
    pub format: Format,
    /// Format in which it takes the weights: of as many bits.
    pub weights_format: Format,
    /// Epilogue, with one [`Kind::Product`] whose type is f32 or i32.
    pub nodes: Vec<Node>,
    /// What is written.
    pub stores: Vec<Store>,
    /// Scalars that move what is read and written.
    pub scalars: Vec<Scalar>,
    /// How windows slide along the dimensions right before the rows; at most [`MAX_SLIDES`]. Then `k` is the contraction at one position
    /// of the window.
    pub slides: Vec<Slide>,
}

/// Sizes chosen for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DotTiling {
    /// Rows of a block.
    pub rows: u64,
    /// Columns of a block.
    pub cols: u64,
    /// Contraction of a block; divides `k` or is all of it.
    pub k: u64,
    /// Rows of a step, over all row-split MXUs.
    pub chunk: u64,
    /// Elements of a block along the first dimension with a window; 1 if there is none.
    pub outer: u64,
    /// Elements of a step along each dimension with a window.
    pub boxes: [u32; MAX_SLIDES],
    /// MXUs along `k`.
    pub k_split: u32,
    /// MXUs along columns.
    pub col_split: u32,
    /// MXUs along rows.
    pub row_split: u32,
    /// Whether columns are the outer level of the grid.
    pub cols_outer: bool,
    /// Cores that share the kernel.
    pub cores: u32,
}

/// Registers of rows that [`Lowering::finish_block`] handles together: whole registers of every packed type.
const FINISH_PARTS: u64 = 4;

impl DotKernel {
    /// Rows one `vmatmul` streams.
    pub fn push_rows(&self) -> u64 {
        8 * self.format.packing() as u64
    }

    /// Rows a step's chunk is a multiple of when `row_split` MXUs share it: whole pushes, and whole registers of every block that the
    /// epilogue reads or writes.
    pub fn chunk_unit(&self, row_split: u32) -> u64 {
        let unit = self.push_rows() * u64::from(row_split);
        if u64::from(self.widest()) <= self.format.packing() as u64 {
            return unit;
        }
        (1..=4).map(|i| i * unit).find(|u| u.is_multiple_of(8 * FINISH_PARTS)).unwrap_or(unit)
    }

    /// Elements of a 32-bit word of the narrowest array that the epilogue reads or writes row by row.
    pub fn widest(&self) -> u32 {
        let own = self.dims.len() - 2;
        let loads =
            self.nodes.iter().filter_map(|n| if let Kind::Load(a) = &n.kind { Some((a, n.dtype)) } else { None });
        let stores = self.stores.iter().map(|s| (&s.access, self.nodes[s.node].dtype));
        loads.chain(stores).filter(|(a, _)| a.strides[own] != 0).map(|(_, t)| packing(t)).max().unwrap_or(1)
    }

    /// Whether the epilogue of planes of `rows` rows runs on what a push gives, and on how many groups of 8 rows at once; `None` if
    /// it has to wait for the whole chunk.
    pub fn plane_parts(&self, rows: u64) -> Option<u32> {
        let (groups, q) = (rows.div_ceil(8) as u32, self.format.packing() as u32);
        if groups.is_multiple_of(q) && self.widest() <= q {
            return Some(q);
        }
        (groups == 1 || self.widest() == 1).then_some(1)
    }

    /// The dimension along which two neighbouring positions of the window go through an array of `dim` rows at once, each taking
    /// half of it; `None` if features fill the array, or cannot be told apart in halves.
    pub fn paired(&self, dim: u64) -> Option<usize> {
        let half = self.k == 128 && dim == 2 * self.k && !self.weights_route().lanes_along_k;
        let last = self.slides.iter().rposition(|s| s.size > 1);
        last.filter(|_| half)
    }

    /// Positions of the window, pairs counting as one.
    pub fn positions(&self, dim: u64) -> u64 {
        let pair = self.paired(dim);
        let along = |(i, s): (usize, &Slide)| if pair == Some(i) { s.size.div_ceil(2) } else { s.size };
        self.slides.iter().enumerate().map(along).product()
    }

    /// How the stream operand reaches the MXU.
    pub fn stream_route(&self) -> Route {
        let r = route(&self.stream, self.format);
        // Planes have contracted elements along lanes.
        if self.slides.is_empty() { r } else { Route { lanes_along_k: true, transpose: false, ..r } }
    }

    /// How the weights operand reaches the MXU.
    pub fn weights_route(&self) -> Route {
        let w = &self.weights;
        let n = w.access.strides.len();
        let unit = i64::from(stored_bytes(w.dtype));
        let along_k =
            w.access.strides[n - 1] == unit && (w.access.strides[n - 2] != unit || self.dims[self.dims.len() - 1] == 1);
        Route { lanes_along_k: along_k, transpose: false, convert: needs_convert(w.dtype, self.weights_format) }
    }

    /// Everything it reads and writes.
    fn accesses(&self) -> impl Iterator<Item = &Access> {
        let loads = self.nodes.iter().filter_map(|n| if let Kind::Load(a) = &n.kind { Some(a) } else { None });
        let operands = [&self.stream.access, &self.weights.access];
        operands.into_iter().chain(loads).chain(self.stores.iter().map(|s| &s.access))
    }

    /// Emits the kernel.
    ///
    /// # Errors
    /// [`EmitError`] if the tiling does not fit the machine.
    pub fn emit(&self, e: &mut Emitter<'_>, t: DotTiling, base_of: &dyn Fn(usize) -> i64) -> Result<(), EmitError> {
        let bases = Bases::load(e, base_of, &self.scalars, self.accesses())?;
        let mut low = Lowering::plan(self, e, t, &bases)?;
        let nest = Nest::new(e, low.levels.clone(), std::mem::take(&mut low.streams), t.cores)?;
        nest.emit(e, &mut low)
    }
}

/// How an operand's block is laid out and what must be done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Lanes of the HBM block run along `k`.
    pub lanes_along_k: bool,
    /// An XLU transposes the block.
    pub transpose: bool,
    /// The vector unit converts it to the MXU's format.
    pub convert: bool,
}

fn needs_convert(t: DType, f: Format) -> bool {
    Format::of(t) != Some(f)
}

fn route(o: &Operand, format: Format) -> Route {
    let n = o.access.strides.len();
    let unit = i64::from(stored_bytes(o.dtype));
    let along_k = o.access.strides[n - 1] == unit || o.access.strides[n - 2] != unit;
    Route { lanes_along_k: along_k, transpose: !along_k, convert: needs_convert(o.dtype, format) }
}

impl Body for Lowering<'_> {
    fn prepare(&mut self, e: &mut Emitter<'_>, nest: &Nest) -> Result<(), EmitError> {
        if self.planes.is_empty() {
            self.zero_padding(e, nest, &self.stream)?;
        } else {
            self.zero_planes(e, nest)?;
        }
        self.zero_padding(e, nest, &self.weights)
    }

    fn enter(&mut self, level: usize, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        for r in [self.stream, self.weights] {
            if nest.attached(r.stream) == level {
                self.prepare_block(e, nest, it, r)?;
            }
        }
        if nest.attached(self.stream.stream) == level {
            self.zero_outside(e, nest, it)?;
        }
        Ok(())
    }

    fn compute(&mut self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        let ends = self.k_level.map_or(Ends { first: true, last: true }, |l| it.ends[l]);
        let groups = self.k_groups() * self.positions();
        let variant = |g: u32| Variant { first: ends.first && g == 0, last: ends.last && g + 1 == groups };
        let mut segments: Vec<(u32, Variant)> = Vec::new();
        for g in 0..groups {
            match segments.last_mut() {
                Some((count, v)) if *v == variant(g) => *count += 1,
                _ => segments.push((1, variant(g))),
            }
        }
        let trips = if self.planes.is_empty() { vec![self.chunks()] } else { self.planes.trips.clone() };
        self.chunk_loops(e, nest, it, &trips, &mut Vec::new(), &segments, ends.last)
    }
}

impl Lowering<'_> {
    /// Loops over the chunks of a block, `trips` of them along each dimension, with `chunk` the counters so far.
    #[allow(clippy::too_many_arguments)]
    fn chunk_loops(
        &mut self,
        e: &mut Emitter<'_>,
        nest: &Nest,
        it: &Iter,
        trips: &[u32],
        chunk: &mut Vec<SReg>,
        segments: &[(u32, Variant)],
        last: bool,
    ) -> Result<(), EmitError> {
        if let Some(&trip) = trips.get(chunk.len()) {
            return e.repeat(trip, |e, c| {
                chunk.push(c);
                self.chunk_loops(e, nest, it, trips, chunk, segments, last)?;
                chunk.pop();
                Ok(())
            });
        }
        let acc_chunk = e.affine(ZERO, 0, self.acc.0 as i32)?;
        let stream = self.ready_base(e, nest, it, &self.stream)?;
        if self.planes.origin() > 0 {
            e.si(Op::SAddi, stream, stream, self.planes.origin() as i32);
        }
        for (i, &c) in chunk.iter().enumerate().filter(|(_, c)| **c != ZERO) {
            let (acc_step, stream_step) = self.chunk_steps(i);
            for (r, step) in [(acc_chunk, acc_step), (stream, stream_step)] {
                let t = e.affine(c, step as i32, 0)?;
                e.ss(Op::SAdd, r, r, t);
                e.free(t);
            }
        }
        let weights = self.ready_base(e, nest, it, &self.weights)?;
        let inline = self.inline();
        let mut site = Site {
            nest,
            it,
            chunk: chunk.clone(),
            acc_chunk,
            acc: ZERO,
            blocks: BTreeMap::new(),
            first_col: ZERO,
            first_row: ZERO,
            inline,
        };
        self.pipeline(e, &mut site, [stream, weights], segments)?;
        if last && !inline {
            self.finish_block(e, &mut site)?;
        }
        for r in [acc_chunk, stream, weights] {
            e.free(r);
        }
        Ok(())
    }

    /// VMEM rows from a chunk to the next along dimension `i` of the chunks, in the accumulators and in the stream operand.
    fn chunk_steps(&self, i: usize) -> (u32, u32) {
        if !self.planes.is_empty() {
            return (self.planes.chunk_out(i, &self.planes.acc_pitch), self.planes.chunk_step(i));
        }
        let rows = self.t.chunk as u32;
        (rows / 8 * self.out_tiles * 8, rows / (8 * self.stream.packing(self.q())) * 8 * self.stream.lane_tiles)
    }
}
