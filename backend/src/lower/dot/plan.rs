//! The grid, streams and buffers of a product.

use std::collections::BTreeMap;

use tpusim_isa::num::{DType, Format};
use tpusim_isa::program::{DmaDir, SReg};

use super::super::cells::{Shape, packing, stored_bytes};
use super::super::emit::{EmitError, Emitter};
use super::super::expr::{Access, Kind, NodeIx};
use super::super::nest::{Iter, Level, Nest, Outer, Stream};
use super::super::vcode::Object;
use super::window::{Layout, Planes};
use super::*;

/// A block of an operand as the MXU code reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) stream: usize,
    /// Scratch block, if the stream's own is not ready as it is.
    pub(super) scratch: Option<(u32, Object)>,
    /// Lane tiles of a tile row.
    pub(super) lane_tiles: u32,
    /// VMEM rows from one window position to the next.
    pub(super) plane_rows: u32,
    pub(super) route: Route,
    pub(super) dtype: DType,
    /// What the array takes it in.
    pub(super) format: Format,
    /// Lane tiles and rows of the block in HBM's type, where they differ (transposes).
    pub(super) source_lane_tiles: u32,
}

pub(super) struct Lowering<'k> {
    pub(super) k: &'k DotKernel,
    pub(super) t: DotTiling,
    pub(super) levels: Vec<Level>,
    pub(super) level_dim: Vec<usize>,
    pub(super) k_level: Option<usize>,
    pub(super) streams: Vec<Stream>,
    pub(super) stream: Ready,
    pub(super) weights: Ready,
    pub(super) loads: BTreeMap<NodeIx, Shape>,
    pub(super) stores: Vec<(NodeIx, Shape)>,
    /// f32 or i32 accumulators of a block.
    pub(super) acc: (u32, Object),
    /// Lane tiles of the accumulators and of the output block.
    pub(super) out_tiles: u32,
    /// Array dimension.
    pub(super) dim: u32,
    pub(super) xlu: u32,
    /// Planes of the blocks, where windows slide.
    pub(super) planes: Planes,
}

/// What a step does with its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) first: bool,
    pub(super) last: bool,
}

/// Scalar addresses of one step. `rows` 512-byte rows throughout.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepRegs {
    pub(super) stream: SReg,
    pub(super) stream_next: SReg,
    pub(super) weights_next: SReg,
    pub(super) out: SReg,
    /// Contracted elements left, of this step and the next; zero where none are missing.
    pub(super) left: SReg,
    pub(super) left_next: SReg,
}

impl Ready {
    /// Elements of a 32-bit word, as the block lies there.
    pub(super) fn packing(&self, q: u32) -> u32 {
        if self.scratch.is_some() { q } else { packing(self.dtype) }
    }

    fn empty() -> Ready {
        let route = Route { lanes_along_k: true, transpose: false, convert: false };
        let (dtype, format) = (DType::F32, Format::Bf16);
        Ready { stream: 0, scratch: None, lane_tiles: 0, plane_rows: 0, route, dtype, format, source_lane_tiles: 0 }
    }
}

/// Where a step's results go.
pub(super) struct Site<'s> {
    pub(super) nest: &'s Nest,
    pub(super) it: &'s Iter,
    /// Counters of the loops over chunks.
    pub(super) chunk: Vec<SReg>,
    /// First accumulator row of the chunk.
    pub(super) acc_chunk: SReg,
    pub(super) acc: SReg,
    pub(super) blocks: BTreeMap<usize, SReg>,
    pub(super) first_col: SReg,
    pub(super) first_row: SReg,
    pub(super) inline: bool,
}

impl<'k> Lowering<'k> {
    pub(super) fn plan(
        k: &'k DotKernel,
        e: &mut Emitter<'_>,
        t: DotTiling,
        bases: &Bases<'_>,
    ) -> Result<Self, EmitError> {
        let n = k.dims.len();
        let first_slide = n - 2 - k.slides.len();
        let mut order: Vec<(usize, u64)> = (0..first_slide).map(|d| (d, 1)).collect();
        let outer = (!k.slides.is_empty()).then_some((first_slide, t.outer));
        if t.cols_outer {
            order.push((n - 1, t.cols));
            order.extend(outer);
            order.push((n - 2, t.rows));
        } else {
            order.extend(outer);
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
            planes: Planes::new(k, &t, out_tiles),
        };
        let k_pad = low.k_pad();
        let row_pad = low.padded_rows();
        low.stream = low.add_operand(e, &k.stream, k.stream_route(), row_pad, k_pad, n - 2, bases);
        let col_pad = out_tiles * 128;
        low.weights = low.add_operand(e, &k.weights, k.weights_route(), col_pad, k_pad, n - 1, bases);
        low.planes.weights_plane = low.weights.plane_rows;
        for (ix, node) in k.nodes.iter().enumerate() {
            if let Kind::Load(access) = &node.kind {
                let shape = low.add_block(access, node.dtype, DmaDir::Load, bases);
                low.loads.insert(ix, shape);
            }
        }
        for s in &k.stores {
            let shape = low.add_block(&s.access, k.nodes[s.node].dtype, DmaDir::Store, bases);
            low.stores.push((s.node, shape));
        }
        let groups = if k.slides.is_empty() { row_pad / 8 } else { low.planes.outputs() * low.planes.groups };
        low.acc.0 = e.vmem(groups * out_tiles * 8);
        Ok(low)
    }

    pub(super) fn k_groups(&self) -> u32 {
        (self.t.k as u32).div_ceil(self.dim * self.t.k_split)
    }

    /// Steps over the positions of the window.
    pub(super) fn positions(&self) -> u32 {
        self.k.positions(u64::from(self.dim)) as u32
    }

    /// Contracted elements of a block with what fills the arrays.
    pub(super) fn k_pad(&self) -> u32 {
        match self.k.paired(u64::from(self.dim)) {
            Some(_) => self.t.k as u32,
            None => self.k_groups() * self.t.k_split * self.dim,
        }
    }

    pub(super) fn col_groups(&self) -> u32 {
        self.out_tiles * 128 / (self.dim * self.t.col_split)
    }

    pub(super) fn chunks(&self) -> u32 {
        (self.t.rows as u32).div_ceil(self.t.chunk as u32)
    }

    pub(super) fn padded_rows(&self) -> u32 {
        if !self.planes.is_empty() {
            let rows = self.t.rows as u32;
            let tile = if self.inline() { 8 * self.k.widest() } else { 8 * FINISH_PARTS as u32 };
            return rows.next_multiple_of(tile.max(8 * packing(self.k.stream.dtype)));
        }
        self.chunks() * self.t.chunk as u32
    }

    /// Pushes per MXU in a step.
    pub(super) fn pushes(&self) -> u32 {
        (self.t.chunk / self.k.push_rows()) as u32 / self.t.row_split
    }

    pub(super) fn halves(&self) -> u32 {
        self.dim / 128
    }

    pub(super) fn q(&self) -> u32 {
        self.k.format.packing() as u32
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn add_operand(
        &mut self,
        e: &mut Emitter<'_>,
        o: &Operand,
        route: Route,
        own_pad: u32,
        k_pad: u32,
        own_dim: usize,
        bases: &Bases<'_>,
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
        let plane_rows = pad_rows_up.div_ceil(tile) * 8 * lane_tiles;
        let windowed = !self.planes.is_empty();
        let columns = own_dim == self.k.dims.len() - 1;
        let mut layout = Layout { outer: Vec::new(), first: 0, reserve: 0, shift: None };
        if windowed && columns {
            let steps = self.k.slides.iter().filter(|s| s.size > 1);
            // The partner of a last position is read, though it counts for nothing.
            let planes: u64 = self.k.slides.iter().map(|s| s.size).product();
            let partner = u32::from(self.k.paired(u64::from(self.dim)).is_some());
            layout.reserve = (planes as u32 + partner) * plane_rows;
            layout.outer = steps.map(|s| Outer { count: s.size as u32, hbm_stride: s.weights, pitch: 0 }).collect();
        } else if windowed {
            let first = batches - self.k.slides.len();
            let cut = self.level_dim.iter().position(|&d| d == first).map(|l| (l, self.k.dims[first]));
            layout = self.planes.layout(plane_rows, cut);
        }
        self.streams.push(Stream {
            dir: DmaDir::Load,
            elem_bytes: stored_bytes(o.dtype),
            base: bases.addr(a),
            level_strides,
            outer: layout.outer,
            rows,
            row_stride,
            cols,
            col_stride,
            lane_tiles,
            plane_rows,
            first: layout.first,
            reserve: layout.reserve,
            shift: layout.shift,
        });
        let stream = self.streams.len() - 1;
        let (ready_rows, ready_tiles) =
            if route.transpose { (own_pad.next_multiple_of(128), k_pad.div_ceil(128)) } else { (pad_rows, lane_tiles) };
        // What is not transposed is converted on its way to the array.
        let prepared = route.transpose;
        let ready_plane = match prepared {
            true => ready_rows.next_multiple_of(128).div_ceil(8 * self.q()) * 8 * ready_tiles,
            false => plane_rows,
        };
        let scratch = prepared.then(|| (e.vmem(ready_plane), e.object()));
        Ready {
            stream,
            scratch,
            lane_tiles: ready_tiles,
            plane_rows: ready_plane,
            route,
            dtype: o.dtype,
            format: if columns { self.k.weights_format } else { self.k.format },
            source_lane_tiles: lane_tiles,
        }
    }

    pub(super) fn add_block(&mut self, a: &Access, dtype: DType, dir: DmaDir, bases: &Bases<'_>) -> Shape {
        let n = self.k.dims.len();
        let s = |d: usize| a.strides[d];
        let (varies_row, varies_col) = (s(n - 2) != 0, s(n - 1) != 0);
        let rows = if varies_row { self.t.rows as u32 } else { 1 };
        let cols = if varies_col { self.t.cols as u32 } else { 1 };
        let lane_tiles = if varies_col { self.out_tiles } else { 1 };
        let tile = 8 * packing(dtype);
        let padded = if varies_row { self.padded_rows() } else { 1 };
        let plane_rows = padded.div_ceil(tile) * 8 * lane_tiles;
        let slides = n - 2 - self.planes.slides.len()..n - 2;
        let (pitch, outer, reserve) = self.planes.block(&a.strides[slides], plane_rows);
        if !self.planes.is_empty() {
            self.planes.blocks.insert(self.streams.len(), pitch);
        }
        self.streams.push(Stream {
            dir,
            elem_bytes: stored_bytes(dtype),
            base: bases.addr(a),
            level_strides: self.level_dim.iter().map(|&d| if d < n { s(d) } else { 0 }).collect(),
            outer,
            rows,
            row_stride: s(n - 2),
            cols,
            col_stride: if cols == 1 { i64::from(stored_bytes(dtype)) } else { s(n - 1) },
            lane_tiles,
            plane_rows,
            first: 0,
            reserve,
            shift: None,
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

    /// Whether the epilogue can run on what one push gives: every packed output needs whole registers.
    pub(super) fn inline(&self) -> bool {
        if !self.planes.is_empty() {
            return self.k.plane_parts(self.t.rows).is_some();
        }
        let widest = self.stores.iter().map(|(_, s)| *s).chain(self.loads.values().copied()).filter(|s| s.varies_row);
        widest.map(|s| packing(s.dtype)).max().unwrap_or(1) <= self.q()
    }
}
