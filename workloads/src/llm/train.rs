//! The workload `train`: a step on one device.

use tpusim_backend::hlo::{Module, Verified};
use tpusim_isa::num::DType;

use super::models::NAMES;
use super::{Keep, Model, Optimizer, Options, Remat, train_step};
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
        auto("attention_block", "positions of a block of attention; divides seq"),
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
        float("weights", DType::BF16, "type weights are held in; f32 for master weights"),
        float("state", DType::F32, "type of the optimizer's moments"),
        ParamSpec {
            name: "microbatches",
            default: ParamValue::Size(1),
            about: "parts of the batch whose gradients are summed one after the other",
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
    let model = Model {
        layers: p.size_or("layers", model.layers),
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
        attention_block: Some(p.size_or("attention_block", 0)).filter(|n| *n > 0),
        ..Options::default()
    };
    Ok((model, options))
}
