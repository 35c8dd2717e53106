//! Loops over layers whose weights and gradients are cut over the devices. Oracle: the reference evaluator for numbers; for time, the run
//! without data, the unfolded one, and the time that one transfer takes.

mod common;

use tpusim_backend::eval::{EvalOptions, Tensor, eval_spmd};
use tpusim_backend::front::parse_text;
use tpusim_backend::hlo::{Module, Verified, verify};
use tpusim_isa::program::Program;
use tpusim_isa::topology::Topology;
use tpusim_sim::network::Cluster;
use tpusim_sim::pod::{PodOptions, PodProfile, execute, time};

use common::{chip, compiled};

const SLICES: [(&str, &str); 3] = [("v5e", "4x2"), ("v5p", "2x2x2"), ("v7x", "2x2x1")];
const GROUPS: &str = "replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids";

/// `layers` products of `rows` by `d` with weights that are gathered, and back again with gradients that are reduced: the matrices' are
/// scattered, those of a factor of each layer are not.
fn layers(layers: u64, rows: u64, d: u64, ty: &str) -> Verified<Module> {
    let part = d / 8;
    let (x, w, f) = (format!("tensor<{rows}x{d}x{ty}>"), format!("tensor<{d}x{d}x{ty}>"), format!("tensor<{d}x{ty}>"));
    let (own, stack) = (format!("tensor<{part}x{d}x{ty}>"), format!("tensor<{layers}x{part}x{d}x{ty}>"));
    let (one, fs) = (format!("tensor<1x{part}x{d}x{ty}>"), format!("tensor<{layers}x{d}x{ty}>"));
    let (xs, row) = (format!("tensor<{layers}x{rows}x{d}x{ty}>"), format!("tensor<1x{rows}x{d}x{ty}>"));
    let add = format!(
        "({{\n    ^bb0(%a: tensor<{ty}>, %b: tensor<{ty}>):\n      %s = stablehlo.add %a, %b : tensor<{ty}>\n      stablehlo.return %s : tensor<{ty}>\n    }})"
    );
    let weights = |at: &str| {
        format!(
            "      %s0 = stablehlo.dynamic_slice %w, {at}, %zero, %zero, sizes = [1, {part}, {d}] : ({stack}, tensor<i32>, tensor<i32>, tensor<i32>) -> {one}
      %s1 = stablehlo.reshape %s0 : ({one}) -> {own}
      %m = \"stablehlo.all_gather\"(%s1) <{{all_gather_dim = 0 : i64, {GROUPS}}}> : ({own}) -> {w}
      %f0 = stablehlo.dynamic_slice %f, {at}, %zero, sizes = [1, {d}] : ({fs}, tensor<i32>, tensor<i32>) -> tensor<1x{d}x{ty}>
      %f1 = stablehlo.broadcast_in_dim %f0, dims = [0, 1] : (tensor<1x{d}x{ty}>) -> {x}\n"
        )
    };
    let clamp = |name: &str, of: &str| {
        format!("      {name} = stablehlo.clamp %low, {of}, %high : (tensor<{ty}>, {x}, tensor<{ty}>) -> {x}\n")
    };
    let body = format!(
        "    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %last = stablehlo.constant dense<{last}> : tensor<i32>
    %n = stablehlo.constant dense<{layers}> : tensor<i32>
    %none = stablehlo.constant dense<0.0> : tensor<{ty}>
    %low = stablehlo.constant dense<-8.0> : tensor<{ty}>
    %high = stablehlo.constant dense<8.0> : tensor<{ty}>
    %xs = stablehlo.broadcast_in_dim %none, dims = [] : (tensor<{ty}>) -> {xs}
    %dw = stablehlo.broadcast_in_dim %none, dims = [] : (tensor<{ty}>) -> {stack}
    %df = stablehlo.broadcast_in_dim %none, dims = [] : (tensor<{ty}>) -> {fs}
    %there:3 = stablehlo.while(%i = %zero, %x = %arg2, %kept = %xs) : tensor<i32>, {x}, {xs}
    cond {{
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
{forth}      %r = stablehlo.reshape %x : ({x}) -> {row}
      %k = stablehlo.dynamic_update_slice %kept, %r, %i, %zero, %zero : ({xs}, {row}, tensor<i32>, tensor<i32>, tensor<i32>) -> {xs}
      %y = stablehlo.dot_general %x, %m, contracting_dims = [1] x [0] : ({x}, {w}) -> {x}
      %z = stablehlo.add %y, %f1 : {x}
{clamped}      %next = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %next, %v, %k : tensor<i32>, {x}, {xs}
    }}
    %back:4 = stablehlo.while(%i = %zero, %dx = %there#1, %gw = %dw, %gf = %df) : tensor<i32>, {x}, {stack}, {fs}
    cond {{
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %j = stablehlo.subtract %last, %i : tensor<i32>
{back}      %r = stablehlo.dynamic_slice %there#2, %j, %zero, %zero, sizes = [1, {rows}, {d}] : ({xs}, tensor<i32>, tensor<i32>, tensor<i32>) -> {row}
      %x = stablehlo.reshape %r : ({row}) -> {x}
      %y = stablehlo.dot_general %x, %m, contracting_dims = [1] x [0] : ({x}, {w}) -> {x}
      %h = stablehlo.add %y, %f1 : {x}
{kept}      %e = stablehlo.multiply %v, %dx : {x}
{limited}      %fg = stablehlo.reduce(%q init: %none) applies stablehlo.add across dimensions = [0] : ({x}, tensor<{ty}>) -> {f}
      %fr = \"stablehlo.all_reduce\"(%fg) <{{{GROUPS}}}> {add} : ({f}) -> {f}
      %fs = stablehlo.reshape %fr : ({f}) -> tensor<1x{d}x{ty}>
      %fn = stablehlo.dynamic_update_slice %gf, %fs, %j, %zero : ({fs}, tensor<1x{d}x{ty}>, tensor<i32>, tensor<i32>) -> {fs}
      %g = stablehlo.dot_general %x, %q, contracting_dims = [0] x [0] : ({x}, {x}) -> {w}
      %gs = \"stablehlo.reduce_scatter\"(%g) <{{scatter_dimension = 0 : i64, {GROUPS}}}> {add} : ({w}) -> {own}
      %go = stablehlo.reshape %gs : ({own}) -> {one}
      %gn = stablehlo.dynamic_update_slice %gw, %go, %j, %zero, %zero : ({stack}, {one}, tensor<i32>, tensor<i32>, tensor<i32>) -> {stack}
      %p = stablehlo.dot_general %q, %m, contracting_dims = [1] x [1] : ({x}, {w}) -> {x}
{passed}      %next = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %next, %u, %gn, %fn : tensor<i32>, {x}, {stack}, {fs}
    }}
    return %back#1, %back#2, %back#3 : {x}, {stack}, {fs}",
        last = layers - 1,
        forth = weights("%i"),
        back = weights("%j"),
        clamped = clamp("%v", "%z"),
        kept = clamp("%v", "%h"),
        limited = clamp("%q", "%e"),
        passed = clamp("%u", "%p"),
    )
    .replace("%w,", "%arg0,")
    .replace("%f,", "%arg1,");
    let text = format!(
        "module @m attributes {{mhlo.num_partitions = 8 : i32}} {{\n  func.func public @main(%arg0: {stack}, %arg1: {fs}, %arg2: {x}) -> ({x}, {stack}, {fs}) {{\n{body}\n  }}\n}}"
    );
    let m = parse_text(&text, "layers.mlir").unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    verify(m).unwrap_or_else(|e| panic!("{e:?}\n{text}"))
}

/// Inputs of one device: small whole numbers, whose sums are exact in any order.
fn inputs(m: &Module, device: u32) -> Vec<Tensor> {
    let main = m.func("main").unwrap();
    let tensor = |(k, p): (usize, &tpusim_backend::hlo::Param)| {
        let ty = main.ty(p.value).tensor().unwrap().clone();
        let n = ty.elements().unwrap() as usize;
        let mut bytes = Vec::new();
        for i in 0..n {
            let v = ((i as u32).wrapping_mul(2_654_435_761).wrapping_add(device * 97 + k as u32 * 31) >> 20) % 17;
            bytes.extend(tpusim_isa::num::convert::encode_f64(ty.dtype, &[f64::from(v) - 8.0]));
        }
        Tensor::new(ty, bytes).unwrap()
    };
    main.params.iter().enumerate().map(tensor).collect()
}

fn cluster(name: &str, shape: &str) -> Cluster {
    Cluster { slice: Topology::parse(&chip(name), shape).unwrap(), slices: 1 }
}

// Oracle: the reference evaluator; the run without data.
#[test]
fn layers_give_the_same_numbers_in_the_same_time() {
    for n in [1, 2, 3, 5] {
        let m = layers(n, 16, 64, "f32");
        let own: Vec<Vec<Tensor>> = (0..8).map(|d| inputs(&m, d)).collect();
        let want = eval_spmd(&m, &own, &EvalOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        let bytes: Vec<Vec<Vec<u8>>> = own.iter().map(|d| d.iter().map(|t| t.bytes().to_vec()).collect()).collect();
        for (name, shape) in SLICES {
            let (chip, cluster) = (chip(name), cluster(name, shape));
            let program = compiled(&m, &chip).unwrap_or_else(|e| panic!("{name}: {e}"));
            for late in [false, true] {
                let mut opts = PodOptions::default();
                opts.run.poison = true;
                opts.run.dma_late = late;
                let run = execute(&program, &chip, &cluster, &bytes, &opts).unwrap_or_else(|e| panic!("{name}: {e}"));
                for (d, outputs) in run.outputs.iter().enumerate() {
                    for (k, o) in outputs.iter().enumerate() {
                        assert!(
                            o == want[d][k].bytes(),
                            "{name} {shape}, {n} layers: device {d} output {k}, late {late}"
                        );
                    }
                }
                for fold in [false, true] {
                    let timed = time(&program, &chip, &cluster, &PodOptions { fold, ..PodOptions::default() }).unwrap();
                    assert_eq!(timed.end, run.profile.end, "{name} {shape}, {n} layers, fold {fold}");
                }
            }
        }
    }
}

/// Time that a kind of transfer was waited for, and that all its runs took, in seconds; and how many there were.
fn waited(program: &Program, profile: &PodProfile, kind: &str) -> (f64, f64, u64) {
    let all = program.transfers.iter().zip(&profile.devices[0].transfer_totals);
    all.filter(|(t, _)| t.name.starts_with(kind) && !t.name.contains("strand"))
        .fold((0.0, 0.0, 0), |sum, (_, (runs, time, exposed))| {
            (sum.0 + exposed.seconds(), sum.1 + time.seconds(), sum.2 + runs)
        })
}

// Oracle: each loop can hide all its transfers but those of its first or last iteration, and what these delay.
#[test]
fn only_the_first_gather_and_the_last_reduction_are_waited_for() {
    let m = layers(12, 8192, 1024, "bf16");
    for (name, shape) in SLICES {
        let (chip, cluster) = (chip(name), cluster(name, shape));
        let program = compiled(&m, &chip).unwrap_or_else(|e| panic!("{name}: {e}"));
        let timed = time(&program, &chip, &cluster, &PodOptions::default()).unwrap();
        for (kind, loops) in [("all_gather", 2.0), ("reduce_scatter", 1.0), ("all_reduce", 1.0)] {
            let (exposed, all, runs) = waited(&program, &timed, kind);
            assert_eq!(runs as f64, 12.0 * loops, "{name} {kind}");
            assert!(exposed <= 2.5 * loops * all / runs as f64, "{name} {kind}: {exposed} s of {all} s in {runs} runs");
        }
    }
}
