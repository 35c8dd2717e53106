//! Collectives on simulated pods. Oracle: the reference evaluator, which runs one thread per device and combines in the order of the
//! group.

mod common;

use tpusim_backend::compile::{HbmLimit, compile, compile_placed};
use tpusim_backend::eval::{EvalOptions, Tensor, eval_spmd};
use tpusim_backend::front::parse_text;
use tpusim_backend::hlo::{Module, Verified, verify};
use tpusim_driver::placement;
use tpusim_isa::topology::Topology;
use tpusim_sim::network::Cluster;
use tpusim_sim::pod::{PodOptions, execute, time};

use common::{checked, chip};

const SLICES: [(&str, &str); 3] = [("v5e", "4x2"), ("v5p", "2x2x2"), ("v7x", "2x2x1")];
const SIXTEEN: [(&str, &str); 3] = [("v5e", "4x4"), ("v5p", "4x4x1"), ("v7x", "4x2x1")];

fn module(body: &str, params: &str, results: &str) -> Verified<Module> {
    module_for(8, body, params, results)
}

fn module_for(devices: usize, body: &str, params: &str, results: &str) -> Verified<Module> {
    let text = format!(
        "module @m attributes {{mhlo.num_partitions = {devices} : i32}} {{\n  func.func public @main({params}) -> ({results}) {{\n{body}\n  }}\n}}"
    );
    let m = parse_text(&text, "pods.mlir").unwrap_or_else(|e| panic!("{e:?}\n{text}"));
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

fn check(m: &Verified<Module>) {
    // Where devices are may be known or not.
    let eight = |known: bool| SLICES.map(|(name, shape)| (name, shape, 1, known));
    check_on(m, 8, &[eight(true), eight(false)].concat());
}

fn check_on(m: &Verified<Module>, devices: u32, slices: &[(&str, &str, u32, bool)]) {
    let own: Vec<Vec<Tensor>> = (0..devices).map(|d| inputs(m, d)).collect();
    let want = eval_spmd(m, &own, &EvalOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let bytes: Vec<Vec<Vec<u8>>> = own.iter().map(|d| d.iter().map(|t| t.bytes().to_vec()).collect()).collect();
    for &(name, shape, slices, known) in slices {
        let chip = chip(name);
        let cluster = Cluster { slice: Topology::parse(&chip, shape).unwrap(), slices };
        let at = placement(&cluster, &(0..devices).collect::<Vec<u32>>());
        let program = if known { compile_placed(m, &chip, &at, HbmLimit::Kept) } else { compile(m, &chip) };
        let program = program.unwrap_or_else(|e| panic!("{name}: {e}"));
        checked(&program, &chip).unwrap_or_else(|e| panic!("{name}: {e}"));
        let timed =
            time(&program, &chip, &cluster, &PodOptions::default()).unwrap_or_else(|e| panic!("{name} {shape}: {e}"));
        for &poison in if devices > 8 { &[true][..] } else { &[false, true] } {
            let mut opts = PodOptions::default();
            opts.run.poison = poison;
            let run = execute(&program, &chip, &cluster, &bytes, &opts).unwrap_or_else(|e| panic!("{name}: {e}"));
            for (d, outputs) in run.outputs.iter().enumerate() {
                for (k, o) in outputs.iter().enumerate() {
                    let want = want[d][k].bytes();
                    let at = o.iter().zip(want).position(|(a, b)| a != b);
                    assert!(
                        o.len() == want.len() && at.is_none(),
                        "{name} {shape} placed {known} device {d} output {k}: byte {at:?} of {}, {poison}",
                        o.len()
                    );
                }
            }
            assert_eq!(timed.end, run.profile.end, "{name} {shape} placed {known}");
        }
    }
}

const ALL: &str = "dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>";
const PAIRS: &str = "dense<[[0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>";
const FOURS: &str = "dense<[[0, 2, 4, 6], [7, 5, 3, 1]]> : tensor<2x4xi64>";
const CHANNEL: &str = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids";

#[test]
fn all_gather() {
    for (groups, n) in [(ALL, 8), (PAIRS, 2), (FOURS, 4)] {
        for (dim, dims) in [(0, [5, 12]), (1, [5, 12]), (1, [3, 1]), (0, [1, 130])] {
            let mut out = dims;
            out[dim] *= n;
            let [a, b] = dims;
            let [c, d] = out;
            let body = format!(
                "    %0 = \"stablehlo.all_gather\"(%arg0) <{{all_gather_dim = {dim} : i64, replica_groups = {groups}, {CHANNEL}}}> : (tensor<{a}x{b}xbf16>) -> tensor<{c}x{d}xbf16>\n    return %0 : tensor<{c}x{d}xbf16>"
            );
            check(&module(&body, &format!("%arg0: tensor<{a}x{b}xbf16>"), &format!("tensor<{c}x{d}xbf16>")));
        }
    }
}

fn region(op: &str, ty: &str) -> String {
    format!(
        "({{\n    ^bb0(%a: tensor<{ty}>, %b: tensor<{ty}>):\n      %s = stablehlo.{op} %a, %b : tensor<{ty}>\n      stablehlo.return %s : tensor<{ty}>\n    }})"
    )
}

#[test]
fn all_reduce() {
    for groups in [ALL, PAIRS, FOURS] {
        for (t, ty, op) in
            [("7x9", "f32", "add"), ("64x129", "f32", "add"), ("4096", "i32", "maximum"), ("33x999", "bf16", "add")]
        {
            let body = format!(
                "    %0 = \"stablehlo.all_reduce\"(%arg0) <{{replica_groups = {groups}, {CHANNEL}}}> {} : (tensor<{t}x{ty}>) -> tensor<{t}x{ty}>\n    return %0 : tensor<{t}x{ty}>",
                region(op, ty)
            );
            check(&module(&body, &format!("%arg0: tensor<{t}x{ty}>"), &format!("tensor<{t}x{ty}>")));
        }
    }
}

// Even places of a ring before odd ones, as where two axes of a mesh share one of the torus.
#[test]
fn interleaved_places() {
    let groups = "dense<[[0, 2, 4, 6, 1, 3, 5, 7]]> : tensor<1x8xi64>";
    for rows in [1, 256] {
        let (small, large) = (format!("{rows}x16xf32"), format!("{}x16xf32", 8 * rows));
        let [small, large] = [small, large].map(|t| format!("tensor<{t}>"));
        let add = region("add", "f32");
        let gather = format!(
            "    %0 = \"stablehlo.all_gather\"(%arg0) <{{all_gather_dim = 0 : i64, replica_groups = {groups}, {CHANNEL}}}> : ({small}) -> {large}\n"
        );
        let scatter = format!(
            "    %1 = \"stablehlo.reduce_scatter\"(%0) <{{scatter_dimension = 0 : i64, replica_groups = {groups}, {CHANNEL}}}> {add} : ({large}) -> {small}\n"
        );
        let sum = format!(
            "    %2 = \"stablehlo.all_reduce\"(%arg0) <{{replica_groups = {groups}, {CHANNEL}}}> {add} : ({small}) -> {small}\n"
        );
        let body = format!("{gather}{scatter}{sum}    return %0, %1, %2 : {large}, {small}, {small}");
        let results = format!("{large}, {small}, {small}");
        check_on(&module(&body, &format!("%arg0: {small}"), &results), 8, &[("v5p", "8x1x1", 1, true)]);
    }
}

#[test]
fn reduce_scatter() {
    for (groups, n) in [(ALL, 8), (PAIRS, 2), (FOURS, 4)] {
        for (dim, dims) in [(0, [16, 20]), (1, [3, 24]), (1, [7, 1024])] {
            let mut out = dims;
            out[dim] /= n;
            let [a, b] = dims;
            let [c, d] = out;
            let body = format!(
                "    %0 = \"stablehlo.reduce_scatter\"(%arg0) <{{scatter_dimension = {dim} : i64, replica_groups = {groups}, {CHANNEL}}}> {} : (tensor<{a}x{b}xf32>) -> tensor<{c}x{d}xf32>\n    return %0 : tensor<{c}x{d}xf32>",
                region("add", "f32")
            );
            check(&module(&body, &format!("%arg0: tensor<{a}x{b}xf32>"), &format!("tensor<{c}x{d}xf32>")));
        }
    }
}

#[test]
fn all_to_all_and_permute() {
    for (split, concat) in [(0, 1), (1, 0), (0, 0)] {
        let mut out = [16i64, 24];
        out[split] /= 4;
        out[concat] *= 4;
        let [c, d] = out;
        let body = format!(
            "    %0 = \"stablehlo.all_to_all\"(%arg0) <{{split_dimension = {split} : i64, concat_dimension = {concat} : i64, split_count = 4 : i64, replica_groups = {FOURS}, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>}}> : (tensor<16x24xf32>) -> tensor<{c}x{d}xf32>\n    return %0 : tensor<{c}x{d}xf32>"
        );
        check(&module(&body, "%arg0: tensor<16x24xf32>", &format!("tensor<{c}x{d}xf32>")));
    }
    for pairs in ["[[0, 1], [1, 2], [2, 3], [3, 0], [4, 5], [5, 6], [6, 7], [7, 4]]", "[[0, 3], [5, 1], [1, 7]]"] {
        let n = pairs.matches('[').count() - 1;
        let body = format!(
            "    %0 = \"stablehlo.collective_permute\"(%arg0) <{{source_target_pairs = dense<{pairs}> : tensor<{n}x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>}}> : (tensor<33x5xbf16>) -> tensor<33x5xbf16>\n    return %0 : tensor<33x5xbf16>"
        );
        check(&module(&body, "%arg0: tensor<33x5xbf16>", "tensor<33x5xbf16>"));
    }
}

#[test]
fn broadcast() {
    for groups in [ALL, PAIRS, FOURS] {
        for t in ["3x7xf32", "64x129xbf16", "5xi32"] {
            let body = format!(
                "    %0 = \"stablehlo.collective_broadcast\"(%arg0) <{{replica_groups = {groups}, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>}}> : (tensor<{t}>) -> tensor<{t}>\n    return %0 : tensor<{t}>"
            );
            check(&module(&body, &format!("%arg0: tensor<{t}>"), &format!("tensor<{t}>")));
        }
    }
}

// Work before, between and after, and each device's own number.
#[test]
fn collectives_among_other_work() {
    let body = format!(
        "    %0 = stablehlo.add %arg0, %arg0 : tensor<8x16xf32>
    %1 = \"stablehlo.all_reduce\"(%0) <{{replica_groups = {PAIRS}, {CHANNEL}}}> {region} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    %id = stablehlo.partition_id : tensor<ui32>
    %f = stablehlo.convert %id : (tensor<ui32>) -> tensor<f32>
    %w = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<8x16xf32>
    %2 = stablehlo.multiply %1, %w : tensor<8x16xf32>
    %3 = \"stablehlo.all_gather\"(%2) <{{all_gather_dim = 0 : i64, replica_groups = {FOURS}, {CHANNEL}}}> : (tensor<8x16xf32>) -> tensor<32x16xf32>
    %4 = stablehlo.negate %3 : tensor<32x16xf32>
    %5 = \"stablehlo.all_reduce\"(%4) <{{replica_groups = {ALL}, {CHANNEL}}}> {region} : (tensor<32x16xf32>) -> tensor<32x16xf32>
    return %5, %1 : tensor<32x16xf32>, tensor<8x16xf32>",
        region = region("add", "f32")
    );
    check(&module(&body, "%arg0: tensor<8x16xf32>", "tensor<32x16xf32>, tensor<8x16xf32>"));
}

// Groups that are boxes of two and three axes, dies and slices among them, and some that are none.
#[test]
fn collectives_along_several_axes() {
    let sixteen = |all: &[usize]| {
        let rows: Vec<String> = all.chunks(16).map(|r| format!("{r:?}")).collect();
        format!("dense<[{}]> : tensor<1x16xi64>", rows.join(", "))
    };
    let straight: Vec<usize> = (0..16).collect();
    let mixed: Vec<usize> = (0..16).map(|k| k * 5 % 16).collect();
    let halves = "dense<[[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]]> : tensor<2x8xi64>".to_owned();
    let slices: Vec<(&str, &str, u32, bool)> = SIXTEEN
        .map(|(name, shape)| (name, shape, 1, true))
        .into_iter()
        .chain([("v5p", "2x2x2", 2, true), ("v7x", "2x1x1", 4, true), ("v5p", "4x1x1", 4, true)])
        .collect();
    for (groups, n) in [(sixteen(&straight), 16), (sixteen(&mixed), 16), (halves, 8)] {
        // Large enough for several strands, small enough for one, and of few rows that are long.
        for (a, b) in [(16, 4096), (48, 10), (3, 16 * 2080)] {
            let dim = usize::from(a == 3);
            let mut part = [a, b];
            part[dim] /= n;
            let [c, d] = part;
            let body = format!(
                "    %0 = \"stablehlo.reduce_scatter\"(%arg0) <{{scatter_dimension = {dim} : i64, replica_groups = {groups}, {CHANNEL}}}> {region} : (tensor<{a}x{b}xf32>) -> tensor<{c}x{d}xf32>
    %1 = \"stablehlo.all_gather\"(%0) <{{all_gather_dim = {dim} : i64, replica_groups = {groups}, {CHANNEL}}}> : (tensor<{c}x{d}xf32>) -> tensor<{a}x{b}xf32>
    %2 = \"stablehlo.all_reduce\"(%arg0) <{{replica_groups = {groups}, {CHANNEL}}}> {region} : (tensor<{a}x{b}xf32>) -> tensor<{a}x{b}xf32>
    return %0, %1, %2 : tensor<{c}x{d}xf32>, tensor<{a}x{b}xf32>, tensor<{a}x{b}xf32>",
                region = region("add", "f32")
            );
            let results = format!("tensor<{c}x{d}xf32>, tensor<{a}x{b}xf32>, tensor<{a}x{b}xf32>");
            check_on(&module_for(16, &body, &format!("%arg0: tensor<{a}x{b}xf32>"), &results), 16, &slices);
        }
    }
}
