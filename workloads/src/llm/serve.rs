//! Serving: *prefill* puts the keys and values of prompts into a cache and gives the token that follows each; *decode* does so for one token
//! of each sequence, against the cache.
//!
//! A cache is allocated once for `context` positions and updated in place: `(layers, batch, key heads, context, channels)`, so that what a
//! head reads lies together. Devices hold the sequences of their part of the batch and the heads of their part of the tensors. All
//! sequences are at the same position, which is an operand; what lies behind it is read and masked, so that time does not depend on it.
//!
//! Latent attention caches the latent vectors and the rotated part of the key, which all heads share; decode multiplies the projections of
//! keys and values into queries and outputs instead (arXiv:2405.04434, section 2.1.3).

use tpusim_backend::hlo::{
    DotDims, FuncBuilder, Module, ModuleBuilder, Opcode, ReduceKind, TensorType, ValueId, Verified,
};
use tpusim_isa::num::DType;

use super::layer::{Block, Tape};
use super::math;
use super::mesh::{Axis, BATCH, Cut, Mesh};
use super::step::{Stage, Step, counted, layer_of};
use super::weights::{Named, Weight};
use super::{Model, Options};
use crate::WorkloadError;
use crate::draw::Draw;

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

/// Score of a position that is not there yet.
const HIDDEN: f64 = -1e30;

/// What is computed with a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// A step of training.
    #[default]
    Train,
    /// All tokens of prompts, into a cache of so many positions.
    Prefill {
        /// Positions of the cache, at least the prompts'.
        context: i64,
    },
    /// One token of each sequence, against a cache of so many positions.
    Decode {
        /// Positions of the cache.
        context: i64,
    },
}

impl Phase {
    /// Tokens of a sequence that a step takes in.
    pub fn tokens(self, seq: i64) -> i64 {
        if matches!(self, Phase::Decode { .. }) { 1 } else { seq }
    }
}

/// Bytes that each device has to read from HBM once in a serving step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedBytes {
    /// Matrices that multiply a token on the device: its parts over the axes of tensors and experts, of experts as many as tokens can
    /// visit, without rows of the embedding that are only looked up.
    pub weights: u64,
    /// The cache, all positions it has room for.
    pub cache: u64,
}

/// An array of a stage's cache: one layer of it.
struct Store {
    name: &'static str,
    /// Sequences, key heads, positions, channels.
    dims: [i64; 4],
    cut: Cut,
}

fn stores(b: &Block<'_>, context: i64) -> Vec<Store> {
    let m = b.model;
    let store = |name, heads, dim, cut: &[Axis]| {
        let cut = vec![BATCH.to_vec(), cut.to_vec(), Vec::new(), Vec::new()];
        Store { name, dims: [b.batch, heads, context, dim], cut }
    };
    match m.latent {
        Some(l) => vec![store("latent", 1, l.kv_rank, &[]), store("rope", 1, l.rope, &[])],
        None => {
            let heads = &heads_cut(m, &b.mesh)[0];
            vec![store("k", m.kv_heads, m.dim, heads), store("v", m.kv_heads, m.dim, heads)]
        }
    }
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

/// The options of a step that serves: weights in the type of activations, and one token of each sequence to decode.
fn options(o: &Options, phase: Phase) -> Options {
    let seq = phase.tokens(o.seq);
    Options { weights: o.dtype, microbatches: 1, seq, ..*o }
}

/// The program of a serving step. `main` takes the weights, as a training step does, the arrays of the cache, which are donated, and
/// `tokens`: `i32[batch, seq]` of prompts, or for a decode step `i32[batch]` and their `position` `i32[]`. It returns the cache, the logits of
/// the token after the last one, `f32[batch, vocabulary]`, and the token of the largest, `i32[batch]`.
///
/// # Errors
/// Sizes that do not go together or with the mesh.
pub(super) fn build(m: &Model, o: &Options, phase: Phase) -> Result<Verified<Module>, WorkloadError> {
    let (name, context) = match phase {
        Phase::Train => return super::train_step(m, o),
        Phase::Prefill { context } => ("prefill", context),
        Phase::Decode { context } => ("decode", context),
    };
    let inner = options(o, phase);
    inner.check(m)?;
    let refuse = |text: String| Err(WorkloadError::Combination(text));
    if !(1..=crate::MAX_SIZE).contains(&context) || context < inner.seq {
        return refuse(format!("a cache of {context} positions does not hold {} tokens", inner.seq));
    }
    if m.rope_base.is_none() && context > m.context {
        return refuse(format!("context={context}: `{}` has {} positions", m.name, m.context));
    }
    let step = layout(m, &inner);
    let mut module = ModuleBuilder::new(name);
    o.mesh.declare(&mut module);
    let mut f = module.func("main");
    let served = Served { step: &step, context, decode: matches!(phase, Phase::Decode { .. }) };
    let results = served.write(&mut f)?;
    f.ret(&results);
    crate::Workload::finish(name, module)
}

/// Weights as serving holds them: only experts are shared over their axis, so that no step gathers the others, and devices that share
/// tensors each hold a part of the vocabulary, as nobody adds gradients to the embedding.
fn layout<'a>(m: &'a Model, o: &'a Options) -> Step<'a> {
    let mut step = Step::new(m, o);
    let all = step.stages.iter_mut().flat_map(|s| &mut s.weights).chain(&mut step.model);
    for axes in all.filter(|w| !w.name.starts_with("experts_")).flat_map(|w| &mut w.cut) {
        axes.retain(|a| *a != Axis::Expert);
    }
    cut_embedding(&mut step.model, &o.mesh);
    step
}

fn cut_embedding(weights: &mut [Weight], mesh: &Mesh) {
    let table = weights.iter_mut().find(|w| w.name == "embedding");
    let Some(Weight { dims, cut, .. }) = table else { return };
    if let ([vocabulary, ..], [axes, ..]) = (dims.as_slice(), cut.as_mut_slice())
        && vocabulary % mesh.tensor.max(1) == 0
    {
        axes.push(Axis::Tensor);
    }
}

/// What each device reads, as [`ServedBytes`] says; none for a training step.
pub(super) fn bytes(m: &Model, o: &Options, phase: Phase) -> Option<ServedBytes> {
    let (Phase::Prefill { context } | Phase::Decode { context }) = phase else { return None };
    let inner = options(o, phase);
    let step = layout(m, &inner);
    let width = o.dtype.bytes() as i64;
    let of = |dims: &[i64], cut: &[Vec<Axis>], axes: &[Axis]| {
        let parts = cut.iter().flatten().filter(|a| axes.contains(a)).fold(1, |n, a| n * o.mesh.size(*a));
        dims.iter().product::<i64>() * width / parts.max(1)
    };
    let mut weights = 0;
    for stage in &step.stages {
        for w in &stage.weights {
            weights += stage.layers
                * match stage.block.experts.filter(|_| w.name.starts_with("experts_")) {
                    None => of(&w.dims, &w.cut, &[Axis::Tensor]),
                    Some(d) => {
                        let (count, choices) = (d.experts.count.max(1), inner.batch.saturating_mul(inner.seq));
                        let visited = choices.saturating_mul(d.experts.active).min(count);
                        of(&w.dims, &w.cut, &[Axis::Tensor, Axis::Expert]) / count * visited
                    }
                };
        }
    }
    // A table of its own for the logits is all read, and so is one that is shared; a table that is only looked up is not.
    let head = if m.tied { "embedding" } else { "head" };
    let table = step.model.iter().find(|w| w.name == head);
    weights += table.map_or(0, |w| w.dims.iter().product::<i64>() * width / o.mesh.tensor.max(1));
    let all = step.stages.iter().flat_map(|s| stores(&s.block, context).into_iter().map(|c| (s.layers, c)));
    let cache = all.map(|(layers, c)| layers * of(&c.dims, &c.cut, &Axis::ALL)).sum::<i64>();
    Some(ServedBytes { weights: weights.unsigned_abs(), cache: cache.unsigned_abs() })
}

struct Served<'a> {
    step: &'a Step<'a>,
    context: i64,
    decode: bool,
}

impl Served<'_> {
    fn write(&self, f: F<'_, '_>) -> Result<Vec<ValueId>, WorkloadError> {
        let (step, b) = (self.step, &self.step.block);
        let stored: Vec<_> = step.stored().collect();
        let mut weights = Vec::new();
        for (name, dims, cut, draw) in &stored {
            let ty = TensorType::new(dims.clone(), b.dtype);
            weights.push(step.parameter(f, name, ty, (cut, *draw), None)?);
        }
        let mut caches = Vec::new();
        let draw = Draw::Normal { mean: 0.0, deviation: 1.0 };
        for stage in &step.stages {
            for s in stores(&stage.block, self.context) {
                let dims = [&[stage.layers], s.dims.as_slice()].concat();
                let cut: Cut = std::iter::once(Vec::new()).chain(s.cut).collect();
                let name = format!("cache/{}/{}", stage.name, s.name);
                let ty = TensorType::new(dims, b.dtype);
                caches.push(step.parameter(f, &name, ty, (&cut, draw), Some(caches.len()))?);
            }
        }
        let batch: Cut = vec![BATCH.to_vec()];
        let draw = Draw::Below(b.model.vocab.max(1) as u64);
        let (dims, cut) = match self.decode {
            true => (vec![b.batch], batch),
            false => (vec![b.batch, b.seq], vec![BATCH.to_vec(), Vec::new()]),
        };
        let tokens = step.parameter(f, "tokens", TensorType::new(dims, DType::I32), (&cut, draw), None)?;
        let position = match self.decode {
            false => None,
            true => {
                let (ty, draw) = (TensorType::new([], DType::I32), Draw::Below(self.context.max(1) as u64));
                Some(step.parameter(f, "position", ty, (&Vec::new(), draw), None)?)
            }
        };
        let stacked: usize = step.stages.iter().map(|s| s.weights.len()).sum();
        let (mut stacks, outer) = weights.split_at(stacked.min(weights.len()));
        let outer = Named::new(step.model.iter().map(|w| w.name), outer);
        let tokens = f.reshape(tokens, &[b.batch, b.seq]);
        let mut x = step.embedded(f, &outer, tokens);
        x = self.positioned(f, &outer, x, position);
        x = b.spread(f, x);
        f.name("rope");
        let tables = b.model.rope_base.map(|base| self.tables(f, base, position));
        let (mut held, mut results) = (caches.as_slice(), Vec::new());
        for stage in &step.stages {
            let (own, rest) = stacks.split_at(stage.weights.len().min(stacks.len()));
            let count = stores(&stage.block, self.context).len();
            let (cache, after) = held.split_at(count.min(held.len()));
            let (y, cache) = self.layers(f, stage, own, tables, (x, cache), position);
            results.extend(cache);
            (x, stacks, held) = (y, rest, after);
        }
        let (logits, token) = self.next(f, &outer, x);
        results.extend([logits, token]);
        Ok(results)
    }

    /// With learned positions, if the model has them.
    fn positioned(&self, f: F<'_, '_>, outer: &Named, x: ValueId, position: Option<ValueId>) -> ValueId {
        let (b, d) = (&self.step.block, self.step.block.model.d);
        let Some(table) = outer.find("positions") else { return x };
        let rows = match position {
            Some(at) => {
                let zero = f.scalar(DType::I32, 0.0);
                f.dynamic_slice(table, &[at, zero], &[1, d])
            }
            None => f.slice(table, &[0, 0], &[b.seq, d]),
        };
        let rows = f.convert(rows, b.dtype);
        let rows = f.broadcast_along(rows, &[1, 2], &[b.batch, b.seq, d]);
        f.add(x, rows)
    }

    /// Cosines and sines of the positions of a step, `(tokens of a sequence, dim / 2)`.
    fn tables(&self, f: F<'_, '_>, base: f64, position: Option<ValueId>) -> (ValueId, ValueId) {
        math::rope_tables(f, (self.step.block.seq, position), self.step.block.model.rotated(), base)
    }

    /// The output of a stage's last layer, and its cache with the new positions.
    fn layers(
        &self,
        f: F<'_, '_>,
        stage: &Stage<'_>,
        stacks: &[ValueId],
        tables: Option<(ValueId, ValueId)>,
        (x, cache): (ValueId, &[ValueId]),
        position: Option<ValueId>,
    ) -> (ValueId, Vec<ValueId>) {
        f.name("layers");
        let fixed: Vec<ValueId> = stage.fixed(stacks, tables).into_iter().chain(position).collect();
        let state = [&[x], cache].concat();
        let done = counted(f, stage.layers, &fixed, &state, |f, i, fixed, state| {
            let [x, cache @ ..] = state else { return Vec::new() };
            let position = position.and(fixed.last().copied());
            let (weights, tables) = stage.of_layer(f, fixed, i);
            let mut tape = Tape { weights: &weights, tables, x: *x, known: Named::default() };
            let b = &stage.block;
            let new = b.cached(f, &mut tape);
            f.name("layer/cache");
            let cache: Vec<ValueId> = cache.iter().zip(new).map(|(stack, v)| put(f, *stack, v, i, position)).collect();
            if let Some(at) = position {
                let layer: Vec<ValueId> = cache.iter().map(|s| layer_of(f, *s, i)).collect();
                let o = b.attend(f, &mut tape, &layer, at);
                tape.known.set("o", o);
            }
            let y = b.forward(f, &mut tape);
            f.name("layers");
            [&[y], cache.as_slice()].concat()
        });
        match done.split_first() {
            Some((y, cache)) => (*y, cache.to_vec()),
            None => (x, cache.to_vec()),
        }
    }

    /// Logits after the last token of each sequence, in f32, and the first of the largest.
    fn next(&self, f: F<'_, '_>, outer: &Named, x: ValueId) -> (ValueId, ValueId) {
        let (b, m) = (&self.step.block, self.step.block.model);
        f.name("final_norm");
        let last = f.slice(x, &[0, b.seq - 1, 0], &[b.batch, b.seq, m.d]);
        let last = f.reshape(last, &[b.batch, m.d]);
        let last = b.mesh.constrain(f, last, &[BATCH, &[]]);
        let h = b.norm(f, outer, "final_norm", last);
        let (logits, _) = self.step.logits(f, outer, h, DType::F32);
        f.name("argmax");
        let dims = f.dims(logits);
        let max = f.reduce(ReduceKind::Max, logits, &[1]);
        let max = f.broadcast_along(max, &[0], &dims);
        let hit = f.compare("EQ", logits, max);
        let ids = TensorType::new(dims, DType::I32);
        let (token, none) = (f.iota(ids.clone(), 1), f.splat(ids, m.vocab as f64));
        let token = f.select(hit, token, none);
        (logits, f.reduce(ReduceKind::Min, token, &[1]))
    }
}

/// A stack of caches with the positions `v` of layer `i` from `position` on, or from the first.
fn put(f: F<'_, '_>, stack: ValueId, v: ValueId, i: ValueId, position: Option<ValueId>) -> ValueId {
    let dims = [&[1], f.dims(v).as_slice()].concat();
    let part = f.reshape(v, &dims);
    let zero = f.scalar(DType::I32, 0.0);
    f.dynamic_update_slice(stack, part, &[i, zero, zero, position.unwrap_or(zero), zero])
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
    /// What a layer's cache keeps of the tokens at hand, `(batch, key heads, tokens, channels)`.
    fn cached(&self, f: F<'_, '_>, t: &mut Tape<'_>) -> Vec<ValueId> {
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
    fn attend(&self, f: F<'_, '_>, t: &mut Tape<'_>, cache: &[ValueId], at: ValueId) -> ValueId {
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
        let scores = f.binary_scalar(Opcode::Multiply, scores, 1.0 / (dim as f64).sqrt());
        f.name("layer/attention/softmax");
        let dims = f.dims(scores);
        let place = f.iota(TensorType::new(dims.clone(), DType::I32), 3);
        let at = f.broadcast_along(at, &[], &dims);
        let there = f.compare("LE", place, at);
        let hidden = f.splat(f.ty(scores), HIDDEN);
        let scores = f.select(there, scores, hidden);
        let max = f.reduce(ReduceKind::Max, scores, &[3]);
        let max = f.broadcast_along(max, &[0, 1, 2], &dims);
        let p = f.binary(Opcode::Subtract, scores, max);
        let p = f.unary(Opcode::Exponential, p);
        let sum = f.reduce(ReduceKind::Sum, p, &[3]);
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
