//! The weights of a model: their shapes, where a mesh cuts them, and how they are looked up while a step is written.

use tpusim_backend::hlo::{FuncBuilder, ValueId};
use tpusim_isa::num::DType;

use super::mesh::{Axis, Cut, Mesh};
use super::models::{Experts, Model, Norm};
use crate::draw::Draw;

/// One weight, of one layer or of the whole model.
#[derive(Clone, Debug)]
pub(super) struct Weight {
    pub name: &'static str,
    pub dims: Vec<i64>,
    /// Axes that cut each dimension.
    pub cut: Cut,
    pub draw: Draw,
}

/// As MaxText's `embed`: devices that share a sequence share weights too.
const FSDP: &[Axis] = &[Axis::Fsdp, Axis::Context];
const TENSOR: &[Axis] = &[Axis::Tensor];
const EXPERT: &[Axis] = &[Axis::Expert];
const WHOLE: &[Axis] = &[];

fn one(name: &'static str, dims: &[i64], cut: &[&[Axis]], draw: Draw) -> Weight {
    Weight { name, dims: dims.to_vec(), cut: cut.iter().map(|a| a.to_vec()).collect(), draw }
}

/// A matrix whose products with `fan_in` inputs of variance one have variance one.
fn matrix(name: &'static str, dims: &[i64], cut: &[&[Axis]], fan_in: i64) -> Weight {
    one(name, dims, cut, Draw::Normal { mean: 0.0, deviation: (fan_in.max(1) as f64).sqrt().recip() })
}

fn scale(name: &'static str, n: i64) -> Weight {
    one(name, &[n], &[WHOLE], Draw::Normal { mean: 1.0, deviation: 0.1 })
}

fn bias(name: &'static str, dims: &[i64], cut: &[&[Axis]]) -> Weight {
    one(name, dims, cut, Draw::Normal { mean: 0.0, deviation: 0.02 })
}

/// Weights of a layer with a dense MLP of width `ff`, or without if that is zero, and with `experts`; the model holds them stacked, layers
/// first. Few key heads that the axis of tensors does not divide stay whole.
pub(super) fn of_layer(m: &Model, ff: i64, experts: Option<&Experts>, mesh: &Mesh) -> Vec<Weight> {
    let Model { d, heads, kv_heads, dim, .. } = *m;
    let kv = if kv_heads % mesh.tensor.max(1) == 0 { TENSOR } else { WHOLE };
    let mut all = vec![scale("attention_norm", d)];
    match m.latent {
        None => all.extend([
            matrix("wq", &[d, heads, dim], &[FSDP, TENSOR, WHOLE], d),
            matrix("wk", &[d, kv_heads, dim], &[FSDP, kv, WHOLE], d),
            matrix("wv", &[d, kv_heads, dim], &[FSDP, kv, WHOLE], d),
        ]),
        Some(l) => all.extend([
            matrix("wq_a", &[d, l.q_rank], &[FSDP, WHOLE], d),
            scale("q_a_norm", l.q_rank),
            matrix("wq_b", &[l.q_rank, heads, l.nope + l.rope], &[FSDP, TENSOR, WHOLE], l.q_rank),
            matrix("wkv_a", &[d, l.kv_rank + l.rope], &[FSDP, WHOLE], d),
            scale("kv_norm", l.kv_rank),
            matrix("wkv_b", &[l.kv_rank, heads, l.nope + l.value], &[FSDP, TENSOR, WHOLE], l.kv_rank),
        ]),
    }
    let value = m.head().1;
    all.push(matrix("wo", &[heads, value, d], &[TENSOR, WHOLE, FSDP], heads * value));
    all.push(scale("mlp_norm", d));
    if ff > 0 {
        all.push(matrix("up", &[d, ff], &[FSDP, TENSOR], d));
        all.push(matrix("down", &[ff, d], &[TENSOR, FSDP], ff));
    }
    if ff > 0 && m.mlp.gated() {
        all.push(matrix("gate", &[d, ff], &[FSDP, TENSOR], d));
    }
    if m.norm == Norm::Layer {
        all.extend([
            bias("attention_norm_bias", &[d], &[WHOLE]),
            bias("bq", &[heads, dim], &[TENSOR, WHOLE]),
            bias("bk", &[kv_heads, dim], &[kv, WHOLE]),
            bias("bv", &[kv_heads, dim], &[kv, WHOLE]),
            bias("bo", &[d], &[WHOLE]),
            bias("mlp_norm_bias", &[d], &[WHOLE]),
            bias("up_bias", &[ff], &[TENSOR]),
            bias("down_bias", &[d], &[WHOLE]),
        ]);
    }
    if m.qk_norm {
        all.extend([scale("q_norm", dim), scale("k_norm", dim)]);
    }
    if let Some(e) = experts {
        all.extend([
            matrix("router", &[d, e.count], &[FSDP, WHOLE], d),
            matrix("experts_gate", &[e.count, d, e.ff], &[EXPERT, FSDP, TENSOR], d),
            matrix("experts_up", &[e.count, d, e.ff], &[EXPERT, FSDP, TENSOR], d),
            matrix("experts_down", &[e.count, e.ff, d], &[EXPERT, TENSOR, FSDP], e.ff),
        ]);
    }
    all.iter_mut().for_each(|w| spread(w, mesh));
    all
}

/// Cuts a weight that the devices of the axis of experts would all hold by that axis too: the dimension that `fsdp` cuts if it can be cut
/// further, else another. Small ones stay whole.
fn spread(w: &mut Weight, mesh: &Mesh) {
    if mesh.expert <= 1 || w.dims.len() < 2 || w.cut.iter().flatten().any(|a| *a == Axis::Expert) {
        return;
    }
    let fits = |d: usize| match (w.dims.get(d), w.cut.get(d)) {
        (Some(n), Some(axes)) => n % mesh.parts(axes).saturating_mul(mesh.expert).max(1) == 0,
        _ => false,
    };
    let first = w.cut.iter().position(|axes| axes.contains(&Axis::Fsdp));
    let found = first.into_iter().chain(0..w.dims.len()).find(|d| fits(*d));
    if let Some(axes) = found.and_then(|d| w.cut.get_mut(d)) {
        axes.push(Axis::Expert);
    }
}

/// Weights outside of the layers.
pub(super) fn of_model(m: &Model, mesh: &Mesh) -> Vec<Weight> {
    let Model { d, vocab, .. } = *m;
    let mut all = vec![matrix("embedding", &[vocab, d], &[WHOLE, FSDP], d), scale("final_norm", d)];
    if m.norm == Norm::Layer {
        all.push(bias("final_norm_bias", &[d], &[WHOLE]));
    }
    if m.rope_base.is_none() {
        all.push(bias("positions", &[m.context, d], &[WHOLE, FSDP]));
    }
    if !m.tied {
        all.push(matrix("head", &[d, vocab], &[FSDP, TENSOR], d));
    }
    all.iter_mut().for_each(|w| spread(w, mesh));
    all
}

/// Values by name: weights, gradients, or what a layer keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    items: Vec<(&'static str, ValueId)>,
}

impl Named {
    pub fn new(names: impl Iterator<Item = &'static str>, values: &[ValueId]) -> Self {
        Named { items: names.zip(values.iter().copied()).collect() }
    }

    pub fn set(&mut self, name: &'static str, v: ValueId) {
        self.items.push((name, v));
    }

    /// Sets `name`, in the place of what had it.
    pub fn replace(&mut self, name: &'static str, v: ValueId) {
        self.items.retain(|(n, _)| *n != name);
        self.set(name, v);
    }

    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.items.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    /// The value called `name`; a scalar that no operation here takes, for the verifier to refuse, if there is none.
    pub fn get(&self, f: &mut FuncBuilder<'_>, name: &str) -> ValueId {
        self.find(name).unwrap_or_else(|| f.scalar(DType::F32, 0.0))
    }

    /// Values in the order of `names`.
    pub fn in_order(&self, f: &mut FuncBuilder<'_>, names: impl Iterator<Item = &'static str>) -> Vec<ValueId> {
        names.map(|n| self.get(f, n)).collect()
    }
}
