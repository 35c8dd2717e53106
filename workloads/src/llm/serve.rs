//! Serving: *prefill* puts the keys and values of prompts into a cache and gives the token that follows each; *decode* does so for one token
//! of each sequence, against the cache.
//!
//! A cache is allocated once for `context` positions and updated in place: `(layers, batch, key heads, context, channels)`, so that what a
//! head reads lies together. Devices hold the sequences of their part of the batch and the heads of their part of the tensors. All
//! sequences are at the same position, which is an operand; what lies behind it is read and masked, so that time does not depend on it.
//! Layers that see only a window of positions have caches of that length, in which positions go round.
//!
//! Latent attention caches the latent vectors and the rotated part of the key, which all heads share; decode multiplies the projections of
//! keys and values into queries and outputs instead (arXiv:2405.04434, section 2.1.3).

use tpusim_backend::hlo::{FuncBuilder, Module, ModuleBuilder, Opcode, ReduceKind, TensorType, ValueId, Verified};
use tpusim_isa::num::DType;

use super::cache::{PER_LAYER, place_of, stores};
use super::layer::Tape;
use super::math;
use super::mesh::{Axis, BATCH, Cut, Mesh};
use super::stage::{Around, Stage, Tables, counted, layer_of};
use super::step::Step;
use super::weights::{Named, Weight};
use super::{Model, Options};
use crate::WorkloadError;
use crate::draw::Draw;

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

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

/// The options that a step is written with: to serve, weights in the type of activations, and one token of each sequence to decode.
pub(super) fn options(o: &Options, phase: Phase) -> Options {
    if phase == Phase::Train {
        return *o;
    }
    let seq = phase.tokens(o.seq);
    Options { weights: o.dtype, microbatches: 1, repeats: 1, seq, ..*o }
}

/// The program of a serving step. `main` takes the weights, as a training step does, the arrays of the cache, which are donated, and
/// `tokens`: `i32[batch, seq]` of prompts, or for a decode step `i32[batch]` and their `position` `i32[]`. It returns the cache, the logits of
/// the token after the last one, `(batch, vocabulary)` in the type of activations, and the token of the largest, `i32[batch]`.
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
    for axis in [Axis::Pipeline, Axis::Context] {
        if o.mesh.size(axis) > 1 {
            let (text, n) = (axis.name(), o.mesh.size(axis));
            return refuse(format!(
                "{text}={n}: the axis is for training; a mesh of data, fsdp, expert and tensor would work"
            ));
        }
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
    let all = step.stages.iter().flat_map(|s| stores(s, context));
    let cache = all.map(|c| of(&c.dims, &c.cut, &Axis::ALL)).sum::<i64>();
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
            for s in stores(stage, self.context) {
                let name = format!("cache/{}/{}", stage.name, s.name);
                let ty = TensorType::new(s.dims, b.dtype);
                caches.push(step.parameter(f, &name, ty, (&s.cut, draw), Some(caches.len()))?);
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
        let tables: Tables = b.model.rope_bases().iter().map(|base| self.tables(f, *base, position)).collect();
        let (mut held, mut results) = (caches.as_slice(), Vec::new());
        for stage in &step.stages {
            let (own, rest) = stacks.split_at(stage.weights.len().min(stacks.len()));
            let count = stores(stage, self.context).len();
            let (cache, after) = held.split_at(count.min(held.len()));
            let (y, cache) = self.layers(f, stage, own, &tables, (x, cache), position);
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
        let (b, dim) = (&self.step.block, self.step.block.model.rotated());
        let table = TensorType::new([b.seq, dim / 2], DType::F32);
        let mut at = f.iota(table.clone(), 0);
        if let Some(from) = position {
            let from = f.convert(from, DType::F32);
            let from = f.broadcast_along(from, &[], &table.dims);
            at = f.add(at, from);
        }
        math::rope_tables(f, at, dim, base)
    }

    /// The output of a stage's last layer, and its cache with the new positions.
    fn layers(
        &self,
        f: F<'_, '_>,
        stage: &Stage<'_>,
        stacks: &[ValueId],
        tables: &[(ValueId, ValueId)],
        (x, cache): (ValueId, &[ValueId]),
        position: Option<ValueId>,
    ) -> (ValueId, Vec<ValueId>) {
        f.name("layers");
        let fixed: Vec<ValueId> =
            stage.fixed(stacks, Around { tables, first: None }).into_iter().chain(position).collect();
        let state = [&[x], cache].concat();
        let done = counted(f, stage.layers / stage.period, &fixed, &state, |f, i, fixed, state| {
            let Some((first, held)) = state.split_first() else { return Vec::new() };
            let (mut x, mut cache) = (*first, held.to_vec());
            let position = position.and(fixed.last().copied());
            for j in 0..stage.period {
                let (b, number) = (stage.layer(j), stage.number(f, i, j));
                let (weights, tables) = stage.of_layer(f, fixed, number, false);
                let mut tape = Tape { weights: &weights, tables: b.tables(&tables), x, known: Named::default() };
                let new = b.cached(f, &mut tape, self.context);
                f.name("layer/cache");
                let (from, before, alike) = place_of(stage, j);
                let at = match (before, alike) {
                    (0, 1) => i,
                    _ => {
                        let first = f.binary_scalar(Opcode::Multiply, i, alike as f64);
                        f.binary_scalar(Opcode::Add, first, before as f64)
                    }
                };
                let held = b.cached_positions(self.context);
                let slot = position.map(|p| match held < self.context {
                    true => f.binary_scalar(Opcode::Remainder, p, held as f64),
                    false => p,
                });
                let own = cache.iter_mut().skip(from).take(PER_LAYER);
                let mut layer = Vec::new();
                for (stack, v) in own.zip(new) {
                    *stack = put(f, *stack, v, at, slot);
                    layer.push(*stack);
                }
                if let Some(position) = position {
                    let layer: Vec<ValueId> = layer.iter().map(|s| layer_of(f, *s, at)).collect();
                    let o = b.attend(f, &mut tape, &layer, position);
                    tape.known.set("o", o);
                }
                x = b.forward(f, &mut tape);
                f.name("layers");
            }
            [&[x], cache.as_slice()].concat()
        });
        match done.split_first() {
            Some((y, cache)) => (*y, cache.to_vec()),
            None => (x, cache.to_vec()),
        }
    }

    /// Logits after the last token of each sequence, in the type of activations, and the first of the largest before they are rounded to it.
    fn next(&self, f: F<'_, '_>, outer: &Named, x: ValueId) -> (ValueId, ValueId) {
        let (b, m) = (&self.step.block, self.step.block.model);
        f.name("final_norm");
        let last = f.slice(x, &[0, b.seq - 1, 0], &[b.batch, b.seq, m.d]);
        let last = f.reshape(last, &[b.batch, m.d]);
        let last = b.mesh.constrain(f, last, &[BATCH, &[]]);
        let h = b.norm(f, outer, "final_norm", last);
        let (mut logits, _) = self.step.logits(f, outer, h, DType::F32);
        if let Some(cap) = m.logit_cap {
            logits = math::bounded(f, logits, cap).0;
        }
        f.name("argmax");
        let dims = f.dims(logits);
        let max = f.reduce(ReduceKind::Max, logits, &[1]);
        let max = f.broadcast_along(max, &[0], &dims);
        let hit = f.compare("EQ", logits, max);
        let ids = TensorType::new(dims, DType::I32);
        let (token, none) = (f.iota(ids.clone(), 1), f.splat(ids, m.vocab as f64));
        let token = f.select(hit, token, none);
        let token = f.reduce(ReduceKind::Min, token, &[1]);
        (f.convert(logits, b.dtype), token)
    }
}

/// A stack of caches with the positions `v` of layer `i` from `position` on, or from the first.
fn put(f: F<'_, '_>, stack: ValueId, v: ValueId, i: ValueId, position: Option<ValueId>) -> ValueId {
    let dims = [&[1], f.dims(v).as_slice()].concat();
    let part = f.reshape(v, &dims);
    let zero = f.scalar(DType::I32, 0.0);
    f.dynamic_update_slice(stack, part, &[i, zero, zero, position.unwrap_or(zero), zero])
}
