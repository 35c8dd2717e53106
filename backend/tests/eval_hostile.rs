//! Damaged programs. Oracle: whatever the damage, the verifier or the evaluator says so: no panic, no endless loop.

use std::path::Path;

use tpusim_backend::eval::{EvalOptions, Tensor, eval_module_with};
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::verify;

/// Programs with many attributes that are numbers.
const PROGRAMS: &[&str] = &[
    "func.func @main(%x: tensor<4x5xf32>) -> tensor<2x3xf32> {
       %0 = stablehlo.slice %x [1:4:2, 0:5:2] : (tensor<4x5xf32>) -> tensor<2x3xf32>
       return %0 : tensor<2x3xf32> }",
    "func.func @main(%x: tensor<3x2xf32>, %v: tensor<f32>) -> tensor<5x9xf32> {
       %0 = stablehlo.pad %x, %v, low = [0, 1], high = [0, 1], interior = [1, 5] : (tensor<3x2xf32>, tensor<f32>) -> tensor<5x9xf32>
       return %0 : tensor<5x9xf32> }",
    "func.func @main(%x: tensor<3x4x2xi64>, %i: tensor<2x3x2xi64>) -> tensor<2x3x2x2xi64> {
       %0 = \"stablehlo.gather\"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [2, 3],
         collapsed_slice_dims = [0], start_index_map = [1, 0], index_vector_dim = 2>,
         slice_sizes = array<i64: 1, 2, 2>}> : (tensor<3x4x2xi64>, tensor<2x3x2xi64>) -> tensor<2x3x2x2xi64>
       return %0 : tensor<2x3x2x2xi64> }",
    "func.func @main(%x: tensor<1x5x5x4xf32>, %w: tensor<3x3x2x6xf32>) -> tensor<1x3x3x6xf32> {
       %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
         window = {stride = [2, 2], pad = [[1, 1], [1, 1]], rhs_dilate = [1, 1]}
         {batch_group_count = 1 : i64, feature_group_count = 2 : i64} :
         (tensor<1x5x5x4xf32>, tensor<3x3x2x6xf32>) -> tensor<1x3x3x6xf32>
       return %0 : tensor<1x3x3x6xf32> }",
    "func.func @main(%x: tensor<2x3x4xf32>, %y: tensor<2x4x5xf32>) -> tensor<2x3x5xf32> {
       %0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1] :
         (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
       return %0 : tensor<2x3x5xf32> }",
    "func.func @main(%x: tensor<6x4xf32>, %z: tensor<f32>) -> tensor<3x2xf32> {
       %0 = \"stablehlo.reduce_window\"(%x, %z) <{window_dimensions = array<i64: 3, 2>, window_strides = array<i64: 2, 3>,
         base_dilations = array<i64: 1, 2>, padding = dense<[[1, 0], [0, 0]]> : tensor<2x2xi64>}> ({
         ^bb0(%a: tensor<f32>, %b: tensor<f32>):
           %1 = stablehlo.add %a, %b : tensor<f32>
           stablehlo.return %1 : tensor<f32>
       }) : (tensor<6x4xf32>, tensor<f32>) -> tensor<3x2xf32>
       return %0 : tensor<3x2xf32> }",
    "func.func @main(%n: tensor<i32>) -> tensor<i32> {
       %c = stablehlo.constant dense<9> : tensor<i32>
       %1 = stablehlo.constant dense<1> : tensor<i32>
       %0 = stablehlo.while(%i = %n) : tensor<i32> cond {
         %2 = stablehlo.compare LT, %i, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
         stablehlo.return %2 : tensor<i1>
       } do {
         %2 = stablehlo.add %i, %1 : tensor<i32>
         stablehlo.return %2 : tensor<i32>
       }
       return %0 : tensor<i32> }",
];

/// Xorshift, so that every run sees the same damage.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// Changes numbers in `text`.
fn damage(text: &str, r: &mut Random) -> Vec<u8> {
    let mut t = text.as_bytes().to_vec();
    for _ in 0..=r.below(3) {
        let digits: Vec<usize> = (0..t.len()).filter(|&i| t[i].is_ascii_digit()).collect();
        let i = digits[r.below(digits.len())];
        let with: &[u8] = match r.below(8) {
            0 => b"9223372036854775807",
            1 => b"-9223372036854775808",
            2 => b"-1",
            n => &b"0123456789"[n..=n],
        };
        t.splice(i..=i, with.iter().copied());
    }
    t
}

/// Runs a program on zeros; whether it got as far as the evaluator.
fn survives(text: &[u8]) -> bool {
    let options = EvalOptions { max_tensor_bytes: 1 << 16, max_ops: 1000, ..EvalOptions::default() };
    let Ok(module) = parse_program(text, "damaged") else { return false };
    let Ok(module) = verify(module) else { return false };
    let Some(main) = module.func("main") else { return false };
    let mut inputs = Vec::new();
    for p in &main.params {
        let Some(ty) = main.ty(p.value).tensor() else { return false };
        let Some(bytes) = ty.bytes().filter(|&b| b <= 1 << 16) else { return false };
        let Ok(t) = Tensor::new(ty.clone(), vec![0; bytes as usize]) else { return false };
        inputs.push(t);
    }
    let _ = eval_module_with(&module, &inputs, &options);
    true
}

#[test]
fn undamaged_programs_run() {
    for p in PROGRAMS {
        assert!(survives(p.as_bytes()), "{p}");
    }
}

#[test]
fn damaged_programs_are_refused_or_run() {
    let mut r = Random(0x9e37_79b9_7f4a_7c15);
    let mut texts: Vec<String> = PROGRAMS.iter().map(|&p| p.to_owned()).collect();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests/text");
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    texts.extend(
        paths
            .iter()
            .filter(|p| p.extension().is_some_and(|e| e == "mlir"))
            .filter_map(|p| std::fs::read_to_string(p).ok()),
    );
    texts.retain(|t| t.bytes().any(|b| b.is_ascii_digit()));
    let mut evaluated = 0;
    for i in 0..20_000 {
        let damaged = damage(&texts[i % texts.len()], &mut r);
        evaluated += usize::from(survives(&damaged));
    }
    assert!(evaluated > 200, "only {evaluated} damaged programs reached the evaluator");
}
