//! The whole step: embedding, a loop over layers forward, the loss, a loop over layers backward, the update.

use tpusim_backend::hlo::{
    Attr, AttrList, FuncBuilder, Module, ModuleBuilder, Opcode, ReduceKind, ScatterDims, TensorType, Type, ValueId,
    Verified,
};
use tpusim_isa::num::DType;

use super::context;
use super::layer::{Block, Tape};
use super::math;
use super::mesh::{Axis, BATCH, Cut, POSITIONS};
use super::optimizer::{corrections, update};
use super::weights::{Named, Weight, of_layer, of_model};
use super::{Model, Options};
use crate::WorkloadError;
use crate::draw::Draw;

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

/// Runs `body` on a counter from 0 to below `trips`, values that stay the same, and values it returns the next of; gives their last.
pub(super) fn counted<'m>(
    f: &mut FuncBuilder<'m>,
    trips: i64,
    fixed: &[ValueId],
    state: &[ValueId],
    body: impl FnOnce(&mut FuncBuilder<'m>, ValueId, &[ValueId], &[ValueId]) -> Vec<ValueId>,
) -> Vec<ValueId> {
    let zero = f.scalar(DType::I32, 0.0);
    let all = [&[zero], fixed, state].concat();
    let split = 1 + fixed.len();
    let done = f.while_loop(
        &all,
        |f, args| {
            let limit = f.scalar(DType::I32, trips as f64);
            match args.first() {
                Some(i) => f.compare("LT", *i, limit),
                None => limit,
            }
        },
        |f, args| {
            let (held, state) = args.split_at(split.min(args.len()));
            let [i, fixed @ ..] = held else { return Vec::new() };
            let next = body(f, *i, fixed, state);
            let one = f.scalar(DType::I32, 1.0);
            let i = f.add(*i, one);
            [&[i], fixed, &next].concat()
        },
    );
    done.get(split..).unwrap_or_default().to_vec()
}

/// Layer `i` of a stack.
fn layer_of(f: F<'_, '_>, stack: ValueId, i: ValueId) -> ValueId {
    let dims = f.dims(stack);
    let inner = dims.get(1..).unwrap_or_default();
    let zero = f.scalar(DType::I32, 0.0);
    let starts: Vec<ValueId> = (0..dims.len()).map(|d| if d == 0 { i } else { zero }).collect();
    let part = f.dynamic_slice(stack, &starts, &[&[1], inner].concat());
    f.reshape(part, inner)
}

/// A stack with layer `i` replaced.
fn put_layer(f: F<'_, '_>, stack: ValueId, layer: ValueId, i: ValueId) -> ValueId {
    let dims = [&[1], f.dims(layer).as_slice()].concat();
    let part = f.reshape(layer, &dims);
    let zero = f.scalar(DType::I32, 0.0);
    let starts: Vec<ValueId> = (0..dims.len()).map(|d| if d == 0 { i } else { zero }).collect();
    f.dynamic_update_slice(stack, part, &starts)
}

fn stack(f: F<'_, '_>, layers: i64, ty: &TensorType) -> ValueId {
    f.splat(TensorType::new([&[layers], ty.dims.as_slice()].concat(), ty.dtype), 0.0)
}

/// What one step is written from.
struct Step<'a> {
    o: &'a Options,
    block: Block<'a>,
    /// Layers that are alike, in order.
    stages: Vec<Stage<'a>>,
    /// Weights outside of the layers.
    model: Vec<Weight>,
}

/// Layers that are alike: a loop over them, forward and back.
struct Stage<'a> {
    /// What the names of its weights begin with.
    name: &'static str,
    layers: i64,
    block: Block<'a>,
    /// Weights of a layer.
    weights: Vec<Weight>,
}

/// The layers of `m`, in one stage if all are alike.
fn stages<'a>(m: &Model, o: &Options, block: Block<'a>) -> Vec<Stage<'a>> {
    let stage = |name, layers, block: Block<'a>| {
        let experts = block.experts.map(|d| d.experts);
        Stage { name, layers, block, weights: of_layer(m, block.ff, experts.as_ref(), &o.mesh) }
    };
    let Some(e) = m.experts else { return vec![stage("layers", m.layers, block)] };
    let routed = Block { ff: e.shared.saturating_mul(e.ff), experts: Some(o.dispatch(e)), ..block };
    let all = [stage("dense", e.dense_layers, block), stage("layers", m.layers - e.dense_layers, routed)];
    all.into_iter().filter(|s| s.layers > 0).collect()
}

/// The program: weights, moments, steps so far, tokens and targets to the next weights, moments, steps, and the loss.
pub(super) fn build(m: &Model, o: &Options) -> Result<Verified<Module>, WorkloadError> {
    let block = Block {
        model: m,
        mesh: o.mesh,
        batch: o.batch / o.microbatches.max(1),
        seq: o.seq,
        tile: o.tile(),
        dtype: o.dtype,
        gradient: o.weights,
        remat: o.remat,
        products: o.products,
        ff: m.ff,
        experts: None,
    };
    let step = Step { o, block, stages: stages(m, o, block), model: of_model(m, &o.mesh) };
    let mut module = ModuleBuilder::new("train");
    o.mesh.declare(&mut module);
    let mut f = module.func("main");
    let results = step.write(&mut f)?;
    f.ret(&results);
    crate::Workload::finish("train", module)
}

impl Step<'_> {
    /// Names, shapes and cuts of all weights as they are stored: those of layers stacked.
    fn stored(&self) -> impl Iterator<Item = (String, Vec<i64>, Cut, Draw)> {
        let stacked = self.stages.iter().flat_map(|s| {
            s.weights.iter().map(|w| {
                let dims = [&[s.layers], w.dims.as_slice()].concat();
                (format!("{}/{}", s.name, w.name), dims, [&[Vec::new()], w.cut.as_slice()].concat(), w.draw)
            })
        });
        stacked.chain(self.model.iter().map(|w| (w.name.to_owned(), w.dims.clone(), w.cut.clone(), w.draw)))
    }

    /// A parameter of `main`, donated to the result `to`.
    fn parameter(
        &self,
        f: F<'_, '_>,
        name: &str,
        ty: TensorType,
        (cut, draw): (&Cut, Draw),
        to: Option<usize>,
    ) -> Result<ValueId, WorkloadError> {
        for (n, axes) in ty.dims.iter().zip(cut) {
            let parts = self.block.mesh.parts(axes);
            if n % parts != 0 {
                let text = format!("the mesh cuts a dimension of {n} of `{name}` ({ty}) into {parts} parts");
                return Err(WorkloadError::Combination(text));
            }
        }
        let mut attrs: AttrList = draw.attrs();
        if let Some(to) = to {
            attrs.set("tf.aliasing_output", Attr::Int(to as i64, Type::Scalar(DType::I32)));
        }
        if let Some(text) = self.block.mesh.sharding(cut) {
            attrs.set("sdy.sharding", Attr::Opaque(text));
        }
        Ok(f.param_with(name, ty, attrs))
    }

    fn write(&self, f: F<'_, '_>) -> Result<Vec<ValueId>, WorkloadError> {
        let (o, m) = (self.o, self.block.model);
        let stored: Vec<_> = self.stored().collect();
        let zero = Draw::Normal { mean: 0.0, deviation: 0.0 };
        let mut owned = Vec::new();
        for (name, dims, cut, draw) in &stored {
            let ty = TensorType::new(dims.clone(), o.weights);
            owned.push(self.parameter(f, name, ty, (cut, *draw), Some(owned.len()))?);
        }
        for moment in 0..o.optimizer.moments() {
            for (name, dims, cut, _) in &stored {
                let held = if moment == 0 { o.first_moment.unwrap_or(o.state) } else { o.state };
                let ty = TensorType::new(dims.clone(), held);
                let name = format!("{}/{name}", if moment == 0 { "m" } else { "v" });
                owned.push(self.parameter(f, &name, ty, (cut, zero), Some(owned.len()))?);
            }
        }
        let scalar = TensorType::new([], DType::I32);
        let step = self.parameter(f, "step", scalar, (&Vec::new(), Draw::Below(1)), Some(owned.len()))?;
        let parts = (o.microbatches > 1).then_some(o.microbatches);
        let dims: Vec<i64> = parts.into_iter().chain([self.block.batch, o.seq]).collect();
        let cut: Cut = parts.map(|_| Vec::new()).into_iter().chain([BATCH.to_vec(), Vec::new()]).collect();
        let ids = TensorType::new(dims, DType::I32);
        let draw = Draw::Below(m.vocab.max(1) as u64);
        let tokens = self.parameter(f, "tokens", ids.clone(), (&cut, draw), None)?;
        let targets = self.parameter(f, "targets", ids, (&cut, draw), None)?;

        let (weights, moments) = owned.split_at(stored.len().min(owned.len()));
        let stacked: usize = self.stages.iter().map(|s| s.weights.len()).sum();
        let (stacks, outer) = weights.split_at(stacked.min(weights.len()));
        let outer = Named::new(self.model.iter().map(|w| w.name), outer);
        let (gradients, loss) = match parts {
            None => self.gradients(f, stacks, &outer, tokens, targets),
            Some(n) => self.accumulated(f, n, weights, (tokens, targets)),
        };

        f.name("optimizer");
        let one = f.scalar(DType::I32, 1.0);
        let step = f.add(step, one);
        let count = f.convert(step, DType::F32);
        let corrections = corrections(f, count);
        let (mut next, mut state) = (Vec::new(), vec![Vec::new(); o.optimizer.moments()]);
        for (i, (w, (name, _, cut, _))) in weights.iter().zip(&stored).enumerate() {
            f.name(format!("optimizer/{name}"));
            let of: Vec<ValueId> = moments.iter().copied().skip(i).step_by(stored.len().max(1)).collect();
            let gradient = gradients.get(i).copied().unwrap_or(*w);
            let (w, after) = update(f, *w, gradient, &of, corrections);
            let held = |f: F<'_, '_>, x| match self.block.mesh.sharding(cut) {
                Some(text) => f.sharding_constraint(x, &text),
                None => x,
            };
            next.push(held(f, w));
            for (all, x) in state.iter_mut().zip(after) {
                all.push(held(f, x));
            }
        }
        next.extend(state.into_iter().flatten());
        next.extend([step, loss]);
        Ok(next)
    }

    /// As [`Self::gradients`], means over `n` parts of the batch that are taken one after the other.
    fn accumulated(
        &self,
        f: F<'_, '_>,
        n: i64,
        weights: &[ValueId],
        (tokens, targets): (ValueId, ValueId),
    ) -> (Vec<ValueId>, ValueId) {
        f.name("microbatches");
        let cuts: Vec<Cut> = self.stored().map(|(_, _, cut, _)| cut).collect();
        let held = |f: F<'_, '_>, x, cut: &Cut| match self.block.mesh.sharding(cut) {
            Some(text) => f.sharding_constraint(x, &text),
            None => x,
        };
        let zeros: Vec<ValueId> = weights.iter().map(|w| f.splat(f.ty(*w), 0.0)).collect();
        let zeros: Vec<ValueId> = zeros.iter().zip(&cuts).map(|(z, cut)| held(f, *z, cut)).collect();
        let none = f.splat(TensorType::new([], DType::F32), 0.0);
        let fixed = [&[tokens, targets], weights].concat();
        let sums = counted(f, n, &fixed, &[&[none], zeros.as_slice()].concat(), |f, i, fixed, state| {
            let ([tokens, targets, weights @ ..], [loss, sums @ ..]) = (fixed, state) else { return Vec::new() };
            let (tokens, targets) = (layer_of(f, *tokens, i), layer_of(f, *targets, i));
            let stacked: usize = self.stages.iter().map(|s| s.weights.len()).sum();
            let (stacks, outer) = weights.split_at(stacked.min(weights.len()));
            let outer = Named::new(self.model.iter().map(|w| w.name), outer);
            let (of, more) = self.gradients(f, stacks, &outer, tokens, targets);
            f.name("microbatches/sum");
            let mut next = vec![f.add(*loss, more)];
            for ((sum, g), cut) in sums.iter().zip(of).zip(&cuts) {
                let sum = f.add(*sum, g);
                next.push(held(f, sum, cut));
            }
            next
        });
        let mut means = sums.iter().map(|s| f.binary_scalar(Opcode::Multiply, *s, 1.0 / n as f64)).collect::<Vec<_>>();
        let loss = if means.is_empty() { none } else { means.remove(0) };
        (means, loss)
    }

    /// Gradients of all weights in the order they are stored, and the loss.
    fn gradients(
        &self,
        f: F<'_, '_>,
        stacks: &[ValueId],
        outer: &Named,
        tokens: ValueId,
        targets: ValueId,
    ) -> (Vec<ValueId>, ValueId) {
        let (b, m) = (&self.block, self.block.model);
        f.name("positions");
        let [tokens, targets] = [tokens, targets].map(|x| {
            let x = context::balanced(f, &b.mesh, x, 1);
            b.mesh.constrain(f, x, &[BATCH, POSITIONS])
        });
        f.name("embedding");
        let table = outer.get(f, "embedding");
        let rows = f.take_rows(table, tokens);
        let mut x = f.convert(rows, b.dtype);
        if let Some(positions) = outer.find("positions") {
            let p = f.slice(positions, &[0, 0], &[b.seq, m.d]);
            let p = context::balanced(f, &b.mesh, p, 0);
            let p = f.convert(p, b.dtype);
            let p = f.broadcast_along(p, &[1, 2], &[b.batch, b.seq, m.d]);
            x = f.add(x, p);
        }
        let x = b.spread(f, x);
        f.name("rope");
        let tables = m.rope_base.map(|base| {
            let positions = context::positions(f, &b.mesh, b.seq, m.rotated() / 2);
            math::rope_tables(f, positions, m.rotated(), base)
        });
        let (mut x, mut rest, mut passed) = (x, stacks, Vec::new());
        for stage in &self.stages {
            let (own, after) = rest.split_at(stage.weights.len().min(rest.len()));
            let (y, kept) = stage.forward(f, own, tables, x);
            passed.push((stage, own, kept));
            (x, rest) = (y, after);
        }
        let mut grads = Named::default();
        let (mut dx, loss) = self.loss(f, outer, &mut grads, x, targets);
        let mut stacked = Vec::new();
        for (stage, own, kept) in passed.iter().rev() {
            let (d, of) = stage.backward(f, own, tables, kept, dx);
            stacked = [of, stacked].concat();
            dx = d;
        }
        f.name("embedding/gradient");
        self.embedding_gradient(f, &mut grads, tokens, dx);
        let outer = grads.in_order(f, self.model.iter().map(|w| w.name));
        ([stacked, outer].concat(), loss)
    }
}

impl Stage<'_> {
    /// The output of the last layer, and stacks of what layers keep, their inputs first.
    fn forward(
        &self,
        f: F<'_, '_>,
        stacks: &[ValueId],
        tables: Option<(ValueId, ValueId)>,
        x: ValueId,
    ) -> (ValueId, Vec<ValueId>) {
        let (b, layers) = (&self.block, self.layers);
        f.name("layers");
        let kept = b.kept();
        let input = f.ty(x);
        let empty: Vec<ValueId> =
            std::iter::once(&input).chain(kept.iter().map(|k| &k.1)).map(|t| stack(f, layers, t)).collect();
        let fixed = self.fixed(stacks, tables);
        let state = [&[x], empty.as_slice()].concat();
        let done = counted(f, layers, &fixed, &state, |f, i, fixed, state| {
            let [x, kept_stacks @ ..] = state else { return Vec::new() };
            let (weights, tables) = self.of_layer(f, fixed, i);
            let mut tape = Tape { weights: &weights, tables, x: *x, known: Named::default() };
            let y = b.forward(f, &mut tape);
            f.name("layers/keep");
            let made: Vec<ValueId> = kept.iter().map(|(name, _)| tape.known.get(f, name)).collect();
            let made = [&[*x], made.as_slice()].concat();
            let held: Vec<ValueId> =
                kept_stacks.iter().zip(made).map(|(stack, v)| put_layer(f, *stack, v, i)).collect();
            [&[y], held.as_slice()].concat()
        });
        match done.split_first() {
            Some((y, kept)) => (*y, kept.to_vec()),
            None => (x, empty),
        }
    }

    /// What loops over layers read and never change.
    fn fixed(&self, stacks: &[ValueId], tables: Option<(ValueId, ValueId)>) -> Vec<ValueId> {
        stacks.iter().copied().chain(tables.into_iter().flat_map(|(c, s)| [c, s])).collect()
    }

    /// The weights of layer `i` and the tables, from [`Self::fixed`] of a loop.
    fn of_layer(&self, f: F<'_, '_>, fixed: &[ValueId], i: ValueId) -> (Named, Option<(ValueId, ValueId)>) {
        f.name("layers/weights");
        let (stacks, rest) = fixed.split_at(self.weights.len().min(fixed.len()));
        let values: Vec<ValueId> = stacks.iter().map(|s| layer_of(f, *s, i)).collect();
        let tables = match rest {
            [cos, sin, ..] if self.block.model.rope_base.is_some() => Some((*cos, *sin)),
            _ => None,
        };
        (Named::new(self.weights.iter().map(|w| w.name), &values), tables)
    }

    /// The gradient of the first layer's input, and stacks of the gradients of the layers' weights.
    fn backward(
        &self,
        f: F<'_, '_>,
        stacks: &[ValueId],
        tables: Option<(ValueId, ValueId)>,
        kept: &[ValueId],
        dx: ValueId,
    ) -> (ValueId, Vec<ValueId>) {
        let (b, layers) = (&self.block, self.layers);
        f.name("layers/gradient");
        let empty: Vec<ValueId> =
            self.weights.iter().map(|w| stack(f, layers, &TensorType::new(w.dims.clone(), b.gradient))).collect();
        // Tables last, where `of_layer` looks for them.
        let fixed = [kept, &self.fixed(stacks, tables)].concat();
        let state = [&[dx], empty.as_slice()].concat();
        let names: Vec<&'static str> = b.kept().iter().map(|k| k.0).collect();
        let done = counted(f, layers, &fixed, &state, |f, i, fixed, state| {
            let [dy, grads @ ..] = state else { return Vec::new() };
            let (kept, fixed) = fixed.split_at(kept.len().min(fixed.len()));
            let last = f.scalar(DType::I32, (layers - 1) as f64);
            let i = f.binary(Opcode::Subtract, last, i);
            let (weights, tables) = self.of_layer(f, fixed, i);
            let known: Vec<ValueId> = kept.iter().map(|s| layer_of(f, *s, i)).collect();
            let (x, known) = known.split_first().map_or((*dy, &[][..]), |(x, rest)| (*x, rest));
            let known = Named::new(names.iter().copied(), known);
            let mut tape = Tape { weights: &weights, tables, x, known };
            let (dx, of) = b.backward(f, &mut tape, *dy);
            f.name("layers/gradient/keep");
            let of = of.in_order(f, self.weights.iter().map(|w| w.name));
            let held: Vec<ValueId> = grads.iter().zip(of).map(|(stack, g)| put_layer(f, *stack, g, i)).collect();
            [&[dx], held.as_slice()].concat()
        });
        match done.split_first() {
            Some((dx, grads)) => (*dx, grads.to_vec()),
            None => (dx, empty),
        }
    }
}

impl Step<'_> {
    /// The mean over all positions of the cross-entropy of their targets, and its gradient at the last layer's output.
    fn loss(&self, f: F<'_, '_>, outer: &Named, grads: &mut Named, x: ValueId, targets: ValueId) -> (ValueId, ValueId) {
        let (b, m) = (&self.block, self.block.model);
        f.name("final_norm");
        let h = b.norm(f, outer, "final_norm", x);
        f.name("logits");
        // The embedding is (vocabulary, d), a head of its own (d, vocabulary).
        let (head, d) = if m.tied { ("embedding", 1) } else { ("head", 0) };
        let w = outer.get(f, head);
        let w = f.convert(w, b.dtype);
        let logits = math::contract(f, h, w, (&[2], &[d]), b.dtype);
        let vocabulary: &[&[Axis]] = &[BATCH, POSITIONS, &[Axis::Tensor]];
        let logits = b.mesh.constrain(f, logits, vocabulary);
        f.name("loss");
        let wide = f.convert(logits, DType::F32);
        let dims = f.dims(wide);
        let max = f.reduce(ReduceKind::Max, wide, &[2]);
        let top = f.broadcast_along(max, &[0, 1], &dims);
        let e = f.binary(Opcode::Subtract, wide, top);
        let e = f.unary(Opcode::Exponential, e);
        let sum = f.reduce(ReduceKind::Sum, e, &[2]);
        let log = f.unary(Opcode::Log, sum);
        let log_sum = f.add(max, log);
        let token = f.iota(TensorType::new(dims.clone(), DType::I32), 2);
        let target = f.broadcast_along(targets, &[0, 1], &dims);
        let hit = f.compare("EQ", token, target);
        let zero = f.splat(f.ty(wide), 0.0);
        let right = f.select(hit, wide, zero);
        let right = f.reduce(ReduceKind::Sum, right, &[2]);
        let each = f.binary(Opcode::Subtract, log_sum, right);
        let total = f.reduce(ReduceKind::Sum, each, &[0, 1]);
        let share = 1.0 / (b.batch * b.seq) as f64;
        let loss = f.binary_scalar(Opcode::Multiply, total, share);

        f.name("loss/gradient");
        let log_sum = f.broadcast_along(log_sum, &[0, 1], &dims);
        let p = f.binary(Opcode::Subtract, wide, log_sum);
        let p = f.unary(Opcode::Exponential, p);
        let hit = f.convert(hit, DType::F32);
        let d_logits = f.binary(Opcode::Subtract, p, hit);
        let d_logits = f.binary_scalar(Opcode::Multiply, d_logits, share);
        let d_logits = f.convert(d_logits, b.dtype);
        let d_logits = b.mesh.constrain(f, d_logits, vocabulary);
        f.name("logits/gradient");
        let over: &[i64] = &[0, 1];
        let (one, two) = if m.tied { (d_logits, h) } else { (h, d_logits) };
        let dw = math::contract(f, one, two, (over, over), b.dtype);
        let dw = f.convert(dw, b.gradient);
        grads.set(head, dw);
        let dh = math::contract(f, d_logits, w, (&[2], &[1 - d]), b.dtype);
        f.name("final_norm/gradient");
        let dx = b.norm_gradient(f, outer, grads, ("final_norm", "final_norm_bias"), (x, dh));
        (b.spread(f, dx), loss)
    }

    /// Adds up the rows of `dx` for each token and, for learned positions, for each position.
    fn embedding_gradient(&self, f: F<'_, '_>, grads: &mut Named, tokens: ValueId, dx: ValueId) {
        let (b, m) = (&self.block, self.block.model);
        // Rows add to what the logits gave a tied table.
        let table = TensorType::new([m.vocab, m.d], b.gradient);
        let zeros = match grads.find("embedding") {
            Some(g) => g,
            None => f.splat(table.clone(), 0.0),
        };
        let rows = f.convert(dx, b.gradient);
        let dims = ScatterDims {
            update_window_dims: vec![2],
            inserted_window_dims: vec![0],
            scatter_dims_to_operand_dims: vec![0],
            index_vector_dim: 2,
            ..ScatterDims::default()
        };
        let attrs = [("scatter_dimension_numbers", Attr::Scatter(Box::new(dims)))];
        let scalar = TensorType::new([], b.gradient);
        let body = f.region(&[scalar.clone(), scalar], |f, a| match a {
            [x, y] => vec![f.add(*x, *y)],
            _ => Vec::new(),
        });
        let sums = f.op_with_regions(Opcode::Scatter, &[zeros, tokens, rows], &attrs, vec![body], &[table]);
        if let Some(sums) = sums.first() {
            grads.replace("embedding", *sums);
        }
        if m.rope_base.is_none() {
            let sum = math::sum_wide(f, dx, &[0]);
            let sum = context::restored(f, &b.mesh, sum, 0);
            let sum = f.pad(sum, 0.0, &[0, 0], &[m.context - b.seq, 0]);
            let sum = f.convert(sum, b.gradient);
            grads.set("positions", sum);
        }
    }
}
