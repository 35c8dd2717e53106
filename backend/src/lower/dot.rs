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
//! Operands that are not in the MXU's format, or whose contracted dimension does not run along lanes, are prepared once per
//! block: converted, or transposed by an XLU, into a scratch block. Padding along `k` is zeroed once, before the first DMA, and no DMA touches it.

use std::collections::BTreeMap;

use tpusim_isa::num::{DType, Format};
use tpusim_isa::op::Op;
use tpusim_isa::program::{DmaDir, SReg};

use super::cells::{Shape, load_parts, next_xlu, packing, store_parts, stored_bytes, typed};
use super::emit::{EmitError, Emitter, ZERO};
use super::expr::{Access, Kind, Node, NodeIx, Parts, map_parts, splat};
use super::math::{Val, iota};
use super::nest::{Body, Ends, Iter, Level, Nest, Stream};
use super::vcode::{Object, Place, V};
use super::vector::Store;

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
    /// Format the MXU multiplies.
    pub format: Format,
    /// Epilogue, with one [`Kind::Product`] whose type is f32 or i32.
    pub nodes: Vec<Node>,
    /// What is written.
    pub stores: Vec<Store>,
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
        let own = self.dims.len() - 2;
        let loads =
            self.nodes.iter().filter_map(|n| if let Kind::Load(a) = &n.kind { Some((a, n.dtype)) } else { None });
        let stores = self.stores.iter().map(|s| (&s.access, self.nodes[s.node].dtype));
        let widest = loads.chain(stores).filter(|(a, _)| a.strides[own] != 0).map(|(_, t)| packing(t)).max();
        let unit = self.push_rows() * u64::from(row_split);
        if u64::from(widest.unwrap_or(1)) <= self.format.packing() as u64 {
            return unit;
        }
        (1..=4).map(|i| i * unit).find(|u| u.is_multiple_of(8 * FINISH_PARTS)).unwrap_or(unit)
    }

    /// How the stream operand reaches the MXU.
    pub fn stream_route(&self) -> Route {
        route(&self.stream, self.format)
    }

    /// How the weights operand reaches the MXU.
    pub fn weights_route(&self) -> Route {
        let w = &self.weights;
        let n = w.access.strides.len();
        let unit = i64::from(stored_bytes(w.dtype));
        let along_k =
            w.access.strides[n - 1] == unit && (w.access.strides[n - 2] != unit || self.dims[self.dims.len() - 1] == 1);
        Route { lanes_along_k: along_k, transpose: false, convert: needs_convert(w.dtype, self.format) }
    }

    /// Emits the kernel.
    ///
    /// # Errors
    /// [`EmitError`] if the tiling does not fit the machine.
    pub fn emit(&self, e: &mut Emitter<'_>, t: DotTiling, base_of: &dyn Fn(usize) -> i64) -> Result<(), EmitError> {
        let mut low = Lowering::plan(self, e, t, base_of)?;
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

/// A block of an operand as the MXU code reads it: packed registers of the MXU's format.
#[derive(Clone, Copy, Debug)]
struct Ready {
    stream: usize,
    /// Scratch block, if the stream's own is not ready as it is.
    scratch: Option<(u32, Object)>,
    /// Lane tiles of a tile row.
    lane_tiles: u32,
    /// Rows (of elements) of the block.
    rows: u32,
    route: Route,
    dtype: DType,
    /// Lane tiles and rows of the block in HBM's type, where they differ (transposes).
    source_lane_tiles: u32,
}

struct Lowering<'k> {
    k: &'k DotKernel,
    t: DotTiling,
    levels: Vec<Level>,
    level_dim: Vec<usize>,
    k_level: Option<usize>,
    streams: Vec<Stream>,
    stream: Ready,
    weights: Ready,
    loads: BTreeMap<NodeIx, Shape>,
    stores: Vec<(NodeIx, Shape)>,
    /// f32 or i32 accumulators of a block.
    acc: (u32, Object),
    /// Lane tiles of the accumulators and of the output block.
    out_tiles: u32,
    /// Array dimension.
    dim: u32,
    xlu: u32,
}

/// What a step does with its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variant {
    first: bool,
    last: bool,
}

/// Scalar addresses of one step. `rows` 512-byte rows throughout.
#[derive(Clone, Copy, Debug)]
struct StepRegs {
    stream: SReg,
    stream_next: SReg,
    weights_next: SReg,
    out: SReg,
}

impl<'k> Lowering<'k> {
    fn plan(
        k: &'k DotKernel,
        e: &mut Emitter<'_>,
        t: DotTiling,
        base_of: &dyn Fn(usize) -> i64,
    ) -> Result<Self, EmitError> {
        let n = k.dims.len();
        let mut order: Vec<(usize, u64)> = (0..n - 2).map(|d| (d, 1)).collect();
        if t.cols_outer {
            order.extend([(n - 1, t.cols), (n - 2, t.rows)]);
        } else {
            order.extend([(n - 2, t.rows), (n - 1, t.cols)]);
        }
        let mut levels = Vec::new();
        let mut level_dim = Vec::new();
        for (d, block) in order {
            let l = Level { extent: k.dims[d], block, ends: false };
            if l.trip() > 1 {
                levels.push(l);
                level_dim.push(d);
            }
        }
        let mut k_level = None;
        if t.k < k.k {
            k_level = Some(levels.len());
            levels.push(Level { extent: k.k, block: t.k, ends: true });
            level_dim.push(n);
        }
        let dim = *e.chip.mxu.dim;
        let out_tiles = (t.cols as u32).div_ceil(dim * t.col_split) * t.col_split * dim / 128;
        let mut low = Lowering {
            k,
            t,
            levels,
            level_dim,
            k_level,
            streams: Vec::new(),
            stream: Ready::empty(),
            weights: Ready::empty(),
            loads: BTreeMap::new(),
            stores: Vec::new(),
            acc: (0, e.object()),
            out_tiles,
            dim,
            xlu: 0,
        };
        let k_pad = low.k_groups() * t.k_split * dim;
        let row_pad = low.padded_rows();
        low.stream = low.add_operand(e, &k.stream, k.stream_route(), row_pad, k_pad, n - 2, base_of);
        let col_pad = out_tiles * 128;
        low.weights = low.add_operand(e, &k.weights, k.weights_route(), col_pad, k_pad, n - 1, base_of);
        for (ix, node) in k.nodes.iter().enumerate() {
            if let Kind::Load(access) = &node.kind {
                let shape = low.add_block(access, node.dtype, DmaDir::Load, base_of);
                low.loads.insert(ix, shape);
            }
        }
        for s in &k.stores {
            let shape = low.add_block(&s.access, k.nodes[s.node].dtype, DmaDir::Store, base_of);
            low.stores.push((s.node, shape));
        }
        low.acc.0 = e.vmem(row_pad / 8 * out_tiles * 8);
        Ok(low)
    }

    fn k_groups(&self) -> u32 {
        (self.t.k as u32).div_ceil(self.dim * self.t.k_split)
    }

    fn col_groups(&self) -> u32 {
        self.out_tiles * 128 / (self.dim * self.t.col_split)
    }

    fn chunks(&self) -> u32 {
        (self.t.rows as u32).div_ceil(self.t.chunk as u32)
    }

    fn padded_rows(&self) -> u32 {
        self.chunks() * self.t.chunk as u32
    }

    /// Pushes per MXU in a step.
    fn pushes(&self) -> u32 {
        (self.t.chunk / self.k.push_rows()) as u32 / self.t.row_split
    }

    fn halves(&self) -> u32 {
        self.dim / 128
    }

    fn q(&self) -> u32 {
        self.k.format.packing() as u32
    }

    #[allow(clippy::too_many_arguments)]
    fn add_operand(
        &mut self,
        e: &mut Emitter<'_>,
        o: &Operand,
        route: Route,
        own_pad: u32,
        k_pad: u32,
        own_dim: usize,
        base_of: &dyn Fn(usize) -> i64,
    ) -> Ready {
        let a = &o.access;
        let batches = self.k.dims.len() - 2;
        let (own_stride, k_stride) = (a.strides[batches], a.strides[batches + 1]);
        let own_block = if own_dim == self.k.dims.len() - 1 { self.t.cols } else { self.t.rows } as u32;
        let k_block = self.t.k as u32;
        let (rows, row_stride, cols, col_stride, pad_rows, pad_cols) = if route.lanes_along_k {
            (own_block, own_stride, k_block, k_stride, own_pad, k_pad)
        } else {
            (k_block, k_stride, own_block, own_stride, k_pad, own_pad)
        };
        let col_stride = if cols == 1 { i64::from(stored_bytes(o.dtype)) } else { col_stride };
        let lane_tiles = pad_cols.div_ceil(128);
        let tile = 8 * packing(o.dtype);
        let level_strides = self
            .level_dim
            .iter()
            .map(|&d| {
                if d < batches {
                    a.strides[d]
                } else if d == own_dim {
                    own_stride
                } else if d == self.k.dims.len() {
                    k_stride
                } else {
                    0
                }
            })
            .collect();
        let pad_rows_up = pad_rows.next_multiple_of(if route.transpose { 128 } else { tile });
        self.streams.push(Stream {
            dir: DmaDir::Load,
            elem_bytes: stored_bytes(o.dtype),
            base: base_of(a.buffer) + a.offset,
            level_strides,
            outer: Vec::new(),
            rows,
            row_stride,
            cols,
            col_stride,
            lane_tiles,
            plane_rows: pad_rows_up.div_ceil(tile) * 8 * lane_tiles,
        });
        let stream = self.streams.len() - 1;
        let (ready_rows, ready_tiles) =
            if route.transpose { (own_pad.next_multiple_of(128), k_pad.div_ceil(128)) } else { (pad_rows, lane_tiles) };
        let scratch = (route.transpose || route.convert).then(|| {
            let rows = ready_rows.next_multiple_of(128).div_ceil(8 * self.q()) * 8 * ready_tiles;
            (e.vmem(rows), e.object())
        });
        Ready {
            stream,
            scratch,
            lane_tiles: ready_tiles,
            rows: pad_rows,
            route,
            dtype: o.dtype,
            source_lane_tiles: lane_tiles,
        }
    }

    fn add_block(&mut self, a: &Access, dtype: DType, dir: DmaDir, base_of: &dyn Fn(usize) -> i64) -> Shape {
        let n = self.k.dims.len();
        let s = |d: usize| a.strides[d];
        let (varies_row, varies_col) = (s(n - 2) != 0, s(n - 1) != 0);
        let rows = if varies_row { self.t.rows as u32 } else { 1 };
        let cols = if varies_col { self.t.cols as u32 } else { 1 };
        let lane_tiles = if varies_col { self.out_tiles } else { 1 };
        let tile = 8 * packing(dtype);
        let padded = if varies_row { self.padded_rows() } else { 1 };
        let plane_rows = padded.div_ceil(tile) * 8 * lane_tiles;
        self.streams.push(Stream {
            dir,
            elem_bytes: stored_bytes(dtype),
            base: base_of(a.buffer) + a.offset,
            level_strides: self.level_dim.iter().map(|&d| if d < n { s(d) } else { 0 }).collect(),
            outer: Vec::new(),
            rows,
            row_stride: s(n - 2),
            cols,
            col_stride: if cols == 1 { i64::from(stored_bytes(dtype)) } else { s(n - 1) },
            lane_tiles,
            plane_rows,
        });
        Shape {
            stream: self.streams.len() - 1,
            dtype,
            lane_tiles,
            plane_rows,
            varies_plane: false,
            varies_row,
            varies_col,
        }
    }

    /// Zeroes what the DMAs of an operand leave untouched along `k`.
    fn zero_padding(&self, e: &mut Emitter<'_>, nest: &Nest, r: &Ready) -> Result<(), EmitError> {
        let s = &nest.streams()[r.stream];
        let k_pad = self.k_groups() * self.t.k_split * self.dim;
        if self.t.k as u32 == k_pad {
            return Ok(());
        }
        let tile = 8 * packing(r.dtype);
        for (at, rows) in nest.buffers(r.stream) {
            let object = e.object();
            let clear = |e: &mut Emitter<'_>, first: u32, step: u32, count: u32| -> Result<(), EmitError> {
                e.repeat(count, |e, c| {
                    let base = e.affine(c, step as i32, first as i32)?;
                    let z = e.code.imm(0);
                    e.code.store(z, Place { object, base, offset: 0 });
                    e.flush()?;
                    e.free(base);
                    Ok(())
                })
            };
            if r.route.lanes_along_k {
                // The lane tiles from the ragged one on, in every tile row.
                let tile_rows = rows / (8 * s.lane_tiles);
                for t in self.t.k as u32 / 128..s.lane_tiles {
                    clear(e, at + t * 8, s.lane_tiles * 8, tile_rows)?;
                }
            } else {
                let first = self.t.k as u32 / tile * 8 * s.lane_tiles;
                clear(e, at + first, 8, (rows - first) / 8)?;
            }
        }
        Ok(())
    }

    /// Converts or transposes an operand's block into its scratch block.
    fn prepare_block(&mut self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter, r: Ready) -> Result<(), EmitError> {
        let Some((at, object)) = r.scratch else { return Ok(()) };
        let place = nest.place(r.stream, it);
        let src_q = packing(r.dtype);
        let q = self.q();
        if r.route.transpose {
            return self.transpose_block(e, place, r, at, object);
        }
        // Groups of rows that fill packed registers on both sides.
        let group = 8 * q.max(src_q);
        let groups = r.rows.div_ceil(group);
        let unroll = r.lane_tiles.min(4);
        e.repeat(groups, |e, g| {
            let src = e.affine(g, (group / (8 * src_q) * 8 * r.lane_tiles) as i32, 0)?;
            e.ss(Op::SAdd, src, src, place.base);
            let dst = e.affine(g, (group / (8 * q) * 8 * r.lane_tiles) as i32, at as i32)?;
            e.repeat(r.lane_tiles / unroll, |e, t| {
                let step = e.affine(t, (unroll * 8) as i32, 0)?;
                let (s, d) = (e.sreg()?, e.sreg()?);
                e.ss(Op::SAdd, s, src, step);
                e.ss(Op::SAdd, d, dst, step);
                for u in 0..unroll {
                    self.convert_cell(
                        e,
                        r,
                        Place { base: s, ..place }.at(u * 8),
                        Place { object, base: d, offset: 0 }.at(u * 8),
                        group,
                    );
                }
                e.flush()?;
                for x in [step, s, d] {
                    e.free(x);
                }
                Ok(())
            })?;
            for u in r.lane_tiles / unroll * unroll..r.lane_tiles {
                self.convert_cell(
                    e,
                    r,
                    Place { base: src, ..place }.at(u * 8),
                    Place { object, base: dst, offset: 0 }.at(u * 8),
                    group,
                );
            }
            e.flush()?;
            e.free(src);
            e.free(dst);
            Ok(())
        })
    }

    fn convert_cell(&self, e: &mut Emitter<'_>, r: Ready, src: Place, dst: Place, group: u32) {
        let (src_q, q) = (packing(r.dtype), self.q());
        let mut parts = Vec::new();
        for i in 0..group / (8 * src_q) {
            let v = e.code.load(src.at(i * r.lane_tiles * 8));
            match Format::of(r.dtype) {
                Some(f) => parts.extend((0..src_q).map(|p| e.code.unpack(v, f, p as usize))),
                None => parts.push(v),
            }
        }
        let to_float = self.k.format.dtype().is_float();
        if to_float && r.dtype.is_int() {
            parts = parts.iter().map(|&v| e.code.v(Op::VI2F, &[v])).collect();
        }
        for (i, chunk) in parts.chunks(q as usize).enumerate() {
            let v = e.code.pack(chunk, self.k.format);
            e.code.store(v, dst.at(i as u32 * r.lane_tiles * 8));
        }
    }

    /// Source tiles have rows along `k`; the scratch block has rows along the operand's own dimension, packed.
    fn transpose_block(
        &mut self,
        e: &mut Emitter<'_>,
        place: Place,
        r: Ready,
        at: u32,
        object: Object,
    ) -> Result<(), EmitError> {
        let (src_q, q) = (packing(r.dtype), self.q());
        for kt in 0..r.lane_tiles {
            e.repeat(r.source_lane_tiles, |e, own| {
                let src = e.affine(own, 8, (kt * 128 / (8 * src_q) * 8 * r.source_lane_tiles) as i32)?;
                e.ss(Op::SAdd, src, src, place.base);
                let dst = e.affine(own, (128 / (8 * q) * 8 * r.lane_tiles) as i32, (at + kt * 8) as i32)?;
                let x = next_xlu(e, &mut self.xlu);
                for i in 0..16 / src_q {
                    let v = e.code.load(Place { base: src, ..place }.at(i * 8 * r.source_lane_tiles));
                    for p in 0..src_q {
                        let mut v = match Format::of(r.dtype) {
                            Some(f) => e.code.unpack(v, f, p as usize),
                            None => v,
                        };
                        if self.k.format.dtype().is_float() && r.dtype.is_int() {
                            v = e.code.v(Op::VI2F, &[v]);
                        }
                        e.code.xlu_push(Op::XPose, x, v, 0);
                    }
                }
                let out: Vec<V> = (0..16).map(|_| e.code.xlu_pop(x)).collect();
                for (i, chunk) in out.chunks(q as usize).enumerate() {
                    let v = e.code.pack(chunk, self.k.format);
                    e.code.store(v, Place { object, base: dst, offset: 0 }.at(i as u32 * 8 * r.lane_tiles));
                }
                e.flush()?;
                e.free(src);
                e.free(dst);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// First row of an operand's ready block, in a fresh register.
    fn ready_base(&self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter, r: &Ready) -> Result<SReg, EmitError> {
        match r.scratch {
            Some((at, _)) => e.affine(ZERO, 0, at as i32),
            None => {
                let p = nest.place(r.stream, it);
                let d = e.sreg()?;
                e.si(Op::SAddi, d, p.base, p.offset);
                Ok(d)
            }
        }
    }

    fn object_of(&self, nest: &Nest, it: &Iter, r: &Ready) -> Object {
        r.scratch.map_or_else(|| nest.place(r.stream, it).object, |(_, o)| o)
    }

    /// Rows from one `k` group to the next in the weights block, and from one column group to the next.
    fn weight_steps(&self) -> (u32, u32) {
        let (dk, dn) = (self.dim * self.t.k_split, self.dim * self.t.col_split);
        let tile = 8 * self.q();
        let lt = self.weights.lane_tiles;
        if self.weights.route.lanes_along_k {
            (dk / 128 * 8, dn / tile * 8 * lt)
        } else {
            (dk / tile * 8 * lt, dn / 128 * 8)
        }
    }

    /// The registers of one MXU's weights: (offset from the step's weights address, slot).
    fn weight_slots(&self, ki: u32, ni: u32) -> Vec<(u32, u32)> {
        let tile = 8 * self.q();
        let halves = self.halves();
        let groups = self.dim / tile;
        let lt = self.weights.lane_tiles;
        let mut out = Vec::new();
        for g in 0..groups {
            for h in 0..halves {
                let offset = if self.weights.route.lanes_along_k {
                    // Rows are weight columns, lanes are weight rows.
                    ((ni * groups + g) * lt + ki * halves + h) * 8
                } else {
                    ((ki * groups + g) * lt + ni * halves + h) * 8
                };
                out.push((offset, g * halves + h));
            }
        }
        out
    }

    fn mxu(&self, ki: u32, ni: u32, mi: u32) -> u32 {
        (ki * self.t.col_split + ni) * self.t.row_split + mi
    }

    /// Pushes weights for a step: all of them, or the share `part` of `parts`.
    fn push_weights(&self, e: &mut Emitter<'_>, object: Object, base: SReg, part: u32, parts: u32) {
        let transposed = self.weights.route.lanes_along_k;
        let mut all = Vec::new();
        for ki in 0..self.t.k_split {
            for ni in 0..self.t.col_split {
                all.extend(self.weight_slots(ki, ni).into_iter().map(|(o, s)| (s, ki, ni, o)));
            }
        }
        // Interleave the MXUs, so that no one waits for its neighbour's pushes.
        all.sort_unstable();
        let n = all.len() as u32;
        let range = (n * part / parts) as usize..(n * (part + 1) / parts) as usize;
        for &(slot, ki, ni, offset) in &all[range] {
            let w = e.code.load(Place { object, base, offset: offset as i32 });
            for mi in 0..self.t.row_split {
                e.code.mxu_push(self.mxu(ki, ni, mi), w, self.k.format, slot, transposed);
            }
        }
    }

    fn latch(&self, e: &mut Emitter<'_>) {
        for m in 0..self.t.k_split * self.t.col_split * self.t.row_split {
            e.code.mxu_latch(m);
        }
    }

    /// Streams push `j` of a step (one register per MXU).
    fn push_rows(&self, e: &mut Emitter<'_>, object: Object, base: SReg, j: u32) {
        let halves = self.halves();
        for mi in 0..self.t.row_split {
            let row = j * self.t.row_split + mi;
            for ki in 0..self.t.k_split {
                let at = |h: u32| Place {
                    object,
                    base,
                    offset: ((row * self.stream.lane_tiles + ki * halves + h) * 8) as i32,
                };
                let lo = e.code.load(at(0));
                let hi = if halves > 1 { e.code.load(at(1)) } else { lo };
                for ni in 0..self.t.col_split {
                    e.code.mxu_mul(self.mxu(ki, ni, mi), lo, hi, self.k.format);
                }
            }
        }
    }

    /// Pops the results of push `j` and puts them where the variant says.
    fn pop_rows(&mut self, e: &mut Emitter<'_>, s: &Site<'_>, j: u32, v: Variant) -> Result<(), EmitError> {
        let integer = self.k.nodes.iter().any(|n| n.kind == Kind::Product && n.dtype.is_int());
        // Arrays without an integer path multiply in bf16; one pass of at most 256 products of bytes is exact in f32.
        let round = integer && self.k.format.dtype().is_float();
        let add = if integer { Op::VAddI } else { Op::VAddF };
        let (q, halves) = (self.q(), self.halves());
        for mi in 0..self.t.row_split {
            for ni in 0..self.t.col_split {
                let row = j * self.t.row_split + mi;
                // cell[half][group]
                let mut cells: Vec<Vec<V>> = vec![Vec::new(); halves as usize];
                for g in 0..q {
                    for (h, cell) in cells.iter_mut().enumerate() {
                        let place = Place {
                            object: self.acc.1,
                            base: s.acc,
                            offset: (((row * q + g) * self.out_tiles + ni * halves + h as u32) * 8) as i32,
                        };
                        let mut sum = if v.first { None } else { Some(e.code.load(place)) };
                        for ki in 0..self.t.k_split {
                            let mut r = e.code.mxu_pop(self.mxu(ki, ni, mi));
                            if round {
                                r = e.code.v(Op::VF2I, &[r]);
                            }
                            sum = Some(match sum {
                                None => r,
                                Some(x) => e.code.v(add, &[x, r]),
                            });
                        }
                        if let Some(x) = sum {
                            if v.last && s.inline {
                                cell.push(x);
                            } else {
                                e.code.store(x, place);
                            }
                        }
                    }
                }
                if v.last && s.inline {
                    for (h, cell) in cells.into_iter().enumerate() {
                        let product: Parts = cell.into_iter().map(Val::V).collect();
                        self.epilogue(e, s, row, q, ni * halves + h as u32, product)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Applies the epilogue to one cell: `parts` registers of rows at group `row` (in units of `parts` registers), lane tile `tile`
    /// relative to the site.
    fn epilogue(
        &mut self,
        e: &mut Emitter<'_>,
        s: &Site<'_>,
        row: u32,
        parts: u32,
        tile: u32,
        product: Parts,
    ) -> Result<(), EmitError> {
        let mut memo: BTreeMap<NodeIx, Parts> = BTreeMap::new();
        for (ix, shape) in self.stores.clone() {
            // A single row or column has one cell; the others are padding.
            if row > 0 && !shape.varies_row || tile > 0 && !shape.varies_col {
                continue;
            }
            let value = self.eval(e, s, ix, row, parts, tile, &product, &mut memo)?;
            let place = self.cell_place(s, &shape, row, parts, tile);
            store_parts(e, &shape, place, parts, &value);
        }
        Ok(())
    }

    fn cell_place(&self, s: &Site<'_>, shape: &Shape, row: u32, parts: u32, tile: u32) -> Place {
        let base = s.blocks[&shape.stream];
        let rows = if shape.varies_row { row * parts / packing(shape.dtype) * shape.lane_tiles * 8 } else { 0 };
        let cols = if shape.varies_col { tile * 8 } else { 0 };
        Place { base, ..s.nest.place(shape.stream, s.it) }.at(rows + cols)
    }

    #[allow(clippy::too_many_arguments)]
    fn eval(
        &mut self,
        e: &mut Emitter<'_>,
        s: &Site<'_>,
        ix: NodeIx,
        row: u32,
        parts: u32,
        tile: u32,
        product: &Parts,
        memo: &mut BTreeMap<NodeIx, Parts>,
    ) -> Result<Parts, EmitError> {
        if let Some(p) = memo.get(&ix) {
            return Ok(p.clone());
        }
        let k = self.k;
        let node = &k.nodes[ix];
        let value: Parts = match &node.kind {
            Kind::Product => product.clone(),
            Kind::Splat(bits) => vec![splat(&mut e.code, *bits, node.dtype)],
            Kind::Load(_) => {
                let shape = self.loads[&ix];
                let place = self.cell_place(s, &shape, row, parts, tile);
                let regs = load_parts(e, &shape, place, parts, &mut self.xlu);
                regs.into_iter().map(|v| typed(e, v, node.dtype)).collect()
            }
            Kind::Iota(d) => self.iota(e, s, *d, node.dtype, row, parts, tile)?,
            Kind::Map(..) => {
                let mut vals = Vec::with_capacity(node.args.len());
                for &a in &node.args {
                    vals.push(self.eval(e, s, a, row, parts, tile, product, memo)?);
                }
                map_parts(&mut e.code, &k.nodes, ix, &vals)
            }
            Kind::RowReduce(_) | Kind::ColReduce(..) => product.clone(),
        };
        memo.insert(ix, value.clone());
        Ok(value)
    }

    #[allow(clippy::too_many_arguments)]
    fn iota(
        &self,
        e: &mut Emitter<'_>,
        s: &Site<'_>,
        d: usize,
        dtype: DType,
        row: u32,
        parts: u32,
        tile: u32,
    ) -> Result<Parts, EmitError> {
        let n = self.k.dims.len();
        let start = match self.level_dim.iter().position(|&x| x == d) {
            Some(l) => s.nest.start(e, s.it, l)?,
            None => e.affine(ZERO, 0, 0)?,
        };
        let value = if d == n - 1 {
            e.ss(Op::SAdd, start, start, s.first_col);
            vec![Val::V(iota(&mut e.code, dtype, Some(Op::VLaneId), start, (tile * 128) as i32))]
        } else if d == n - 2 {
            e.ss(Op::SAdd, start, start, s.first_row);
            let at = (row * parts * 8) as i32;
            (0..parts).map(|p| Val::V(iota(&mut e.code, dtype, Some(Op::VSubId), start, at + (p * 8) as i32))).collect()
        } else {
            vec![Val::V(iota(&mut e.code, dtype, None, start, 0))]
        };
        e.free(start);
        Ok(value)
    }

    /// One step: streams this step's remaining pushes, the next step's first `lag`, and pops all of this step's results.
    #[allow(clippy::too_many_arguments)]
    fn step(
        &mut self,
        e: &mut Emitter<'_>,
        s: &Site<'_>,
        r: StepRegs,
        lag: u32,
        v: Variant,
        next: bool,
    ) -> Result<(), EmitError> {
        let pushes = self.pushes();
        let (so, wo) = (self.object_of(s.nest, s.it, &self.stream), self.object_of(s.nest, s.it, &self.weights));
        let early = pushes - lag;
        for j in 0..pushes {
            if j < early {
                self.push_rows(e, so, r.stream, j + lag);
                if next {
                    self.push_weights(e, wo, r.weights_next, j, early);
                }
            } else if next {
                if j == early {
                    if early == 0 {
                        self.push_weights(e, wo, r.weights_next, 0, 1);
                    }
                    self.latch(e);
                }
                self.push_rows(e, so, r.stream_next, j + lag - pushes);
            }
            self.pop_rows(e, s, j, v)?;
        }
        e.flush()
    }

    /// Runs all steps of a row chunk as one software pipeline, `k` groups outer. `segments` are runs of `k` groups of one variant.
    fn pipeline(
        &mut self,
        e: &mut Emitter<'_>,
        s: &mut Site<'_>,
        bases: [SReg; 2],
        segments: &[(u32, Variant)],
    ) -> Result<(), EmitError> {
        let cols = self.col_groups();
        let pushes = self.pushes();
        let interval = e.chip.mxu_interval(self.k.format).max(1);
        let capacity = (*e.chip.mxu.result_queue / (self.q() * self.halves())).max(2) - 1;
        let lag = ((*e.chip.mxu.latency + 32).div_ceil(interval) + 1).min(pushes).min(capacity);
        let out_step = self.halves() * self.t.col_split * 8;
        // Counters of the next step: `k` and column group. Its addresses follow from them.
        let (kn, nn) = (e.sreg()?, e.sreg()?);
        let r = StepRegs { stream: e.sreg()?, stream_next: e.sreg()?, weights_next: e.sreg()?, out: e.sreg()? };
        e.sli(kn, 0);
        e.sli(nn, 0);
        self.step_addresses(e, r, kn, nn, bases)?;
        let (so, wo) = (self.object_of(s.nest, s.it, &self.stream), self.object_of(s.nest, s.it, &self.weights));
        self.push_weights(e, wo, r.weights_next, 0, 1);
        self.latch(e);
        for j in 0..lag {
            self.push_rows(e, so, r.stream_next, j);
        }
        e.flush()?;
        let mut one = |e: &mut Emitter<'_>, s: &mut Site<'_>, v: Variant, next: bool| -> Result<(), EmitError> {
            // This step is what was next; then the odometer moves on.
            e.si(Op::SAddi, r.stream, r.stream_next, 0);
            e.si(Op::SMuli, r.out, nn, out_step as i32);
            if next {
                let c = e.sreg()?;
                e.si(Op::SAddi, nn, nn, 1);
                e.si(Op::SEqi, c, nn, cols as i32);
                e.ss4(Op::SSel, nn, c, ZERO, nn);
                e.ss(Op::SAdd, kn, kn, c);
                e.free(c);
                self.step_addresses(e, r, kn, nn, bases)?;
            }
            self.site_addresses(e, s, r.out)?;
            self.step(e, s, r, lag, v, next)?;
            self.drop_site(e, s);
            Ok(())
        };
        for (i, &(groups, v)) in segments.iter().enumerate() {
            let last = u32::from(i + 1 == segments.len());
            e.repeat(groups * cols - last, |e, _| {
                one(e, s, v, true)?;
                e.flush()
            })?;
            if last == 1 {
                one(e, s, v, false)?;
            }
        }
        for x in [kn, nn, r.stream, r.stream_next, r.weights_next, r.out] {
            e.free(x);
        }
        Ok(())
    }

    /// Addresses of the operands of step (`kn`, `nn`).
    fn step_addresses(
        &self,
        e: &mut Emitter<'_>,
        r: StepRegs,
        kn: SReg,
        nn: SReg,
        bases: [SReg; 2],
    ) -> Result<(), EmitError> {
        let [stream, weights] = bases;
        let (wk, wn) = self.weight_steps();
        let lk = self.dim * self.t.k_split / 128 * 8;
        let t = e.sreg()?;
        e.si(Op::SMuli, t, kn, wk as i32);
        e.ss(Op::SAdd, r.weights_next, weights, t);
        e.si(Op::SMuli, t, nn, wn as i32);
        e.ss(Op::SAdd, r.weights_next, r.weights_next, t);
        e.si(Op::SMuli, t, kn, lk as i32);
        e.ss(Op::SAdd, r.stream_next, stream, t);
        e.free(t);
        Ok(())
    }

    /// Addresses of the accumulators and blocks for the step whose columns start `out` rows into a tile row.
    fn site_addresses(&self, e: &mut Emitter<'_>, s: &mut Site<'_>, out: SReg) -> Result<(), EmitError> {
        s.acc = e.sreg()?;
        e.ss(Op::SAdd, s.acc, s.acc_chunk, out);
        let mut shared: BTreeMap<(SReg, u32, bool), SReg> = BTreeMap::new();
        let chunk_rows = self.t.chunk as u32;
        for shape in self.loads.values().chain(self.stores.iter().map(|(_, s)| s)) {
            let base = s.nest.place(shape.stream, s.it).base;
            let per_chunk =
                if shape.varies_row { chunk_rows / (8 * packing(shape.dtype)) * 8 * shape.lane_tiles } else { 0 };
            let key = (base, per_chunk, shape.varies_col);
            let reg = match shared.get(&key) {
                Some(&r) => r,
                None => {
                    let r = e.affine(s.chunk, per_chunk as i32, 0)?;
                    e.ss(Op::SAdd, r, r, base);
                    if shape.varies_col {
                        e.ss(Op::SAdd, r, r, out);
                    }
                    shared.insert(key, r);
                    r
                }
            };
            s.blocks.insert(shape.stream, reg);
        }
        s.first_col = e.sreg()?;
        e.si(Op::SMuli, s.first_col, out, 16);
        s.first_row = e.affine(s.chunk, chunk_rows as i32, 0)?;
        Ok(())
    }

    fn drop_site(&self, e: &mut Emitter<'_>, s: &mut Site<'_>) {
        let mut regs: Vec<SReg> = std::mem::take(&mut s.blocks).into_values().collect();
        regs.sort();
        regs.dedup();
        for r in regs.into_iter().chain([s.acc, s.first_col, s.first_row]) {
            e.free(r);
        }
    }

    /// Whether the epilogue can run on what one push gives: every packed output needs whole registers.
    fn inline(&self) -> bool {
        let widest = self.stores.iter().map(|(_, s)| *s).chain(self.loads.values().copied()).filter(|s| s.varies_row);
        widest.map(|s| packing(s.dtype)).max().unwrap_or(1) <= self.q()
    }

    /// Epilogue over the finished accumulators, for outputs packed deeper than the pushes.
    fn finish_block(&mut self, e: &mut Emitter<'_>, s: &mut Site<'_>) -> Result<(), EmitError> {
        let parts = FINISH_PARTS as u32;
        let groups = self.t.chunk as u32 / (8 * parts);
        let out = e.affine(ZERO, 0, 0)?;
        self.site_addresses(e, s, out)?;
        for g in 0..groups {
            for tile in 0..self.out_tiles {
                let product = (0..parts)
                    .map(|p| {
                        let offset = (((g * parts + p) * self.out_tiles + tile) * 8) as i32;
                        Val::V(e.code.load(Place { object: self.acc.1, base: s.acc, offset }))
                    })
                    .collect();
                self.epilogue(e, s, g, parts, tile, product)?;
                e.flush()?;
            }
        }
        self.drop_site(e, s);
        e.free(out);
        Ok(())
    }
}

impl Ready {
    fn empty() -> Ready {
        let route = Route { lanes_along_k: true, transpose: false, convert: false };
        Ready { stream: 0, scratch: None, lane_tiles: 0, rows: 0, route, dtype: DType::F32, source_lane_tiles: 0 }
    }
}

/// Where a step's results go.
struct Site<'s> {
    nest: &'s Nest,
    it: &'s Iter,
    /// Counter of the loop over row chunks.
    chunk: SReg,
    /// First accumulator row of the chunk.
    acc_chunk: SReg,
    acc: SReg,
    blocks: BTreeMap<usize, SReg>,
    first_col: SReg,
    first_row: SReg,
    inline: bool,
}

impl Body for Lowering<'_> {
    fn prepare(&mut self, e: &mut Emitter<'_>, nest: &Nest) -> Result<(), EmitError> {
        self.zero_padding(e, nest, &self.stream)?;
        self.zero_padding(e, nest, &self.weights)
    }

    fn enter(&mut self, level: usize, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        for r in [self.stream, self.weights] {
            if nest.attached(r.stream) == level {
                self.prepare_block(e, nest, it, r)?;
            }
        }
        Ok(())
    }

    fn compute(&mut self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        let ends = self.k_level.map_or(Ends { first: true, last: true }, |l| it.ends[l]);
        let groups = self.k_groups();
        let variant = |g: u32| Variant { first: ends.first && g == 0, last: ends.last && g + 1 == groups };
        let mut segments: Vec<(u32, Variant)> = Vec::new();
        for g in 0..groups {
            match segments.last_mut() {
                Some((count, v)) if *v == variant(g) => *count += 1,
                _ => segments.push((1, variant(g))),
            }
        }
        let chunk_acc = self.t.chunk as u32 / 8 * self.out_tiles * 8;
        let chunk_stream = self.t.chunk as u32 / (8 * self.q()) * 8 * self.stream.lane_tiles;
        let inline = self.inline();
        e.repeat(self.chunks(), |e, chunk| {
            let acc_chunk = e.affine(chunk, chunk_acc as i32, self.acc.0 as i32)?;
            let stream = self.ready_base(e, nest, it, &self.stream)?;
            if chunk != ZERO {
                let t = e.affine(chunk, chunk_stream as i32, 0)?;
                e.ss(Op::SAdd, stream, stream, t);
                e.free(t);
            }
            let weights = self.ready_base(e, nest, it, &self.weights)?;
            let mut site = Site {
                nest,
                it,
                chunk,
                acc_chunk,
                acc: ZERO,
                blocks: BTreeMap::new(),
                first_col: ZERO,
                first_row: ZERO,
                inline,
            };
            self.pipeline(e, &mut site, [stream, weights], &segments)?;
            if ends.last && !inline {
                self.finish_block(e, &mut site)?;
            }
            for r in [acc_chunk, stream, weights] {
                e.free(r);
            }
            Ok(())
        })
    }
}
