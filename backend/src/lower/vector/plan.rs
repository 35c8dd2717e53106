//! The streams, scratch blocks and phases of a vector kernel.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tpusim_isa::num::DType;
use tpusim_isa::program::{DmaDir, SReg};

use super::super::cells::{Shape, packing, stored_bytes};
use super::super::emit::{EmitError, Emitter};
use super::super::expr::{Access, Kind, Node, NodeIx, Parts};
use super::super::nest::{Iter, Level, Nest, Outer, Stream};
use super::super::vcode::{Object, V};
use super::*;

/// Where a value that cells read lives.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Stream(Shape),
    /// A transposed load: which of [`Lowering::transposes`].
    Transposed(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Transposed {
    pub(super) from: Shape,
    pub(super) at: u32,
    pub(super) object: Object,
    /// Rows of the scratch block, a multiple of 128.
    pub(super) rows: u32,
}

/// A stream or scratch block whose address cells need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Stream(usize),
    Transposed(usize),
}

pub(super) type Addresses = BTreeMap<Target, SReg>;

/// Registers that hold a row group's values across blocks of code.
pub(super) type Pinned = BTreeMap<NodeIx, Vec<V>>;

/// Position of a cell and what was computed before it.
#[derive(Clone)]
pub(super) struct Frame<'f> {
    pub(super) nest: &'f Nest,
    pub(super) it: &'f Iter,
    pub(super) plane: SReg,
    pub(super) group: SReg,
    /// Reads kept values of phases before this one.
    pub(super) phase: u32,
    pub(super) pinned: Pinned,
    pub(super) addresses: Addresses,
    /// Counter of the loop over lane tiles and tiles per iteration.
    pub(super) tiles: Option<(SReg, u32)>,
    /// Offset of that loop into kept values.
    pub(super) kept: SReg,
}

pub(super) type Memo = FxHashMap<NodeIx, Parts>;

pub(super) struct Lowering<'k> {
    pub(super) k: &'k VectorKernel,
    pub(super) t: Tiling,
    pub(super) levels: Vec<Level>,
    /// Canonical dimension of each level.
    pub(super) level_dim: Vec<usize>,
    pub(super) streams: Vec<Stream>,
    pub(super) loads: BTreeMap<NodeIx, Source>,
    pub(super) transposes: Vec<Transposed>,
    pub(super) stores: Vec<(NodeIx, Shape)>,
    /// Values kept in VMEM between phases of one row group.
    pub(super) kept: BTreeMap<NodeIx, (u32, Object)>,
    /// Accumulators of column reductions across blocks.
    pub(super) accumulators: BTreeMap<NodeIx, (u32, Object)>,
    pub(super) phase: Vec<u32>,
    /// Registers of a cell: rows of a group / 8.
    pub(super) parts: u32,
    pub(super) lane_tiles: u32,
    pub(super) xlu: u32,
}

/// The phase of each value: how many row reductions lie before it.
fn phases(nodes: &[Node]) -> Vec<u32> {
    let mut phase = vec![0u32; nodes.len()];
    for (ix, n) in nodes.iter().enumerate() {
        let before = n.args.iter().map(|&a| phase[a]).max().unwrap_or(0);
        phase[ix] = before + u32::from(matches!(n.kind, Kind::RowReduce(_)));
    }
    phase
}

impl<'k> Lowering<'k> {
    pub(super) fn plan(
        k: &'k VectorKernel,
        e: &mut Emitter<'_>,
        t: Tiling,
        bases: &Bases<'_>,
    ) -> Result<Self, EmitError> {
        let n = k.n();
        let reduced = k.col_reduced();
        let mut dims: Vec<(usize, u64)> = (0..n).map(|d| (d, 1)).collect();
        dims[n - 1].1 = t.cols;
        dims[n - 2].1 = t.rows;
        if n >= 3 {
            dims[n - 3].1 = t.planes;
        }
        // Reduced levels accumulate inside the parallel ones.
        dims.sort_by_key(|&(d, _)| (reduced >> d & 1, d));
        let mut levels = Vec::new();
        let mut level_dim = Vec::new();
        for (d, block) in dims {
            let l = Level { extent: k.dims[d], block, ends: reduced >> d & 1 == 1 };
            if l.trip() > 1 {
                levels.push(l);
                level_dim.push(d);
            }
        }
        let lane_tiles = (t.cols as u32).div_ceil(128).max(1);
        let mut low = Lowering {
            k,
            t,
            levels,
            level_dim,
            streams: Vec::new(),
            loads: BTreeMap::new(),
            transposes: Vec::new(),
            stores: Vec::new(),
            kept: BTreeMap::new(),
            accumulators: BTreeMap::new(),
            phase: phases(&k.nodes),
            parts: k.group_rows() * t.row_unroll / 8,
            lane_tiles,
            xlu: 0,
        };
        for (ix, node) in k.nodes.iter().enumerate() {
            if let Kind::Load(access) = &node.kind {
                low.add_load(e, ix, access, node.dtype, bases);
            }
        }
        for s in &k.stores {
            let shape = low.add_stream(&s.access, k.nodes[s.node].dtype, DmaDir::Store, false, bases);
            low.stores.push((s.node, shape));
        }
        for ix in low.values_to_keep() {
            let at = e.vmem(low.parts * lane_tiles * 8);
            low.kept.insert(ix, (at, e.object()));
        }
        for (ix, node) in k.nodes.iter().enumerate() {
            if matches!(node.kind, Kind::ColReduce(..)) {
                let at = e.vmem(lane_tiles * 8);
                low.accumulators.insert(ix, (at, e.object()));
            }
        }
        Ok(low)
    }

    pub(super) fn add_load(
        &mut self,
        e: &mut Emitter<'_>,
        ix: NodeIx,
        access: &Access,
        dtype: DType,
        bases: &Bases<'_>,
    ) {
        let transposed = self.k.transposed(access, dtype);
        let from = self.add_stream(access, dtype, DmaDir::Load, transposed, bases);
        let source = if transposed {
            let rows = self.padded_rows().next_multiple_of(128);
            let planes = if from.varies_plane { self.t.planes as u32 } else { 1 };
            let at = e.vmem(rows * self.lane_tiles * planes);
            self.transposes.push(Transposed { from, at, object: e.object(), rows });
            Source::Transposed(self.transposes.len() - 1)
        } else {
            Source::Stream(from)
        };
        self.loads.insert(ix, source);
    }

    pub(super) fn padded_rows(&self) -> u32 {
        (self.t.rows as u32).next_multiple_of(self.parts * 8)
    }

    pub(super) fn groups(&self) -> u32 {
        self.padded_rows() / (self.parts * 8)
    }

    pub(super) fn add_stream(
        &mut self,
        access: &Access,
        dtype: DType,
        dir: DmaDir,
        transposed: bool,
        bases: &Bases<'_>,
    ) -> Shape {
        let n = self.k.n();
        let s = |d: usize| access.strides[d];
        let bytes = stored_bytes(dtype);
        let tile = 8 * packing(dtype);
        let (varies_row, varies_col) = (s(n - 2) != 0, s(n - 1) != 0);
        let mut rows = if varies_row { self.t.rows as u32 } else { 1 };
        let mut cols = if varies_col { self.t.cols as u32 } else { 1 };
        let (mut row_stride, mut col_stride) = (s(n - 2), s(n - 1));
        if cols == 1 {
            col_stride = i64::from(bytes);
        }
        let (lane_tiles, plane_rows);
        if transposed {
            (rows, cols) = (cols, rows);
            (row_stride, col_stride) = (col_stride, row_stride);
            lane_tiles = cols.div_ceil(128);
            plane_rows = rows.next_multiple_of(128) / packing(dtype) * lane_tiles;
        } else {
            lane_tiles = cols.div_ceil(128).max(1);
            let padded = if varies_row { self.padded_rows() } else { 1 };
            plane_rows = padded.div_ceil(tile) * 8 * lane_tiles;
        }
        let varies_plane = n >= 3 && s(n - 3) != 0 && self.t.planes > 1;
        let mut outer = Vec::new();
        if varies_plane {
            outer.push(Outer { count: self.t.planes as u32, hbm_stride: s(n - 3), pitch: 0 });
        }
        self.streams.push(Stream {
            dir,
            elem_bytes: bytes,
            base: bases.addr(access),
            level_strides: self.level_dim.iter().map(|&d| s(d)).collect(),
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
        });
        Shape { stream: self.streams.len() - 1, dtype, lane_tiles, plane_rows, varies_plane, varies_row, varies_col }
    }

    pub(super) fn is_col(&self, ix: NodeIx) -> bool {
        self.k.nodes[ix].varies & self.k.col_bit() != 0
    }

    pub(super) fn is_row(&self, ix: NodeIx) -> bool {
        self.k.nodes[ix].varies & self.k.row_bit() != 0
    }

    /// Column-varying values of an early phase that a later one reads and that are dear to compute again.
    pub(super) fn values_to_keep(&self) -> Vec<NodeIx> {
        let nodes = &self.k.nodes;
        let mut cost = vec![0u32; nodes.len()];
        for (ix, n) in nodes.iter().enumerate() {
            let own = if let Kind::Map(op, _) = n.kind { op.cost() } else { 1 };
            cost[ix] = n.args.iter().map(|&a| if self.is_col(a) { cost[a] } else { 0 }).fold(own, u32::saturating_add);
        }
        let mut keep = vec![false; nodes.len()];
        for (ix, n) in nodes.iter().enumerate() {
            let at = self.phase[ix] - u32::from(matches!(n.kind, Kind::RowReduce(_)));
            for &a in &n.args {
                if self.is_col(a) && self.phase[a] < at && cost[a] > 6 {
                    keep[a] = true;
                }
            }
        }
        (0..nodes.len()).filter(|&i| keep[i]).collect()
    }
}
