//! The whole step: embedding, a loop over layers forward, the loss, a loop over layers backward, the update.

use tpusim_backend::hlo::{
    Attr, AttrList, FuncBuilder, Module, ModuleBuilder, Opcode, ReduceKind, ScatterDims, TensorType, Type, ValueId,
    Verified,
};
use tpusim_isa::num::DType;

use super::context;
use super::layer::Block;
use super::math;
use super::mesh::{Axis, BATCH, Cut, Mesh, POSITIONS, ROWS};
use super::optimizer::{corrections, update};
use super::pipeline::{Pipeline, Place};
use super::stage::{Around, Stage, Tables, counted, layer_of, stages};
use super::weights::{Named, Weight, of_model};
use super::{Model, Options};
use crate::WorkloadError;
use crate::draw::Draw;

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

/// Axes whose places compute by themselves in a step with a pipeline.
const PLACES: &[Axis] = &[Axis::Pipeline, Axis::Data];

/// What cuts the vocabulary of logits.
const VOCABULARY: &[Axis] = &[Axis::Tensor];

/// What one step is written from.
pub(super) struct Step<'a> {
    pub o: &'a Options,
    /// What one copy of a pipeline computes, else all.
    one: Options,
    pub block: Block<'a>,
    /// Layers that are alike, in order.
    pub stages: Vec<Stage<'a>>,
    /// Weights outside of the layers.
    pub model: Vec<Weight>,
}

/// The program: weights, moments, steps so far, tokens and targets to the next weights, moments, steps, and the loss.
pub(super) fn build(m: &Model, o: &Options) -> Result<Verified<Module>, WorkloadError> {
    let step = Step::new(m, o);
    let mut module = ModuleBuilder::new("train");
    o.mesh.declare(&mut module);
    let mut f = module.func("main");
    let results = step.write(&mut f)?;
    f.ret(&results);
    crate::Workload::finish("train", module)
}

impl<'a> Step<'a> {
    /// The layers and weights of `m`.
    pub fn new(m: &'a Model, o: &'a Options) -> Step<'a> {
        // Copies of a pipeline compute by themselves.
        let one = match o.mesh {
            Mesh { pipeline: 2.., data, .. } => {
                Options { batch: o.batch / data, mesh: Mesh { data: 1, ..o.mesh }, ..*o }
            }
            _ => *o,
        };
        let block = Block {
            model: m,
            mesh: one.mesh,
            batch: one.batch / one.parts(),
            seq: o.seq,
            tile: o.tile(),
            dtype: o.dtype,
            gradient: o.weights,
            remat: o.remat,
            products: o.products,
            window: None,
            ff: m.ff,
            experts: None,
        };
        // Devices of a pipeline share the work outside of it.
        let rows = if one.mesh.pipeline > 1 { one.batch / one.mesh.pipeline } else { block.batch };
        let outside = Block { batch: rows, ..block };
        Step { o, one, block: outside, stages: stages(m, &one, block, outside), model: of_model(m, &o.mesh) }
    }
}

impl Step<'_> {
    /// Names, shapes and cuts of all weights as they are stored: those of layers stacked.
    pub fn stored(&self) -> impl Iterator<Item = (String, Vec<i64>, Cut, Draw)> {
        let last = self.stages.len().saturating_sub(1);
        let stacked = self.stages.iter().enumerate().flat_map(move |(i, s)| {
            let flows = i == last && self.o.mesh.pipeline > 1;
            let alone = || (vec![s.layers], vec![Vec::new()]);
            let (first, cuts) = if flows { Pipeline::stacked(self.o, s.layers) } else { alone() };
            s.weights.iter().map(move |w| {
                let (dims, cut) = ([&first, w.dims.as_slice()].concat(), [cuts.as_slice(), &w.cut].concat());
                (format!("{}/{}", s.name, w.name), dims, cut, w.draw)
            })
        });
        stacked.chain(self.model.iter().map(|w| (w.name.to_owned(), w.dims.clone(), w.cut.clone(), w.draw)))
    }

    /// A parameter of `main`, donated to the result `to`.
    pub fn parameter(
        &self,
        f: F<'_, '_>,
        name: &str,
        ty: TensorType,
        (cut, draw): (&Cut, Draw),
        to: Option<usize>,
    ) -> Result<ValueId, WorkloadError> {
        for (n, axes) in ty.dims.iter().zip(cut) {
            let parts = self.o.mesh.parts(axes);
            if n % parts != 0 {
                let text = format!("the mesh cuts a dimension of {n} of `{name}` ({ty}) into {parts} parts");
                return Err(WorkloadError::Combination(text));
            }
        }
        let mut attrs: AttrList = draw.attrs();
        if let Some(to) = to {
            attrs.set("tf.aliasing_output", Attr::Int(to as i64, Type::Scalar(DType::I32)));
        }
        if let Some(text) = self.o.mesh.sharding(cut) {
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
        let parts = (o.microbatches > 1 && o.mesh.pipeline == 1).then_some(o.microbatches);
        let dims: Vec<i64> = parts.into_iter().chain([o.batch / parts.unwrap_or(1), o.seq]).collect();
        let cut: Cut = parts.map(|_| Vec::new()).into_iter().chain([ROWS.to_vec(), Vec::new()]).collect();
        let ids = TensorType::new(dims, DType::I32);
        let draw = Draw::Below(m.vocab.max(1) as u64);
        let tokens = self.parameter(f, "tokens", ids.clone(), (&cut, draw), None)?;
        let targets = self.parameter(f, "targets", ids, (&cut, draw), None)?;

        let (weights, moments) = owned.split_at(stored.len().min(owned.len()));
        let stacked: usize = self.stages.iter().map(|s| s.weights.len()).sum();
        let (stacks, outer) = weights.split_at(stacked.min(weights.len()));
        let outer = Named::new(self.model.iter().map(|w| w.name), outer);
        let (gradients, loss) = match parts {
            None if o.mesh.pipeline > 1 => self.staged(f, weights, (tokens, targets)),
            None => self.gradients(f, stacks, &outer, (tokens, targets), None),
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
            next.push(self.held(f, w, cut));
            for (all, x) in state.iter_mut().zip(after) {
                all.push(self.held(f, x, cut));
            }
        }
        next.extend(state.into_iter().flatten());
        next.extend([step, loss]);
        Ok(next)
    }

    /// `x` cut as said.
    fn held(&self, f: F<'_, '_>, x: ValueId, cut: &[Vec<Axis>]) -> ValueId {
        match self.block.mesh.sharding(cut) {
            Some(text) => f.sharding_constraint(x, &text),
            None => x,
        }
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
        let zeros: Vec<ValueId> = weights.iter().map(|w| f.splat(f.ty(*w), 0.0)).collect();
        let zeros: Vec<ValueId> = zeros.iter().zip(&cuts).map(|(z, cut)| self.held(f, *z, cut)).collect();
        let none = f.splat(TensorType::new([], DType::F32), 0.0);
        let fixed = [&[tokens, targets], weights].concat();
        let sums = counted(f, n, &fixed, &[&[none], zeros.as_slice()].concat(), |f, i, fixed, state| {
            let ([tokens, targets, weights @ ..], [loss, sums @ ..]) = (fixed, state) else { return Vec::new() };
            let (tokens, targets) = (layer_of(f, *tokens, i), layer_of(f, *targets, i));
            let stacked: usize = self.stages.iter().map(|s| s.weights.len()).sum();
            let (stacks, outer) = weights.split_at(stacked.min(weights.len()));
            let outer = Named::new(self.model.iter().map(|w| w.name), outer);
            let (of, more) = self.gradients(f, stacks, &outer, (tokens, targets), None);
            f.name("microbatches/sum");
            let mut next = vec![f.add(*loss, more)];
            for ((sum, g), cut) in sums.iter().zip(of).zip(&cuts) {
                let sum = f.add(*sum, g);
                next.push(self.held(f, sum, cut));
            }
            next
        });
        let mut means = sums.iter().map(|s| f.binary_scalar(Opcode::Multiply, *s, 1.0 / n as f64)).collect::<Vec<_>>();
        let loss = if means.is_empty() { none } else { means.remove(0) };
        (means, loss)
    }

    /// As [`Self::gradients`], with layers in the stages of a pipeline: every place of that axis has its layers and a part of the rest,
    /// and every copy of the model its part of the batch.
    fn staged(
        &self,
        f: F<'_, '_>,
        weights: &[ValueId],
        (tokens, targets): (ValueId, ValueId),
    ) -> (Vec<ValueId>, ValueId) {
        f.name("pipeline");
        let (mesh, none) = (self.o.mesh, TensorType::new([], DType::F32));
        let cuts: Vec<Cut> = self.stored().map(|(_, _, cut, _)| cut).collect();
        let of_tokens: Cut = vec![ROWS.to_vec(), Vec::new()];
        let layers = self.stages.last().map_or(0, |s| s.layers);
        let mut operands = Pipeline::places(self.o, layers, f);
        let own = operands.len();
        operands.extend(weights.iter().copied().zip(cuts.iter().cloned()));
        operands.extend([tokens, targets].map(|x| (x, of_tokens.clone())));
        let summed = weights.iter().map(|w| TensorType::new(f.dims(*w), self.block.gradient));
        let mut results: Vec<(TensorType, Cut)> = summed.zip(cuts.iter().cloned()).collect();
        results.push((none.clone(), Vec::new()));
        let mut done = mesh.manual(f, PLACES, &operands, &results, |f, args| {
            let (places, args) = args.split_at(own.min(args.len()));
            let [weights @ .., tokens, targets] = args else { return Vec::new() };
            let place = Place::of(f, places);
            let stacked: usize = self.stages.iter().map(|s| s.weights.len()).sum();
            let (stacks, outer) = weights.split_at(stacked.min(weights.len()));
            let outer = Named::new(self.model.iter().map(|w| w.name), outer);
            let (mut all, loss) = self.gradients(f, stacks, &outer, (*tokens, *targets), Some(&place));
            f.name("pipeline/sum");
            // Summed over the other axes first, of which each device keeps its part.
            for (x, cut) in all.iter_mut().zip(&cuts) {
                if cut.iter().flatten().any(|a| *a == Axis::Pipeline) {
                    *x = mesh.all_reduce(f, &[Axis::Data], *x);
                } else {
                    let own = self.held(f, *x, cut);
                    *x = mesh.all_reduce(f, PLACES, own);
                }
            }
            all.push(mesh.all_reduce(f, PLACES, loss));
            all
        });
        let loss = done.pop();
        (done, loss.unwrap_or_else(|| f.splat(none, 0.0)))
    }

    /// Rows of the embedding of `tokens` `(batch, seq)`.
    pub fn embedded(&self, f: F<'_, '_>, outer: &Named, tokens: ValueId) -> ValueId {
        f.name("embedding");
        let table = outer.get(f, "embedding");
        let rows = f.take_rows(table, tokens);
        let x = f.convert(rows, self.block.dtype);
        self.scaled_embedding(f, x)
    }

    /// The embedding's rows, or their gradient, as the model scales them.
    fn scaled_embedding(&self, f: F<'_, '_>, x: ValueId) -> ValueId {
        let m = self.block.model;
        if m.scaled_embedding { f.binary_scalar(Opcode::Multiply, x, (m.d as f64).sqrt()) } else { x }
    }

    /// The normalised `h` times the matrix of logits, `(.., vocabulary)`; with the name of the matrix, and which of its dimensions is not
    /// the vocabulary.
    pub fn logits(&self, f: F<'_, '_>, outer: &Named, h: ValueId, out: DType) -> (ValueId, (&'static str, i64)) {
        f.name("logits");
        // The embedding is (vocabulary, d), a head of its own (d, vocabulary).
        let (head, d) = if self.block.model.tied { ("embedding", 1) } else { ("head", 0) };
        let w = outer.get(f, head);
        let w = f.convert(w, self.block.dtype);
        let last = f.dims(h).len() as i64 - 1;
        let logits = math::contract(f, h, w, (&[last], &[d]), out);
        let cut: &[&[Axis]] = if last == 1 { &[BATCH, VOCABULARY] } else { &[BATCH, POSITIONS, VOCABULARY] };
        (self.block.mesh.constrain(f, logits, cut), (head, d))
    }

    /// Gradients of all weights in the order they are stored, and the loss; at a place of a pipeline, those of its layers, and its part of
    /// the others and of the loss.
    fn gradients(
        &self,
        f: F<'_, '_>,
        stacks: &[ValueId],
        outer: &Named,
        (tokens, targets): (ValueId, ValueId),
        place: Option<&Place>,
    ) -> (Vec<ValueId>, ValueId) {
        let (b, m) = (&self.block, self.block.model);
        f.name("positions");
        let [tokens, targets] = [tokens, targets].map(|x| {
            let x = context::balanced(f, &b.mesh, x, 1);
            b.mesh.constrain(f, x, &[BATCH, POSITIONS])
        });
        let mut x = self.embedded(f, outer, tokens);
        if let Some(positions) = outer.find("positions") {
            let p = f.slice(positions, &[0, 0], &[b.seq, m.d]);
            let p = context::balanced(f, &b.mesh, p, 0);
            let p = f.convert(p, b.dtype);
            let p = f.broadcast_along(p, &[1, 2], &[b.batch, b.seq, m.d]);
            x = f.add(x, p);
        }
        let x = b.spread(f, x);
        f.name("rope");
        let bases = m.rope_bases();
        let tables: Tables = bases
            .iter()
            .map(|base| {
                let positions = context::positions(f, &b.mesh, b.seq, m.rotated() / 2);
                math::rope_tables(f, positions, m.rotated(), *base)
            })
            .collect();
        // The last layers that are alike are those in a pipeline.
        let (before, flow) = match (place, self.stages.split_last()) {
            (Some(place), Some((last, before))) => (before, Some((place, Pipeline::new(&self.one, self.o.mesh, last)))),
            _ => (self.stages.as_slice(), None),
        };
        let around = Around { tables: &tables, first: None };
        let (mut x, mut rest, mut passed) = (x, stacks, Vec::new());
        for stage in before {
            let (own, after) = rest.split_at(stage.weights.len().min(rest.len()));
            let (y, kept) = stage.forward(f, own, around, x);
            passed.push((stage, own, kept));
            (x, rest) = (y, after);
        }
        let (mut targets, mut flown) = (targets, Vec::new());
        if let Some((place, p)) = &flow {
            (x, flown) = p.forward(f, place, rest, &tables, x);
            targets = p.as_they_come(f, targets);
        }
        let mut grads = Named::default();
        let (mut dx, loss) = self.loss(f, outer, &mut grads, x, targets);
        let mut stacked = Vec::new();
        if let Some((place, p)) = &flow {
            (dx, stacked) = p.backward(f, place, rest, &tables, (&flown, dx));
        }
        for (stage, own, kept) in passed.iter().rev() {
            let (d, of) = stage.backward(f, own, around, kept, dx);
            stacked = [of, stacked].concat();
            dx = d;
        }
        f.name("embedding/gradient");
        let dx = self.scaled_embedding(f, dx);
        self.embedding_gradient(f, &mut grads, tokens, dx);
        let outer = grads.in_order(f, self.model.iter().map(|w| w.name));
        ([stacked, outer].concat(), loss)
    }
}

impl Step<'_> {
    /// The mean over all positions of the cross-entropy of their targets, and its gradient at the last layer's output.
    fn loss(&self, f: F<'_, '_>, outer: &Named, grads: &mut Named, x: ValueId, targets: ValueId) -> (ValueId, ValueId) {
        let (b, m) = (&self.block, self.block.model);
        f.name("final_norm");
        let h = b.norm(f, outer, "final_norm", x);
        let (logits, (head, d)) = self.logits(f, outer, h, b.dtype);
        let w = outer.get(f, head);
        let w = f.convert(w, b.dtype);
        f.name("loss");
        let mut wide = f.convert(logits, DType::F32);
        let bounded = m.logit_cap.map(|cap| math::bounded(f, wide, cap));
        wide = bounded.map_or(wide, |b| b.0);
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
        let rows = if b.mesh.pipeline > 1 { self.o.batch } else { b.batch };
        let share = 1.0 / (rows * b.seq) as f64;
        let loss = f.binary_scalar(Opcode::Multiply, total, share);

        f.name("loss/gradient");
        let log_sum = f.broadcast_along(log_sum, &[0, 1], &dims);
        let p = f.binary(Opcode::Subtract, wide, log_sum);
        let p = f.unary(Opcode::Exponential, p);
        let hit = f.convert(hit, DType::F32);
        let d_logits = f.binary(Opcode::Subtract, p, hit);
        let mut d_logits = f.binary_scalar(Opcode::Multiply, d_logits, share);
        if let Some((_, slope)) = bounded {
            d_logits = f.mul(d_logits, slope);
        }
        let d_logits = f.convert(d_logits, b.dtype);
        let d_logits = b.mesh.constrain(f, d_logits, &[BATCH, POSITIONS, VOCABULARY]);
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
