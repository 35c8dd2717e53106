//! Qwen3 on a prompt: embedding lookup, decoder blocks, final norm, and the logits of every token.

use tpusim_backend::hlo::{DotDims, Module, ModuleBuilder, TensorType, Verified};
use tpusim_isa::num::DType;

use crate::blocks::rms_norm;
use crate::draw::{Draw, drawn, scale, weight};
use crate::qwen3_block::{Shape, block};
use crate::{ParamSpec, ParamValue, Params, Workload, WorkloadError};

/// A published model.
struct Model {
    name: &'static str,
    layers: i64,
    d: i64,
    ff: i64,
    heads: i64,
    kv_heads: i64,
    dim: i64,
    vocab: i64,
    /// Whether the embedding's rows also give the logits.
    tied: bool,
}

/// Shapes from the models' published `config.json` files.
#[rustfmt::skip]
static MODELS: &[Model] = &[
    Model { name: "0.6b", layers: 28, d: 1024, ff: 3072, heads: 16, kv_heads: 8, dim: 128, vocab: 151_936, tied: true },
    Model { name: "1.7b", layers: 28, d: 2048, ff: 6144, heads: 16, kv_heads: 8, dim: 128, vocab: 151_936, tied: true },
    Model { name: "4b", layers: 36, d: 2560, ff: 9728, heads: 32, kv_heads: 8, dim: 128, vocab: 151_936, tied: true },
    Model { name: "8b", layers: 36, d: 4096, ff: 12_288, heads: 32, kv_heads: 8, dim: 128, vocab: 151_936, tied: false },
];

const NAMES: &[&str] = &["0.6b", "1.7b", "4b", "8b"];

const fn auto(name: &'static str, about: &'static str) -> ParamSpec {
    ParamSpec { name, default: ParamValue::OptionalSize(None), about }
}

pub(crate) const WORKLOAD: Workload = Workload {
    name: "qwen3",
    about: "all of Qwen3 on a prompt, from tokens to logits",
    params: &[
        ParamSpec { name: "model", default: ParamValue::Choice("0.6b", NAMES), about: "whose shapes" },
        ParamSpec { name: "seq", default: ParamValue::Size(128), about: "tokens of the prompt" },
        auto("layers", "decoder blocks"),
        auto("d", "model width"),
        auto("ff", "hidden width of the MLP"),
        auto("heads", "query heads"),
        auto("kv_heads", "key and value heads; divides heads"),
        auto("dim", "size of a head, even"),
        auto("vocab", "tokens there are"),
        ParamSpec { name: "dtype", default: ParamValue::Float(DType::BF16), about: "type of all weights" },
    ],
    build,
};

/// Most decoder blocks; each adds some sixty operations.
const MAX_LAYERS: i64 = 1024;

fn build(p: &Params) -> Result<Verified<Module>, WorkloadError> {
    let chosen = p.choice("model");
    let Some(model) = MODELS.iter().find(|m| m.name == chosen) else {
        return Err(WorkloadError::Combination(format!("no shapes of model `{chosen}`")));
    };
    let (seq, dtype) = (p.size("seq"), p.float("dtype"));
    let shape = Shape {
        d: p.size_or("d", model.d),
        ff: p.size_or("ff", model.ff),
        heads: p.size_or("heads", model.heads),
        kv_heads: p.size_or("kv_heads", model.kv_heads),
        dim: p.size_or("dim", model.dim),
    };
    shape.check()?;
    let (layers, vocab) = (p.size_or("layers", model.layers), p.size_or("vocab", model.vocab));
    if layers > MAX_LAYERS {
        return Err(WorkloadError::Combination(format!("layers={layers}: at most {MAX_LAYERS}")));
    }
    let mut m = ModuleBuilder::new("qwen3");
    let mut f = m.func("main");
    let tokens = drawn(&mut f, "tokens", TensorType::new([seq], DType::I32), Draw::Below(vocab as u64));
    let table = weight(&mut f, "embedding", TensorType::new([vocab, shape.d], dtype), shape.d);
    f.name("embedding");
    let mut x = f.take_rows(table, tokens);
    for layer in 0..layers {
        x = block(&mut f, x, &shape, &format!("layer{layer}/"));
    }
    let norm = scale(&mut f, "final_norm", TensorType::new([shape.d], dtype));
    let head =
        if model.tied { table } else { weight(&mut f, "head", TensorType::new([vocab, shape.d], dtype), shape.d) };
    f.name("final_norm");
    let h = rms_norm(&mut f, x, norm);
    f.name("logits");
    let over_d = DotDims { lhs_contract: vec![1], rhs_contract: vec![1], ..DotDims::default() };
    let logits = f.dot_general(h, head, over_d, dtype);
    f.ret(&[logits]);
    Workload::finish("qwen3", m)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: the table itself.
    #[test]
    fn every_model_can_be_chosen() {
        assert_eq!(MODELS.iter().map(|m| m.name).collect::<Vec<_>>(), NAMES);
    }
}
