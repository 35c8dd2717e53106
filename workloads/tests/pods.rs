//! Training steps on simulated slices of eight devices. Oracle: the reference evaluator on whole arrays, with products rounded as the MXU rounds
//! them.

mod steps;

use steps::{inputs, near, small};
use tpusim_backend::eval::{DotPrecision, EvalOptions, Tensor, eval_module_with};
use tpusim_driver::{Mode, PodExecutable};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_isa::topology::Topology;
use tpusim_sim::network::Cluster;
use tpusim_sim::pod::PodOptions;
use tpusim_workloads::llm::{Mesh, Model, Options, Routing, train_step};

fn check(m: &Model, mesh: Mesh, routing: Routing) {
    let types = (DType::F32, DType::F32);
    let options = Options { batch: 8, seq: 16, mesh, routing, dtype: types.0, weights: types.1, ..Options::default() };
    check_step(m, &options, &Mesh { context: 1, ..mesh }, 1e-2);
}

/// Checks a step against the one for a mesh `whole`, to within `tolerance` of the largest of each result.
fn check_step(m: &Model, options: &Options, whole: &Mesh, tolerance: f64) {
    check_on(("4x2", 1), m, options, whole, tolerance);
}

/// As [`check_step`], on slices of a shape.
fn check_on((shape, slices): (&str, u32), m: &Model, options: &Options, whole: &Mesh, tolerance: f64) {
    let one = if options.mesh.pipeline > 1 { 1 } else { options.microbatches };
    let whole = Options { mesh: *whole, microbatches: one, repeats: 1, ..*options };
    let what = format!("{} {}", m.name, options.mesh);
    let module = train_step(m, options).unwrap();
    let whole = train_step(m, &whole).unwrap();
    // The same elements, though rounds of a pipeline stack layers in another shape.
    let given = inputs(&whole);
    let tpu = EvalOptions { dot: DotPrecision::Tpu, ..EvalOptions::default() };
    let want = eval_module_with(&whole, &given, &tpu).unwrap();
    let chip = ChipSpec::load("v5e").unwrap();
    let cluster = Cluster { slice: Topology::parse(&chip, shape).unwrap(), slices };
    let pod = PodExecutable::new(&module, &chip, &cluster).unwrap_or_else(|e| panic!("{what}: {e}"));
    let bytes: Vec<Vec<u8>> = given.iter().map(|t| t.bytes().to_vec()).collect();
    let run = pod.run(Mode::Execute, &bytes, &PodOptions::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = run.outputs.iter().zip(&want).map(|(b, w)| Tensor::new(w.ty().clone(), b.clone()).unwrap());
    near(&found.collect::<Vec<_>>(), &want, tolerance, &what);
    let timed = pod.run(Mode::Time, &[], &PodOptions::default()).unwrap().profile;
    assert_eq!(timed.end, run.profile.end, "{what}");
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

// Products of bf16 operands that are added up in another order, in sums that mostly cancel, leave a few percent; `meshes.rs` is exact.
#[test]
fn sequences_cut_over_eight_devices() {
    let long = Options { batch: 4, seq: 32, dtype: DType::F32, weights: DType::F32, ..Options::default() };
    let model = small("llama3.1-8b");
    for mesh in [Mesh { fsdp: 2, context: 4, ..Mesh::ONE }, Mesh { fsdp: 2, context: 2, tensor: 2, ..Mesh::ONE }] {
        check_step(&model, &Options { mesh, ..long }, &Mesh::ONE, 0.1);
    }
    // As kernels.
    let mesh = Mesh { data: 2, context: 4, ..Mesh::ONE };
    let bf16 = Options { batch: 2, seq: 256, mesh, dtype: DType::BF16, ..long };
    check_step(&Model { dim: 16, ..model }, &bf16, &Mesh::ONE, 0.1);
}

#[test]
fn stages_on_eight_devices() {
    let o = Options { batch: 8, seq: 16, dtype: DType::F32, weights: DType::F32, ..Options::default() };
    let model = Model { layers: 4, ..small("llama3.1-8b") };
    let mesh = Mesh { pipeline: 4, fsdp: 2, ..Mesh::ONE };
    check_step(&model, &Options { mesh, ..o }, &Mesh::ONE, 0.1);
    let mesh = Mesh { pipeline: 2, fsdp: 2, tensor: 2, ..Mesh::ONE };
    check_step(&model, &Options { mesh, microbatches: 4, repeats: 2, ..o }, &Mesh::ONE, 0.1);
    // Stages that are slices.
    let mesh = Mesh { pipeline: 2, fsdp: 4, ..Mesh::ONE };
    check_on(("2x2", 2), &model, &Options { mesh, repeats: 2, ..o }, &Mesh::ONE, 0.1);
}
