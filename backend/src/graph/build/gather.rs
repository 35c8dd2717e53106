//! Gathers and scatters: places of windows as ordinary integer code, then one special node that moves or updates the windows.
//!
//! A place counts in units of the greatest common divisor of the strides that indices multiply (a row of an embedding table), so that
//! places fit 32 bits. Windows that are too large for on-chip memory are cut: their outer dimensions become dimensions of the index.

use tpusim_isa::num::DType;

use super::super::{NodeId, NodeOp, Special, Windows};
use super::*;
use crate::hlo::{Attr, GatherDims, Op};
use crate::lower::gather::Layout;
use crate::lower::math::{Direction, MapOp};

/// Pieces that a dimension may be cut into without being taken apart.
const MOST_PIECES: u64 = 1 << 20;

/// On-chip bytes that one window may take.
const LARGEST_WINDOW: u64 = 4 << 20;

/// One dimension of an array that windows start at some index of.
pub(super) struct Axis {
    /// The index: an i32 node of the shape of all places.
    pub index: NodeId,
    /// Its largest value.
    pub limit: u64,
    /// Elements of the array between neighbours.
    pub stride: u64,
}

/// Integer code over one shape.
pub(super) struct Ints<'b, 'm> {
    pub b: &'b mut Builder<'m>,
    /// Sizes of all values.
    pub dims: Vec<u64>,
    pub name: &'static str,
    pub site: (String, String),
}

impl Ints<'_, '_> {
    pub fn shape(&self, dtype: DType) -> Shape {
        Shape { dims: self.dims.clone(), dtype }
    }

    pub fn value(&mut self, v: i64, dtype: DType) -> NodeId {
        let t = self.shape(dtype);
        self.b.constant(v.to_le_bytes()[..dtype.bytes()].into(), &t, self.name, self.site.clone())
    }

    pub fn map(&mut self, op: MapOp, args: &[NodeId], dtype: DType) -> NodeId {
        let t = self.shape(dtype);
        self.b.map(op, args, &t, self.name, self.site.clone())
    }

    pub fn iota(&mut self, d: usize) -> NodeId {
        let t = self.shape(DType::I32);
        self.b.push(NodeOp::Iota(d), vec![], &t, self.name, self.site.clone())
    }

    /// `x` between `low` and `high`.
    pub fn clamp(&mut self, x: NodeId, low: i64, high: i64) -> NodeId {
        let dtype = self.b.node(x).dtype;
        let mut y = x;
        if dtype.is_signed() {
            let low = self.value(low, dtype);
            y = self.map(MapOp::Max, &[y, low], dtype);
        }
        let high = self.value(high, dtype);
        self.map(MapOp::Min, &[y, high], dtype)
    }

    /// An index as i32; what does not fit becomes the value nearest to it.
    fn narrow(&mut self, x: Value) -> NodeId {
        let (kind, [low, high]) = match x {
            Value::Pair(kind, parts) => (kind, parts),
            Value::One(x) => {
                let dtype = self.b.node(x).dtype;
                let large = dtype.bits() == 32 && !dtype.is_signed();
                let x = if large { self.clamp(x, 0, i64::from(i32::MAX)) } else { x };
                return self.map(MapOp::Convert, &[x], DType::I32);
            }
        };
        let [low, high] = [low, high].map(|w| self.map(MapOp::Bitcast, &[w], DType::I32));
        let n = self.value(31, DType::I32);
        let sign = self.map(MapOp::ShrArith, &[low, n], DType::I32);
        let (zero, most) = (self.value(0, DType::I32), self.value(i64::from(i32::MAX), DType::I32));
        let mut fits = self.map(MapOp::Compare(Direction::Eq, false), &[high, sign], DType::I1);
        if kind == DType::I64 {
            let least = self.value(i64::from(i32::MIN), DType::I32);
            let negative = self.map(MapOp::Compare(Direction::Lt, false), &[high, zero], DType::I1);
            let end = self.map(MapOp::Select, &[negative, least, most], DType::I32);
            return self.map(MapOp::Select, &[fits, low, end], DType::I32);
        }
        let positive = self.map(MapOp::Compare(Direction::Eq, false), &[high, zero], DType::I1);
        fits = self.map(MapOp::And, &[fits, positive], DType::I1);
        self.map(MapOp::Select, &[fits, low, most], DType::I32)
    }

    /// Entry `k` of the index vectors, whose dimension is `vector_dim`, as i32. Its dimensions are dimensions `map` of the shape.
    pub fn index(&mut self, indices: Value, vector_dim: usize, k: usize, map: &[usize]) -> NodeId {
        let mut entry = |x: NodeId| {
            let x = self.b.index_entry(x, vector_dim, k, self.name, &self.site);
            self.spread(x, map.to_vec())
        };
        let entry = match indices {
            Value::One(x) => Value::One(entry(x)),
            Value::Pair(t, parts) => Value::Pair(t, parts.map(&mut entry)),
        };
        self.narrow(entry)
    }

    /// Places of windows that start at `axes`, and the elements one step of a place moves. Indices outside of an axis count as its ends.
    pub fn places(&mut self, axes: &[Axis]) -> Option<(NodeId, u64)> {
        let used = || axes.iter().filter(|a| a.limit > 0);
        let unit = used().fold(0, |g, a| gcd(g, a.stride)).max(1);
        let last = used().try_fold(0u64, |n, a| n.checked_add(a.limit.checked_mul(a.stride / unit)?))?;
        if last > i32::MAX as u64 {
            return None;
        }
        let mut sum = None;
        for a in used() {
            let index = self.clamp(a.index, 0, a.limit as i64);
            let step = (a.stride / unit) as i64;
            let term = if step == 1 {
                index
            } else {
                let step = self.value(step, DType::I32);
                self.map(MapOp::Mul, &[index, step], DType::I32)
            };
            sum = Some(match sum {
                None => term,
                Some(s) => self.map(MapOp::Add, &[s, term], DType::I32),
            });
        }
        let places = match sum {
            Some(p) => p,
            None => self.value(0, DType::I32),
        };
        Some((places, unit))
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Row-major strides, in elements.
pub(super) fn row_major(dims: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; dims.len()];
    for d in (1..dims.len()).rev() {
        strides[d - 1] = strides[d] * dims[d];
    }
    strides
}

/// Sizes and strides, in elements, of some dimensions.
pub(super) type Sides = Vec<(u64, u64)>;

/// Cuts off outer dimensions of windows until one takes at most `most` bytes on chip: `(cut, rest)`. A dimension may be cut in two.
pub(super) fn cut(window: &[(u64, u64)], elem: u64, words: bool, most: u64) -> (Sides, Sides) {
    let bytes = |w: &[(u64, u64)]| Layout::new(&Windows::new(1, w.iter().copied(), 1), elem, words).bytes();
    let (mut outside, mut rest) = (Vec::new(), window.to_vec());
    while bytes(&rest) > most {
        let (size, stride) = rest.remove(0);
        let pieces = (2..=size.min(MOST_PIECES)).filter(|p| size.is_multiple_of(*p)).find(|p| {
            let part: Vec<_> = std::iter::once((size / p, stride)).chain(rest.iter().copied()).collect();
            bytes(&part) <= most
        });
        match pieces {
            Some(p) if p < size => {
                outside.push((p, stride * (size / p)));
                rest.insert(0, (size / p, stride));
            }
            _ => outside.push((size, stride)),
        }
    }
    (outside, rest)
}

impl Builder<'_> {
    /// What holds the same elements in the same order.
    pub(super) fn unshaped(&self, mut a: NodeId) -> NodeId {
        while self.node(a).op == NodeOp::Reshape {
            a = self.node(a).args[0];
        }
        a
    }

    /// Entry `k` of all index vectors, over the batch dimensions of `indices`.
    fn index_entry(
        &mut self,
        indices: NodeId,
        vector_dim: usize,
        k: usize,
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let (mut dims, dtype) = (self.node(indices).dims.clone(), self.node(indices).dtype);
        if vector_dim >= dims.len() {
            return indices;
        }
        let (mut start, step) = (vec![0; dims.len()], vec![1; dims.len()]);
        start[vector_dim] = k as u64;
        dims[vector_dim] = 1;
        let part = self.slice(indices, start, step, &Shape { dims: dims.clone(), dtype }, name, site.clone());
        dims.remove(vector_dim);
        self.reshape(part, &Shape { dims, dtype }, name, site.clone())
    }

    pub(super) fn gather(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let (Some(Attr::Gather(d)), &[x, indices], &[result]) =
            (op.attrs.get("dimension_numbers"), args, &op.results[..])
        else {
            return Err(self.error(op.opcode.name(), op.loc, "needs `dimension_numbers` and two operands"));
        };
        let dims = self.tensor(f, result, op.opcode.name(), op.loc)?.dims;
        let slice: Vec<u64> = op.attrs.ints("slice_sizes").unwrap_or(&[]).iter().map(|&s| s as u64).collect();
        let mut part = |x: NodeId| {
            let t = Shape { dims: dims.clone(), dtype: self.node(x).dtype };
            // What is made wider is gathered before that.
            let from = self.widened(x).unwrap_or(x);
            let narrow = Shape { dims: dims.clone(), dtype: self.node(from).dtype };
            let y = self
                .gather_one(d, &slice, from, indices, &narrow, site)
                .ok_or_else(|| self.error(op.opcode.name(), op.loc, "has more places than 32-bit indices can name"))?;
            Ok(self.map(MapOp::Convert, &[y], &t, "gather", site.clone()))
        };
        Ok(vec![match x {
            Value::One(x) => Value::One(part(x)?),
            Value::Pair(t, [a, b]) => Value::Pair(t, [part(a)?, part(b)?]),
        }])
    }

    /// A gather of one array; `None` if there are too many places.
    fn gather_one(
        &mut self,
        d: &GatherDims,
        slice: &[u64],
        x: NodeId,
        indices: Value,
        t: &Shape,
        site: &(String, String),
    ) -> Option<NodeId> {
        let name = "gather";
        let flat = self.splat_of(x).or_else(|| t.dims.contains(&0).then(|| vec![0; t.dtype.bytes()].into()));
        if let Some(bytes) = flat {
            return Some(self.constant(bytes, t, name, site.clone()));
        }
        let dims = self.node(x).dims.clone();
        let strides = row_major(&dims);
        let vector_dim = d.index_vector_dim as usize;
        let is_offset = |k: usize| d.offset_dims.contains(&(k as i64));
        let batch: Vec<u64> = (0..t.dims.len()).filter(|&k| !is_offset(k)).map(|k| t.dims[k]).collect();
        if let Some(y) = self.lookup(d, slice, x, indices, &batch, t, site) {
            return Some(y);
        }
        let kept: Vec<usize> = (0..dims.len()).filter(|&k| !dropped(d, k)).collect();
        let window: Vec<(u64, u64)> = kept.iter().map(|&k| (slice[k], strides[k])).collect();
        let (outside, inside) = cut(&window, t.dtype.bytes() as u64, true, LARGEST_WINDOW);

        let mut all = batch.clone();
        all.extend(outside.iter().map(|o| o.0));
        let mut axes = Vec::new();
        let mut c = Ints { b: self, dims: all.clone(), name, site: site.clone() };
        let map: Vec<usize> = (0..batch.len()).collect();
        for (k, &a) in d.start_index_map.iter().enumerate() {
            let a = a as usize;
            let index = c.index(indices, vector_dim, k, &map);
            axes.push(Axis { index, limit: dims[a] - slice[a], stride: strides[a] });
        }
        for (&a, &i) in d.operand_batching_dims.iter().zip(&d.start_indices_batching_dims) {
            let (a, i) = (a as usize, i as usize);
            let index = c.iota(if i > vector_dim { i - 1 } else { i });
            axes.push(Axis { index, limit: dims[a] - 1, stride: strides[a] });
        }
        for (j, &(size, stride)) in outside.iter().enumerate() {
            let index = c.iota(batch.len() + j);
            axes.push(Axis { index, limit: size - 1, stride });
        }
        let count = all.iter().try_fold(1u64, |n, &d| n.checked_mul(d)).filter(|&n| n <= i32::MAX as u64)?;
        let (places, unit) = c.places(&axes)?;
        let windows = Windows::new(count, inside, unit);
        let x = self.unshaped(x);
        // All batch dimensions first, then those of the window.
        let mut result = batch.clone();
        result.extend(kept.iter().map(|&k| slice[k]));
        let y = self.special_node(Special::Gather(windows), vec![x, places], name, site);
        let y = self.push(NodeOp::Result(0), vec![y], &Shape { dims: result, dtype: t.dtype }, name, site.clone());
        let (mut at_batch, mut at_window) = (0..batch.len(), batch.len()..);
        let perm: Vec<usize> =
            (0..t.dims.len()).filter_map(|k| if is_offset(k) { at_window.next() } else { at_batch.next() }).collect();
        Some(self.transpose(y, perm, t, name, site.clone()))
    }

    /// A special node, which has no elements itself.
    pub(super) fn special_node(
        &mut self,
        what: Special,
        args: Vec<NodeId>,
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let none = Shape { dims: vec![0], dtype: DType::U8 };
        self.push(NodeOp::Special(what), args, &none, name, site.clone())
    }
}

impl Ints<'_, '_> {
    /// `x`, whose dimensions are dimensions `map` of the shape, repeated along the others.
    pub fn spread(&mut self, x: NodeId, map: Vec<usize>) -> NodeId {
        let t = self.shape(self.b.node(x).dtype);
        self.b.broadcast(x, map, &t, self.name, self.site.clone())
    }
}

fn dropped(d: &GatherDims, k: usize) -> bool {
    d.collapsed_slice_dims.contains(&(k as i64)) || d.operand_batching_dims.contains(&(k as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: a piece fits, and pieces and rest are all of the window.
    #[test]
    fn large_windows_are_cut() {
        let most = 1 << 20;
        assert_eq!(cut(&[(4, 1000), (1000, 1)], 4, true, most), (vec![], vec![(4, 1000), (1000, 1)]));
        // Rows of 1 MiB stay whole; of 3 MiB, thirds do.
        assert_eq!(cut(&[(5, 1 << 20), (1 << 18, 1)], 4, true, most), (vec![(5, 1 << 20)], vec![(1 << 18, 1)]));
        assert_eq!(cut(&[(3 << 18, 1)], 4, true, most), (vec![(3, 1 << 18)], vec![(1 << 18, 1)]));
        // Nothing divides a prime number of elements that lie in too many tiles.
        assert_eq!(cut(&[(1_000_003, 1)], 4, true, most), (vec![(1_000_003, 1)], vec![]));
    }
}
