//! Training steps on simulated slices of eight devices. Oracle: the reference evaluator on whole arrays, of a step for a mesh that cuts no
//! sequences, with products rounded as the MXU rounds them.

use tpusim_backend::eval::{DotPrecision, EvalOptions, Tensor, eval_module_with};
use tpusim_driver::{Mode, PodExecutable};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_isa::topology::Topology;
use tpusim_sim::network::Cluster;
use tpusim_sim::pod::PodOptions;
use tpusim_workloads::llm::{Experts, Latent, Mesh, Model, Options, Remat, Routing, train_step};

fn small(name: &str) -> Model {
    let m = *Model::find(name).unwrap();
    let experts = m.experts.map(|e| Experts { count: 8, active: 2, ff: 16, dense_layers: e.dense_layers.min(1), ..e });
    let latent = m.latent.map(|_| Latent { q_rank: 16, kv_rank: 16, nope: 6, rope: 4, value: 8 });
    let kv_heads = if m.kv_heads == m.heads { 4 } else { 2 };
    Model { layers: 2, d: 32, ff: 32, heads: 4, kv_heads, dim: 8, vocab: 64, experts, latent, ..m }
}

fn check(m: &Model, mesh: Mesh, routing: Routing) {
    let f32s = Options { batch: 8, seq: 16, dtype: DType::F32, weights: DType::F32, ..Options::default() };
    check_step(m, &Options { mesh, routing, ..f32s }, 1e-2);
}

/// Checks results to within `tolerance` of the largest of each.
fn check_step(m: &Model, options: &Options, tolerance: f64) {
    let mesh = options.mesh;
    let module = train_step(m, options).unwrap();
    let whole = train_step(m, &Options { mesh: Mesh { context: 1, ..mesh }, ..*options }).unwrap();
    let main = module.func("main").unwrap();
    let tensor = |(k, p): (usize, &tpusim_backend::hlo::Param)| {
        let ty = main.ty(p.value).tensor().unwrap().clone();
        let n = ty.elements().unwrap() as usize;
        let name = module.locs.name(p.loc).unwrap();
        let draw = |i: usize| (i * 7919 + k * 104_729 + i * i * 13) % 1009;
        if ty.dtype == DType::I32 {
            let values: Vec<i64> = (0..n).map(|i| if n == 1 { 0 } else { (draw(i) % 64) as i64 }).collect();
            return Tensor::from_i64(&ty.dims, ty.dtype, &values).unwrap();
        }
        let value = |i: usize| match name {
            _ if name.starts_with("m/") || name.starts_with("v/") => 0.0,
            _ if name.ends_with("_norm") => 1.0 + draw(i) as f64 / 2500.0,
            _ => draw(i) as f64 / 2018.0 - 0.25,
        };
        Tensor::from_f64(&ty.dims, ty.dtype, &(0..n).map(value).collect::<Vec<_>>()).unwrap()
    };
    let given: Vec<Tensor> = main.params.iter().enumerate().map(tensor).collect();
    let tpu = EvalOptions { dot: DotPrecision::Tpu, ..EvalOptions::default() };
    let want = eval_module_with(&whole, &given, &tpu).unwrap();
    let chip = ChipSpec::load("v5e").unwrap();
    let cluster = Cluster { slice: Topology::parse(&chip, "4x2").unwrap(), slices: 1 };
    let pod = PodExecutable::new(&module, &chip, &cluster).unwrap_or_else(|e| panic!("{mesh:?}: {e}"));
    let bytes: Vec<Vec<u8>> = given.iter().map(|t| t.bytes().to_vec()).collect();
    let run = pod.run(Mode::Execute, &bytes, &PodOptions::default()).unwrap_or_else(|e| panic!("{mesh:?}: {e}"));
    for (i, (found, want)) in run.outputs.iter().zip(&want).enumerate() {
        let found = Tensor::new(want.ty().clone(), found.clone()).unwrap().to_f64();
        let want = want.to_f64();
        let largest = want.iter().fold(f64::MIN_POSITIVE, |a, v| a.max(v.abs()));
        let off = found.iter().zip(&want).fold(0f64, |m, (a, b)| m.max((a - b).abs() / largest));
        assert!(off < tolerance, "{} {mesh:?}: output {i} is off by {off:e}", m.name);
    }
    let timed = pod.run(Mode::Time, &[], &PodOptions::default()).unwrap().profile;
    assert_eq!(timed.end, run.profile.end, "{mesh:?}");
}

#[test]
fn experts_on_eight_devices() {
    let m = small("qwen3-235b-a22b");
    for mesh in [
        Mesh { fsdp: 2, expert: 4, ..Mesh::ONE },
        Mesh { fsdp: 8, ..Mesh::ONE },
        Mesh { fsdp: 2, expert: 2, tensor: 2, ..Mesh::ONE },
        Mesh { data: 2, expert: 4, ..Mesh::ONE },
    ] {
        check(&m, mesh, Routing::Capacity(1.25));
    }
    check(&m, Mesh { fsdp: 4, expert: 2, ..Mesh::ONE }, Routing::Balanced);
}

#[test]
fn latent_attention_and_a_shared_expert_on_eight_devices() {
    check(&small("deepseek-v3"), Mesh { fsdp: 4, expert: 2, ..Mesh::ONE }, Routing::Capacity(1.0));
}

fn long() -> Options {
    Options { batch: 4, seq: 32, dtype: DType::F32, weights: DType::F32, ..Options::default() }
}

#[test]
fn sequences_cut_over_devices() {
    for (mesh, remat) in [
        (Mesh { fsdp: 2, context: 4, ..Mesh::ONE }, Remat::Full),
        (Mesh { fsdp: 2, context: 2, tensor: 2, ..Mesh::ONE }, Remat::Dots),
        (Mesh { data: 2, context: 4, ..Mesh::ONE }, Remat::None),
    ] {
        check_step(&small("qwen3-8b"), &Options { mesh, remat, ..long() }, 1e-2);
    }
}

#[test]
fn learned_positions_and_one_key_head_over_devices() {
    let mesh = Mesh { fsdp: 2, context: 2, tensor: 2, ..Mesh::ONE };
    check_step(&Model { context: 64, ..small("gpt3-175b") }, &Options { mesh, ..long() }, 1e-2);
    check_step(&Model { kv_heads: 1, ..small("gemma-2b") }, &Options { mesh, ..long() }, 1e-2);
}
