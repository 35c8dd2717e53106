//! The workload `train`: a step on one device.

use tpusim_backend::hlo::{Module, Verified};
use tpusim_isa::num::DType;

use super::models::NAMES;
use super::{Experts, Keep, Model, Optimizer, Options, Products, Remat, Routing, train_step};
use crate::{ParamSpec, ParamValue, Params, Workload, WorkloadError};

const fn auto(name: &'static str, about: &'static str) -> ParamSpec {
    ParamSpec { name, default: ParamValue::OptionalSize(None), about }
}

const fn float(name: &'static str, dtype: DType, about: &'static str) -> ParamSpec {
    ParamSpec { name, default: ParamValue::Float(dtype), about }
}

pub(crate) const WORKLOAD: Workload = Workload {
    name: "train",
    about: "one training step of a decoder model: forward, loss, backward, optimizer",
    params: &[
        ParamSpec { name: "model", default: ParamValue::Choice("qwen3-0.6b", NAMES), about: "whose shapes" },
        ParamSpec { name: "batch", default: ParamValue::Size(1), about: "sequences" },
        ParamSpec { name: "seq", default: ParamValue::Size(2048), about: "tokens of a sequence" },
        auto("layers", "decoder blocks"),
        auto("d", "model width"),
        auto("ff", "hidden width of the MLP"),
        auto("heads", "query heads"),
        auto("kv_heads", "key and value heads; divides heads"),
        auto("dim", "size of a head, even"),
        auto("vocab", "tokens there are"),
        auto("experts", "experts of a layer that has some"),
        auto("active", "experts that each token visits"),
        auto("expert_ff", "hidden width of an expert"),
        ParamSpec {
            name: "routing",
            default: ParamValue::Choice("capacity", &["capacity", "balanced"]),
            about: "which experts tokens visit: the best, up to the capacity of each, or each as many",
        },
        ParamSpec {
            name: "capacity",
            default: ParamValue::Size(125),
            about: "rows that an expert takes, in percent of its fair share; what is beyond is dropped",
        },
        auto("attention_block", "positions of a block, for attention as a loop over pairs of blocks; divides seq"),
        ParamSpec {
            name: "remat",
            default: ParamValue::Choice("full", &["full", "qkv", "context", "qkv+context", "dots", "none"]),
            about: "what layers keep for the backward pass: nothing, what attention reads, gives, both, all products, all",
        },
        ParamSpec {
            name: "optimizer",
            default: ParamValue::Choice("adam", &["adam", "sgd"]),
            about: "how weights follow gradients",
        },
        float("dtype", DType::BF16, "type of activations and products"),
        ParamSpec {
            name: "products",
            default: ParamValue::Choice("plain", &["plain", "fp8"]),
            about: "operands of products: of the type of activations, or rounded to eight bits",
        },
        float("weights", DType::BF16, "type weights are held in; f32 for master weights"),
        float("state", DType::F32, "type of the optimizer's moments"),
        ParamSpec {
            name: "microbatches",
            default: ParamValue::Size(1),
            about: "parts of the batch whose gradients are summed one after the other, or which flow through a pipeline",
        },
        ParamSpec {
            name: "repeats",
            default: ParamValue::Size(1),
            about: "times that a part goes round the stages of a pipeline",
        },
    ],
    build,
};

fn build(p: &Params) -> Result<Verified<Module>, WorkloadError> {
    let (model, options) = settings(p)?;
    train_step(&model, &options)
}

/// The model and the options that parameters of the workload `train` stand for, for one device.
///
/// # Errors
/// Parameters that do not exist or do not parse.
pub fn configure(given: &[(String, String)]) -> Result<(Model, Options), WorkloadError> {
    settings(&Params::parse(&WORKLOAD, given)?)
}

fn settings(p: &Params) -> Result<(Model, Options), WorkloadError> {
    let chosen = p.choice("model");
    let Some(model) = Model::find(chosen) else {
        return Err(WorkloadError::Combination(format!("no shapes of model `{chosen}`")));
    };
    let layers = p.size_or("layers", model.layers);
    let experts = model.experts.map(|e| Experts {
        count: p.size_or("experts", e.count),
        active: p.size_or("active", e.active),
        ff: p.size_or("expert_ff", e.ff),
        // Of few layers, at least one has experts.
        dense_layers: e.dense_layers.min(layers.saturating_sub(1)),
        ..e
    });
    let model = Model {
        layers,
        experts,
        d: p.size_or("d", model.d),
        ff: p.size_or("ff", model.ff),
        heads: p.size_or("heads", model.heads),
        kv_heads: p.size_or("kv_heads", model.kv_heads),
        dim: p.size_or("dim", model.dim),
        vocab: p.size_or("vocab", model.vocab),
        ..*model
    };
    let options = Options {
        batch: p.size("batch"),
        seq: p.size("seq"),
        remat: match p.choice("remat") {
            "none" => Remat::None,
            "dots" => Remat::Dots,
            "qkv" => Remat::Keep(Keep { qkv: true, ..Keep::default() }),
            "context" => Remat::Keep(Keep { context: true, ..Keep::default() }),
            "qkv+context" => Remat::Keep(Keep { qkv: true, context: true, ..Keep::default() }),
            _ => Remat::Full,
        },
        optimizer: if p.choice("optimizer") == "sgd" { Optimizer::Sgd } else { Optimizer::Adam },
        dtype: p.float("dtype"),
        weights: p.float("weights"),
        state: p.float("state"),
        microbatches: p.size("microbatches"),
        repeats: p.size("repeats"),
        products: if p.choice("products") == "fp8" { Products::Fp8 } else { Products::Plain },
        routing: match p.choice("routing") {
            "balanced" => Routing::Balanced,
            _ => Routing::Capacity(p.size("capacity") as f64 / 100.0),
        },
        attention_block: Some(p.size_or("attention_block", 0)).filter(|n| *n > 0),
        ..Options::default()
    };
    Ok((model, options))
}
