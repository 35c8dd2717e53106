//! Attention as a kernel of its own, with poisoned memory, late DMAs and unfolded loops, on every chip. Oracle: the reference evaluator,
//! which runs what the operation stands for.

mod common;

use tpusim_backend::eval::Tensor;
use tpusim_backend::hlo::{Attr, Module, ModuleBuilder, TensorType, Type, ValueId, Verified};
use tpusim_backend::ops::attention::{Attention, Form};
use tpusim_driver::{Mode, PodExecutable};
use tpusim_isa::num::DType;
use tpusim_isa::topology::Topology;
use tpusim_sim::network::Cluster;
use tpusim_sim::pod::PodOptions;
use tpusim_sim::profile::Unit;

use common::{CHIPS, chip, compiled, differs, magnitude, numbers, reference, run};

/// Batch, queries, keys, heads, key heads, elements of a key and of a value.
type Sizes = [i64; 7];

/// All keys or those up to each query's own, with the usual scale.
fn plain(sizes: Sizes, causal: bool) -> Form {
    Form::new(causal, 1.0 / (sizes[5] as f64).sqrt())
}

fn module([b, s, t, h, g, d, e]: Sizes, form: Form, gradient: bool, dtype: DType) -> Verified<Module> {
    let mut m = ModuleBuilder::new("attention");
    let mut f = m.func("main");
    let mut param = |name: &str, dims: &[i64]| f.param(name, TensorType::new(dims, dtype));
    let (q, k, v) = (param("q", &[b, s, h, d]), param("k", &[b, t, g, d]), param("v", &[b, t, g, e]));
    let go = gradient.then(|| param("go", &[b, s, h, e]));
    let mut out: Vec<ValueId> = Attention::call(&mut f, &[q, k, v], form);
    if let (Some(go), &[o, log]) = (go, &out[..]) {
        out = Attention::call(&mut f, &[q, k, v, o, log, go], form);
    }
    f.ret(&out);
    m.finish().unwrap_or_else(|e| panic!("{e:?}"))
}

/// Numbers between -2 and 2, some keys much larger than the others.
fn inputs(m: &Module) -> Vec<Tensor> {
    let main = m.func("main").unwrap();
    let tensor = |(k, p): (usize, &tpusim_backend::hlo::Param)| {
        let ty = main.ty(p.value).tensor().unwrap();
        let n = ty.elements().unwrap();
        let mut state = 88_172_645_463_325_252u64 + k as u64;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f64 / f64::from(1 << 24) * 4.0 - 2.0
        };
        let values: Vec<f64> = (0..n).map(|i| draw() * if i % 4099 == 0 { 8.0 } else { 1.0 }).collect();
        Tensor::from_f64(&ty.dims, ty.dtype, &values).unwrap()
    };
    main.params.iter().enumerate().map(tensor).collect()
}

fn check(sizes: Sizes, causal: bool, gradient: bool, chips: &[&str]) {
    check_form(sizes, plain(sizes, causal), gradient, chips);
}

fn check_form(sizes: Sizes, form: Form, gradient: bool, chips: &[&str]) {
    let m = module(sizes, form, gradient, DType::BF16);
    let given = inputs(&m);
    let want = reference(&m, &given);
    let bytes: Vec<Vec<u8>> = given.iter().map(|t| t.bytes().to_vec()).collect();
    for name in chips {
        let chip = chip(name);
        let program = compiled(&m, &chip).unwrap_or_else(|e| panic!("{name} {sizes:?}: {e}"));
        assert!(program.ops.iter().any(|o| o.name.starts_with("attention")), "{name} {sizes:?}: no kernel");
        let got = run(&program, &chip, &bytes).unwrap_or_else(|e| panic!("{name} {sizes:?}: {e}"));
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            let dtype = w.ty().dtype;
            // Weights are rounded to bf16, 2^-8, by another maximum than the evaluator's; so is the output.
            let err = magnitude(&numbers(dtype, w.bytes()))
                * if dtype == DType::F32 { 1e-4 } else { if gradient { 1.6e-2 } else { 8e-3 } };
            if let Some(e) = differs(dtype, g, w.bytes(), err) {
                panic!("{name} {sizes:?} {form:?}: output {i}: {e}");
            }
        }
    }
}

// Sums over keys and queries of products of rounded weights.
#[test]
fn gradients() {
    check([1, 256, 256, 1, 1, 128, 128], true, true, &CHIPS);
    check([1, 512, 512, 2, 1, 64, 64], true, true, &["v5p", "v6e"]);
    check([1, 256, 512, 2, 2, 192, 128], false, true, &["v5e", "v7x"]);
    check([1, 200, 344, 2, 1, 80, 96], false, true, &["v3", "v6e"]);
}

#[test]
fn one_tile() {
    check([1, 256, 256, 1, 1, 128, 128], false, false, &CHIPS);
    check([1, 256, 256, 1, 1, 128, 128], true, false, &CHIPS);
}

#[test]
fn several_tiles_and_heads() {
    check([2, 512, 512, 4, 2, 128, 128], true, false, &["v4", "v5p"]);
    check([1, 768, 768, 2, 1, 64, 64], true, false, &["v6e"]);
    check([1, 512, 768, 2, 2, 64, 64], false, false, &["v2", "v7x"]);
}

#[test]
fn wide_heads() {
    check([1, 256, 256, 2, 1, 192, 128], true, false, &["v3", "v5e", "v6e"]);
    check([1, 256, 512, 2, 1, 256, 256], false, false, &["v2", "v5p", "v7x"]);
}

#[test]
fn ragged_sequences() {
    check([1, 328, 328, 2, 2, 128, 64], true, false, &["v4", "v6e"]);
    check([1, 40, 300, 2, 2, 80, 96], false, false, &["v3", "v5p", "v7x"]);
}

// Windows that end within the tile on the diagonal, between tiles, within one and within two of them, and longer than the sequence.
#[test]
fn windows() {
    let window = |sizes, n| Form { window: Some(n), ..plain(sizes, true) };
    for (n, chip) in [(100, "v5e"), (128, "v6e"), (256, "v5p"), (300, "v6e"), (512, "v5e"), (5000, "v7x")] {
        let sizes = [1, 1024, 1024, 2, 1, 64, 64];
        check_form(sizes, window(sizes, n), false, &[chip]);
        check_form(sizes, window(sizes, n), true, &[chip]);
    }
    let ragged = [1, 700, 700, 2, 2, 128, 64];
    check_form(ragged, window(ragged, 257), false, &["v4", "v6e"]);
}

#[test]
fn bounded_scores() {
    for (causal, window) in [(true, None), (true, Some(200)), (false, None)] {
        let sizes = [1, 512, 512, 2, 1, 256, 256];
        let form = Form { softcap: Some(3.0), window, ..plain(sizes, causal) };
        for gradient in [false, true] {
            check_form(sizes, form, gradient, &["v5e", "v6e"]);
        }
    }
}

// Oracle: by hand.
#[test]
fn pairs_are_those_that_masks_leave() {
    let sizes = [1, 1024, 1024, 1, 1, 64, 64];
    let of = |form| {
        let mut m = ModuleBuilder::new("attention");
        let mut f = m.func("main");
        let x = f.param("x", TensorType::new([1, 1024, 1, 64], DType::BF16));
        let out = Attention::call(&mut f, &[x, x, x], form);
        f.ret(&out);
        let m = m.finish().unwrap();
        let main = m.func("main").unwrap();
        let op = main.body.ops.first().unwrap();
        let types = |v: &[ValueId]| v.iter().map(|&v| main.ty(v).clone()).collect::<Vec<_>>();
        Attention::of(op, &types(&op.operands), &types(&op.results)).unwrap().unwrap()
    };
    let causal = plain(sizes, true);
    assert_eq!((of(causal).seen(), of(causal).tile_pairs(256)), (1024 * 1025 / 2, 10));
    let a = of(Form { window: Some(256), ..causal });
    assert_eq!((a.seen(), a.tile_pairs(256)), (256 * 257 / 2 + 768 * 256, 7));
    let a = of(Form { window: Some(257), offset: 256, ..causal });
    assert_eq!((a.seen(), a.tile_pairs(256)), (768 * 257 + 256 * 257 / 2, 7));
    assert_eq!(of(plain(sizes, false)).seen(), 1024 * 1024);
}

// Sequences and key heads of one attention and its gradient on the devices of a slice: no device needs what another has.
#[test]
fn sequences_and_heads_are_cut() {
    let mut m = ModuleBuilder::new("attention");
    m.attr("mhlo.num_partitions", Attr::Int(8, Type::Scalar(DType::I32)));
    m.mesh("mesh", Attr::Opaque("sdy.mesh<[\"b\"=2, \"h\"=4]>".to_owned()));
    let mut f = m.func("main");
    let mut param = |name: &str, dims: [i64; 4]| {
        let sharding = Attr::Opaque("sdy.sharding<@mesh, [{\"b\"}, {}, {\"h\"}, {}]>".to_owned());
        let attrs = std::iter::once(("sdy.sharding".to_owned(), sharding)).collect();
        f.param_with(name, TensorType::new(dims, DType::BF16), attrs)
    };
    let (q, k, v) = (param("q", [2, 256, 8, 64]), param("k", [2, 256, 4, 64]), param("v", [2, 256, 4, 64]));
    let go = param("go", [2, 256, 8, 64]);
    let out = Attention::call(&mut f, &[q, k, v], Form::new(true, 0.125));
    let gradients = Attention::call(&mut f, &[q, k, v, out[0], out[1], go], Form::new(true, 0.125));
    f.ret(&[&out[..1], &gradients].concat());
    let m = m.finish().unwrap_or_else(|e| panic!("{e:?}"));
    let given = inputs(&m);
    let want = reference(&m, &given);
    let bytes: Vec<Vec<u8>> = given.iter().map(|t| t.bytes().to_vec()).collect();
    for (name, shape) in [("v5e", "4x2"), ("v5p", "2x2x2")] {
        let chip = chip(name);
        let cluster = Cluster { slice: Topology::parse(&chip, shape).unwrap(), slices: 1 };
        let pod = PodExecutable::new(&m, &chip, &cluster).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(pod.program.transfers.is_empty(), "{name}: devices communicate");
        let run = pod.run(Mode::Execute, &bytes, &PodOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        for (i, (g, w)) in run.outputs.iter().zip(&want).enumerate() {
            let err = magnitude(&numbers(DType::BF16, w.bytes())) * 1.6e-2;
            if let Some(e) = differs(DType::BF16, g, w.bytes(), err) {
                panic!("{name}: output {i}: {e}");
            }
        }
    }
}

// Sequences that VMEM does not hold are cut into parts; types without a kernel become products.
#[test]
fn what_does_not_fit_is_computed_otherwise() {
    let mut parts = 0;
    for (dtype, kernel, vmem) in
        [(DType::BF16, true, 7), (DType::BF16, true, 5), (DType::BF16, true, 4), (DType::F32, false, 7)]
    {
        let small = ["vmem_bytes", "scoped_vmem_bytes"].map(|k| (k.to_owned(), (vmem << 20).to_string()));
        let chip = tpusim_isa::chip::ChipSpec::load_with("v5e", &small).unwrap();
        let sizes = [1, 1024, 1024, 2, 1, 64, 64];
        let whole = plain(sizes, true);
        let form = if vmem == 5 { Form { window: Some(700), softcap: Some(5.0), ..whole } } else { whole };
        let m = module(sizes, form, true, dtype);
        let given = inputs(&m);
        let want = reference(&m, &given);
        let bytes: Vec<Vec<u8>> = given.iter().map(|t| t.bytes().to_vec()).collect();
        let program = compiled(&m, &chip).unwrap_or_else(|e| panic!("{dtype}: {e}"));
        let kernels = program.ops.iter().filter(|o| o.name.starts_with("attention"));
        let count = kernels.count();
        assert!(kernel || count == 0, "{dtype}: {count} kernels");
        parts += usize::from(count > 1);
        let got = run(&program, &chip, &bytes).unwrap_or_else(|e| panic!("{dtype}: {e}"));
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            let err = magnitude(&numbers(dtype, w.bytes())) * 1.6e-2;
            if let Some(e) = differs(dtype, g, w.bytes(), err) {
                panic!("{dtype}: output {i}: {e}");
            }
        }
    }
    assert!(parts > 0, "nothing was cut");
}

/// Milliseconds measured on one device, the best of all block sizes: chip, whether it is the gradient, batch, queries, heads, key heads,
/// elements of a key and of a value, causal (tokamax, `pallas_mosaic_tpu_flash_attention` and its `_vjp`; on v7x half a chip).
const MEASURED: [(&str, bool, [i64; 6], bool, f64); 22] = [
    ("v5p", false, [4, 4096, 16, 16, 128, 128], false, 1.609),
    ("v5p", false, [32, 4096, 32, 8, 128, 128], true, 18.009),
    ("v5p", false, [4, 4096, 8, 8, 256, 256], true, 1.127),
    ("v5p", false, [1, 16384, 16, 16, 128, 128], false, 5.368),
    ("v5p", false, [1, 16384, 16, 16, 128, 128], true, 3.485),
    ("v6e", false, [4, 4096, 16, 16, 128, 128], true, 1.577),
    ("v6e", false, [4, 4096, 32, 32, 64, 64], true, 2.622),
    ("v6e", false, [4, 4096, 8, 8, 256, 256], false, 1.266),
    ("v6e", false, [4, 4096, 8, 8, 256, 256], true, 1.040),
    ("v6e", false, [1, 16384, 16, 16, 128, 128], false, 6.658),
    ("v6e", false, [1, 16384, 16, 16, 128, 128], true, 4.304),
    ("v7x", false, [4, 4096, 16, 16, 128, 128], false, 1.550),
    ("v7x", false, [32, 4096, 32, 8, 128, 128], true, 24.291),
    ("v7x", false, [4, 4096, 32, 32, 64, 64], true, 2.439),
    ("v7x", false, [512, 1024, 16, 16, 192, 128], true, 22.743),
    ("v7x", false, [1, 16384, 16, 16, 128, 128], true, 3.585),
    ("v7x", true, [4, 4096, 16, 16, 128, 128], false, 3.419),
    ("v7x", true, [4, 4096, 8, 8, 256, 256], true, 1.969),
    ("v7x", true, [8, 2048, 16, 16, 128, 128], true, 2.068),
    ("v7x", true, [2, 8192, 16, 16, 128, 128], true, 4.711),
    ("v7x", true, [4, 4096, 32, 32, 64, 64], false, 6.783),
    ("v7x", true, [512, 1024, 16, 16, 192, 128], true, 54.180),
];

// Oracle: measured silicon. Prints ours beside it.
#[test]
#[ignore = "prints a table"]
#[allow(clippy::print_stdout)]
fn table() {
    println!(
        "chip what     shape                            causal measured     ours  ratio cycles/pair MXU VPU EUP store"
    );
    for (name, gradient, [b, s, h, g, d, e], causal, measured) in MEASURED {
        let chip = chip(name);
        let sizes = [b, s, s, h, g, d, e];
        let m = module(sizes, plain(sizes, causal), gradient, DType::BF16);
        let program = match compiled(&m, &chip) {
            Ok(p) => p,
            Err(e) => {
                println!("{name:4} {s} {e}");
                continue;
            }
        };
        let profile = tpusim_sim::time(&program, &chip, &tpusim_sim::RunOptions::default()).unwrap();
        let own = |o: &&tpusim_sim::profile::OpProfile| {
            let n = &program.ops[o.op as usize].name;
            n.starts_with("attention") && n.starts_with("attention_gradient") == gradient
        };
        let Some(o) = profile.ops.iter().find(own) else { continue };
        let cycles = o.end - o.start;
        let ms = cycles as f64 / *chip.clock_hz as f64 * 1e3;
        let pairs = (b * h) as u64
            * if causal {
                (s as u64).div_ceil(256) * ((s as u64).div_ceil(256) + 1) / 2
            } else {
                (s as u64).div_ceil(256).pow(2)
            };
        let share =
            |unit: Unit, n: u32| 100 * o.busy[unit as usize] / cycles / u64::from(n * *chip.tensorcores_per_device);
        println!(
            "{name:4} {:8} {:32} {causal:6} {measured:8.3} {ms:8.3} {:6.2} {:5.0} {:4} {:4} {:4} {:4} {:?}",
            if gradient { "gradient" } else { "forward" },
            format!("{b}x{s} heads {h}/{g} dim {d}/{e}"),
            ms / measured,
            cycles as f64 * f64::from(*chip.tensorcores_per_device) / pairs as f64,
            share(Unit::Mxu, *chip.mxu.count),
            share(Unit::Vpu, *chip.slots.valu),
            share(Unit::Eup, 1),
            share(Unit::VStore, *chip.slots.vstore),
            o.stalls.map(|s| 100 * s / cycles)
        );
    }
}
