//! The weights of a model: their shapes, where a mesh cuts them, and how they are looked up while a step is written.

use tpusim_backend::hlo::{FuncBuilder, ValueId};
use tpusim_isa::num::DType;

use super::mesh::{Axis, Cut};
use super::models::{Model, Norm};
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

const FSDP: &[Axis] = &[Axis::Fsdp];
const TENSOR: &[Axis] = &[Axis::Tensor];
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

/// Weights of a layer; the model holds them stacked, layers first. `tensor` is the size of that axis of the mesh: few key heads that it
/// does not divide stay whole.
pub(super) fn of_layer(m: &Model, tensor: i64) -> Vec<Weight> {
    let Model { d, ff, heads, kv_heads, dim, .. } = *m;
    let kv = if kv_heads % tensor.max(1) == 0 { TENSOR } else { WHOLE };
    let mut all = vec![
        scale("attention_norm", d),
        matrix("wq", &[d, heads, dim], &[FSDP, TENSOR, WHOLE], d),
        matrix("wk", &[d, kv_heads, dim], &[FSDP, kv, WHOLE], d),
        matrix("wv", &[d, kv_heads, dim], &[FSDP, kv, WHOLE], d),
        matrix("wo", &[heads, dim, d], &[TENSOR, WHOLE, FSDP], heads * dim),
        scale("mlp_norm", d),
        matrix("up", &[d, ff], &[FSDP, TENSOR], d),
        matrix("down", &[ff, d], &[TENSOR, FSDP], ff),
    ];
    if m.mlp.gated() {
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
    all
}

/// Weights outside of the layers.
pub(super) fn of_model(m: &Model) -> Vec<Weight> {
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
