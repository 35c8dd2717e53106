//! Layers that are alike, stacked: the loops over them, forward and back.

use tpusim_backend::hlo::{FuncBuilder, Opcode, TensorType, ValueId};
use tpusim_isa::num::DType;

use super::layer::{Block, Tape};
use super::weights::{Named, Weight, of_layer};
use super::{Model, Options};

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
pub(super) fn layer_of(f: F<'_, '_>, stack: ValueId, i: ValueId) -> ValueId {
    let dims = f.dims(stack);
    let inner = dims.get(1..).unwrap_or_default();
    let zero = f.scalar(DType::I32, 0.0);
    let starts: Vec<ValueId> = (0..dims.len()).map(|d| if d == 0 { i } else { zero }).collect();
    let part = f.dynamic_slice(stack, &starts, &[&[1], inner].concat());
    f.reshape(part, inner)
}

/// A stack with layer `i` replaced.
pub(super) fn put_layer(f: F<'_, '_>, stack: ValueId, layer: ValueId, i: ValueId) -> ValueId {
    let dims = [&[1], f.dims(layer).as_slice()].concat();
    let part = f.reshape(layer, &dims);
    let zero = f.scalar(DType::I32, 0.0);
    let starts: Vec<ValueId> = (0..dims.len()).map(|d| if d == 0 { i } else { zero }).collect();
    f.dynamic_update_slice(stack, part, &starts)
}

pub(super) fn stack(f: F<'_, '_>, layers: i64, ty: &TensorType) -> ValueId {
    f.splat(TensorType::new([&[layers], ty.dims.as_slice()].concat(), ty.dtype), 0.0)
}

/// Layers that are alike, but for windows, which repeat: a loop over them, forward and back.
#[derive(Clone, Debug)]
pub(super) struct Stage<'a> {
    /// What the names of its weights begin with.
    pub name: &'static str,
    /// Number of the first layer.
    pub first: i64,
    pub layers: i64,
    /// Layers of an iteration.
    pub period: i64,
    pub block: Block<'a>,
    /// Weights of a layer.
    pub weights: Vec<Weight>,
}

/// The layers of `m`, in one stage if all are alike; those that a pipeline can have as `block`, others as `before`. What is left of the last
/// repetition of windows is a stage of its own.
pub(super) fn stages<'a>(m: &Model, o: &Options, block: Block<'a>, before: Block<'a>) -> Vec<Stage<'a>> {
    let (dense, routed) = match m.experts {
        None => (0, block),
        Some(e) => {
            let ff = e.shared.saturating_mul(e.ff);
            (e.dense_layers, Block { ff, experts: Some(o.dispatch(e)), ..block })
        }
    };
    let rest = (m.layers - dense) % m.period();
    let all = [("dense", dense, before), ("layers", m.layers - dense - rest, routed), ("tail", rest, routed)];
    let mut first = 0;
    let mut list = Vec::new();
    for (name, layers, block) in all.into_iter().filter(|s| s.1 > 0) {
        let period = if layers % m.period() == 0 { m.period() } else { layers };
        let experts = block.experts.map(|d| d.experts);
        let weights = of_layer(m, block.ff, experts.as_ref(), &o.mesh);
        list.push(Stage { name, first, layers, period, block, weights });
        first += layers;
    }
    list
}

/// Cosines and sines of rotary positions, for each base of [`Model::rope_bases`].
pub(super) type Tables = Vec<(ValueId, ValueId)>;

/// What a loop over layers reads beside weights.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around<'a> {
    /// Cosines and sines, if positions are rotary, as [`Tables`].
    pub tables: &'a [(ValueId, ValueId)],
    /// Where in the stacks of weights the first layer is, `i32[]`, if not at their beginning.
    pub first: Option<ValueId>,
}

impl<'a> Stage<'a> {
    /// Layer `j` of an iteration.
    pub fn layer(&self, j: i64) -> Block<'a> {
        Block { window: self.block.model.window_of(self.first + j), ..self.block }
    }

    /// The number within the stage of layer `j` of iteration `i`.
    pub fn number(&self, f: F<'_, '_>, i: ValueId, j: i64) -> ValueId {
        if self.period == 1 {
            return i;
        }
        let first = f.binary_scalar(Opcode::Multiply, i, self.period as f64);
        f.binary_scalar(Opcode::Add, first, j as f64)
    }

    /// The output of the last layer, and stacks of what layers keep, their inputs first.
    pub fn forward(&self, f: F<'_, '_>, stacks: &[ValueId], around: Around<'_>, x: ValueId) -> (ValueId, Vec<ValueId>) {
        let (b, layers) = (&self.block, self.layers);
        f.name("layers");
        let kept = b.kept();
        let input = f.ty(x);
        let empty: Vec<ValueId> =
            std::iter::once(&input).chain(kept.iter().map(|k| &k.1)).map(|t| stack(f, layers, t)).collect();
        let fixed = self.fixed(stacks, around);
        let state = [&[x], empty.as_slice()].concat();
        let done = counted(f, layers / self.period, &fixed, &state, |f, i, fixed, state| {
            let Some((mut x, mut held)) = state.split_first().map(|(x, held)| (*x, held.to_vec())) else {
                return Vec::new();
            };
            for j in 0..self.period {
                let (b, number) = (self.layer(j), self.number(f, i, j));
                let (weights, tables) = self.of_layer(f, fixed, number, around.first.is_some());
                let mut tape = Tape { weights: &weights, tables: b.tables(&tables), x, known: Named::default() };
                let y = b.forward(f, &mut tape);
                f.name("layers/keep");
                let made: Vec<ValueId> = kept.iter().map(|(name, _)| tape.known.get(f, name)).collect();
                let made = [&[x], made.as_slice()].concat();
                held = held.iter().zip(made).map(|(stack, v)| put_layer(f, *stack, v, number)).collect();
                x = y;
            }
            [&[x], held.as_slice()].concat()
        });
        match done.split_first() {
            Some((y, kept)) => (*y, kept.to_vec()),
            None => (x, empty),
        }
    }

    /// What loops over layers read and never change.
    pub fn fixed(&self, stacks: &[ValueId], around: Around<'_>) -> Vec<ValueId> {
        let tables = around.tables.iter().flat_map(|(c, s)| [*c, *s]);
        stacks.iter().copied().chain(around.first).chain(tables).collect()
    }

    /// The weights of layer `i` and the tables, from [`Self::fixed`] of a loop, `later` if the first layer is not the first of the stacks.
    pub fn of_layer(&self, f: F<'_, '_>, fixed: &[ValueId], i: ValueId, later: bool) -> (Named, Tables) {
        f.name("layers/weights");
        let (stacks, rest) = fixed.split_at(self.weights.len().min(fixed.len()));
        let (first, tables) = rest.split_at(usize::from(later).min(rest.len()));
        let at = first.first().map_or(i, |first| f.add(*first, i));
        let values: Vec<ValueId> = stacks.iter().map(|s| layer_of(f, *s, at)).collect();
        (Named::new(self.weights.iter().map(|w| w.name), &values), self.tables(tables))
    }

    /// The tables at the beginning of `values`.
    pub fn tables(&self, values: &[ValueId]) -> Tables {
        let pairs = values.chunks_exact(2).take(self.block.model.rope_bases().len());
        pairs.filter_map(|p| Some((*p.first()?, *p.last()?))).collect()
    }

    /// The gradient of the first layer's input, and stacks of the gradients of the layers' weights.
    pub fn backward(
        &self,
        f: F<'_, '_>,
        stacks: &[ValueId],
        around: Around<'_>,
        kept: &[ValueId],
        dx: ValueId,
    ) -> (ValueId, Vec<ValueId>) {
        let (b, layers) = (&self.block, self.layers);
        f.name("layers/gradient");
        let empty: Vec<ValueId> =
            self.weights.iter().map(|w| stack(f, layers, &TensorType::new(w.dims.clone(), b.gradient))).collect();
        // Tables last, where `of_layer` looks for them.
        let fixed = [kept, &self.fixed(stacks, around)].concat();
        let state = [&[dx], empty.as_slice()].concat();
        let names: Vec<&'static str> = b.kept().iter().map(|k| k.0).collect();
        let trips = layers / self.period;
        let done = counted(f, trips, &fixed, &state, |f, i, fixed, state| {
            let Some((mut dy, mut grads)) = state.split_first().map(|(dy, g)| (*dy, g.to_vec())) else {
                return Vec::new();
            };
            let (kept, fixed) = fixed.split_at(kept.len().min(fixed.len()));
            let last = f.scalar(DType::I32, (trips - 1) as f64);
            let i = f.binary(Opcode::Subtract, last, i);
            for j in (0..self.period).rev() {
                let (b, number) = (self.layer(j), self.number(f, i, j));
                let (weights, tables) = self.of_layer(f, fixed, number, around.first.is_some());
                let known: Vec<ValueId> = kept.iter().map(|s| layer_of(f, *s, number)).collect();
                let (x, known) = known.split_first().map_or((dy, &[][..]), |(x, rest)| (*x, rest));
                let known = Named::new(names.iter().copied(), known);
                let mut tape = Tape { weights: &weights, tables: b.tables(&tables), x, known };
                let (dx, of) = b.backward(f, &mut tape, dy);
                f.name("layers/gradient/keep");
                let of = of.in_order(f, self.weights.iter().map(|w| w.name));
                grads = grads.iter().zip(of).map(|(stack, g)| put_layer(f, *stack, g, number)).collect();
                dy = dx;
            }
            [&[dy], grads.as_slice()].concat()
        });
        match done.split_first() {
            Some((dx, grads)) => (*dx, grads.to_vec()),
            None => (dx, empty),
        }
    }
}
