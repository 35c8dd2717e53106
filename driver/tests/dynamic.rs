//! Dynamic slices and updates: what they cost, and where their arrays lie.

mod common;

use tpusim_backend::compile::{Compiled, compile_parts};
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::{Module, Verified, verify};
use tpusim_isa::num::DType;
use tpusim_isa::program::BufferKind;
use tpusim_sim::{RunOptions, execute, time};

fn module(text: &str) -> Verified<Module> {
    let module = parse_program(text.as_bytes(), "test").unwrap_or_else(|e| panic!("{e}"));
    verify(module).unwrap_or_else(|e| panic!("{e:?}"))
}

fn compiled(text: &str, chip: &str) -> Compiled {
    compile_parts(&module(text), &common::chip(chip)).unwrap_or_else(|e| panic!("{e}"))
}

/// A cache of 1024 rows, in which a projection replaces `rows` rows and then one more.
fn cache(attribute: &str, rows: u64) -> String {
    format!(
        "module @cache {{
  func.func @main(%x: tensor<{rows}x256xbf16>, %w: tensor<256x384xbf16>, %cache: tensor<1024x384xbf16>{attribute},
      %u: tensor<1x384xbf16>, %i: tensor<i32>) -> tensor<1024x384xbf16> {{
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<{rows}x256xbf16>, tensor<256x384xbf16>) -> tensor<{rows}x384xbf16>
    %1 = stablehlo.dynamic_update_slice %cache, %0, %i, %c
      : (tensor<1024x384xbf16>, tensor<{rows}x384xbf16>, tensor<i32>, tensor<i32>) -> tensor<1024x384xbf16>
    %2 = stablehlo.dynamic_update_slice %1, %u, %i, %c
      : (tensor<1024x384xbf16>, tensor<1x384xbf16>, tensor<i32>, tensor<i32>) -> tensor<1024x384xbf16>
    return %2 : tensor<1024x384xbf16>
  }}
}}"
    )
}

// Oracle: one kernel for each update, one more for the copy of what the caller keeps; a donated array is needed once, not twice.
#[test]
fn donated_parameters_are_updated_in_place() {
    let bytes = 1024 * 384 * 2;
    for chip in ["v4", "v5e", "v7x"] {
        let kept = compiled(&cache("", 16), chip);
        let donated = compiled(&cache(" {tf.aliasing_output = 0 : i32}", 16), chip);
        assert_eq!((kept.kernels.len(), donated.kernels.len()), (3, 2), "{chip}");
        assert_eq!(kept.program.hbm_peak_bytes - donated.program.hbm_peak_bytes, bytes, "{chip}");
        let at = |kind: BufferKind| {
            let buffer = donated.program.buffers.iter().find(|b| b.kind == kind);
            buffer.unwrap_or_else(|| panic!("no {kind:?}")).offset
        };
        assert_eq!(at(BufferKind::Param(2)), at(BufferKind::Output(0)), "{chip}");
    }
}

// Oracle: the rows of the caller's array that no update covers, and the rule that data never changes time.
#[test]
fn indices_do_not_change_the_time() {
    for chip in ["v4", "v5e"] {
        let c = compiled(&cache(" {jax.buffer_donor = true}", 32), chip);
        let chip = common::chip(chip);
        let timed = time(&c.program, &chip, &RunOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        for index in [0i32, 5, 991, 992, 5000, -7, i32::MIN, i32::MAX] {
            let rows: Vec<u8> = (0..1024u16).flat_map(|r| (0x3f80 + r % 100).to_le_bytes().repeat(384)).collect();
            let inputs = [
                vec![0u8; 32 * 256 * 2],
                vec![0u8; 256 * 384 * 2],
                rows.clone(),
                0x4000u16.to_le_bytes().repeat(384),
                index.to_le_bytes().to_vec(),
            ];
            let run = execute(&c.program, &chip, &inputs, &RunOptions::default()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(run.profile.cycles, timed.cycles, "index {index}");
            let mut want = rows;
            let row = 384 * 2;
            let first = index.clamp(0, 1024 - 32) as usize;
            want[first * row..(first + 32) * row].fill(0);
            let second = index.clamp(0, 1023) as usize;
            want[second * row..(second + 1) * row].copy_from_slice(&inputs[3]);
            assert!(run.outputs[0] == want, "index {index}");
        }
    }
}

/// `layers` products with one layer each of stacked weights, at an index of their own or all at one.
fn layers(count: usize, own: bool) -> String {
    let mut body = String::new();
    for l in 0..count {
        let i = if own { format!("%i{l}") } else { "%i0".to_owned() };
        body += &format!(
            "%s{l} = stablehlo.dynamic_slice %w, {i}, %c, %c, sizes = [1, 128, 128]
      : (tensor<8x128x128xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x128x128xbf16>
    %r{l} = stablehlo.reshape %s{l} : (tensor<1x128x128xbf16>) -> tensor<128x128xbf16>
    %x{} = stablehlo.dot_general %x{l}, %r{l}, contracting_dims = [1] x [0]
      : (tensor<64x128xbf16>, tensor<128x128xbf16>) -> tensor<64x128xbf16>\n    ",
            l + 1
        );
    }
    let params: Vec<String> = (0..count).map(|l| format!("%i{l}: tensor<i32>")).collect();
    format!(
        "module @layers {{
  func.func @main(%x0: tensor<64x128xbf16>, %w: tensor<8x128x128xbf16>, {}) -> tensor<64x128xbf16> {{
    %c = stablehlo.constant dense<0> : tensor<i32>
    {body}return %x{count} : tensor<64x128xbf16>
  }}
}}",
        params.join(", ")
    )
}

// Oracle: as many kernels as there are products.
#[test]
fn products_read_slices_where_they_are() {
    for own in [true, false] {
        let c = compiled(&layers(3, own), "v5e");
        assert_eq!(c.kernels.len(), 3);
    }
}

// Oracle: the scalar unit computes the index, whatever its type, so that the slice is the only kernel.
#[test]
fn indices_need_no_kernel() {
    for t in ["i8", "ui8", "i16", "i32", "ui32", "i64"] {
        let text = format!(
            "module @index {{
  func.func @main(%x: tensor<100x256xf32>, %i: tensor<{t}>) -> tensor<8x256xf32> {{
    %zero = stablehlo.constant dense<0> : tensor<{t}>
    %size = stablehlo.constant dense<100> : tensor<{t}>
    %0 = stablehlo.compare LT, %i, %zero : (tensor<{t}>, tensor<{t}>) -> tensor<i1>
    %1 = stablehlo.add %i, %size : tensor<{t}>
    %2 = stablehlo.select %0, %1, %i : tensor<i1>, tensor<{t}>
    %3 = stablehlo.dynamic_slice %x, %2, %zero, sizes = [8, 256]
      : (tensor<100x256xf32>, tensor<{t}>, tensor<{t}>) -> tensor<8x256xf32>
    return %3 : tensor<8x256xf32>
  }}
}}"
        );
        assert_eq!(compiled(&text, "v5e").kernels.len(), 1, "{t}");
    }
}

// Oracle: sums of whole numbers; the first index is clamped to 0, so that its part counts twice. One kernel has no registers for them all.
#[test]
fn many_indices_compile() {
    let count = 40i32;
    let params: Vec<String> = (0..count).map(|l| format!("%i{l}: tensor<i32>")).collect();
    let mut body = String::new();
    for l in 0..count {
        body += &format!(
            "%s{l} = stablehlo.dynamic_slice %x0, %i{l}, sizes = [300] : (tensor<500xf32>, tensor<i32>) -> tensor<300xf32>\n"
        );
        let sum = if l == 0 { "%s0".to_owned() } else { format!("%t{}", l - 1) };
        body += &format!("%t{l} = stablehlo.add {sum}, %s{l} : tensor<300xf32>\n");
    }
    let text = format!(
        "module @many {{ func.func @main(%x0: tensor<500xf32>, {}) -> tensor<300xf32> {{\n{body}return %t{} : tensor<300xf32>\n}} }}",
        params.join(", "),
        count - 1
    );
    let module = module(&text);
    let chip = common::chip("v5e");
    assert!(compiled(&text, "v5e").kernels.len() <= 31);
    let program = common::compiled(&module, &chip).unwrap_or_else(|e| panic!("{e}"));
    let mut inputs: Vec<Vec<u8>> = vec![(0..500).flat_map(|i| (i as f32).to_le_bytes()).collect()];
    inputs.extend((0..count).map(|l| (l * 7 - 20).to_le_bytes().to_vec()));
    let got = common::run(&program, &chip, &inputs).unwrap_or_else(|e| panic!("{e}"));
    let sum: i32 = (0..count).map(|l| (l * 7 - 20).clamp(0, 200)).sum();
    let want: Vec<u8> = (0..300).flat_map(|k| ((sum + (count + 1) * k) as f32).to_le_bytes()).collect();
    if let Some(e) = common::differs(DType::F32, &got[0], &want, 0.0) {
        panic!("{e}");
    }
}
