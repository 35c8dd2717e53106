//! Training steps cut over meshes. Oracle: the reference evaluator on the step of one device, with products in f32; cut steps are evaluated
//! device by device, so that all that differs is the order of sums.

mod steps;

use steps::{inputs, near, small};
use tpusim_backend::eval::{EvalOptions, Tensor, eval_module, eval_spmd};
use tpusim_backend::hlo::{Attr, Block, Opcode};
use tpusim_backend::partition::{assemble, cut, partition};
use tpusim_isa::num::DType;
use tpusim_workloads::llm::{Keep, Mesh, Model, Options, Remat, Routing, Window, train_step};

const LONG: Options = Options {
    batch: 4,
    seq: 32,
    mesh: Mesh::ONE,
    remat: Remat::Full,
    optimizer: tpusim_workloads::llm::Optimizer::Adam,
    dtype: DType::F32,
    weights: DType::F32,
    state: DType::F32,
    first_moment: None,
    microbatches: 1,
    repeats: 1,
    attention_block: None,
    products: tpusim_workloads::llm::Products::Plain,
    routing: Routing::Capacity(1.25),
    imbalance: None,
};

fn check(m: &Model, options: &Options) {
    let what = format!("{} {}", m.name, options.mesh);
    let module = train_step(m, options).unwrap();
    let whole = match options.mesh.pipeline {
        1 => Options { mesh: Mesh::ONE, ..*options },
        _ => Options { mesh: Mesh::ONE, microbatches: 1, repeats: 1, ..*options },
    };
    let whole = train_step(m, &whole).unwrap();
    let given = inputs(&whole);
    let want = eval_module(&whole, &given).unwrap();
    let p = partition(&module).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(p.notes, Vec::<String>::new(), "{what}");
    let local = p.module.func("main").unwrap();
    let mut devices: Vec<Vec<Tensor>> = vec![Vec::new(); p.devices as usize];
    let main = module.func("main").unwrap();
    for (((t, s), param), whole) in given.iter().zip(&p.params).zip(&local.params).zip(&main.params) {
        let (ty, whole) = (local.ty(param.value).tensor().unwrap(), main.ty(whole.value).tensor().unwrap());
        // Layers of rounds of a pipeline are the same elements in another shape.
        let parts = cut(t.bytes(), &whole.dims, t.dtype(), s, &p.mesh).unwrap();
        devices.iter_mut().zip(parts).for_each(|(d, part)| d.push(Tensor::new(ty.clone(), part).unwrap()));
    }
    let outputs = eval_spmd(&p.module, &devices, &EvalOptions::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let result = |(i, want): (usize, &Tensor)| {
        let parts: Vec<Vec<u8>> = outputs.iter().map(|o| o[i].bytes().to_vec()).collect();
        let (ty, whole) = (want.ty(), main.results[i].ty.tensor().unwrap());
        Tensor::new(ty.clone(), assemble(&parts, &whole.dims, ty.dtype, &p.results[i], &p.mesh).unwrap()).unwrap()
    };
    let found: Vec<Tensor> = want.iter().enumerate().map(result).collect();
    // Softmax takes no notice of what all keys share, unless positions rotate it: the gradient is nothing but roundings.
    let names = local.params.iter().map(|p| p.loc).chain(std::iter::repeat(local.loc));
    let noise = |loc| m.rope_base.is_none() && p.module.locs.name(loc).is_some_and(|n| n.ends_with("layers/bk"));
    let kept: Vec<bool> = names.map(|loc| !noise(loc)).take(found.len()).collect();
    let some = |all: &[Tensor]| all.iter().zip(&kept).filter(|(_, k)| **k).map(|(t, _)| t.clone()).collect::<Vec<_>>();
    near(&some(&found), &some(&want), 1e-4, &what);
}

#[test]
fn sequences_cut_over_devices() {
    let keep = Keep { qkv: true, context: true, ..Keep::default() };
    for (mesh, remat) in [
        (Mesh { context: 2, ..Mesh::ONE }, Remat::Full),
        (Mesh { context: 3, ..Mesh::ONE }, Remat::Full),
        (Mesh { fsdp: 2, context: 4, ..Mesh::ONE }, Remat::Dots),
        (Mesh { data: 2, context: 2, tensor: 2, ..Mesh::ONE }, Remat::Keep(keep)),
        (Mesh { fsdp: 2, context: 2, tensor: 4, ..Mesh::ONE }, Remat::None),
    ] {
        let (d, seq) = if mesh.context == 3 { (48, 36) } else { (32, 32) };
        check(&Model { d, ..small("qwen3-8b") }, &Options { mesh, remat, seq, ..LONG });
    }
}

#[test]
fn microbatches_of_cut_sequences() {
    let mesh = Mesh { fsdp: 2, context: 2, ..Mesh::ONE };
    check(&small("llama3.1-8b"), &Options { mesh, microbatches: 2, ..LONG });
}

#[test]
fn learned_positions_over_devices() {
    let mesh = Mesh { fsdp: 2, context: 2, tensor: 2, ..Mesh::ONE };
    check(&Model { context: 64, ..small("gpt3-175b") }, &Options { mesh, ..LONG });
}

#[test]
fn one_key_head_over_devices() {
    let mesh = Mesh { context: 4, tensor: 2, ..Mesh::ONE };
    check(&Model { kv_heads: 1, ..small("gemma-2b") }, &Options { mesh, ..LONG });
}

// Room for all, so that it does not matter which tokens are routed together.
#[test]
fn experts_on_cut_sequences() {
    let routing = Routing::Capacity(8.0);
    let mesh = Mesh { fsdp: 2, context: 2, expert: 2, ..Mesh::ONE };
    check(&small("qwen3-235b-a22b"), &Options { mesh, routing, ..LONG });
    let mesh = Mesh { context: 2, expert: 2, tensor: 2, ..Mesh::ONE };
    check(&small("deepseek-v3"), &Options { mesh, routing, remat: Remat::Dots, ..LONG });
}

// Oracle: by hand. Of 2 n chunks on each device, keys are gathered and their gradients scattered; the pairs of chunks are a loop.
#[test]
fn keys_are_gathered_and_their_gradients_scattered() {
    let mesh = Mesh { context: 4, ..Mesh::ONE };
    let module = train_step(&small("llama3.1-8b"), &Options { mesh, ..LONG }).unwrap();
    let p = partition(&module).unwrap();
    fn count(b: &Block, opcode: Opcode, dims: &[i64], ty: &dyn Fn(&tpusim_backend::hlo::Op) -> Vec<i64>) -> usize {
        let inner = |op: &tpusim_backend::hlo::Op| -> usize {
            op.regions.iter().map(|r| count(&r.block, opcode, dims, ty)).sum()
        };
        let own = |op: &tpusim_backend::hlo::Op| usize::from(op.opcode == opcode && ty(op) == dims);
        b.ops.iter().map(|op| own(op) + inner(op)).sum()
    }
    let main = p.module.func("main").unwrap();
    let result = |op: &tpusim_backend::hlo::Op| main.ty(op.results[0]).tensor().map_or(Vec::new(), |t| t.dims.clone());
    // Keys and values of the forward loop, and again of the backward loop.
    assert_eq!(count(&main.body, Opcode::AllGather, &[4, 32, 2, 8], &result), 4);
    assert_eq!(count(&main.body, Opcode::ReduceScatter, &[4, 8, 2, 8], &result), 2);
    assert!(module.attrs.get("mhlo.num_partitions").is_some_and(|a| matches!(a, Attr::Int(4, _))));
}

// Oracle: by hand: 2 n chunks.
#[test]
fn sequences_that_do_not_divide_say_what_would() {
    let m = small("llama3.1-8b");
    let wrong = |mesh: Mesh, seq: i64| train_step(&m, &Options { mesh, seq, ..LONG }).unwrap_err().to_string();
    let error = wrong(Mesh { context: 4, ..Mesh::ONE }, 36);
    assert!(error.contains("into 8 chunks") && error.contains("seq=32 or seq=40 or context=3 would work"), "{error}");
}

#[test]
fn layers_in_stages() {
    let model = Model { layers: 4, ..small("qwen3-8b") };
    for (mesh, batch, microbatches, remat) in [
        (Mesh { pipeline: 2, ..Mesh::ONE }, 4, 1, Remat::Full),
        (Mesh { pipeline: 4, ..Mesh::ONE }, 8, 8, Remat::Full),
        (Mesh { pipeline: 2, ..Mesh::ONE }, 8, 8, Remat::Dots),
        (Mesh { data: 2, pipeline: 2, fsdp: 2, ..Mesh::ONE }, 16, 4, Remat::None),
        (Mesh { pipeline: 2, fsdp: 2, tensor: 2, ..Mesh::ONE }, 8, 4, Remat::Full),
        (Mesh { pipeline: 2, context: 2, tensor: 2, ..Mesh::ONE }, 4, 2, Remat::Full),
    ] {
        check(&model, &Options { mesh, batch, microbatches, remat, ..LONG });
    }
}

// Scores that are bounded, sinks, and windows of every other layer.
#[test]
fn windows_over_devices() {
    let routing = Routing::Capacity(8.0);
    let mesh = Mesh { fsdp: 2, context: 2, ..Mesh::ONE };
    check(&small("gemma2-9b"), &Options { mesh, ..LONG });
    check(&small("gpt-oss-120b"), &Options { mesh, routing, ..LONG });
    let near = |layers: i64| {
        let m = small("gemma2-9b");
        Model { layers, window: m.window.map(|w| Window { size: 8, ..w }), ..m }
    };
    let mesh = Mesh { pipeline: 2, fsdp: 2, ..Mesh::ONE };
    check(&near(4), &Options { mesh, microbatches: 4, batch: 8, ..LONG });
    check(&near(8), &Options { mesh, microbatches: 4, batch: 8, repeats: 2, ..LONG });
    let wrong = |m: Model, mesh: Mesh| train_step(&m, &Options { mesh, ..LONG }).unwrap_err().to_string();
    let error = wrong(near(4), Mesh { context: 2, ..Mesh::ONE });
    assert!(error.contains("see 8 of"), "{error}");
    let error = wrong(near(6), Mesh { pipeline: 2, ..Mesh::ONE });
    assert!(error.contains("pipeline"), "{error}");
}

#[test]
fn rounds_through_stages() {
    let mesh = Mesh { pipeline: 2, fsdp: 2, ..Mesh::ONE };
    for (layers, repeats, microbatches) in [(4, 2, 2), (4, 2, 4), (6, 3, 4), (8, 2, 6)] {
        let model = Model { layers, ..small("llama3.1-8b") };
        check(&model, &Options { mesh, repeats, microbatches, batch: 2 * microbatches, ..LONG });
    }
}

#[test]
fn experts_in_stages() {
    let routing = Routing::Capacity(8.0);
    let mesh = Mesh { pipeline: 2, fsdp: 2, expert: 2, ..Mesh::ONE };
    check(&small("mixtral-8x7b"), &Options { mesh, routing, batch: 8, ..LONG });
    let mesh = Mesh { data: 2, pipeline: 2, expert: 2, ..Mesh::ONE };
    // A dense layer before the pipeline.
    let model = Model { layers: 5, ..small("deepseek-v3") };
    check(&model, &Options { mesh, routing, microbatches: 4, batch: 16, repeats: 2, ..LONG });
}

// Oracle: by hand.
#[test]
fn stages_that_do_not_divide_say_what_would() {
    let wrong = |layers: i64, o: Options| {
        let model = Model { layers, ..small("llama3.1-8b") };
        train_step(&model, &Options { mesh: Mesh { pipeline: 4, fsdp: 2, ..Mesh::ONE }, ..o }).unwrap_err().to_string()
    };
    let error = wrong(6, LONG);
    assert!(error.contains("does not divide 6 layers; pipeline=2 or 3 or 6 would work"), "{error}");
    let error = wrong(4, Options { microbatches: 6, batch: 12, ..LONG });
    assert!(error.contains("microbatches=4 or microbatches=8 would work"), "{error}");
    let error = wrong(4, Options { batch: 12, ..LONG });
    assert!(error.contains("batch=8 or batch=16 would work"), "{error}");
}
