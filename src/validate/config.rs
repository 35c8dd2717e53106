//! From what is published of a run to a training step: model, mesh, slices, options. What cannot be expressed is an error that says
//! why; what is expressed otherwise than it ran is a note.

use serde_json::Value;
use tpusim_backend::hlo::Module;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_isa::topology::Topology;
use tpusim_sim::network::Cluster;
use tpusim_traces::units::memory;
use tpusim_workloads::llm::{
    Experts, Keep, MeshRequest, Mlp, Model, Options, Products, Remat, Routing, check_batch, train_step,
};

use super::rows::Row;

/// A training step that stands for a published run.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Chip.
    pub chip: ChipSpec,
    /// Slices.
    pub cluster: Cluster,
    /// Model.
    pub model: Model,
    /// How the step is written.
    pub options: Options,
    /// What differs from the run.
    pub notes: Vec<String>,
}

/// What is said of a run: first the framework's flags, then the rest.
struct Config<'a>(&'a Value);

impl Config<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get("maxtext_args").and_then(|a| a.get(key)).or_else(|| self.0.get(key))
    }

    fn text(&self, key: &str) -> Option<String> {
        self.get(key).and_then(Value::as_str).map(str::to_lowercase)
    }

    /// A number, which may be written as text.
    fn number(&self, keys: &[&str]) -> Option<f64> {
        let one = |v: &Value| v.as_f64().or_else(|| v.as_str()?.parse().ok());
        keys.iter().find_map(|k| self.get(k).and_then(one))
    }

    fn whole(&self, keys: &[&str]) -> Option<i64> {
        self.number(keys).filter(|n| n.fract() == 0.0 && n.abs() < 1e15).map(|n| n as i64)
    }

    fn kind(&self) -> String {
        self.text("kind").unwrap_or_default()
    }

    fn is_maxtext(&self) -> bool {
        self.kind().contains("maxtext") || self.0.get("maxtext_args").is_some()
    }
}

/// Tokens of a sequence that MaxText takes if nothing is said.
const SEQ: i64 = 2048;

/// The training step of `row`, whose configuration is that of `origin`.
///
/// # Errors
/// What is missing or cannot be expressed.
pub fn case(row: &Row, origin: &Row) -> Result<Case, String> {
    let config = Config(&origin.config);
    if !config.kind().starts_with("train step") {
        return Err(format!("no plain training step: {}", config.kind()));
    }
    let products = products(&config)?;
    let mut notes = Vec::new();
    let model = model(&config, &mut notes)?;
    let chip = ChipSpec::load(chip_name(&row.chip)).map_err(|e| e.to_string())?;
    let cluster = cluster(&chip, origin)?;
    let mut options = Options { products, attention_block: None, ..Options::default() };
    options.seq = match config.whole(&["seq", "max_target_length"]) {
        Some(n) => n,
        None if config.is_maxtext() => SEQ,
        None if origin.source.contains("maxtext") => {
            notes.push(format!("sequences of {SEQ} tokens assumed, MaxText's default"));
            SEQ
        }
        None => return Err("the length of sequences is not stated".into()),
    };
    let seq = options.seq;
    let asked = mesh(&config, &cluster)?;
    options.mesh = asked.resolve(&model, 1, i64::from(cluster.devices())).map_err(|e| e.to_string())?;
    options.batch = batch(&config, i64::from(cluster.devices()), seq)?;
    options.microbatches = config.whole(&["grad_accum", "gradient_accumulation_steps"]).unwrap_or(1);
    if options.mesh.pipeline > 1 {
        pipeline(&config, &model, &mut options)?;
    }
    check_batch(&options.mesh, options.batch).map_err(|e| e.to_string())?;
    options.remat = remat(&config, &mut notes)?;
    optimizer(&config, &mut options, &mut notes)?;
    if config.whole(&["ici_fsdp_transpose_parallelism"]).is_some_and(|n| n != 1) {
        notes.push("fsdp_transpose as fsdp".into());
    }
    if model.experts.is_some() {
        options.routing = routing(&config, &model, &options, &mut notes);
    }
    let case = Case { chip, cluster, model, options, notes };
    // Whatever the writer of steps refuses, with its words.
    let module = train_step(&case.model, &case.options).map_err(|e| e.to_string())?;
    let (needed, has) = (least_bytes(&module, &case), *case.chip.hbm.usable_bytes_device);
    if needed > has {
        let (needed, has) = (memory(needed), memory(has));
        return Err(format!("weights and optimizer state would need {needed} of HBM on each device, of {has}"));
    }
    Ok(case)
}

/// Bytes of HBM that weights and moments take on each device at least, over the devices that share a copy of the model.
fn least_bytes(module: &Module, case: &Case) -> u64 {
    let Some(main) = module.func("main") else { return 0 };
    let held = main.params.iter().filter_map(|p| main.ty(p.value).tensor()?.bytes()).fold(0, u64::saturating_add);
    let copies = case.options.mesh.data.max(1) as u64;
    held / (u64::from(case.cluster.devices()) / copies).max(1)
}

/// The name of a chip here.
pub fn chip_name(name: &str) -> &str {
    match name {
        "TPU7x" | "tpu7x" => "v7x",
        other => other,
    }
}

fn products(c: &Config<'_>) -> Result<Products, String> {
    let types = [c.text("quantization"), c.0.get("dtype").and_then(Value::as_str).map(str::to_lowercase)];
    match types.into_iter().flatten().find(|t| !t.is_empty() && t != "bf16" && t != "bfloat16").as_deref() {
        None => Ok(Products::Plain),
        Some("fp8_full" | "fp8") => Ok(Products::Fp8),
        Some(t) => Err(format!("products in {t}")),
    }
}

fn model(c: &Config<'_>, notes: &mut Vec<String>) -> Result<Model, String> {
    let size = |v: &Value, key: &str| v.get(key).and_then(Value::as_i64);
    if let Some(shape) = c.0.get("model").filter(|m| m.is_object()) {
        let all = ["emb", "head_dim", "heads", "layers", "mlp", "vocab"].map(|k| size(shape, k));
        let [Some(d), Some(dim), Some(heads), Some(layers), Some(ff), Some(vocab)] = all else {
            return Err("the model's shapes are not all stated".into());
        };
        let tied = shape.get("tied_embeddings").and_then(Value::as_bool).unwrap_or(false);
        let mlp = match shape.get("mlp_kind").and_then(Value::as_str) {
            None => Mlp::Silu,
            Some(k) if k.starts_with("relu") => Mlp::Relu,
            Some(k) => return Err(format!("an MLP with `{k}`")),
        };
        let base = Model::find("llama2-7b").ok_or("no shapes to start from")?;
        let kv_heads = size(shape, "kv_heads").unwrap_or(heads);
        let context = base.context.max(1 << 17);
        return Ok(Model { name: "custom", d, dim, heads, kv_heads, layers, ff, vocab, tied, mlp, context, ..*base });
    }
    if let Some(model) = custom(c, notes) {
        return Ok(model);
    }
    let name = c.0.get("model").and_then(Value::as_str).unwrap_or_default().to_lowercase();
    let known = match name.as_str() {
        "deepseek3-671b" => "deepseek-v3",
        n if n.starts_with("llama-2-7b") => "llama2-7b",
        n => n,
    };
    let Some(base) = Model::find(known) else {
        return Err(if name.is_empty() { "the model is not stated".into() } else { format!("no shapes of `{name}`") });
    };
    let mut model = *base;
    if let Some(dims) = c.0.get("dims") {
        let slots = [
            ("emb", &mut model.d),
            ("head_dim", &mut model.dim),
            ("kv_heads", &mut model.kv_heads),
            ("layers", &mut model.layers),
            ("mlp", &mut model.ff),
            ("q_heads", &mut model.heads),
            ("vocab", &mut model.vocab),
        ];
        for (key, slot) in slots {
            *slot = size(dims, key).unwrap_or(*slot);
        }
    }
    Ok(model)
}

/// A model of the form of Mixtral or Llama, from shapes that stand beside its name.
fn custom(c: &Config<'_>, notes: &mut Vec<String>) -> Option<Model> {
    let size = |key: &str| c.0.get(key).and_then(Value::as_i64);
    let all = ["emb", "head_dim", "q_heads", "kv_heads", "layers", "mlp"].map(size);
    let [Some(d), Some(dim), Some(heads), Some(kv_heads), Some(layers), Some(ff)] = all else { return None };
    let like = if size("experts").is_some() { "mixtral-8x7b" } else { "llama2-7b" };
    let base = Model::find(like)?;
    let experts = base.experts.map(|e| Experts {
        count: size("experts").unwrap_or(e.count),
        active: size("top_k").unwrap_or(e.active),
        ff,
        ..e
    });
    let ff = if experts.is_some() { base.ff } else { ff };
    if size("vocab").is_none() {
        notes.push(format!("vocabulary of {like} assumed"));
    }
    let vocab = size("vocab").unwrap_or(base.vocab);
    Some(Model { name: "custom", d, dim, heads, kv_heads, layers, ff, vocab, experts, ..*base })
}

/// How a batch goes through a pipeline. All flags of MaxText are known where some are; its defaults are a microbatch and a layer a stage.
fn pipeline(c: &Config<'_>, model: &Model, o: &mut Options) -> Result<(), String> {
    let stages = o.mesh.pipeline;
    let flags = c.0.get("maxtext_args").is_some();
    let stated = |key: &str, default: i64| {
        let found = c.whole(&[key]).filter(|n| *n > 0).or(flags.then_some(default));
        found.ok_or_else(|| format!("{key} is not stated"))
    };
    o.microbatches = stated("num_pipeline_microbatches", stages)?;
    o.repeats = model.layers / (stages * stated("num_layers_per_pipeline_stage", 1)?).max(1);
    Ok(())
}

fn cluster(chip: &ChipSpec, row: &Row) -> Result<Cluster, String> {
    let words = row.topology.split([' ', '(', ')']).filter(|w| !w.is_empty());
    let is_shape = |w: &&str| w.contains('x') && w.split('x').all(|n| n.parse::<u32>().is_ok_and(|n| n > 0));
    let shape = words.clone().find(is_shape).ok_or(format!("`{}` names no shape of a slice", row.topology))?;
    let count = |w: &str| w.strip_prefix('x').and_then(|n| n.parse::<u32>().ok());
    let slices = words.clone().find_map(count).unwrap_or(1);
    let slice = Topology::parse(chip, shape).map_err(|e| e.to_string())?;
    let cluster = Cluster { slice, slices };
    if row.chips != cluster.chips() {
        return Err(format!("`{}` has {} chips, the run {}", row.topology, cluster.chips(), row.chips));
    }
    Ok(cluster)
}

/// The mesh as sizes of axes over all slices; what is `-1` takes the devices that are left.
fn mesh(c: &Config<'_>, cluster: &Cluster) -> Result<MeshRequest, String> {
    let (slice, slices) = (i64::from(cluster.slice.devices()), i64::from(cluster.slices));
    // `fsdp=16 x tensor=16`, `data=-1, fsdp=256`: over a slice, and over everything.
    let pairs = |text: &str| -> Vec<(String, i64)> {
        let parts = text.split([' ', ',']).filter_map(|p| p.split_once('='));
        parts.filter_map(|(a, n)| Some((a.to_owned(), n.parse().ok()?))).collect()
    };
    let per_slice = c.text("ici_parallel").map(|t| pairs(&t)).unwrap_or_default();
    let whole = c.text("mesh").map(|t| pairs(&t)).unwrap_or_default();
    let named = |all: &[(String, i64)], axis: &str| all.iter().find(|(a, _)| a == axis).map(|(_, n)| *n);
    let ici = |axis: &str, keys: &[&str]| c.whole(keys).or(named(&per_slice, axis));
    let args = c.0.get("maxtext_args").is_some();
    let data = ici("data", &["ici_data_parallelism", "ici_data"]);
    let fsdp = ici("fsdp", &["ici_fsdp_parallelism", "ici_fsdp", "fsdp"]);
    let transpose = ici("fsdp_transpose", &["ici_fsdp_transpose_parallelism"]);
    let tensor = ici("tensor", &["ici_tensor_parallelism", "ici_tensor", "tensor_parallel"]);
    let expert = ici("expert", &["ici_expert_parallelism", "expert_parallel"]);
    let context = ici("context", &["ici_context_parallelism"]);
    let pipeline = ici("pipeline", &["ici_pipeline_parallelism"]);
    let none = [data, fsdp, transpose, tensor, expert, context, pipeline].iter().all(Option::is_none);
    if none && whole.is_empty() && !args {
        return Err("the mesh is not stated".into());
    }
    let mut axes: Vec<(&str, i64)> = if whole.is_empty() {
        // MaxText gives what is left of a slice to FSDP, and slices to copies.
        let fsdp = fsdp.unwrap_or(if args { -1 } else { 1 });
        let mut axes = vec![("data", data.unwrap_or(1)), ("fsdp", fsdp), ("transpose", transpose.unwrap_or(1))];
        axes.extend(
            [("tensor", tensor), ("expert", expert), ("context", context), ("pipeline", pipeline)]
                .map(|(n, s)| (n, s.unwrap_or(1))),
        );
        rest(&mut axes, slice)?;
        let over_fsdp = c.whole(&["dcn_fsdp_parallelism"]).unwrap_or(1);
        let copies = c.whole(&["dcn_data_parallelism", "dcn_data_parallel", "data_parallel_dcn"]);
        let stages = c.whole(&["dcn_pipeline_parallelism", "pipeline_parallel_dcn"]).unwrap_or(1);
        let mut dcn = vec![("data", copies.unwrap_or(-1)), ("fsdp", over_fsdp), ("pipeline", stages)];
        rest(&mut dcn, slices)?;
        axes.extend(dcn);
        axes
    } else {
        let mut axes: Vec<(&str, i64)> = whole.iter().map(|(a, n)| (a.as_str(), *n)).collect();
        rest(&mut axes, slice * slices)?;
        axes
    };
    axes.iter_mut().filter(|(a, _)| *a == "transpose").for_each(|(a, _)| *a = "fsdp");
    let names: Vec<&str> = ["data", "pipeline", "fsdp", "expert", "context", "tensor"].into_iter().collect();
    let total = |name: &str| axes.iter().filter(|(a, _)| *a == name).map(|(_, n)| n).product::<i64>();
    // The ordinary axes always, so that none takes what is left.
    let shown = names.iter().map(|n| (*n, total(n))).filter(|(n, s)| *s != 1 || *n == "data" || *n == "fsdp");
    let text: Vec<String> = shown.map(|(n, s)| format!("{n}={s}")).collect();
    text.join(",").parse().map_err(|e: tpusim_workloads::WorkloadError| e.to_string())
}

/// Gives the axis of size -1, if there is one, what is left of `devices`.
fn rest(axes: &mut [(&str, i64)], devices: i64) -> Result<(), String> {
    let known: i64 = axes.iter().map(|(_, n)| *n).filter(|n| *n > 0).product();
    if let Some((name, n)) = axes.iter_mut().find(|(_, n)| *n <= 0) {
        if known == 0 || devices % known != 0 {
            return Err(format!("axis {name} cannot have what is left: {known} does not divide {devices}"));
        }
        *n = devices / known;
    }
    match axes.iter().any(|(_, n)| *n <= 0) {
        true => Err("several axes take what is left".into()),
        false => Ok(()),
    }
}

fn batch(c: &Config<'_>, devices: i64, seq: i64) -> Result<i64, String> {
    if let Some(n) = c.whole(&["global_batch"]) {
        return Ok(n);
    }
    if let Some(tokens) = c.whole(&["global_batch_tokens", "global_tokens"]).filter(|t| t % seq == 0) {
        return Ok(tokens / seq);
    }
    let tokens = c.number(&["tokens_per_device"]).map(|n| n / seq as f64);
    let each = c.number(&["per_device_batch_size", "per_device_batch"]).or(tokens);
    let all = each.map(|n| n * devices as f64).filter(|n| n.fract() == 0.0 && *n >= 1.0);
    all.map(|n| n as i64).ok_or("the batch is not stated".into())
}

/// Tokens that experts drop beyond a capacity, else an even share for each, which random routing is close to.
fn routing(c: &Config<'_>, model: &Model, o: &Options, notes: &mut Vec<String>) -> Routing {
    if let Some(factor) = c.number(&["capacity_factor", "capacity"]).filter(|f| *f > 0.0) {
        return Routing::Capacity(factor);
    }
    let even = Options { routing: Routing::Balanced, ..*o };
    if train_step(model, &even).is_ok() {
        notes.push("every expert has its even share of tokens".into());
        return Routing::Balanced;
    }
    notes.push("experts have room for their even share of tokens".into());
    Routing::Capacity(1.0)
}

/// What layers keep, in the words of MaxText and AXLearn.
fn remat(c: &Config<'_>, notes: &mut Vec<String>) -> Result<Remat, String> {
    let stated = c.text("remat_policy").or(c.text("remat"));
    let Some(policy) = stated else {
        return match c.is_maxtext() {
            true => Ok(Remat::Full),
            false => {
                notes.push("rematerialisation not stated, full assumed".into());
                Ok(Remat::Full)
            }
        };
    };
    let all = Keep { qkv: true, context: true, out: true, mlp: true };
    let offloaded = |notes: &mut Vec<String>, what: &str| notes.push(format!("{what} kept in HBM, not on the host"));
    match policy.as_str() {
        "full" => return Ok(Remat::Full),
        "minimal" | "minimal_with_context" | "dots_saveable" => return Ok(Remat::Dots),
        "minimal_offloaded" => {
            offloaded(notes, "products");
            return Ok(Remat::Keep(all));
        }
        "qkv_proj_offloaded" => {
            offloaded(notes, "queries, keys and values");
            return Ok(Remat::Keep(Keep { qkv: true, ..Keep::default() }));
        }
        p if p.starts_with("custom") => {}
        p => return Err(format!("rematerialisation `{p}`")),
    }
    let kept = |name: &str| {
        let named = policy.contains(&format!("{name}=")) || policy.contains(&format!("{name} "));
        c.text(name).filter(|v| v != "remat").or(named.then(|| "offload".to_owned()))
    };
    let names =
        ["query_proj", "key_proj", "value_proj", "qkv_proj", "context", "out_proj", "mlpwi", "mlpwi_0", "mlpwi_1"];
    let host: Vec<&str> = names
        .iter()
        .chain(&["decoder_layer_input"])
        .filter(|n| kept(n).is_some_and(|v| v == "offload"))
        .copied()
        .collect();
    if !host.is_empty() {
        offloaded(notes, &host.join(", "));
    }
    let has = |n: &str| kept(n).is_some();
    let qkv = has("qkv_proj") || ["query_proj", "key_proj", "value_proj"].into_iter().all(has);
    if !qkv && (has("key_proj") || has("value_proj") || has("query_proj")) {
        notes.push("part of the queries, keys and values kept: computed again".into());
    }
    let mlp = has("mlpwi") || (has("mlpwi_0") && has("mlpwi_1"));
    if has("mlpwo") {
        notes.push("mlpwo is not needed again".into());
    }
    let keep = Keep { qkv, context: has("context"), out: has("out_proj"), mlp };
    Ok(if keep == Keep::default() { Remat::Full } else { Remat::Keep(keep) })
}

fn optimizer(c: &Config<'_>, o: &mut Options, notes: &mut Vec<String>) -> Result<(), String> {
    match c.text("optimizer").or(c.text("opt_type")).as_deref() {
        None | Some("adam" | "adamw" | "adam_pax") => {}
        Some(other) => return Err(format!("optimizer `{other}`")),
    }
    let float = |key: &str| c.text(key).map(|t| if t.starts_with("bf") { DType::BF16 } else { DType::F32 });
    o.first_moment = float("mu_dtype");
    let torch = c.kind().contains("torch");
    o.weights = float("weight_dtype").unwrap_or(if torch { DType::BF16 } else { DType::F32 });
    if torch {
        notes.push("weights in bf16 assumed".into());
    }
    Ok(())
}
