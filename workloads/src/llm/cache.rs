//! The cache of keys and values: its arrays, what a layer puts into it, and attention of one token over it.

use tpusim_backend::hlo::{DotDims, FuncBuilder, Opcode, ReduceKind, TensorType, ValueId};
use tpusim_isa::num::DType;

use super::Model;
use super::layer::{Block, Tape};
use super::math;
use super::mesh::{Axis, BATCH, Cut, Mesh};
use super::stage::Stage;

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

/// Score of a position that is not there yet.
const HIDDEN: f64 = -1e30;

/// An array of a stage's cache.
pub(super) struct Store {
    pub name: &'static str,
    /// Layers, sequences, key heads, positions, channels.
    pub dims: [i64; 5],
    pub cut: Cut,
}

/// Arrays of a layer's cache.
pub(super) const PER_LAYER: usize = 2;

/// Those of layers that see all positions, then those of layers with a window.
pub(super) fn stores(stage: &Stage<'_>, context: i64) -> Vec<Store> {
    let (m, mut list) = (stage.block.model, Vec::new());
    for local in [false, true] {
        let layers: Vec<i64> = (0..stage.period).filter(|j| stage.layer(*j).window.is_some() == local).collect();
        let Some(first) = layers.first() else { continue };
        let b = stage.layer(*first);
        let count = layers.len() as i64 * (stage.layers / stage.period);
        let mut store = |names: [&'static str; 2], heads, dim, cut: &[Axis]| {
            let cut = vec![Vec::new(), BATCH.to_vec(), cut.to_vec(), Vec::new(), Vec::new()];
            let name = if local { names[1] } else { names[0] };
            list.push(Store { name, dims: [count, b.batch, heads, b.cached_positions(context), dim], cut });
        };
        match m.latent {
            Some(l) => {
                store(["latent", "local_latent"], 1, l.kv_rank, &[]);
                store(["rope", "local_rope"], 1, l.rope, &[]);
            }
            None => {
                let heads = &heads_cut(m, &b.mesh)[0];
                store(["k", "local_k"], m.kv_heads, m.dim, heads);
                store(["v", "local_v"], m.kv_heads, m.dim, heads);
            }
        }
    }
    list
}

/// Of the arrays of [`stores`], the first of layer `j` of an iteration, and how many layers of its kind come before it, of how many.
pub(super) fn place_of(stage: &Stage<'_>, j: i64) -> (usize, i64, i64) {
    let local = |j: i64| stage.layer(j).window.is_some();
    let alike = |n: i64| (0..n).filter(|k| local(*k) == local(j)).count() as i64;
    let others = (0..stage.period).any(|k| !local(k));
    (if local(j) && others { PER_LAYER } else { 0 }, alike(j), alike(stage.period))
}

/// Axes that cut key heads, and those that cut the query heads of one: few key heads are whole on every device.
fn heads_cut(m: &Model, mesh: &Mesh) -> [Vec<Axis>; 2] {
    let (kv, n) = (if m.latent.is_some() { 1 } else { m.kv_heads }, mesh.tensor.max(1));
    match (kv % n, m.heads / kv.max(1) % n) {
        (0, _) => [vec![Axis::Tensor], Vec::new()],
        (_, 0) => [Vec::new(), vec![Axis::Tensor]],
        _ => [Vec::new(), Vec::new()],
    }
}

/// Products by sequence and key head.
fn dot(f: F<'_, '_>, a: ValueId, b: ValueId, over: (i64, i64)) -> ValueId {
    let dims = DotDims {
        lhs_batch: vec![0, 1],
        rhs_batch: vec![0, 1],
        lhs_contract: vec![over.0],
        rhs_contract: vec![over.1],
    };
    f.dot_general(a, b, dims, DType::F32)
}

impl Block<'_> {
    /// Positions of the layer's cache, of `context`: a window goes round in as many as it sees.
    pub(super) fn cached_positions(&self, context: i64) -> i64 {
        self.window.map_or(context, |w| w.min(context))
    }

    /// What a layer's cache keeps of the tokens at hand, `(batch, key heads, tokens, channels)`: the last ones that it holds, each at its position
    /// modulo the cache's length.
    pub(super) fn cached(&self, f: F<'_, '_>, t: &mut Tape<'_>, context: i64) -> Vec<ValueId> {
        let (n, held) = (self.seq, self.cached_positions(context));
        let all = self.made(f, t);
        if n <= held {
            return all;
        }
        // Token `n - held + k` goes to place `(n + k) mod held`.
        let first = held - n % held;
        let part = |f: F<'_, '_>, x: ValueId, from: i64, to: i64| {
            let mut limit = f.dims(x);
            if let Some(l) = limit.get_mut(2) {
                *l = to;
            }
            f.slice(x, &[0, 0, from, 0], &limit)
        };
        let turned = |x: &ValueId| {
            let (a, b) = (part(f, *x, n - held, n - held + first), part(f, *x, n - held + first, n));
            if first == held { a } else { f.concatenate(&[b, a], 2) }
        };
        all.iter().map(turned).collect()
    }

    /// Keys and values of the tokens at hand, or what they are made from.
    fn made(&self, f: F<'_, '_>, t: &mut Tape<'_>) -> Vec<ValueId> {
        if let Some(l) = &self.model.latent {
            let [latent, shared] = self.latent_cached(f, t, l);
            let by_head = |f: F<'_, '_>, x, n| f.reshape(x, &[self.batch, 1, self.seq, n]);
            return vec![by_head(f, latent, l.kv_rank), by_head(f, shared, l.rope)];
        }
        let heads = &heads_cut(self.model, &self.mesh)[0];
        ["kr", "v"]
            .map(|name| {
                let x = self.value(f, t, name);
                let x = f.transpose(x, &[0, 2, 1, 3]);
                self.mesh.constrain(f, x, &[BATCH, heads, &[], &[]])
            })
            .to_vec()
    }

    /// Attention of one token of each sequence at position `at` over a layer's cache, `(batch, 1, heads, value)`.
    pub(super) fn attend(&self, f: F<'_, '_>, t: &mut Tape<'_>, cache: &[ValueId], at: ValueId) -> ValueId {
        let m = self.model;
        let &[first, second] = cache else { return at };
        let (kv, (dim, value)) = (if m.latent.is_some() { 1 } else { m.kv_heads }, m.head());
        let group = m.heads / kv.max(1);
        let [heads, groups] = heads_cut(m, &self.mesh);
        // The query heads of a key head are the rows of its products.
        let rows = |f: F<'_, '_>, q: ValueId| {
            let n = f.dims(q).last().copied().unwrap_or(dim);
            let q = f.reshape(q, &[self.batch, kv, group, n]);
            self.mesh.constrain(f, q, &[BATCH, &heads, &groups, &[]])
        };
        let (scores, values) = match &m.latent {
            None => {
                let q = self.value(f, t, "qr");
                f.name("layer/attention/scores");
                let q = rows(f, q);
                (dot(f, q, first, (3, 3)), second)
            }
            Some(l) => {
                let [plain, turned] = self.latent_queries(f, t, l);
                f.name("layer/attention/scores");
                let (plain, turned) = (rows(f, plain), rows(f, turned));
                let (a, b) = (dot(f, plain, first, (3, 3)), dot(f, turned, second, (3, 3)));
                (f.add(a, b), first)
            }
        };
        let mut scores = f.binary_scalar(Opcode::Multiply, scores, self.scale());
        if let Some(cap) = m.score_cap {
            scores = math::bounded(f, scores, cap).0;
        }
        f.name("layer/attention/softmax");
        let dims = f.dims(scores);
        let place = f.iota(TensorType::new(dims.clone(), DType::I32), 3);
        let at = f.broadcast_along(at, &[], &dims);
        let there = f.compare("LE", place, at);
        let hidden = f.splat(f.ty(scores), HIDDEN);
        let scores = f.select(there, scores, hidden);
        let mut max = f.reduce(ReduceKind::Max, scores, &[3]);
        let sinks = m.sinks.then(|| {
            let s = t.weights.get(f, "sinks");
            let s = f.convert(s, DType::F32);
            let s = f.reshape(s, &[kv, group]);
            f.broadcast_along(s, &[1, 2], &[self.batch, kv, group])
        });
        if let Some(s) = sinks {
            max = f.binary(Opcode::Maximum, max, s);
        }
        let top = max;
        let max = f.broadcast_along(max, &[0, 1, 2], &dims);
        let p = f.binary(Opcode::Subtract, scores, max);
        let p = f.unary(Opcode::Exponential, p);
        let mut sum = f.reduce(ReduceKind::Sum, p, &[3]);
        if let Some(s) = sinks {
            let own = f.binary(Opcode::Subtract, s, top);
            let own = f.unary(Opcode::Exponential, own);
            sum = f.add(sum, own);
        }
        let p = f.convert(p, self.dtype);
        f.name("layer/attention/values");
        let o = dot(f, p, values, (3, 2));
        let sum = f.broadcast_along(sum, &[0, 1, 2], &f.dims(o));
        let o = f.binary(Opcode::Divide, o, sum);
        let o = f.convert(o, self.dtype);
        match &m.latent {
            Some(l) => self.latent_output(f, t, l, o),
            None => f.reshape(o, &[self.batch, 1, m.heads, value]),
        }
    }
}
