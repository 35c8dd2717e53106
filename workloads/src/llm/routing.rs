//! Where tokens go: the scores of experts, the choices of each token in order of experts, and their slots.

use tpusim_backend::hlo::{Attr, FuncBuilder, Literal, Opcode, ReduceKind, TensorType, Type, ValueId};
use tpusim_isa::num::DType;

use super::experts::{Dispatch, take};
use super::imbalance::Imbalance;
use super::layer::{Block, Tape};
use super::math;
use super::weights::Named;

/// What a group knows of where its tokens go. A choice is one of the experts of one token, numbered token first.
#[derive(Clone, Copy)]
pub(super) struct Routed {
    /// Experts of each token `(groups, tokens, active)`.
    pub ids: ValueId,
    /// How much each of them counts, in f32; one in all.
    pub share: ValueId,
    /// The token of each slot `(groups, experts * capacity)`.
    pub token: ValueId,
    /// The slot of each choice `(groups, tokens * active)`; one that is never taken if it was dropped.
    pub slot: ValueId,
    /// How much the row of a slot counts `(groups, experts, capacity)`, in f32; zero where there is none.
    pub scale: ValueId,
    /// The choice of each slot, or [`Dispatch::none`].
    pub index: ValueId,
}

pub(super) const ROUTED: [&str; 6] = ["ids", "share", "token", "slot", "scale", "index"];

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

fn int(v: i64) -> Attr {
    Attr::Int(v, Type::Scalar(DType::I64))
}

/// Sorts arrays `(groups, n)` by the first of them.
fn sort(f: F<'_, '_>, operands: &[ValueId]) -> Vec<ValueId> {
    let types: Vec<TensorType> = operands.iter().map(|&v| f.ty(v)).collect();
    let args: Vec<TensorType> = types.iter().flat_map(|t| [(); 2].map(|()| TensorType::new([], t.dtype))).collect();
    let body = f.region(&args, |f, a| match a {
        [x, y, ..] => vec![f.compare("LT", *x, *y)],
        _ => Vec::new(),
    });
    let attrs = [("dimension", int(1)), ("is_stable", Attr::Bool(false))];
    f.op_with_regions(Opcode::Sort, operands, &attrs, vec![body], &types)
}

/// Column `j` of `x` `(groups, tokens, active)`, along all `n` of a last dimension.
fn column(f: F<'_, '_>, x: ValueId, j: i64, n: i64) -> ValueId {
    let dims = f.dims(x);
    let (g, t) = (dims.first().copied().unwrap_or(1), dims.get(1).copied().unwrap_or(1));
    let part = f.slice(x, &[0, 0, j], &[g, t, j + 1]);
    let part = f.reshape(part, &[g, t]);
    f.broadcast_along(part, &[0, 1], &[g, t, n])
}

/// What the router adds to the scores of experts: the logarithms of their chances, as a bias that it could have learned.
fn liked(f: F<'_, '_>, i: Imbalance, experts: i64) -> ValueId {
    let chances = i.chances(usize::try_from(experts).unwrap_or(1));
    let bytes: Vec<u8> = chances.iter().flat_map(|p| (p.ln() as f32).to_le_bytes()).collect();
    f.literal(Literal { ty: TensorType::new([experts], DType::F32), bytes: bytes.into() })
}

impl Block<'_> {
    /// The largest scores of each token, and whose they are.
    fn choose(&self, f: F<'_, '_>, d: &Dispatch, logits: ValueId) -> (ValueId, ValueId) {
        let (g, t, k, e) = (d.groups, d.tokens, d.experts.active, d.experts.count);
        let types = [DType::F32, DType::I32].map(|dtype| TensorType::new([g, t, k], dtype));
        if d.drops() {
            let found = f.op(Opcode::ChloTopK, &[logits], &[("k", int(k))], &types);
            if let [values, ids] = found[..] {
                return (values, ids);
            }
        }
        // Choice `n` visits expert `n mod experts`.
        let number = TensorType::new([g, t, k], DType::I32);
        let (token, at) = (f.iota(number.clone(), 1), f.iota(number, 2));
        let first = f.binary_scalar(Opcode::Multiply, token, k as f64);
        let choice = f.add(first, at);
        let ids = f.binary_scalar(Opcode::Remainder, choice, e as f64);
        let expert = f.iota(TensorType::new([g, t, e], DType::I32), 2);
        let zero = f.splat(f.ty(logits), 0.0);
        let mut all = Vec::new();
        for j in 0..k {
            let id = column(f, ids, j, e);
            let mine = f.compare("EQ", expert, id);
            let score = f.select(mine, logits, zero);
            let score = f.reduce(ReduceKind::Sum, score, &[2]);
            all.push(f.reshape(score, &[g, t, 1]));
        }
        (f.concatenate(&all, 2), ids)
    }

    pub(super) fn routed(&self, f: F<'_, '_>, t: &mut Tape<'_>, d: &Dispatch) -> Routed {
        if t.known.find("index").is_none() {
            let h = self.value(f, t, "h2");
            f.name("layer/router");
            let w = self.weight(f, t, "router");
            let logits = math::contract(f, h, w, (&[2], &[0]), DType::F32);
            let logits = self.grouped(f, d, logits);
            let mut logits = self.in_groups(f, d, logits);
            if let Some(i) = d.imbalance {
                let liked = liked(f, i, d.experts.count);
                let liked = f.broadcast_along(liked, &[2], &f.dims(logits));
                logits = f.add(logits, liked);
            }
            let (scores, ids) = self.choose(f, d, logits);
            // Softmax over all experts, of which the chosen ones are made to add up to one, is softmax over those.
            let dims = f.dims(scores);
            let max = f.reduce(ReduceKind::Max, scores, &[2]);
            let max = f.broadcast_along(max, &[0, 1], &dims);
            let p = f.binary(Opcode::Subtract, scores, max);
            let p = f.unary(Opcode::Exponential, p);
            let sum = f.reduce(ReduceKind::Sum, p, &[2]);
            let sum = f.broadcast_along(sum, &[0, 1], &dims);
            let share = f.binary(Opcode::Divide, p, sum);
            f.name("layer/router/slots");
            let routed = self.slots(f, d, ids, share);
            let all = [routed.ids, routed.share, routed.token, routed.slot, routed.scale, routed.index];
            ROUTED.iter().zip(all).for_each(|(name, v)| t.known.set(name, v));
        }
        let [ids, share, token, slot, scale, index] = ROUTED.map(|name| t.known.get(f, name));
        Routed { ids, share, token, slot, scale, index }
    }

    /// Where the choices `ids` `(groups, tokens, active)` go.
    fn slots(&self, f: F<'_, '_>, d: &Dispatch, ids: ValueId, share: ValueId) -> Routed {
        let (g, e, c, n) = (d.groups, d.experts.count, d.capacity(), d.choices());
        let flat = TensorType::new([g, n], DType::I32);
        let expert = f.reshape(ids, &[g, n]);
        let choice = f.iota(flat.clone(), 1);
        let key = f.binary_scalar(Opcode::Multiply, expert, d.none() as f64);
        let key = f.add(key, choice);
        let weights = f.reshape(share, &[g, n]);
        let sorted = sort(f, &[key, weights]);
        let [key, weights] = sorted[..] else {
            return Routed { ids, share, token: ids, slot: ids, scale: share, index: ids };
        };
        let index = f.binary_scalar(Opcode::And, key, (d.none() - 1) as f64);
        let shift = f.splat(flat.clone(), d.none().ilog2().into());
        let expert = f.binary(Opcode::ShiftRightLogical, key, shift);
        // How many choices each expert has, and how many there are before its own.
        let table = [g, e, n];
        let number = f.iota(TensorType::new(table, DType::I32), 1);
        let wide = f.broadcast_along(expert, &[0, 2], &table);
        let mine = f.compare("EQ", number, wide);
        let one = f.convert(mine, DType::I32);
        let count = f.reduce(ReduceKind::Sum, one, &[2]);
        let square = TensorType::new([g, e, e], DType::I32);
        let (row, col) = (f.iota(square.clone(), 1), f.iota(square.clone(), 2));
        let before = f.compare("LT", row, col);
        let counts = f.broadcast_along(count, &[0, 1], &square.dims);
        let zero = f.splat(square, 0.0);
        let counts = f.select(before, counts, zero);
        let first = f.reduce(ReduceKind::Sum, counts, &[1]);
        // The slot of each choice in order of experts, then in order of choices.
        let firsts = f.broadcast_along(first, &[0, 1], &table);
        let zero = f.splat(TensorType::new(table, DType::I32), 0.0);
        let firsts = f.select(mine, firsts, zero);
        let firsts = f.reduce(ReduceKind::Sum, firsts, &[1]);
        let rank = f.binary(Opcode::Subtract, choice, firsts);
        let slot = f.binary_scalar(Opcode::Multiply, expert, c as f64);
        let mut slot = f.add(slot, rank);
        if d.drops() {
            let limit = f.splat(flat.clone(), d.admitted() as f64);
            let admitted = f.compare("LT", rank, limit);
            let none = f.splat(flat, (c - 1) as f64);
            slot = f.select(admitted, slot, none);
        }
        let by_choice = sort(f, &[index, slot]);
        let slot = by_choice.get(1).copied().unwrap_or(slot);
        // The choices of each expert lie one after the other.
        let windows = |f: F<'_, '_>, x: ValueId| {
            let x = f.pad(x, 0.0, &[0, 0], &[0, c]);
            take(f, x, first, Some(c))
        };
        let (index, weights) = (windows(f, index), windows(f, weights));
        let slots = TensorType::new([g, e, c], DType::I32);
        let position = f.iota(slots.clone(), 2);
        let count = f.broadcast_along(count, &[0, 1], &slots.dims);
        let mut live = f.compare("LT", position, count);
        if d.drops() {
            let limit = f.splat(slots.clone(), d.admitted() as f64);
            let admitted = f.compare("LT", position, limit);
            live = f.binary(Opcode::And, live, admitted);
        }
        let zero = f.splat(TensorType::new(slots.dims.clone(), DType::F32), 0.0);
        let scale = f.select(live, weights, zero);
        let token = f.binary_scalar(Opcode::Divide, index, d.experts.active as f64);
        let none = f.splat(slots, d.none() as f64);
        let index = f.select(live, index, none);
        let (token, index) = (f.reshape(token, &[g, e * c]), f.reshape(index, &[g, e * c]));
        Routed { ids, share, token, slot, scale, index }
    }

    /// The gradient through the scores of the router's input, and that of the router, from that of the slots' scales.
    pub(super) fn router_gradient(
        &self,
        f: F<'_, '_>,
        t: &mut Tape<'_>,
        grads: &mut Named,
        d: &Dispatch,
        routed: Routed,
        d_scale: ValueId,
    ) -> ValueId {
        f.name("layer/router/gradient");
        let (g, e, n) = (d.groups, d.experts.count, d.choices());
        let d_scale = self.back(f, d, d_scale);
        let d_scale = f.reshape(d_scale, &[g, e * d.capacity()]);
        let (mut keys, mut values) = (routed.index, d_scale);
        if d.drops() {
            // Choices without a slot take part with nothing, so that as many are sorted as there are.
            let flat = TensorType::new([g, n], DType::I32);
            let unused = f.splat(flat.clone(), (d.capacity() - 1) as f64);
            let dropped = f.compare("EQ", routed.slot, unused);
            let (choice, none) = (f.iota(flat.clone(), 1), f.splat(flat, d.none() as f64));
            let more = f.select(dropped, choice, none);
            keys = f.concatenate(&[keys, more], 1);
            let zero = f.splat(TensorType::new([g, n], DType::F32), 0.0);
            values = f.concatenate(&[values, zero], 1);
        }
        let sorted = sort(f, &[keys, values]);
        let d_share = sorted.get(1).copied().unwrap_or(values);
        let d_share = f.slice(d_share, &[0, 0], &[g, n]);
        let d_share = f.reshape(d_share, &[g, d.tokens, d.experts.active]);
        // Softmax: share (d_share - sum of share d_share).
        let product = f.mul(routed.share, d_share);
        let sum = f.reduce(ReduceKind::Sum, product, &[2]);
        let dims = f.dims(d_share);
        let sum = f.broadcast_along(sum, &[0, 1], &dims);
        let centred = f.binary(Opcode::Subtract, d_share, sum);
        let d_scores = f.mul(routed.share, centred);
        let all = TensorType::new([g, d.tokens, e], DType::F32);
        let expert = f.iota(TensorType::new(all.dims.clone(), DType::I32), 2);
        let mut d_logits = f.splat(all.clone(), 0.0);
        for j in 0..d.experts.active {
            let (id, score) = (column(f, routed.ids, j, e), column(f, d_scores, j, e));
            let mine = f.compare("EQ", expert, id);
            let zero = f.splat(all.clone(), 0.0);
            let part = f.select(mine, score, zero);
            d_logits = f.add(d_logits, part);
        }
        let d_logits = self.in_order(f, d_logits);
        let d_logits = f.convert(d_logits, self.dtype);
        let h = self.value(f, t, "h2");
        let over: &[i64] = &[0, 1];
        let dw = math::contract(f, h, d_logits, (over, over), self.gradient);
        grads.set("router", dw);
        let w = self.weight(f, t, "router");
        math::contract(f, d_logits, w, (&[2], &[1]), self.dtype)
    }
}
