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

/// Layers that are alike: a loop over them, forward and back.
#[derive(Clone, Debug)]
pub(super) struct Stage<'a> {
    /// What the names of its weights begin with.
    pub name: &'static str,
    pub layers: i64,
    pub block: Block<'a>,
    /// Weights of a layer.
    pub weights: Vec<Weight>,
}

/// The layers of `m`, in one stage if all are alike; the last ones as `block`, others as `before`.
pub(super) fn stages<'a>(m: &Model, o: &Options, block: Block<'a>, before: Block<'a>) -> Vec<Stage<'a>> {
    let stage = |name, layers, block: Block<'a>| {
        let experts = block.experts.map(|d| d.experts);
        Stage { name, layers, block, weights: of_layer(m, block.ff, experts.as_ref(), &o.mesh) }
    };
    let Some(e) = m.experts else { return vec![stage("layers", m.layers, block)] };
    let routed = Block { ff: e.shared.saturating_mul(e.ff), experts: Some(o.dispatch(e)), ..block };
    let all = [stage("dense", e.dense_layers, before), stage("layers", m.layers - e.dense_layers, routed)];
    all.into_iter().filter(|s| s.layers > 0).collect()
}

/// What a loop over layers reads beside weights.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around {
    /// Cosines and sines, if positions are rotary.
    pub tables: Option<(ValueId, ValueId)>,
    /// Where in the stacks of weights the first layer is, `i32[]`, if not at their beginning.
    pub first: Option<ValueId>,
}

impl Stage<'_> {
    /// The output of the last layer, and stacks of what layers keep, their inputs first.
    pub fn forward(&self, f: F<'_, '_>, stacks: &[ValueId], around: Around, x: ValueId) -> (ValueId, Vec<ValueId>) {
        let (b, layers) = (&self.block, self.layers);
        f.name("layers");
        let kept = b.kept();
        let input = f.ty(x);
        let empty: Vec<ValueId> =
            std::iter::once(&input).chain(kept.iter().map(|k| &k.1)).map(|t| stack(f, layers, t)).collect();
        let fixed = self.fixed(stacks, around);
        let state = [&[x], empty.as_slice()].concat();
        let done = counted(f, layers, &fixed, &state, |f, i, fixed, state| {
            let [x, kept_stacks @ ..] = state else { return Vec::new() };
            let (weights, tables) = self.of_layer(f, fixed, i, around.first.is_some());
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
    fn fixed(&self, stacks: &[ValueId], around: Around) -> Vec<ValueId> {
        let tables = around.tables.into_iter().flat_map(|(c, s)| [c, s]);
        stacks.iter().copied().chain(around.first).chain(tables).collect()
    }

    /// The weights of layer `i` and the tables, from [`Self::fixed`] of a loop, `later` if the first layer is not the first of the stacks.
    fn of_layer(
        &self,
        f: F<'_, '_>,
        fixed: &[ValueId],
        i: ValueId,
        later: bool,
    ) -> (Named, Option<(ValueId, ValueId)>) {
        f.name("layers/weights");
        let (stacks, rest) = fixed.split_at(self.weights.len().min(fixed.len()));
        let (first, tables) = rest.split_at(usize::from(later).min(rest.len()));
        let at = first.first().map_or(i, |first| f.add(*first, i));
        let values: Vec<ValueId> = stacks.iter().map(|s| layer_of(f, *s, at)).collect();
        let tables = match tables {
            [cos, sin, ..] if self.block.model.rope_base.is_some() => Some((*cos, *sin)),
            _ => None,
        };
        (Named::new(self.weights.iter().map(|w| w.name), &values), tables)
    }

    /// The gradient of the first layer's input, and stacks of the gradients of the layers' weights.
    pub fn backward(
        &self,
        f: F<'_, '_>,
        stacks: &[ValueId],
        around: Around,
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
        let done = counted(f, layers, &fixed, &state, |f, i, fixed, state| {
            let [dy, grads @ ..] = state else { return Vec::new() };
            let (kept, fixed) = fixed.split_at(kept.len().min(fixed.len()));
            let last = f.scalar(DType::I32, (layers - 1) as f64);
            let i = f.binary(Opcode::Subtract, last, i);
            let (weights, tables) = self.of_layer(f, fixed, i, around.first.is_some());
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
