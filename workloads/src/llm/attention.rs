//! Causal attention: one operation, which chips have a kernel for, or in blocks: a loop over pairs of a block of queries and a block of keys, with a running maximum and sum, so that no
//! array holds the scores of all pairs of positions. Blocks of keys behind their queries are never visited.
//!
//! Queries are `(batch, seq, heads, dim)`, keys and values `(batch, seq, kv_heads, dim)`; consecutive query heads share keys and values.

use tpusim_backend::hlo::{DotDims, FuncBuilder, Literal, Opcode, ReduceKind, TensorType, ValueId};
use tpusim_backend::ops::attention::Attention;
use tpusim_isa::num::DType;

use super::context;
use super::math;
use super::mesh::Mesh;
use super::stage::counted;

/// Sizes of one attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub batch: i64,
    pub seq: i64,
    pub kv_heads: i64,
    /// Query heads of a key head.
    pub group: i64,
    /// Size of a head's query and key, and of its value.
    pub dim: i64,
    pub value: i64,
    /// Positions of a block; divides `seq`. 0 for attention as one operation.
    pub block: i64,
    /// The mesh; where it cuts positions, they lie as [`super::context`] says.
    pub mesh: Mesh,
}

/// Score of a pair that the mask hides: `exp` of it is zero beside any other.
const HIDDEN: f64 = -1e30;

impl Sizes {
    /// Pairs of blocks that are visited.
    pub(super) fn pairs(&self) -> i64 {
        let blocks = self.seq / self.block;
        blocks.saturating_mul(blocks + 1) / 2
    }

    /// Sizes of what holds one value for each row of queries: `(batch, kv_heads, seq * group)`, or `(batch, heads, seq)` for one operation.
    pub(super) fn rows(&self) -> [i64; 3] {
        match self.block {
            0 => [self.batch, self.kv_heads * self.group, self.seq],
            _ => [self.batch, self.kv_heads, self.seq * self.group],
        }
    }

    pub(super) fn scale(&self) -> f64 {
        1.0 / (self.dim as f64).sqrt()
    }

    /// First positions of each pair's queries and keys.
    fn places(&self, f: &mut FuncBuilder<'_>) -> (ValueId, ValueId) {
        let blocks = self.seq / self.block;
        let pairs = (0..blocks).flat_map(|q| (0..=q).map(move |k| (q, k)));
        let mut table = |pick: fn((i64, i64)) -> i64| {
            let bytes: Vec<u8> = pairs.clone().flat_map(|p| ((pick(p) * self.block) as i32).to_le_bytes()).collect();
            f.literal(Literal { ty: TensorType::new([self.pairs()], DType::I32), bytes: bytes.into() })
        };
        (table(|p| p.0), table(|p| p.1))
    }

    /// Queries, or gradients by query, as rows of their key head: `(batch, kv_heads, seq * group, dim)`.
    fn rows_of(&self, f: &mut FuncBuilder<'_>, x: ValueId) -> ValueId {
        let dim = f.dims(x).last().copied().unwrap_or(self.dim);
        let x = f.reshape(x, &[self.batch, self.seq, self.kv_heads, self.group, dim]);
        let x = f.transpose(x, &[0, 2, 1, 3, 4]);
        f.reshape(x, &[self.batch, self.kv_heads, self.seq * self.group, dim])
    }

    /// The opposite of [`Self::rows_of`], as type `dtype`.
    fn queries_of(&self, f: &mut FuncBuilder<'_>, x: ValueId, dtype: DType) -> ValueId {
        let x = f.convert(x, dtype);
        let dim = f.dims(x).last().copied().unwrap_or(self.dim);
        let x = f.reshape(x, &[self.batch, self.kv_heads, self.seq, self.group, dim]);
        let x = f.transpose(x, &[0, 2, 1, 3, 4]);
        f.reshape(x, &[self.batch, self.seq, self.kv_heads * self.group, dim])
    }

    /// `count` rows of each head of `x` from row `at`.
    fn part(&self, f: &mut FuncBuilder<'_>, x: ValueId, count: i64, at: ValueId) -> ValueId {
        let mut sizes = f.dims(x);
        if let Some(n) = sizes.get_mut(2) {
            *n = count;
        }
        let starts = starts(f, sizes.len(), at);
        f.dynamic_slice(x, &starts, &sizes)
    }

    /// `x` with rows of each head replaced from row `at`.
    fn put(&self, f: &mut FuncBuilder<'_>, x: ValueId, part: ValueId, at: ValueId) -> ValueId {
        let starts = starts(f, f.dims(x).len(), at);
        f.dynamic_update_slice(x, part, &starts)
    }

    /// Rows of a block of queries.
    fn block_rows(&self) -> i64 {
        self.block * self.group
    }

    /// Scaled and masked scores of a block of query rows and one of keys, in f32: `(batch, kv_heads, rows, block)`, or with keys before
    /// rows. `at` are the first row and the first key.
    fn scores(
        &self,
        f: &mut FuncBuilder<'_>,
        (q, k): (ValueId, ValueId),
        at: (ValueId, ValueId),
        keys_first: bool,
    ) -> ValueId {
        let (a, b) = if keys_first { (k, q) } else { (q, k) };
        let s = dot(f, a, b, (&[3], &[3]), DType::F32);
        let s = f.binary_scalar(Opcode::Multiply, s, self.scale());
        let dims = f.dims(s);
        let plane = dims.get(2..).unwrap_or_default();
        let mut index = |dim: i64, at: ValueId| {
            let i = f.iota(TensorType::new(plane, DType::I32), dim);
            let at = f.broadcast_along(at, &[], plane);
            f.add(i, at)
        };
        let (row, key) = (index(i64::from(keys_first), at.0), index(i64::from(!keys_first), at.1));
        // Row `r` is of query `r / group`, which is at least `key` where `r` is at least `key * group`.
        let first = f.binary_scalar(Opcode::Multiply, key, self.group as f64);
        let seen = f.compare("GE", row, first);
        let seen = f.broadcast_along(seen, &[2, 3], &dims);
        let hidden = f.splat(f.ty(s), HIDDEN);
        f.select(seen, s, hidden)
    }

    /// Where the blocks of pair `i` begin: rows of queries, and keys.
    fn at(&self, f: &mut FuncBuilder<'_>, queries: ValueId, keys: ValueId, i: ValueId) -> (ValueId, ValueId) {
        let (query, key) = (element(f, queries, i), element(f, keys, i));
        let row = f.binary_scalar(Opcode::Multiply, query, self.group as f64);
        (row, key)
    }
}

fn starts(f: &mut FuncBuilder<'_>, rank: usize, row: ValueId) -> Vec<ValueId> {
    let zero = f.scalar(DType::I32, 0.0);
    (0..rank).map(|d| if d == 2 { row } else { zero }).collect()
}

/// Products by head: the first two dimensions of both batch.
fn dot(f: &mut FuncBuilder<'_>, a: ValueId, b: ValueId, over: (&[i64], &[i64]), out: DType) -> ValueId {
    let dims = DotDims {
        lhs_batch: vec![0, 1],
        rhs_batch: vec![0, 1],
        lhs_contract: over.0.to_vec(),
        rhs_contract: over.1.to_vec(),
    };
    f.dot_general(a, b, dims, out)
}

fn element(f: &mut FuncBuilder<'_>, table: ValueId, i: ValueId) -> ValueId {
    let one = f.dynamic_slice(table, &[i], &[1]);
    f.reshape(one, &[])
}

/// `v`, which lacks the last dimension of `dims`, along all of it.
fn widen(f: &mut FuncBuilder<'_>, v: ValueId, dims: &[i64]) -> ValueId {
    let kept: Vec<i64> = (0..dims.len() as i64 - 1).collect();
    f.broadcast_along(v, &kept, dims)
}

/// Attention, and the logarithm of each query's sum of exponentials, in f32 and of sizes [`Sizes::rows`].
pub(super) fn forward(f: &mut FuncBuilder<'_>, s: &Sizes, q: ValueId, k: ValueId, v: ValueId) -> (ValueId, ValueId) {
    if s.mesh.context > 1 {
        return context::forward(f, s, q, k, v);
    }
    if s.block == 0 {
        return match Attention::call(f, &[q, k, v], true, s.scale()).as_slice() {
            &[o, log_sum] => (o, log_sum),
            _ => (q, q),
        };
    }
    let dtype = f.ty(q).dtype;
    let q = s.rows_of(f, q);
    let (k, v) = (f.transpose(k, &[0, 2, 1, 3]), f.transpose(v, &[0, 2, 1, 3]));
    let (queries, keys) = s.places(f);
    let rows = TensorType::new(s.rows(), DType::F32);
    let max = f.splat(rows.clone(), HIDDEN);
    let sum = f.splat(rows, 0.0);
    let [b, h, n] = s.rows();
    let total = f.splat(TensorType::new([b, h, n, s.value], DType::F32), 0.0);
    let done = counted(f, s.pairs(), &[queries, keys, q, k, v], &[max, sum, total], |f, i, fixed, state| {
        let &[queries, keys, q, k, v] = fixed else { return Vec::new() };
        let &[max, sum, total] = state else { return Vec::new() };
        let (row, key) = s.at(f, queries, keys, i);
        let count = s.block_rows();
        let (qb, kb, vb) = (s.part(f, q, count, row), s.part(f, k, s.block, key), s.part(f, v, s.block, key));
        let scores = s.scores(f, (qb, kb), (row, key), false);
        let (old, dims) = (s.part(f, max, count, row), f.dims(scores));
        let new = f.reduce(ReduceKind::Max, scores, &[3]);
        let new = f.binary(Opcode::Maximum, old, new);
        let wide = widen(f, new, &dims);
        let p = f.binary(Opcode::Subtract, scores, wide);
        let p = f.unary(Opcode::Exponential, p);
        // The sum is that of the rounded weights, so that they add up to one and only these are stored.
        let p = f.convert(p, dtype);
        let fade = f.binary(Opcode::Subtract, old, new);
        let fade = f.unary(Opcode::Exponential, fade);
        let part = s.part(f, sum, count, row);
        let part = f.mul(part, fade);
        let added = math::sum_wide(f, p, &[3]);
        let part = f.add(part, added);
        let values = dot(f, p, vb, (&[3], &[2]), DType::F32);
        let held = s.part(f, total, count, row);
        let fade = widen(f, fade, &f.dims(held));
        let held = f.mul(held, fade);
        let held = f.add(held, values);
        vec![s.put(f, max, new, row), s.put(f, sum, part, row), s.put(f, total, held, row)]
    });
    let &[max, sum, total] = done.as_slice() else { return (q, q) };
    let wide = widen(f, sum, &f.dims(total));
    let o = f.binary(Opcode::Divide, total, wide);
    let log = f.unary(Opcode::Log, sum);
    (s.queries_of(f, o, dtype), f.add(max, log))
}

/// What [`forward`] was given and gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub q: ValueId,
    pub k: ValueId,
    pub v: ValueId,
    pub o: ValueId,
    pub log_sum: ValueId,
}

/// Gradients of queries, keys and values from that of the output.
pub(super) fn backward(f: &mut FuncBuilder<'_>, s: &Sizes, known: Known, go: ValueId) -> [ValueId; 3] {
    if s.mesh.context > 1 {
        return context::backward(f, s, known, go);
    }
    if s.block == 0 {
        let Known { q, k, v, o, log_sum } = known;
        let gradients = Attention::call(f, &[q, k, v, o, log_sum, go], true, s.scale());
        return gradients.try_into().unwrap_or([q; 3]);
    }
    let dtype = f.ty(go).dtype;
    let (q, o, go) = (s.rows_of(f, known.q), s.rows_of(f, known.o), s.rows_of(f, go));
    let (k, v) = (f.transpose(known.k, &[0, 2, 1, 3]), f.transpose(known.v, &[0, 2, 1, 3]));
    let (wide, o) = (f.convert(go, DType::F32), f.convert(o, DType::F32));
    let product = f.mul(wide, o);
    let delta = f.reduce(ReduceKind::Sum, product, &[3]);
    let (queries, keys) = s.places(f);
    let zero = |f: &mut FuncBuilder<'_>, like: ValueId| f.splat(TensorType::new(f.dims(like), DType::F32), 0.0);
    let sums = [zero(f, q), zero(f, k), zero(f, v)];
    let fixed = [queries, keys, q, k, v, go, known.log_sum, delta];
    let done = counted(f, s.pairs(), &fixed, &sums, |f, i, fixed, state| {
        let &[queries, keys, q, k, v, go, log_sum, delta] = fixed else { return Vec::new() };
        let &[dq, dk, dv] = state else { return Vec::new() };
        let (row, key) = s.at(f, queries, keys, i);
        let count = s.block_rows();
        let (qb, kb, vb) = (s.part(f, q, count, row), s.part(f, k, s.block, key), s.part(f, v, s.block, key));
        let gb = s.part(f, go, count, row);
        // Keys before rows: what belongs to a row then lies along it, and two of the three products read this as it lies.
        let scores = s.scores(f, (qb, kb), (row, key), true);
        let dims = f.dims(scores);
        let log_sum = s.part(f, log_sum, count, row);
        let log_sum = f.broadcast_along(log_sum, &[0, 1, 3], &dims);
        let p = f.binary(Opcode::Subtract, scores, log_sum);
        let p = f.unary(Opcode::Exponential, p);
        let p = f.convert(p, dtype);
        let dp = dot(f, vb, gb, (&[3], &[3]), DType::F32);
        let delta = s.part(f, delta, count, row);
        let delta = f.broadcast_along(delta, &[0, 1, 3], &dims);
        let ds = f.binary(Opcode::Subtract, dp, delta);
        let wide = f.convert(p, DType::F32);
        let ds = f.mul(ds, wide);
        let ds = f.binary_scalar(Opcode::Multiply, ds, s.scale());
        let ds = f.convert(ds, dtype);
        let mut grow = |sums: ValueId, a: ValueId, b: ValueId, over: (&[i64], &[i64]), count: i64, at: ValueId| {
            let more = dot(f, a, b, over, DType::F32);
            let held = s.part(f, sums, count, at);
            let held = f.add(held, more);
            s.put(f, sums, held, at)
        };
        let dq = grow(dq, ds, kb, (&[2], &[2]), count, row);
        let dk = grow(dk, ds, qb, (&[3], &[2]), s.block, key);
        let dv = grow(dv, p, gb, (&[3], &[2]), s.block, key);
        vec![dq, dk, dv]
    });
    let &[dq, dk, dv] = done.as_slice() else { return [q; 3] };
    let by_position = |f: &mut FuncBuilder<'_>, x: ValueId| {
        let x = f.convert(x, dtype);
        f.transpose(x, &[0, 2, 1, 3])
    };
    [s.queries_of(f, dq, dtype), by_position(f, dk), by_position(f, dv)]
}
