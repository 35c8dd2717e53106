//! Multi-head latent attention (arXiv:2405.04434, section 2.1): queries, and keys with values, come from projections of low rank; a head's
//! key has a part with a position, which all heads share, and a part without.
//!
//! Training and prefill make the keys and values of all heads; decode multiplies their projections into queries and outputs instead, and
//! caches only what they are made from.

use tpusim_backend::hlo::{DotDims, FuncBuilder, ReduceKind, ValueId};
use tpusim_isa::num::DType;

use super::layer::{Block, HEADS, Tape};
use super::math;
use super::models::Latent;
use super::weights::Named;

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

/// What [`Block::latent_value`] computes.
pub(super) const VALUES: [&str; 9] = ["qa", "qn", "q", "kva", "kvn", "kv", "qr", "kr", "v"];

/// `x` from channel `from` to channel `to` of its last dimension.
fn part(f: F<'_, '_>, x: ValueId, from: i64, to: i64) -> ValueId {
    let mut limit = f.dims(x);
    let mut start = vec![0; limit.len()];
    if let (Some(s), Some(l)) = (start.last_mut(), limit.last_mut()) {
        (*s, *l) = (from, to);
    }
    f.slice(x, &start, &limit)
}

fn join(f: F<'_, '_>, a: ValueId, b: ValueId) -> ValueId {
    let last = f.dims(a).len() as i64 - 1;
    f.concatenate(&[a, b], last)
}

impl Block<'_> {
    /// Values on the way from the block's normalised input to queries `qr` `(batch, seq, heads, nope + rope)`, keys `kr` of that shape and
    /// values `v` `(batch, seq, heads, value)`.
    pub(super) fn latent_value(&self, f: F<'_, '_>, t: &mut Tape<'_>, l: &Latent, name: &'static str) -> ValueId {
        if let Some(v) = t.known.find(name) {
            return v;
        }
        let [b, s, heads] = [self.batch, self.seq, self.model.heads];
        let product = |f: F<'_, '_>, t: &mut Tape<'_>, from: &'static str, weight: &str| {
            let x = self.value(f, t, from);
            f.name(format!("layer/attention/{name}"));
            self.product(f, t, x, weight, "")
        };
        let v = match name {
            "qa" => product(f, t, "h", "wq_a"),
            "q" => product(f, t, "qn", "wq_b"),
            "kva" => product(f, t, "h", "wkv_a"),
            "kv" => product(f, t, "kvn", "wkv_b"),
            "qn" => {
                let x = self.value(f, t, "qa");
                f.name("layer/attention/q_norm");
                self.norm(f, t.weights, "q_a_norm", x)
            }
            "kvn" => {
                let x = self.value(f, t, "kva");
                f.name("layer/attention/kv_norm");
                let x = part(f, x, 0, l.kv_rank);
                self.norm(f, t.weights, "kv_norm", x)
            }
            "qr" => {
                let q = self.value(f, t, "q");
                f.name("layer/attention/rope");
                let (plain, turned) = (part(f, q, 0, l.nope), part(f, q, l.nope, l.nope + l.rope));
                let turned = self.turned(f, t, turned, false);
                let q = join(f, plain, turned);
                self.mesh.constrain(f, q, HEADS)
            }
            "kr" => {
                let (kv, shared) = (self.value(f, t, "kv"), self.value(f, t, "kva"));
                f.name("layer/attention/rope");
                let shared = part(f, shared, l.kv_rank, l.kv_rank + l.rope);
                let shared = f.reshape(shared, &[b, s, 1, l.rope]);
                let shared = self.turned(f, t, shared, false);
                let shared = f.reshape(shared, &[b, s, l.rope]);
                let shared = f.broadcast_along(shared, &[0, 1, 3], &[b, s, heads, l.rope]);
                let plain = part(f, kv, 0, l.nope);
                join(f, plain, shared)
            }
            _ => {
                let kv = self.value(f, t, "kv");
                f.name("layer/attention/v");
                part(f, kv, l.nope, l.nope + l.value)
            }
        };
        t.known.set(name, v);
        v
    }

    fn turned(&self, f: F<'_, '_>, t: &Tape<'_>, x: ValueId, back: bool) -> ValueId {
        t.tables.map_or(x, |tables| math::rope(f, x, tables, back))
    }

    /// The gradient of the block's normalised input from those of queries, keys and values; those of the weights into `grads`.
    pub(super) fn latent_gradient(
        &self,
        f: F<'_, '_>,
        t: &mut Tape<'_>,
        grads: &mut Named,
        l: &Latent,
        [dq, dk, dv]: [ValueId; 3],
    ) -> ValueId {
        let [b, s] = [self.batch, self.seq];
        let [h, qa, qn, kva, kvn] = ["h", "qa", "qn", "kva", "kvn"].map(|name| self.value(f, t, name));
        f.name("layer/attention/rope/gradient");
        let (plain, turned) = (part(f, dq, 0, l.nope), part(f, dq, l.nope, l.nope + l.rope));
        let turned = self.turned(f, t, turned, true);
        let dq = join(f, plain, turned);
        let (plain, shared) = (part(f, dk, 0, l.nope), part(f, dk, l.nope, l.nope + l.rope));
        let shared = f.convert(shared, DType::F32);
        let shared = f.reduce(ReduceKind::Sum, shared, &[2]);
        let shared = f.reshape(shared, &[b, s, 1, l.rope]);
        let shared = self.turned(f, t, shared, true);
        let shared = f.reshape(shared, &[b, s, l.rope]);
        let shared = f.convert(shared, self.dtype);
        let dkv = join(f, plain, dv);
        f.name("layer/attention/q/gradient");
        let dqn = self.product_gradient(f, t, grads, (qn, dq), ("wq_b", ""));
        let dqa = self.norm_gradient(f, t.weights, grads, ("q_a_norm", ""), (qa, dqn));
        let one = self.product_gradient(f, t, grads, (h, dqa), ("wq_a", ""));
        f.name("layer/attention/kv/gradient");
        let dkvn = self.product_gradient(f, t, grads, (kvn, dkv), ("wkv_b", ""));
        let low = part(f, kva, 0, l.kv_rank);
        let dlow = self.norm_gradient(f, t.weights, grads, ("kv_norm", ""), (low, dkvn));
        let dkva = join(f, dlow, shared);
        let two = self.product_gradient(f, t, grads, (h, dkva), ("wkv_a", ""));
        f.add(one, two)
    }
}

/// Decoding with a cache of latent vectors.
impl Block<'_> {
    /// What the cache keeps of the tokens at hand: normalised latent vectors `(batch, seq, kv_rank)`, and the part of the keys that all heads
    /// share, rotated, `(batch, seq, rope)`.
    pub(super) fn latent_cached(&self, f: F<'_, '_>, t: &mut Tape<'_>, l: &Latent) -> [ValueId; 2] {
        let (latent, kva) = (self.value(f, t, "kvn"), self.value(f, t, "kva"));
        f.name("layer/attention/rope");
        let shared = part(f, kva, l.kv_rank, l.kv_rank + l.rope);
        let shared = f.reshape(shared, &[self.batch, self.seq, 1, l.rope]);
        let shared = self.turned(f, t, shared, false);
        [latent, f.reshape(shared, &[self.batch, self.seq, l.rope])]
    }

    /// The weights that make the keys, or the values, of a head from a latent vector: `(kv_rank, heads, channels)`.
    fn latent_weight(&self, f: F<'_, '_>, t: &Tape<'_>, l: &Latent, keys: bool) -> ValueId {
        let w = self.weight(f, t, "wkv_b");
        if keys { part(f, w, 0, l.nope) } else { part(f, w, l.nope, l.nope + l.value) }
    }

    /// Queries of one token of each sequence: against latent vectors `(batch, 1, heads, kv_rank)`, and rotated `(batch, 1, heads, rope)`.
    pub(super) fn latent_queries(&self, f: F<'_, '_>, t: &mut Tape<'_>, l: &Latent) -> [ValueId; 2] {
        let q = self.value(f, t, "q");
        f.name("layer/attention/absorb");
        let (plain, turned) = (part(f, q, 0, l.nope), part(f, q, l.nope, l.nope + l.rope));
        let turned = self.turned(f, t, turned, false);
        let w = self.latent_weight(f, t, l, true);
        let plain = f.reshape(plain, &[self.batch, self.model.heads, l.nope]);
        // By head: (heads, batch, kv_rank).
        let plain = by_head(f, plain, w, (2, 2), self.dtype);
        let plain = f.transpose(plain, &[1, 0, 2]);
        [f.reshape(plain, &[self.batch, 1, self.model.heads, l.kv_rank]), turned]
    }

    /// From weighted latent vectors `(batch, 1, heads, kv_rank)` to the heads' output `(batch, 1, heads, value)`.
    pub(super) fn latent_output(&self, f: F<'_, '_>, t: &mut Tape<'_>, l: &Latent, o: ValueId) -> ValueId {
        let w = self.latent_weight(f, t, l, false);
        let o = f.reshape(o, &[self.batch, self.model.heads, l.kv_rank]);
        let o = by_head(f, o, w, (2, 0), self.dtype);
        let o = f.transpose(o, &[1, 0, 2]);
        let o = f.reshape(o, &[self.batch, 1, self.model.heads, l.value]);
        self.mesh.constrain(f, o, HEADS)
    }
}

/// `x` `(batch, heads, n)` times `w` `(kv_rank, heads, m)` for each head, contracting the given dimensions.
fn by_head(f: F<'_, '_>, x: ValueId, w: ValueId, over: (i64, i64), out: DType) -> ValueId {
    let dims =
        DotDims { lhs_batch: vec![1], rhs_batch: vec![1], lhs_contract: vec![over.0], rhs_contract: vec![over.1] };
    f.dot_general(x, w, dims, out)
}
