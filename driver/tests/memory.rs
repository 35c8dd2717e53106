//! What programs take of HBM, and that saving it changes no number.
//!
//! Oracles: the bytes of the arrays that have to be there, and the reference evaluator for what is in them.

mod common;

use std::path::Path;

use tpusim_backend::compile::{Compiled, compile_parts};
use tpusim_backend::eval::Tensor;
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::{Module, Verified, verify};
use tpusim_driver::PodExecutable;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::convert::{encode_f64, encode_i64};
use tpusim_isa::program::BufferKind;
use tpusim_isa::topology::Topology;
use tpusim_sim::network::Cluster;

fn module(text: &str) -> Verified<Module> {
    let module = parse_program(text.as_bytes(), "test").unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify(module).unwrap_or_else(|e| panic!("{e:?}\n{text}"))
}

fn compiled(module: &Verified<Module>, chip: &ChipSpec) -> Compiled {
    let c = compile_parts(module, chip).unwrap_or_else(|e| panic!("{}: {e}", chip.name));
    common::checked(&c.program, chip).unwrap_or_else(|e| panic!("{}: {e}", chip.name));
    c
}

/// Whole numbers from -`most` to `most`, in no order.
fn whole(module: &Module, most: i64) -> Vec<Tensor> {
    let main = module.func("main").unwrap();
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as i64 % (2 * most + 1) - most
    };
    let mut tensor = |p: &tpusim_backend::hlo::Param| {
        let ty = main.ty(p.value).tensor().unwrap().clone();
        let values: Vec<i64> = (0..ty.elements().unwrap()).map(|_| next()).collect();
        let bytes = if ty.dtype.is_float() {
            encode_f64(ty.dtype, &values.iter().map(|v| *v as f64).collect::<Vec<_>>())
        } else {
            encode_i64(ty.dtype, &values)
        };
        Tensor::new(ty, bytes).unwrap()
    };
    main.params.iter().map(&mut tensor).collect()
}

/// Runs a program in every way that must not matter, and holds its outputs to the evaluator's within `err`.
fn agrees(module: &Verified<Module>, c: &Compiled, chip: &ChipSpec, inputs: &[Tensor], err: f64) -> Vec<Vec<u8>> {
    let bytes: Vec<Vec<u8>> = inputs.iter().map(|t| t.bytes().to_vec()).collect();
    let got = common::run(&c.program, chip, &bytes).unwrap_or_else(|e| panic!("{}: {e}", chip.name));
    for (k, (got, want)) in got.iter().zip(common::reference(module, inputs)).enumerate() {
        if let Some(e) = common::differs(want.ty().dtype, got, want.bytes(), err) {
            panic!("{} output {k}: {e}", chip.name);
        }
    }
    got
}

/// Bytes of HBM beside parameters and results.
fn temporaries(c: &Compiled) -> u64 {
    let lasting = c.program.buffers.iter().filter(|b| matches!(b.kind, BufferKind::Param(_) | BufferKind::Output(_)));
    c.program.hbm_peak_bytes - lasting.map(|b| b.bytes.next_multiple_of(512)).sum::<u64>()
}

/// Adds `%u` to zeros at places `%i` by a scatter with these dimensions, and that to `%x`.
fn picked(array: &str, indices: &str, updates: &str, dims: &str, body: &str) -> Verified<Module> {
    module(&format!(
        "module @picked {{
  func.func @main(%x: tensor<{array}xf32>, %i: tensor<{indices}xi32>, %u: tensor<{updates}xf32>) -> tensor<{array}xbf16> {{
    %zero = stablehlo.constant dense<0.0> : tensor<{array}xf32>
    %0 = \"stablehlo.scatter\"(%zero, %i, %u) <{{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<{dims}>, unique_indices = false}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      {body}
    }}) : (tensor<{array}xf32>, tensor<{indices}xi32>, tensor<{updates}xf32>) -> tensor<{array}xf32>
    %1 = stablehlo.add %0, %x : tensor<{array}xf32>
    %2 = stablehlo.convert %1 : (tensor<{array}xf32>) -> tensor<{array}xbf16>
    return %2 : tensor<{array}xbf16>
  }}
}}"
    ))
}

const ADDED: &str = "%s = stablehlo.add %a, %b : tensor<f32>\n      stablehlo.return %s : tensor<f32>";
const REPLACED: &str = "stablehlo.return %b : tensor<f32>";

// The gradient of `take_along_axis` and its like: one kernel, and nothing in HBM but parameters and the result. Indices beyond the array,
// on both sides, are dropped.
#[test]
fn one_update_for_each_place_is_a_selection() {
    let along_rows = "inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2";
    let two_batches = "inserted_window_dims = [1], input_batching_dims = [0, 2], scatter_indices_batching_dims = [1, 0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2";
    let one_row = "update_window_dims = [0], inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [1, 0], index_vector_dim = 0";
    let cases = [
        ("24x40", "24x1x1", "24x1", along_rows),
        ("5x40x7", "7x5x1", "7x5", two_batches),
        ("30x30x50", "2", "50", one_row),
    ];
    for (array, indices, updates, dims) in cases {
        for body in [ADDED, REPLACED] {
            let m = picked(array, indices, updates, dims, body);
            for name in ["v4", "v5e", "v7x"] {
                let chip = common::chip(name);
                let c = compiled(&m, &chip);
                assert_eq!((c.kernels.len(), temporaries(&c)), (1, 0), "{name} {array}");
                // Some of these indices are outside, whatever the array.
                agrees(&m, &c, &chip, &whole(&m, 50), 0.0);
            }
        }
    }
}

// Several updates of one place come one after the other.
#[test]
fn several_updates_stay_a_scatter() {
    let dims = "inserted_window_dims = [0], update_window_dims = [1], scatter_dims_to_operand_dims = [0], index_vector_dim = 1";
    let m = picked("1000x128", "60x1", "60x128", dims, ADDED);
    let chip = common::chip("v5e");
    let c = compiled(&m, &chip);
    assert!(c.kernels.len() > 1);
    agrees(&m, &c, &chip, &whole(&m, 40), 0.0);
}

/// A product in f32, something done to it, and a product of that.
fn chained(result: &str, also: &str) -> Verified<Module> {
    module(&format!(
        "module @chained {{
  func.func @main(%a: tensor<256x128xbf16>, %b: tensor<128x512xbf16>, %w: tensor<512x128xf32>) -> ({result}) {{
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<256x128xbf16>, tensor<128x512xbf16>) -> tensor<256x512xf32>
    %1 = stablehlo.abs %0 : tensor<256x512xf32>
    %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<256x512xf32>) -> tensor<512x256xf32>
    %3 = stablehlo.dot_general %2, %w, contracting_dims = [0] x [0] : (tensor<512x256xf32>, tensor<512x128xf32>) -> tensor<256x128xf32>
    {also}
  }}
}}"
    ))
}

// What only a product reads is stored in bf16, and the result is the same to the bit: the numbers have up to 14 bits, so rounding shows.
#[test]
fn operands_of_products_are_stored_as_they_are_multiplied() {
    let m = chained("tensor<256x128xf32>", "return %3 : tensor<256x128xf32>");
    let kept = chained("tensor<256x128xf32>, tensor<256xf32>", "%z = stablehlo.constant dense<0.0> : tensor<f32>
    %4 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<256x512xf32>, tensor<f32>) -> tensor<256xf32>
    return %3, %4 : tensor<256x128xf32>, tensor<256xf32>");
    for name in ["v4", "v5e", "v7x"] {
        let chip = common::chip(name);
        let c = compiled(&m, &chip);
        assert_eq!(temporaries(&c), 256 * 512 * 2, "{name}");
        agrees(&m, &c, &chip, &whole(&m, 15), 0.0);
        // What is read otherwise too keeps its bits.
        let c = compiled(&kept, &chip);
        assert_eq!(temporaries(&c), 256 * 512 * 4, "{name}");
        agrees(&kept, &c, &chip, &whole(&kept, 15), 0.0);
    }
}

/// Scores, their exponentials less the greatest of a row, and what is made of these: in a loop or once.
fn softmax(trips: Option<u32>) -> Verified<Module> {
    let step = "%q = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<512x128xbf16>, tensor<128x1024xbf16>) -> tensor<512x1024xf32>
    %small = stablehlo.constant dense<0.03125> : tensor<512x1024xf32>
    %s = stablehlo.multiply %q, %small : tensor<512x1024xf32>
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %m = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<512x1024xf32>, tensor<f32>) -> tensor<512xf32>
    %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<512xf32>) -> tensor<512x1024xf32>
    %d = stablehlo.subtract %s, %mb : tensor<512x1024xf32>
    %e = stablehlo.exponential %d : tensor<512x1024xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %c = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<512x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %cb = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<1024xf32>) -> tensor<512x1024xf32>
    %p = stablehlo.divide %e, %cb : tensor<512x1024xf32>
    %y = stablehlo.dot_general %p, %w, contracting_dims = [1] x [0] : (tensor<512x1024xf32>, tensor<1024x128xbf16>) -> tensor<512x128xbf16>";
    let text = match trips {
        None => format!("{step}\n    return %y : tensor<512x128xbf16>"),
        Some(n) => format!(
            "%i0 = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.while(%i = %i0, %a = %x) : tensor<i32>, tensor<512x128xbf16>
    cond {{
      %n = stablehlo.constant dense<{n}> : tensor<i32>
      %t = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    }} do {{
      {step}
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %y : tensor<i32>, tensor<512x128xbf16>
    }}
    return %r#1 : tensor<512x128xbf16>"
        ),
    };
    let first = if trips.is_some() { "%x" } else { "%a" };
    module(&format!(
        "module @softmax {{
  func.func @main({first}: tensor<512x128xbf16>, %b: tensor<128x1024xbf16>, %w: tensor<1024x128xbf16>) -> tensor<512x128xbf16> {{
    {text}
  }}
}}"
    ))
}

// With so little HBM that two megabytes are worth it, exponentials lie where the scores were; the numbers are the same.
#[test]
fn large_arrays_are_written_over_those_they_are_made_of() {
    for (name, trips) in [("v5e", None), ("v5e", Some(3)), ("v5p", None), ("v7x", Some(2))] {
        let m = softmax(trips);
        let plenty = common::chip(name);
        let little = ("hbm.usable_bytes_device".to_owned(), (1u64 << 30).to_string());
        let little = ChipSpec::load_with(name, &[little]).unwrap_or_else(|e| panic!("{e}"));
        let [a, b] = [&plenty, &little].map(|chip| compiled(&m, chip));
        // Scores and exponentials; else exponentials and what the last product reads. Vectors are little.
        let (full, vectors) = (512 * 1024 * 4, 64 << 10);
        let [most, least] = [&a, &b].map(temporaries);
        assert!(most >= 2 * full && least <= full + full / 2 + vectors, "{name} {trips:?}: {most} and {least}");
        let inputs = whole(&m, 1);
        let [x, y] = [(&plenty, &a), (&little, &b)].map(|(chip, c)| agrees(&m, c, chip, &inputs, 0.1));
        assert!(x == y, "{name} {trips:?}");
    }
}

// Oracle: what the plan is made of, added up.
#[test]
fn residents_add_up_to_the_peak() {
    let m = softmax(Some(3));
    let c = compiled(&m, &common::chip("v5e"));
    let sum: u64 = c.program.residents.iter().map(|r| r.bytes.next_multiple_of(512)).sum();
    assert_eq!(sum, c.program.hbm_peak_bytes, "{:#?}", c.program.residents);
    let scores = c.program.residents.iter().find(|r| r.array == "f32[512,1024]").unwrap();
    assert!(scores.name.starts_with("while/"), "{scores:?}");
}

// The gradient of grouped heads: sums of a few rows in the middle. Oracle: the bytes at the rate of HBM, with as much again for the start.
#[test]
fn few_short_rows_are_summed_at_the_rate_of_hbm() {
    let text = |t: &str| {
        format!(
            "module @grouped {{
  func.func @main(%x: tensor<512x8x4x128x{t}>) -> tensor<512x8x128x{t}> {{
    %z = stablehlo.constant dense<0.0> : tensor<{t}>
    %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [2] : (tensor<512x8x4x128x{t}>, tensor<{t}>) -> tensor<512x8x128x{t}>
    return %0 : tensor<512x8x128x{t}>
  }}
}}"
        )
    };
    for (name, t) in [("v5e", "bf16"), ("v5e", "f32"), ("v5p", "bf16"), ("v7x", "bf16")] {
        let chip = common::chip(name);
        let m = module(&text(t));
        let c = compiled(&m, &chip);
        agrees(&m, &c, &chip, &whole(&m, 60), 0.0);
        let timed = tpusim_sim::time(&c.program, &chip, &tpusim_sim::RunOptions::default()).unwrap();
        let bytes: u64 = c.program.buffers.iter().map(|b| b.bytes).sum();
        let rate = *chip.hbm.bps_chip as f64 / f64::from(chip.devices_per_chip());
        let least = bytes as f64 / rate * *chip.clock_hz as f64;
        let (cycles, start) = (timed.cycles as f64, 5000.0);
        assert!(cycles < 2.0 * least + start, "{name} {t}: {cycles} cycles, {least} at the rate of HBM");
    }
}

// Oracle: what libtpu plans for one device, for five training steps as JAX writes them (`shared/oracle/pods.jsonl`).
#[test]
fn training_steps_take_the_memory_that_libtpu_gives_them() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/oracle");
    let Ok(rows) = std::fs::read_to_string(dir.join("pods.jsonl")) else {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("skipped: there is no {}/pods.jsonl", dir.display());
        }
        return;
    };
    for row in rows.lines() {
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        let name = row["case"].as_str().unwrap();
        let (chip, shape) = row["topology"].as_str().and_then(|t| t.split_once(':')).unwrap();
        let chip = common::chip(if chip == "tpu7x" { "v7x" } else { chip });
        let cluster = Cluster { slice: Topology::parse(&chip, shape).unwrap(), slices: 1 };
        let m = module(&std::fs::read_to_string(dir.join("pods").join(format!("{name}.mlir"))).unwrap());
        let pod = PodExecutable::new(&m, &chip, &cluster).unwrap_or_else(|e| panic!("{name}: {e}"));
        let ratio = pod.program.hbm_peak_bytes as f64 / row["peak_bytes"].as_f64().unwrap();
        assert!((0.8..=1.25).contains(&ratio), "{name}: {ratio}");
    }
}
