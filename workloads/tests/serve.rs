//! Steps of serving: what a cache holds is what the model would compute again.

use tpusim_backend::eval::{DotPrecision, EvalOptions, Tensor, eval_module, eval_module_with};
use tpusim_backend::hlo::{Module, TensorType, Verified};
use tpusim_driver::{Driver, Mode, PodExecutable, SimDriver};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_isa::topology::Topology;
use tpusim_sim::network::Cluster;
use tpusim_sim::pod::PodOptions;
use tpusim_workloads::llm::{
    Experts, Latent, MODELS, Mesh, Model, Options, Phase, Routing, Window, served_bytes, step,
};

/// Two layers, or as many as it takes for both kinds.
fn tiny(name: &str) -> Model {
    let m = *Model::find(name).unwrap();
    let kv_heads = if m.kv_heads == m.heads { 4 } else { 2 };
    let experts = m.experts.map(|e| Experts {
        count: 4,
        active: 2,
        shared: e.shared,
        ff: 12,
        dense_layers: e.dense_layers.min(1),
    });
    let latent = m.latent.map(|_| Latent { q_rank: 12, kv_rank: 10, nope: 6, rope: 4, value: 8 });
    let window = m.window.map(|w| Window { size: 5, every: 2, ..w });
    let layers = if window.is_some() { 3 } else { 2 };
    Model { window, layers, d: 32, ff: 24, heads: 4, kv_heads, dim: 8, vocab: 64, context: 24, experts, latent, ..m }
}

const CONTEXT: i64 = 12;
const BATCH: i64 = 4;

/// Room for every choice, so that what a token gives does not depend on how many there are.
fn options(mesh: Mesh, seq: i64, dtype: DType) -> Options {
    Options { batch: BATCH, seq, mesh, dtype, routing: Routing::Capacity(4.0), ..Options::default() }
}

fn params(module: &Verified<Module>) -> Vec<(String, TensorType)> {
    let main = module.func("main").unwrap();
    let one = |p: &tpusim_backend::hlo::Param| {
        (module.locs.name(p.loc).unwrap().to_owned(), main.ty(p.value).tensor().unwrap().clone())
    };
    main.params.iter().map(one).collect()
}

/// Token `t` of sequence `b`.
fn token(b: i64, t: i64) -> i64 {
    (b * 37 + t * 29 + t * t * 5 + 3) % 64
}

/// Weights without a pattern, the given cache, tokens from `from` on, and their position.
fn inputs(module: &Verified<Module>, cache: Option<&[Tensor]>, from: i64) -> Vec<Tensor> {
    let all = params(module);
    let first = all.iter().position(|p| p.0.starts_with("cache/")).unwrap();
    let one = |(i, (name, ty)): (usize, &(String, TensorType))| {
        let n = ty.elements().unwrap() as usize;
        if let Some(c) = cache.and_then(|c| c.get(i.wrapping_sub(first))) {
            return c.clone();
        }
        let draw = |k: usize| ((k * 7919 + i * 104_729) % 1009) as f64 / 1009.0 - 0.5;
        match name.as_str() {
            "tokens" => {
                let seq = ty.dims.get(1).copied().unwrap_or(1);
                let ids: Vec<i64> = (0..BATCH).flat_map(|b| (0..seq).map(move |t| token(b, from + t))).collect();
                Tensor::from_i64(&ty.dims, DType::I32, &ids).unwrap()
            }
            "position" => Tensor::from_i64(&[], DType::I32, &[from]).unwrap(),
            // What was there before must not matter.
            n if n.starts_with("cache/") => Tensor::from_f64(&ty.dims, ty.dtype, &vec![7.0; n_of(ty)]).unwrap(),
            _ => {
                let scale = name.ends_with("_norm");
                let v = |k| if scale { 1.0 + 0.4 * draw(k) } else { 0.5 * draw(k) };
                Tensor::from_f64(&ty.dims, ty.dtype, &(0..n).map(v).collect::<Vec<_>>()).unwrap()
            }
        }
    };
    all.iter().enumerate().map(one).collect()
}

fn n_of(ty: &TensorType) -> usize {
    ty.elements().unwrap() as usize
}

fn prefill(m: &Model, mesh: Mesh, seq: i64, dtype: DType) -> Verified<Module> {
    step(m, &options(mesh, seq, dtype), Phase::Prefill { context: CONTEXT }).unwrap()
}

fn decode(m: &Model, mesh: Mesh, dtype: DType) -> Verified<Module> {
    step(m, &options(mesh, 1, dtype), Phase::Decode { context: CONTEXT }).unwrap()
}

fn split(out: &[Tensor]) -> (&[Tensor], &Tensor, &Tensor) {
    let [cache @ .., logits, tokens] = out else { panic!("no logits") };
    (cache, logits, tokens)
}

fn near(found: &Tensor, want: &Tensor, tolerance: f64, what: &str) {
    let (found, want) = (found.to_f64(), want.to_f64());
    let largest = want.iter().fold(f64::MIN_POSITIVE, |a, v| a.max(v.abs()));
    assert!(largest.is_finite() && found.len() == want.len(), "{what}");
    let off = found.iter().zip(&want).fold(0.0f64, |m, (a, b)| m.max((a - b).abs() / largest));
    assert!(off <= tolerance, "{what} is off by {off:e} of {largest:e}");
}

const KINDS: [&str; 8] =
    ["qwen3-0.6b", "llama3.1-8b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3", "gemma2-9b", "gemma3-4b", "gpt-oss-20b"];

// Oracle: the prompt with one more token, and one more again, computed all at once by the same evaluator; f32, so that only the order of sums
// differs. For latent attention these are two different formulas.
#[test]
fn decode_continues_prefill() {
    for name in KINDS {
        let m = tiny(name);
        let first = prefill(&m, Mesh::ONE, 7, DType::F32);
        let out = eval_module(&first, &inputs(&first, None, 0)).unwrap();
        let mut cache = split(&out).0.to_vec();
        let one = decode(&m, Mesh::ONE, DType::F32);
        for position in 7..10 {
            let out = eval_module(&one, &inputs(&one, Some(&cache), position)).unwrap();
            let (next, logits, tokens) = split(&out);
            let whole = prefill(&m, Mesh::ONE, position + 1, DType::F32);
            let want = eval_module(&whole, &inputs(&whole, None, 0)).unwrap();
            let (_, want_logits, want_tokens) = split(&want);
            near(logits, want_logits, 2e-5, &format!("logits of {name} at {position}"));
            assert_eq!(tokens.bytes(), want_tokens.bytes(), "{name} at {position}");
            cache = next.to_vec();
        }
    }
}

// Oracle: by hand, the first of the largest logits.
#[test]
fn the_token_is_the_first_of_the_largest() {
    let m = tiny("llama3.1-8b");
    let module = prefill(&m, Mesh::ONE, 5, DType::F32);
    let out = eval_module(&module, &inputs(&module, None, 0)).unwrap();
    let (_, logits, tokens) = split(&out);
    let best = |row: &[f64]| row.iter().enumerate().fold(0, |at, (i, v)| if *v > row[at] { i } else { at }) as f64;
    assert_eq!(tokens.to_f64(), logits.to_f64().chunks(64).map(best).collect::<Vec<_>>());
}

// Oracle: the sizes by hand: 2 stacks of key heads in bf16; matrices of qwen3-8b in all.
#[test]
fn bytes_are_those_of_weights_and_cache() {
    let m = *Model::find("qwen3-8b").unwrap();
    let mesh = Mesh { data: 2, tensor: 4, ..Mesh::ONE };
    let o = Options { batch: 16, mesh, ..Options::default() };
    let found = served_bytes(&m, &o, Phase::Decode { context: 1024 }).unwrap();
    assert_eq!(found.cache, 2 * 36 * 8 * (8 / 4) * 1024 * 128 * 2);
    let matrices = 2 * (m.parameters() - m.vocab * m.d) as u64 / 4;
    assert!(found.weights >= matrices && found.weights < matrices + matrices / 1000, "{found:?} for {matrices}");
    assert_eq!(served_bytes(&m, &o, Phase::Train), None);
}

// Oracle: every model of the table has both programs, on one device and shared out.
#[test]
fn every_model_serves() {
    for m in MODELS {
        let small = Model { layers: m.layers.min(12), ..*m };
        for mesh in [Mesh::ONE, Mesh { data: 2, tensor: 2, ..Mesh::ONE }] {
            let o = Options { batch: 4, seq: 256, mesh, ..Options::default() };
            step(&small, &o, Phase::Prefill { context: 512 }).unwrap();
            step(&small, &o, Phase::Decode { context: 512 }).unwrap();
        }
    }
    let m = tiny("llama3.1-8b");
    let o = options(Mesh::ONE, 8, DType::BF16);
    assert!(step(&m, &o, Phase::Prefill { context: 7 }).unwrap_err().to_string().contains("does not hold 8 tokens"));
}

fn tpu() -> EvalOptions {
    EvalOptions { dot: DotPrecision::Tpu, ..EvalOptions::default() }
}

// Oracle: the reference evaluator with products rounded as the MXU rounds them; cycles with data are those without.
#[test]
fn simulated_chip_agrees_with_the_evaluator() {
    let chip = ChipSpec::load("v5e").unwrap();
    for name in ["qwen3-0.6b", "mixtral-8x7b", "deepseek-v3", "gemma3-4b"] {
        let m = tiny(name);
        for module in [prefill(&m, Mesh::ONE, 7, DType::F32), decode(&m, Mesh::ONE, DType::F32)] {
            let given = inputs(&module, None, 7);
            let want = eval_module_with(&module, &given, &tpu()).unwrap();
            let bytes: Vec<Vec<u8>> = given.iter().map(|t| t.bytes().to_vec()).collect();
            let run = |mode: Mode| {
                let driver = SimDriver::new(chip.clone()).with_mode(mode);
                driver.compile(&module).unwrap().execute(&bytes).unwrap()
            };
            let found = run(Mode::Execute);
            for (i, (found, want)) in found.outputs.iter().zip(&want).enumerate() {
                let found = Tensor::new(want.ty().clone(), found.clone()).unwrap();
                near(&found, want, 5e-3, &format!("output {i} of {name}"));
            }
            assert_eq!(found.profile.unwrap().cycles, run(Mode::Time).profile.unwrap().cycles, "{name}");
        }
    }
}

/// Runs a partitioned step on a slice of `devices` v5e chips and holds it against the evaluator on whole arrays.
fn on_slice(module: &Verified<Module>, given: &[Tensor], shape: &str, what: &str) -> Vec<Tensor> {
    let want = eval_module_with(module, given, &tpu()).unwrap();
    let chip = ChipSpec::load("v5e").unwrap();
    let cluster = Cluster { slice: Topology::parse(&chip, shape).unwrap(), slices: 1 };
    let pod = PodExecutable::new(module, &chip, &cluster).unwrap_or_else(|e| panic!("{what}: {e}"));
    let bytes: Vec<Vec<u8>> = given.iter().map(|t| t.bytes().to_vec()).collect();
    let run = pod.run(Mode::Execute, &bytes, &PodOptions::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let found: Vec<Tensor> =
        run.outputs.iter().zip(&want).map(|(f, w)| Tensor::new(w.ty().clone(), f.clone()).unwrap()).collect();
    for (i, (found, want)) in found.iter().zip(&want).enumerate() {
        near(found, want, 1e-2, &format!("output {i} of {what}"));
    }
    found
}

// Oracle: the evaluator on whole arrays, and prefill of one more token.
#[test]
fn slices_serve_as_one_device_does() {
    let cases = [
        ("qwen3-0.6b", Mesh { data: 2, tensor: 2, ..Mesh::ONE }),
        // Two key heads on four devices: whole on each, which have half of their query heads.
        ("llama3.1-8b", Mesh { tensor: 4, ..Mesh::ONE }),
        ("mixtral-8x7b", Mesh { expert: 2, tensor: 2, ..Mesh::ONE }),
        ("deepseek-v3", Mesh { fsdp: 2, tensor: 2, ..Mesh::ONE }),
    ];
    for (name, mesh) in cases {
        let m = Model { heads: 8, ff: 32, ..tiny(name) };
        let m = if m.latent.is_some() { Model { kv_heads: 8, ..m } } else { m };
        let first = prefill(&m, mesh, 8, DType::F32);
        let out = on_slice(&first, &inputs(&first, None, 0), "2x2", &format!("prefill of {name}"));
        let one = decode(&m, mesh, DType::F32);
        let given = inputs(&one, Some(split(&out).0), 8);
        let out = on_slice(&one, &given, "2x2", &format!("decode of {name}"));
        let whole = prefill(&m, Mesh::ONE, 9, DType::F32);
        let want = eval_module_with(&whole, &inputs(&whole, None, 0), &tpu()).unwrap();
        near(split(&out).1, split(&want).1, 3e-2, &format!("logits of {name}"));
    }
}
