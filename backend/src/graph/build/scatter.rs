//! Scatters: places and slots of the updates, and the function that combines.
//!
//! An element of an update whose index falls outside of the array is dropped by itself, as StableHLO has it: dimensions that windows
//! start at an index of and are longer than one along become dimensions of the index, so that a window is inside or outside as a whole.

use tpusim_isa::num::DType;

use super::super::{Function, NodeId, NodeOp, Scatter, Special, Term, What, Windows};
use super::contract::combination;
use super::gather::{Axis, Ints, cut, row_major};
use super::*;
use crate::hlo::{Attr, Op, ScatterDims};
use crate::lower::gather::Layout;
use crate::lower::math::{Combine, Direction, MapOp};

/// Updates of a batch, at most.
const LARGEST_BATCH: u64 = 256;

/// On-chip bytes that the windows of a batch may take.
const BATCH_BYTES: u64 = 2 << 20;

/// The updates of a scatter.
struct Updates {
    /// Place of each window.
    places: NodeId,
    /// Whether it is inside of the array; `None` if all are.
    inside: Option<NodeId>,
    /// Updates, one window after the other.
    values: Vec<NodeId>,
    /// Shape of a window.
    window: Vec<(u64, u64)>,
    unit: u64,
    /// On-chip bytes of a window of all arrays.
    bytes: u64,
}

/// All arrays of some values.
fn nodes(values: &[Value]) -> Vec<NodeId> {
    let parts = |v: &Value| match *v {
        Value::One(n) => vec![n],
        Value::Pair(_, parts) => parts.to_vec(),
    };
    values.iter().flat_map(parts).collect()
}

impl Builder<'_> {
    pub(super) fn scatter(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let (arrays, rest) = args.split_at(args.len() / 2);
        let (Some(Attr::Scatter(d)), [indices, updates @ ..], [region]) =
            (op.attrs.get("scatter_dimension_numbers"), rest, &op.regions[..])
        else {
            return Err(self.error(op.opcode.name(), op.loc, "needs `scatter_dimension_numbers` and a region"));
        };
        let empty = |v: &Value| nodes(std::slice::from_ref(v)).iter().any(|&n| self.node(n).elements() == 0);
        if args.iter().any(empty) {
            return Ok(arrays.to_vec());
        }
        let region = self.function(f, op, &region.block, arrays, site)?;
        let results = arrays.to_vec();
        let (arrays, updates) = (nodes(arrays), nodes(updates));
        let shapes: Vec<Shape> =
            arrays.iter().map(|&a| Shape { dims: self.node(a).dims.clone(), dtype: self.node(a).dtype }).collect();
        if let (&[Value::One(array)], &[update]) = (&results[..], &updates[..])
            && let Some(y) = self.one_hot(op, d, array, *indices, update, site)
        {
            return Ok(vec![Value::One(y)]);
        }
        let n = arrays.len();
        let u = self.updates(op, d, &arrays, *indices, &updates, site)?;
        let rows = Windows::new(1, u.window.iter().copied(), u.unit);
        let dense = rows.elements() == u.unit && (rows.dims.is_empty() || rows.dims == [(u.unit, 1)]);
        if let (true, &[Value::One(array)], &[values]) = (dense, &results[..], &u.values[..])
            && let Some(how) = combination(&op.regions[0].block, shapes[0].dtype)
            && let Some(y) = self.tally(how, array, u.places, u.inside, values, u.unit, site)
        {
            return Ok(vec![Value::One(y)]);
        }
        let count = self.node(u.places).elements();
        let most = (BATCH_BYTES / u.bytes).clamp(1, LARGEST_BATCH);
        let whole = (most / 4..=most.min(count)).rev().find(|k| *k > 0 && count.is_multiple_of(*k));
        let batch = whole.unwrap_or(most.min(count));
        let mut state = arrays.to_vec();
        let parts = [(0, count / batch, batch), (count / batch * batch, 1, count % batch)];
        for (start, batches, batch) in parts.into_iter().filter(|p| p.1 * p.2 > 0) {
            let number = batches * batch;
            let mut c = Ints { b: self, dims: vec![number], name: "scatter", site: site.clone() };
            let places = c.part(u.places, start);
            let inside = u.inside.map(|i| c.part(i, start));
            c.dims = vec![batches, batch];
            let slots = c.slots(places, inside);
            let windows = Windows::new(number, u.window.iter().copied(), u.unit);
            let mut all = state.clone();
            all.extend([self.unshaped(places), self.unshaped(slots)]);
            for &v in &u.values {
                let c = Ints { b: self, dims: vec![number], name: "scatter", site: site.clone() };
                all.push(c.rows(v, start, count));
            }
            let what = Special::Scatter(Scatter { windows, batch, region: region.clone() });
            let node = self.special_node(what, all, "scatter", site);
            state =
                (0..n).map(|k| self.push(NodeOp::Result(k), vec![node], &shapes[k], "scatter", site.clone())).collect();
        }
        let mut state = state.into_iter();
        let mut next = || state.next().unwrap_or(NodeId(0));
        Ok(results
            .into_iter()
            .map(|v| match v {
                Value::One(_) => Value::One(next()),
                Value::Pair(t, _) => Value::Pair(t, [next(), next()]),
            })
            .collect())
    }

    fn updates(
        &mut self,
        op: &Op,
        d: &ScatterDims,
        arrays: &[NodeId],
        indices: Value,
        updates: &[NodeId],
        site: &(String, String),
    ) -> Result<Updates, LowerError> {
        let name = "scatter";
        let dims = self.node(arrays[0]).dims.clone();
        let strides = row_major(&dims);
        let shape = self.node(updates[0]).dims.clone();
        let absent =
            |k: usize| d.inserted_window_dims.contains(&(k as i64)) || d.input_batching_dims.contains(&(k as i64));
        // Dimension of the arrays and of the updates, for each dimension of a window.
        let along: Vec<(usize, usize)> =
            (0..dims.len()).filter(|&k| !absent(k)).zip(d.update_window_dims.iter().map(|&w| w as usize)).collect();
        let indexed = |a: usize| d.scatter_dims_to_operand_dims.contains(&(a as i64));
        let whole: Vec<(usize, usize)> = along.iter().copied().filter(|&(a, _)| !indexed(a)).collect();
        let in_window = |u: usize| whole.iter().any(|w| w.1 == u);
        let is_batch = |u: usize| !d.update_window_dims.contains(&(u as i64));

        let window: Vec<(u64, u64)> = whole.iter().map(|&(a, u)| (shape[u], strides[a])).collect();
        let types: Vec<DType> = arrays.iter().map(|&a| self.node(a).dtype).collect();
        let one = Scatter { windows: Windows::new(1, [], 1), batch: 1, region: Function::default() };
        let words = one.words(types.iter().copied());
        let largest = types.iter().map(|t| t.bytes() as u64).max().unwrap_or(4);
        let (outside, inner) = cut(&window, largest, words, BATCH_BYTES / arrays.len() as u64);

        let outer: Vec<usize> = (0..shape.len()).filter(|&u| !in_window(u)).collect();
        let mut all: Vec<u64> = outer.iter().map(|&u| shape[u]).collect();
        all.extend(outside.iter().map(|o| o.0));
        // Where the batch dimensions of the indices are among those of the places.
        let batch: Vec<usize> = (0..outer.len()).filter(|&i| is_batch(outer[i])).collect();
        let vector_dim = d.index_vector_dim as usize;
        let mut c = Ints { b: self, dims: all.clone(), name, site: site.clone() };
        let (mut axes, mut inside) = (Vec::new(), None);
        for (k, &a) in d.scatter_dims_to_operand_dims.iter().enumerate() {
            let a = a as usize;
            let mut index = c.index(indices, vector_dim, k, &batch);
            if let Some(i) = along.iter().find(|w| w.0 == a).and_then(|w| outer.iter().position(|&u| u == w.1))
                && all[i] > 1
            {
                let step = c.iota(i);
                index = c.map(MapOp::Add, &[index, step], DType::I32);
            }
            let clamped = c.clamp(index, 0, dims[a] as i64 - 1);
            let fits = c.map(MapOp::Compare(Direction::Eq, false), &[index, clamped], DType::I1);
            inside = Some(match inside {
                Some(x) => c.map(MapOp::And, &[x, fits], DType::I1),
                None => fits,
            });
            axes.push(Axis { index, limit: dims[a] - 1, stride: strides[a] });
        }
        for (&a, &i) in d.input_batching_dims.iter().zip(&d.scatter_indices_batching_dims) {
            let (a, i) = (a as usize, i as usize);
            let index = c.iota(batch[if i > vector_dim { i - 1 } else { i }]);
            axes.push(Axis { index, limit: dims[a] - 1, stride: strides[a] });
        }
        for (j, &(size, stride)) in outside.iter().enumerate() {
            let index = c.iota(outer.len() + j);
            axes.push(Axis { index, limit: size - 1, stride });
        }
        let count = all.iter().try_fold(1u64, |n, &d| n.checked_mul(d)).filter(|&n| n <= i32::MAX as u64);
        let Some((places, unit)) = count.and_then(|_| c.places(&axes)) else {
            return Err(self.error(op.opcode.name(), op.loc, "has more places than 32-bit indices can name"));
        };
        let perm: Vec<usize> = outer.iter().copied().chain(whole.iter().map(|w| w.1)).collect();
        let moved: Vec<u64> = perm.iter().map(|&u| shape[u]).collect();
        let mut values = Vec::new();
        for (&v, &dtype) in updates.iter().zip(&types) {
            values.push(self.transpose(v, perm.clone(), &Shape { dims: moved.clone(), dtype }, name, site.clone()));
        }
        let w = Windows::new(1, inner.iter().copied(), unit);
        let slot = |t: &DType| Layout::new(&w, t.bytes() as u64, words).rows().next_multiple_of(8) * 512;
        let bytes = types.iter().map(slot).sum::<u64>();
        Ok(Updates { places, inside, values, window: inner, unit, bytes })
    }

    /// The region of a scatter as a function of scalars.
    fn function(
        &mut self,
        f: &Func,
        op: &Op,
        block: &Block,
        arrays: &[Value],
        site: &(String, String),
    ) -> Result<Function, LowerError> {
        let fail = |b: &Self, what: &str| {
            let m = format!("{what} in its region; elementwise functions of the elements and constants are lowered");
            b.error(op.opcode.name(), op.loc, m)
        };
        let kind = |b: &Self, v: Value| v.pair().map(|p| p.0).or_else(|| v.one().map(|n| b.node(n).dtype));
        let kinds: Vec<DType> = arrays.iter().filter_map(|&v| kind(self, v)).collect();
        let saved = (std::mem::take(&mut self.graph), std::mem::take(&mut self.seen));
        let mut env = Env::default();
        let (mut typed, mut index) = (true, 0);
        for (&a, &kind) in block.args.iter().zip(kinds.iter().cycle()) {
            typed &= f.ty(a).tensor().is_some_and(|t| t.dtype == kind);
            let mut param = |dtype| {
                index += 1;
                let t = Shape { dims: vec![], dtype };
                self.push(NodeOp::Param(index - 1), vec![], &t, "parameter", site.clone())
            };
            let value = match wide::part_of(kind) {
                Some(part) => Value::Pair(kind, [param(part), param(part)]),
                None => Value::One(param(kind)),
            };
            env.insert(a, value);
        }
        let results = self.block(f, block, &mut env, 0, Some(site));
        let inner = std::mem::replace(&mut self.graph, saved.0);
        self.seen = saved.1;
        let results = nodes(&results?);
        if !typed {
            return Err(fail(self, "other types than those of the arrays are not lowered yet"));
        }
        let mut out = Function::default();
        for n in &inner.nodes {
            let what = match &n.op {
                NodeOp::Param(k) => What::Param(*k as usize),
                NodeOp::Const(l) if n.dims.is_empty() => What::Splat(register_bits(l.element(0), n.dtype)),
                NodeOp::Map(m) => {
                    let operand = if *m == MapOp::Select { 1 } else { 0 };
                    What::Map(*m, inner.node(n.args[operand]).dtype)
                }
                // Of scalars they do nothing.
                NodeOp::Reshape | NodeOp::Broadcast(_) | NodeOp::Transpose(_) if n.dims.is_empty() => {
                    What::Map(MapOp::Copy, n.dtype)
                }
                _ => return Err(fail(self, &format!("{} is not lowered", n.name))),
            };
            out.values.push(Term { what, args: n.args.iter().map(|a| a.ix()).collect(), dtype: n.dtype });
        }
        out.results = results.iter().map(|r| r.ix()).collect();
        let types = nodes(arrays).into_iter().map(|a| self.node(a).dtype);
        let same = out.results.iter().map(|&r| out.values[r].dtype).eq(types);
        if !same {
            return Err(fail(self, "results of other types than the arrays are not lowered yet"));
        }
        Ok(out)
    }
}

impl Ints<'_, '_> {
    /// Elements of `x` from `start`, as many as the shape has, in one dimension.
    pub fn part(&mut self, x: NodeId, start: u64) -> NodeId {
        let (all, dtype) = (self.b.node(x).elements(), self.b.node(x).dtype);
        let flat = self.b.reshape(x, &Shape { dims: vec![all], dtype }, self.name, self.site.clone());
        let t = self.shape(dtype);
        self.b.slice(flat, vec![start], vec![1], &t, self.name, self.site.clone())
    }

    /// Windows of `x`, `count` in all, from window `start`, as many as the shape has.
    fn rows(self, x: NodeId, start: u64, count: u64) -> NodeId {
        let (all, dtype) = (self.b.node(x).elements(), self.b.node(x).dtype);
        if self.dims == [count] {
            return self.b.unshaped(x);
        }
        let flat = Shape { dims: vec![count, all / count], dtype };
        let x = self.b.reshape(x, &flat, self.name, self.site.clone());
        let part = Shape { dims: vec![self.dims[0], all / count], dtype };
        self.b.slice(x, vec![start, 0], vec![1, 1], &part, self.name, self.site)
    }

    /// Slots of updates at `places`, over batches and positions in them.
    fn slots(&mut self, places: NodeId, inside: Option<NodeId>) -> NodeId {
        let (name, site) = (self.name, self.site.clone());
        let two = self.dims.clone();
        let batch = two[1];
        let rows = self.b.reshape(places, &self.shape(DType::I32), name, site.clone());
        self.dims.push(batch);
        let (mine, others) = (self.spread(rows, vec![0, 1]), self.spread(rows, vec![0, 2]));
        let same = self.map(MapOp::Compare(Direction::Eq, false), &[mine, others], DType::I1);
        let (position, none) = (self.iota(2), self.value(batch as i64, DType::I32));
        let found = self.map(MapOp::Select, &[same, position, none], DType::I32);
        let home = self.b.reduce_dims(Combine::Min, found, &[2], DType::I32, name, &site);
        self.dims = two;
        let Some(inside) = inside else { return home };
        let inside = self.b.reshape(inside, &self.shape(DType::I1), name, site);
        let (in_place, dropped) = (self.value(0, DType::I32), self.value(i64::from(Scatter::DROPPED), DType::I32));
        let extra = self.map(MapOp::Select, &[inside, in_place, dropped], DType::I32);
        self.map(MapOp::Add, &[home, extra], DType::I32)
    }
}
