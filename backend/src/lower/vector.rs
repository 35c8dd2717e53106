//! Kernels of the vector unit: elementwise fusions with row reductions (softmax, norms), column reductions, copies and transposes.
//!
//! The kernel's canonical dimensions are `[majors.., planes, rows, columns]`. Blocks hold `planes x rows x columns` elements; the
//! majors are stepped one by one. Within a block, code is emitted per *cell*: a group of rows by one lane tile. A group has as many
//! rows as the narrowest packed type needs (8, 16 or 32), times an unrolling factor.
//!
//! **Row reductions** split the work on a row group into phases. Phase `k` walks the lane tiles once and accumulates every
//! reduction whose operand needs only results of phases before `k`; then an XLU reduces the lanes. Values that a later phase needs
//! again are computed again if that is cheap, else kept in VMEM. So a softmax reads HBM once and writes it once.
//!
//! **Column reductions** keep one accumulator per lane tile in registers while they walk rows, and in VMEM across blocks.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tpusim_isa::num::DType;
use tpusim_isa::op::Op;
use tpusim_isa::program::{DmaDir, SReg};

use super::cells::{Shape, finish_reduce, format_of, load_parts, next_xlu, packing, store_parts, stored_bytes, typed};
use super::emit::{EmitError, Emitter, ZERO};
use super::expr::{Access, Kind, Node, NodeIx, Parts, map_parts, splat};
use super::math::{Combine, Val, as_v, iota, reduce_lanes, reduce_sublanes};
use super::nest::{Body, Iter, Level, Nest, Outer, Stream};
use super::vcode::{M, Object, Place, V};

/// A value written to HBM.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// The value.
    pub node: NodeIx,
    /// Where it goes.
    pub access: Access,
}

/// A kernel of the vector unit.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorKernel {
    /// Sizes of the canonical dimensions, at least two.
    pub dims: Vec<u64>,
    /// Values in an order where operands come first.
    pub nodes: Vec<Node>,
    /// What is written.
    pub stores: Vec<Store>,
}

/// Sizes chosen for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Planes of a block.
    pub planes: u64,
    /// Rows of a block.
    pub rows: u64,
    /// Columns of a block.
    pub cols: u64,
    /// Row groups per cell.
    pub row_unroll: u32,
    /// Cells per loop iteration.
    pub lane_unroll: u32,
    /// Cores that share the kernel.
    pub cores: u32,
}

/// Elements of `t` per 32-bit word of a packed register.
pub fn packing_of(t: DType) -> usize {
    t.packing()
}

impl VectorKernel {
    fn n(&self) -> usize {
        self.dims.len()
    }

    fn row_bit(&self) -> u32 {
        1 << (self.n() - 2)
    }

    fn col_bit(&self) -> u32 {
        1 << (self.n() - 1)
    }

    /// Whether the columns are reduced, so that a block must hold all of them.
    pub fn reduces_rows(&self) -> bool {
        self.nodes.iter().any(|n| matches!(n.kind, Kind::RowReduce(_)))
    }

    /// Dimensions that column reductions remove.
    pub fn col_reduced(&self) -> u32 {
        self.nodes.iter().fold(0, |m, n| if let Kind::ColReduce(_, r) = n.kind { m | r } else { m })
    }

    /// Rows of the smallest group that fills whole packed registers of every stream.
    pub fn group_rows(&self) -> u32 {
        let loads = self.nodes.iter().filter(|n| matches!(n.kind, Kind::Load(_))).map(|n| n.dtype);
        let stores = self.stores.iter().map(|s| self.nodes[s.node].dtype);
        loads.chain(stores).map(|t| 8 * packing(t)).max().unwrap_or(8)
    }

    /// Whether a load's lanes run along the kernel's rows, so that it must be transposed.
    pub fn transposed(&self, access: &Access, dtype: DType) -> bool {
        let (r, c) = (self.n() - 2, self.n() - 1);
        let unit = i64::from(stored_bytes(dtype));
        self.dims[c] > 1
            && self.dims[r] > 1
            && access.strides[c] != 0
            && access.strides[c] != unit
            && access.strides[r] == unit
    }

    /// Blocks below which HBM bytes of one iteration count; used by the planner to weigh tilings.
    pub fn bytes_per_element(&self) -> u64 {
        let loads = self.nodes.iter().filter(|n| matches!(n.kind, Kind::Load(_))).map(|n| n.dtype.bytes() as u64);
        loads.sum::<u64>() + self.stores.iter().map(|s| self.nodes[s.node].dtype.bytes() as u64).sum::<u64>()
    }

    /// Emits the kernel.
    ///
    /// # Errors
    /// [`EmitError`] if the tiling does not fit the machine.
    pub fn emit(&self, e: &mut Emitter<'_>, t: Tiling, base_of: &dyn Fn(usize) -> i64) -> Result<(), EmitError> {
        let mut k = Lowering::plan(self, e, t, base_of)?;
        let nest = Nest::new(e, k.levels.clone(), std::mem::take(&mut k.streams), t.cores)?;
        nest.emit(e, &mut k)
    }
}

/// Where a value that cells read lives.
#[derive(Clone, Copy, Debug)]
enum Source {
    Stream(Shape),
    /// A transposed load: which of [`Lowering::transposes`].
    Transposed(usize),
}

#[derive(Clone, Copy, Debug)]
struct Transposed {
    from: Shape,
    at: u32,
    object: Object,
    /// Rows of the scratch block, a multiple of 128.
    rows: u32,
}

/// A stream or scratch block whose address cells need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Stream(usize),
    Transposed(usize),
}

type Addresses = BTreeMap<Target, SReg>;

/// Registers that hold a row group's values across blocks of code.
type Pinned = BTreeMap<NodeIx, Vec<V>>;

/// Position of a cell and what was computed before it.
#[derive(Clone)]
struct Frame<'f> {
    nest: &'f Nest,
    it: &'f Iter,
    plane: SReg,
    group: SReg,
    /// Reads kept values of phases before this one.
    phase: u32,
    pinned: Pinned,
    addresses: Addresses,
    /// Counter of the loop over lane tiles and tiles per iteration.
    tiles: Option<(SReg, u32)>,
    /// Offset of that loop into kept values.
    kept: SReg,
}

type Memo = FxHashMap<NodeIx, Parts>;

struct Lowering<'k> {
    k: &'k VectorKernel,
    t: Tiling,
    levels: Vec<Level>,
    /// Canonical dimension of each level.
    level_dim: Vec<usize>,
    streams: Vec<Stream>,
    loads: BTreeMap<NodeIx, Source>,
    transposes: Vec<Transposed>,
    stores: Vec<(NodeIx, Shape)>,
    /// Values kept in VMEM between phases of one row group.
    kept: BTreeMap<NodeIx, (u32, Object)>,
    /// Accumulators of column reductions across blocks.
    accumulators: BTreeMap<NodeIx, (u32, Object)>,
    phase: Vec<u32>,
    /// Registers of a cell: rows of a group / 8.
    parts: u32,
    lane_tiles: u32,
    xlu: u32,
}

impl<'k> Lowering<'k> {
    fn plan(
        k: &'k VectorKernel,
        e: &mut Emitter<'_>,
        t: Tiling,
        base_of: &dyn Fn(usize) -> i64,
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
                low.add_load(e, ix, access, node.dtype, base_of);
            }
        }
        for s in &k.stores {
            let shape = low.add_stream(&s.access, k.nodes[s.node].dtype, DmaDir::Store, false, base_of);
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

    fn add_load(
        &mut self,
        e: &mut Emitter<'_>,
        ix: NodeIx,
        access: &Access,
        dtype: DType,
        base_of: &dyn Fn(usize) -> i64,
    ) {
        let transposed = self.k.transposed(access, dtype);
        let from = self.add_stream(access, dtype, DmaDir::Load, transposed, base_of);
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

    fn padded_rows(&self) -> u32 {
        (self.t.rows as u32).next_multiple_of(self.parts * 8)
    }

    fn groups(&self) -> u32 {
        self.padded_rows() / (self.parts * 8)
    }

    fn add_stream(
        &mut self,
        access: &Access,
        dtype: DType,
        dir: DmaDir,
        transposed: bool,
        base_of: &dyn Fn(usize) -> i64,
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
            outer.push(Outer { count: self.t.planes as u32, hbm_stride: s(n - 3) });
        }
        self.streams.push(Stream {
            dir,
            elem_bytes: bytes,
            base: base_of(access.buffer) + access.offset,
            level_strides: self.level_dim.iter().map(|&d| s(d)).collect(),
            outer,
            rows,
            row_stride,
            cols,
            col_stride,
            lane_tiles,
            plane_rows,
        });
        Shape { stream: self.streams.len() - 1, dtype, lane_tiles, plane_rows, varies_plane, varies_row, varies_col }
    }

    fn is_col(&self, ix: NodeIx) -> bool {
        self.k.nodes[ix].varies & self.k.col_bit() != 0
    }

    fn is_row(&self, ix: NodeIx) -> bool {
        self.k.nodes[ix].varies & self.k.row_bit() != 0
    }

    /// Column-varying values of an early phase that a later one reads and that are dear to compute again.
    fn values_to_keep(&self) -> Vec<NodeIx> {
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

    /// VMEM rows from one plane, one row group and one lane tile to the next.
    fn steps(&self, t: Target) -> [u32; 3] {
        match t {
            Target::Transposed(w) => {
                let t = &self.transposes[w];
                let plane = if t.from.varies_plane { t.rows * self.lane_tiles } else { 0 };
                [plane, self.parts * self.lane_tiles * 8, 8]
            }
            Target::Stream(stream) => {
                let Some(s) = self.shape(stream) else { return [0; 3] };
                let plane = if s.varies_plane { s.plane_rows } else { 0 };
                let group = if s.varies_row { self.parts / packing(s.dtype) * s.lane_tiles * 8 } else { 0 };
                [plane, group, if s.varies_col { 8 } else { 0 }]
            }
        }
    }

    fn shape(&self, stream: usize) -> Option<Shape> {
        let loads = self.loads.values().filter_map(|s| if let Source::Stream(s) = s { Some(*s) } else { None });
        loads.chain(self.stores.iter().map(|(_, s)| *s)).find(|s| s.stream == stream)
    }

    /// Address registers of everything cells touch at (plane, group), the loop over tiles included if there is one. Targets with
    /// the same base and steps share a register.
    fn set_addresses(&self, e: &mut Emitter<'_>, f: &mut Frame<'_>) -> Result<(), EmitError> {
        let mut shared: BTreeMap<(u8, u32, [u32; 3]), SReg> = BTreeMap::new();
        let mut targets: Vec<Target> = self
            .loads
            .values()
            .map(|s| match s {
                Source::Stream(s) => Target::Stream(s.stream),
                Source::Transposed(w) => Target::Transposed(*w),
            })
            .collect();
        targets.extend(self.stores.iter().map(|(_, s)| Target::Stream(s.stream)));
        for t in targets {
            let steps = self.steps(t);
            let (base, fixed) = match t {
                Target::Stream(s) => (f.nest.place(s, f.it).base, 0),
                Target::Transposed(w) => (ZERO, self.transposes[w].at),
            };
            let r = match shared.get(&(base.0, fixed, steps)) {
                Some(&r) => r,
                None => {
                    let r = e.sreg()?;
                    e.si(Op::SAddi, r, base, fixed as i32);
                    let tile = f.tiles.map_or((ZERO, 0), |(c, unroll)| (c, unroll * steps[2]));
                    for (counter, step) in [(f.plane, steps[0]), (f.group, steps[1]), tile] {
                        if counter != ZERO && step != 0 {
                            let t = e.affine(counter, step as i32, 0)?;
                            e.ss(Op::SAdd, r, r, t);
                            e.free(t);
                        }
                    }
                    shared.insert((base.0, fixed, steps), r);
                    r
                }
            };
            f.addresses.insert(t, r);
        }
        Ok(())
    }

    /// Gives the address registers of `f` back.
    fn drop_addresses(&self, e: &mut Emitter<'_>, f: &mut Frame<'_>) {
        let mut regs: Vec<SReg> = std::mem::take(&mut f.addresses).into_values().collect();
        regs.sort();
        regs.dedup();
        for r in regs {
            e.free(r);
        }
    }

    fn place(&self, f: &Frame<'_>, s: &Shape, tile: u32) -> Place {
        let p = Place { base: f.addresses[&Target::Stream(s.stream)], ..f.nest.place(s.stream, f.it) };
        if s.varies_col { p.at(tile * 8) } else { p }
    }

    /// The parts of a load in a cell.
    fn load(&mut self, e: &mut Emitter<'_>, f: &Frame<'_>, ix: NodeIx, tile: u32) -> Parts {
        let dtype = self.k.nodes[ix].dtype;
        let s = match self.loads[&ix] {
            Source::Transposed(w) => {
                let object = self.transposes[w].object;
                let place = Place { object, base: f.addresses[&Target::Transposed(w)], offset: (tile * 8) as i32 };
                let parts = (0..self.parts).map(|p| e.code.load(place.at(p * self.lane_tiles * 8)));
                let parts: Vec<V> = parts.collect();
                return parts.into_iter().map(|v| typed(e, v, dtype)).collect();
            }
            Source::Stream(s) => s,
        };
        let place = self.place(f, &s, tile);
        let parts = load_parts(e, &s, place, self.parts, &mut self.xlu);
        parts.into_iter().map(|v| typed(e, v, dtype)).collect()
    }

    fn eval(
        &mut self,
        e: &mut Emitter<'_>,
        f: &Frame<'_>,
        ix: NodeIx,
        tile: u32,
        memo: &mut Memo,
    ) -> Result<Parts, EmitError> {
        if let Some(p) = memo.get(&ix) {
            return Ok(p.clone());
        }
        let k = self.k;
        let node = &k.nodes[ix];
        let parts: Parts = if let Some(regs) = f.pinned.get(&ix) {
            regs.iter().map(|&v| typed(e, v, node.dtype)).collect()
        } else if let Some(&(at, object)) = self.kept.get(&ix).filter(|_| self.phase[ix] < f.phase) {
            let place = Place { object, base: f.kept, offset: (at + tile * self.parts * 8) as i32 };
            let count = if self.is_row(ix) { self.parts } else { 1 };
            let regs: Vec<V> = (0..count).map(|p| e.code.load(place.at(p * 8))).collect();
            regs.into_iter().map(|v| typed(e, v, node.dtype)).collect()
        } else {
            match &node.kind {
                Kind::Load(_) => self.load(e, f, ix, tile),
                Kind::Splat(bits) => vec![splat(&mut e.code, *bits, node.dtype)],
                Kind::Iota(d) => self.iota(e, f, *d, node.dtype, tile)?,
                Kind::Map(..) => {
                    let mut vals = Vec::with_capacity(node.args.len());
                    for &a in &node.args {
                        vals.push(self.eval(e, f, a, tile, memo)?);
                    }
                    map_parts(&mut e.code, &k.nodes, ix, &vals)
                }
                // Reductions are pinned before anything reads them; products belong to matrix kernels.
                Kind::RowReduce(_) | Kind::ColReduce(..) | Kind::Product => vec![Val::V(e.code.imm(0))],
            }
        };
        memo.insert(ix, parts.clone());
        Ok(parts)
    }

    fn iota(
        &mut self,
        e: &mut Emitter<'_>,
        f: &Frame<'_>,
        d: usize,
        dtype: DType,
        tile: u32,
    ) -> Result<Parts, EmitError> {
        let n = self.k.n();
        let start = match self.level_dim.iter().position(|&x| x == d) {
            Some(l) => f.nest.start(e, f.it, l)?,
            None => e.affine(ZERO, 0, 0)?,
        };
        let step = |e: &mut Emitter<'_>, counter: SReg, by: u32| -> Result<(), EmitError> {
            if counter != ZERO {
                let t = e.affine(counter, by as i32, 0)?;
                e.ss(Op::SAdd, start, start, t);
                e.free(t);
            }
            Ok(())
        };
        let parts = if d == n - 1 {
            if let Some((counter, unroll)) = f.tiles {
                step(e, counter, unroll * 128)?;
            }
            vec![Val::V(iota(&mut e.code, dtype, Some(Op::VLaneId), start, (tile * 128) as i32))]
        } else if d == n - 2 {
            step(e, f.group, self.parts * 8)?;
            (0..self.parts).map(|p| Val::V(iota(&mut e.code, dtype, Some(Op::VSubId), start, (p * 8) as i32))).collect()
        } else {
            if n >= 3 && d == n - 3 {
                step(e, f.plane, 1)?;
            }
            vec![Val::V(iota(&mut e.code, dtype, None, start, 0))]
        };
        e.free(start);
        Ok(parts)
    }

    /// Values of phase `p` that do not vary over columns and that code after this point reads.
    fn row_values(&self, p: u32) -> Vec<NodeIx> {
        let k = self.k;
        let mut used = vec![false; k.nodes.len()];
        for (ix, n) in k.nodes.iter().enumerate() {
            for &a in &n.args {
                used[a] |= self.is_col(ix) || self.phase[ix] > self.phase[a];
            }
        }
        for &(ix, s) in &self.stores {
            used[ix] |= s.varies_col;
        }
        let wanted = |i: usize| matches!(k.nodes[i].kind, Kind::Load(_) | Kind::Map(..) | Kind::Iota(_));
        (0..k.nodes.len()).filter(|&i| !self.is_col(i) && used[i] && self.phase[i] == p && wanted(i)).collect()
    }

    /// Emits phase `f.phase` and those after it for one row group.
    fn phases_from(&mut self, e: &mut Emitter<'_>, f: &Frame<'_>) -> Result<(), EmitError> {
        let last = self.phase.iter().copied().max().unwrap_or(0);
        let row_values = self.row_values(f.phase);
        let count: u32 = row_values.iter().map(|&i| if self.is_row(i) { self.parts } else { 1 }).sum();
        let reduces: Vec<(NodeIx, Combine)> = (0..self.k.nodes.len())
            .filter(|&i| self.phase[i] == f.phase + 1)
            .filter_map(|i| if let Kind::RowReduce(how) = self.k.nodes[i].kind { Some((i, how)) } else { None })
            .collect();
        let width = self.parts as usize;
        e.with_pinned(count + reduces.len() as u32 * self.parts, |e, regs| {
            let mut f = f.clone();
            let (row_regs, acc) = regs.split_at(count as usize);
            let mut free = row_regs.iter().copied();
            let mut memo = Memo::default();
            for ix in row_values {
                let parts = self.eval(e, &f, ix, 0, &mut memo)?;
                let want = if self.is_row(ix) { width } else { 1 };
                let home: Vec<V> = free.by_ref().take(want).collect();
                for (i, &r) in home.iter().enumerate() {
                    let v = as_v(&mut e.code, parts[i % parts.len()]);
                    e.code.set(Op::VMov, r, &[v]);
                }
                f.pinned.insert(ix, home);
            }
            for (ix, s) in self.stores.clone() {
                // Outputs without columns are written once, in the phase that has them.
                if !s.varies_col && !self.is_col(ix) && self.phase[ix] == f.phase {
                    self.store(e, &f, ix, s, 0, &mut memo)?;
                }
            }
            for (k, &(ix, how)) in reduces.iter().enumerate() {
                let id = how.identity(self.k.nodes[ix].dtype);
                for &r in &acc[k * width..(k + 1) * width] {
                    e.code.raw(Op::VImm, &[r.0, id]);
                }
            }
            e.flush()?;
            self.walk_tiles(e, &f, &reduces, acc)?;
            for (k, &(ix, how)) in reduces.iter().enumerate() {
                let dtype = self.k.nodes[ix].dtype;
                let home = acc[k * width..(k + 1) * width].to_vec();
                for &r in &home {
                    let x = next_xlu(e, &mut self.xlu);
                    let v = reduce_lanes(&mut e.code, how, dtype, r, x);
                    let v = finish_reduce(e, v, dtype);
                    e.code.set(Op::VMov, r, &[v]);
                }
                f.pinned.insert(ix, home);
            }
            if f.phase < last {
                f.phase += 1;
                self.phases_from(e, &f)?;
            }
            Ok(())
        })
    }

    fn store(
        &mut self,
        e: &mut Emitter<'_>,
        f: &Frame<'_>,
        ix: NodeIx,
        s: Shape,
        tile: u32,
        memo: &mut Memo,
    ) -> Result<(), EmitError> {
        let parts = self.eval(e, f, ix, tile, memo)?;
        let place = self.place(f, &s, tile);
        store_parts(e, &s, place, self.parts, &parts);
        Ok(())
    }

    /// Walks the lane tiles of a row group for one phase.
    fn walk_tiles(
        &mut self,
        e: &mut Emitter<'_>,
        f: &Frame<'_>,
        reduces: &[(NodeIx, Combine)],
        acc: &[V],
    ) -> Result<(), EmitError> {
        let phase = f.phase;
        let stores = self.stores.iter().copied();
        let stores: Vec<(NodeIx, Shape)> =
            stores.filter(|&(ix, s)| (s.varies_col || self.is_col(ix)) && self.phase[ix] == phase).collect();
        let keeps: Vec<NodeIx> = self.kept.keys().copied().filter(|&ix| self.phase[ix] == phase).collect();
        if stores.is_empty() && reduces.is_empty() && keeps.is_empty() {
            return Ok(());
        }
        let work = Work { reduces, acc, keeps: &keeps, stores: &stores };
        let ragged = !self.t.cols.is_multiple_of(128) && !reduces.is_empty();
        let whole = self.lane_tiles - u32::from(ragged);
        let unroll = self.t.lane_unroll.min(whole).max(1);
        let chunks = whole / unroll;
        let mut done = 0;
        if chunks > 1 {
            e.repeat(chunks, |e, counter| {
                let mut g = f.clone();
                g.tiles = Some((counter, unroll));
                // Targets that stay put keep their register; the others move with the loop.
                let step = e.affine(counter, (unroll * 8) as i32, 0)?;
                let mut copies: BTreeMap<SReg, SReg> = BTreeMap::new();
                for (t, r) in &mut g.addresses {
                    if self.steps(*t)[2] == 0 {
                        continue;
                    }
                    let c = match copies.get(r) {
                        Some(&c) => c,
                        None => {
                            let c = e.sreg()?;
                            e.ss(Op::SAdd, c, *r, step);
                            copies.insert(*r, c);
                            c
                        }
                    };
                    *r = c;
                }
                if !self.kept.is_empty() {
                    g.kept = e.affine(counter, (unroll * self.parts * 8) as i32, 0)?;
                }
                for tile in 0..unroll {
                    self.cell(e, &g, tile, None, &work)?;
                }
                e.flush()?;
                if g.kept != ZERO {
                    e.free(g.kept);
                }
                e.free(step);
                for c in copies.into_values() {
                    e.free(c);
                }
                Ok(())
            })?;
            done = chunks * unroll;
        }
        for tile in done..whole {
            self.cell(e, f, tile, None, &work)?;
            if (tile - done) % unroll == unroll - 1 {
                e.flush()?;
            }
        }
        if ragged {
            let m = e.code.below(Op::MLaneLt, ZERO, (self.t.cols % 128) as i32);
            self.cell(e, f, whole, Some(m), &work)?;
        }
        e.flush()
    }

    /// One cell of one phase.
    fn cell(
        &mut self,
        e: &mut Emitter<'_>,
        f: &Frame<'_>,
        tile: u32,
        mask: Option<M>,
        w: &Work<'_>,
    ) -> Result<(), EmitError> {
        let mut memo = Memo::default();
        let width = self.parts as usize;
        for (k, &(ix, how)) in w.reduces.iter().enumerate() {
            let parts = self.eval(e, f, self.k.nodes[ix].args[0], tile, &mut memo)?;
            let dtype = self.k.nodes[ix].dtype;
            for (p, &r) in w.acc[k * width..(k + 1) * width].iter().enumerate() {
                let mut v = as_v(&mut e.code, parts[p % parts.len()]);
                if let Some(m) = mask {
                    let id = e.code.imm(how.identity(dtype));
                    v = e.code.sel(m, v, id);
                }
                e.code.set(how.op(dtype), r, &[r, v]);
            }
        }
        for &ix in w.keeps {
            let parts = self.eval(e, f, ix, tile, &mut memo)?;
            let (at, object) = self.kept[&ix];
            let place = Place { object, base: f.kept, offset: (at + tile * self.parts * 8) as i32 };
            for (p, val) in parts.iter().enumerate() {
                let v = as_v(&mut e.code, *val);
                e.code.store(v, place.at(p as u32 * 8));
            }
        }
        for &(ix, s) in w.stores {
            self.store(e, f, ix, s, tile, &mut memo)?;
        }
        Ok(())
    }

    /// Fills the scratch blocks of transposed loads, one 128 x 128 tile after another.
    fn transpose(&mut self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        for t in self.transposes.clone() {
            let planes = if t.from.varies_plane { self.t.planes as u32 } else { 1 };
            let row_tiles = t.from.lane_tiles;
            let place = nest.place(t.from.stream, it);
            let packed = format_of(t.from.dtype);
            let q = packing(t.from.dtype);
            // One tile per XLU at a time.
            let width = (*e.chip.xlus).clamp(1, self.lane_tiles);
            for first in (0..self.lane_tiles).step_by(width as usize) {
                let tiles = first..(first + width).min(self.lane_tiles);
                e.repeat(planes, |e, plane| {
                    e.repeat(row_tiles, |e, r| {
                        let from = e.sreg()?;
                        let to = e.sreg()?;
                        e.si(Op::SAddi, from, place.base, 0);
                        e.sli(to, t.at as i32);
                        let steps =
                            [(plane, t.from.plane_rows, t.rows * self.lane_tiles), (r, 8, 128 * self.lane_tiles)];
                        for (counter, a, b) in steps {
                            if counter != ZERO {
                                for (reg, by) in [(from, a), (to, b)] {
                                    let x = e.affine(counter, by as i32, 0)?;
                                    e.ss(Op::SAdd, reg, reg, x);
                                    e.free(x);
                                }
                            }
                        }
                        let src = Place { base: from, ..place };
                        let dst = Place { object: t.object, base: to, offset: 0 };
                        for i in 0..16 / q {
                            for tile in tiles.clone() {
                                let v = e.code.load(src.at((tile * 128 / (8 * q) + i) * 8 * t.from.lane_tiles));
                                for part in 0..q {
                                    let v = match packed {
                                        Some(fmt) => e.code.unpack(v, fmt, part as usize),
                                        None => v,
                                    };
                                    e.code.xlu_push(Op::XPose, tile - first, v, 0);
                                }
                            }
                        }
                        for i in 0..16 {
                            for tile in tiles.clone() {
                                let v = e.code.xlu_pop(tile - first);
                                e.code.store(v, dst.at(i * self.lane_tiles * 8 + tile * 8));
                            }
                        }
                        e.flush()?;
                        e.free(from);
                        e.free(to);
                        Ok(())
                    })
                })?;
            }
        }
        Ok(())
    }

    /// Column reductions of one block: one accumulator per lane tile and reduction while planes and row groups are walked.
    fn columns(&mut self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        let reduces: Vec<(NodeIx, Combine)> = (0..self.k.nodes.len())
            .filter_map(|i| if let Kind::ColReduce(how, _) = self.k.nodes[i].kind { Some((i, how)) } else { None })
            .collect();
        let unroll = self.t.lane_unroll.min(self.lane_tiles).max(1);
        let chunks = self.lane_tiles / unroll;
        e.repeat(chunks, |e, counter| self.column_chunk(e, nest, it, &reduces, Some((counter, unroll)), 0, unroll))?;
        let rest = self.lane_tiles - chunks * unroll;
        if rest > 0 {
            self.column_chunk(e, nest, it, &reduces, None, chunks * unroll, rest)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn column_chunk(
        &mut self,
        e: &mut Emitter<'_>,
        nest: &Nest,
        it: &Iter,
        reduces: &[(NodeIx, Combine)],
        tiles: Option<(SReg, u32)>,
        first_tile: u32,
        count: u32,
    ) -> Result<(), EmitError> {
        let tiles = tiles.filter(|(c, _)| *c != ZERO);
        let frame = |plane: SReg, group: SReg| Frame {
            nest,
            it,
            plane,
            group,
            phase: 0,
            pinned: Pinned::new(),
            addresses: Addresses::new(),
            tiles,
            kept: ZERO,
        };
        let reduce_level = |l: usize| self.levels[l].ends;
        let levels: Vec<usize> = (0..self.levels.len()).filter(|&l| reduce_level(l)).collect();
        let is_first = levels.iter().all(|&l| it.ends[l].first);
        let is_last = levels.iter().all(|&l| it.ends[l].last);
        let repeats = self.repeated_rows(it);
        let masked = repeats > 0 || u64::from(self.padded_rows()) != self.t.rows;
        e.with_pinned(reduces.len() as u32 * count, |e, acc| {
            for (k, &(ix, how)) in reduces.iter().enumerate() {
                for t in 0..count as usize {
                    e.code.raw(Op::VImm, &[acc[k * count as usize + t].0, how.identity(self.k.nodes[ix].dtype)]);
                }
            }
            e.flush()?;
            let planes = self.t.planes as u32;
            e.repeat(planes, |e, plane| {
                e.repeat(self.groups(), |e, group| {
                    let mut f = frame(plane, group);
                    self.set_addresses(e, &mut f)?;
                    let masks = if masked { self.row_masks(e, group, repeats)? } else { Vec::new() };
                    for t in 0..count {
                        let mut memo = Memo::default();
                        for (k, &(ix, how)) in reduces.iter().enumerate() {
                            let dtype = self.k.nodes[ix].dtype;
                            let parts = self.eval(e, &f, self.k.nodes[ix].args[0], first_tile + t, &mut memo)?;
                            let r = acc[k * count as usize + t as usize];
                            let mut sum: Option<V> = None;
                            for p in 0..self.parts as usize {
                                let mut v = as_v(&mut e.code, parts[p % parts.len()]);
                                if let Some(&m) = masks.get(p) {
                                    let id = e.code.imm(how.identity(dtype));
                                    v = e.code.sel(m, v, id);
                                }
                                sum = Some(match sum {
                                    None => v,
                                    Some(s) => e.code.v(how.op(dtype), &[s, v]),
                                });
                            }
                            if let Some(s) = sum {
                                e.code.set(how.op(dtype), r, &[r, s]);
                            }
                        }
                    }
                    e.flush()?;
                    self.drop_addresses(e, &mut f);
                    Ok(())
                })
            })?;
            // Across blocks the accumulators live in VMEM; the last block reduces the sublanes and writes the result.
            let mut f = frame(ZERO, ZERO);
            self.set_addresses(e, &mut f)?;
            let vmem = match tiles {
                Some((c, unroll)) => e.affine(c, (unroll * 8) as i32, 0)?,
                None => ZERO,
            };
            for t in 0..count {
                for (k, &(ix, how)) in reduces.iter().enumerate() {
                    let dtype = self.k.nodes[ix].dtype;
                    let (at, object) = self.accumulators[&ix];
                    let place = Place { object, base: vmem, offset: (at + (first_tile + t) * 8) as i32 };
                    let r = acc[k * count as usize + t as usize];
                    let mut v = r;
                    if !is_first {
                        let old = e.code.load(place);
                        v = e.code.v(how.op(dtype), &[old, v]);
                    }
                    if is_last {
                        v = reduce_sublanes(&mut e.code, how, dtype, v);
                        v = finish_reduce(e, v, dtype);
                        e.code.set(Op::VMov, r, &[v]);
                        f.pinned.insert(ix, vec![r]);
                    } else {
                        e.code.store(v, place);
                    }
                }
                if is_last {
                    let mut memo = Memo::default();
                    for (ix, s) in self.stores.clone() {
                        self.store(e, &f, ix, s, first_tile + t, &mut memo)?;
                    }
                }
            }
            e.flush()?;
            if vmem != ZERO {
                e.free(vmem);
            }
            self.drop_addresses(e, &mut f);
            Ok(())
        })
    }

    /// Leading rows of this block that the block before has reduced already.
    fn repeated_rows(&self, it: &Iter) -> u64 {
        let rows = self.k.n() - 2;
        match self.level_dim.iter().position(|&d| d == rows) {
            Some(l) if self.levels[l].ends && it.ends[l].last => {
                let l = self.levels[l];
                l.trip() * l.block - l.extent
            }
            _ => 0,
        }
    }

    /// One mask per part of a row group: true for rows inside the block that were not reduced before.
    fn row_masks(&self, e: &mut Emitter<'_>, group: SReg, repeats: u64) -> Result<Vec<M>, EmitError> {
        let rows = (self.parts * 8) as i32;
        let end = e.affine(group, -rows, self.t.rows as i32)?;
        let start = e.affine(group, -rows, repeats as i32)?;
        let masks = (0..self.parts as i32)
            .map(|p| {
                let inside = e.code.below(Op::MSubLt, end, -8 * p);
                if repeats == 0 {
                    return inside;
                }
                let before = e.code.below(Op::MSubLt, start, -8 * p);
                let new = e.code.mnot(before);
                e.code.m2(Op::MAnd, inside, new)
            })
            .collect();
        e.free(end);
        e.free(start);
        Ok(masks)
    }
}

/// What a cell of one phase produces.
struct Work<'w> {
    reduces: &'w [(NodeIx, Combine)],
    acc: &'w [V],
    keeps: &'w [NodeIx],
    stores: &'w [(NodeIx, Shape)],
}

impl Body for Lowering<'_> {
    fn compute(&mut self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        self.transpose(e, nest, it)?;
        if self.k.col_reduced() != 0 {
            return self.columns(e, nest, it);
        }
        let (planes, groups) = (self.t.planes as u32, self.groups());
        e.repeat(planes, |e, plane| {
            e.repeat(groups, |e, group| {
                let mut f = Frame {
                    nest,
                    it,
                    plane,
                    group,
                    phase: 0,
                    pinned: Pinned::new(),
                    addresses: Addresses::new(),
                    tiles: None,
                    kept: ZERO,
                };
                self.set_addresses(e, &mut f)?;
                self.phases_from(e, &f)?;
                self.drop_addresses(e, &mut f);
                Ok(())
            })
        })
    }
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
