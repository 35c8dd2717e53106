//! What numbers do at their edges, in the evaluator: each test holds a statement of docs/float-semantics.md. Oracle: values worked out
//! by hand from IEEE 754 and the StableHLO specification.

use tpusim_backend::eval::{DotPrecision, EvalOptions, Tensor, eval_module_with};
use tpusim_backend::front::parse_text;
use tpusim_backend::hlo::verify;

fn run_as(text: &str, dot: DotPrecision) -> Vec<Tensor> {
    let module =
        verify(parse_text(text, "test.mlir").unwrap_or_else(|e| panic!("{e}"))).unwrap_or_else(|e| panic!("{e:?}"));
    eval_module_with(&module, &[], &EvalOptions { dot, ..EvalOptions::default() }).unwrap_or_else(|e| panic!("{e}"))
}

fn run(text: &str) -> Vec<Tensor> {
    run_as(text, DotPrecision::Exact)
}

#[test]
fn denormals_are_kept() {
    let r = run("func.func @main() -> (tensor<2xf32>, tensor<bf16>, tensor<2xi1>, tensor<2xf32>) {
      %x = stablehlo.constant dense<[0x00000001, 0x80000003]> : tensor<2xf32>
      %0 = stablehlo.add %x, %x : tensor<2xf32>
      %b = stablehlo.constant dense<0x0001> : tensor<bf16>
      %f = stablehlo.convert %b : (tensor<bf16>) -> tensor<f32>
      %1 = stablehlo.convert %f : (tensor<f32>) -> tensor<bf16>
      %z = stablehlo.constant dense<0.0> : tensor<2xf32>
      %2 = stablehlo.compare NE, %x, %z : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
      %3 = stablehlo.ceil %x : tensor<2xf32>
      return %0, %1, %2, %3 : tensor<2xf32>, tensor<bf16>, tensor<2xi1>, tensor<2xf32>
    }");
    let tiny = f32::from_bits(1);
    assert_eq!(r[0].to_f32(), [2.0 * tiny, -6.0 * tiny]);
    assert_eq!(r[1].bytes(), 1u16.to_le_bytes());
    assert_eq!(r[2].to_i64(), [1, 1]);
    assert_eq!(r[3].to_f32(), [1.0, 0.0]);
}

#[test]
fn nan_compares_unequal_and_wins_reductions() {
    let r = run("func.func @main() -> (tensor<3xi1>, tensor<3xi1>, tensor<3xi1>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<3xf32>) {
      %x = stablehlo.constant dense<[1.0, 0x7FC00000, 3.0]> : tensor<3xf32>
      %0 = stablehlo.compare EQ, %x, %x : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
      %1 = stablehlo.compare NE, %x, %x : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
      %2 = stablehlo.compare GE, %x, %x : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
      %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %high = stablehlo.constant dense<0x7F800000> : tensor<f32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %3 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
      %4 = stablehlo.reduce(%x init: %high) applies stablehlo.minimum across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
      %5 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
      %6 = stablehlo.clamp %zero, %x, %zero : (tensor<f32>, tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
      return %0, %1, %2, %3, %4, %5, %6 : tensor<3xi1>, tensor<3xi1>, tensor<3xi1>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<3xf32>
    }");
    assert_eq!((r[0].to_i64(), r[1].to_i64(), r[2].to_i64()), (vec![1, 0, 1], vec![0, 1, 0], vec![1, 0, 1]));
    assert!(r[3..6].iter().all(|t| t.to_f32()[0].is_nan()) && r[6].to_f32()[1].is_nan());
}

/// 2^24 + 1 is a tie in f32: sums of bf16 lose the 1 or not by their order.
const BF16_SUMS: &str = "func.func @main() -> (tensor<bf16>, tensor<bf16>, tensor<bf16>, tensor<1x1x1xbf16>, tensor<1x1x1xbf16>) {
      %a = stablehlo.constant dense<[16777216.0, 1.0, -16777216.0]> : tensor<3xbf16>
      %b = stablehlo.constant dense<[16777216.0, -16777216.0, 1.0]> : tensor<3xbf16>
      %one = stablehlo.constant dense<1.0> : tensor<3xbf16>
      %zero = stablehlo.constant dense<0.0> : tensor<bf16>
      %0 = stablehlo.dot_general %a, %one, contracting_dims = [0] x [0] : (tensor<3xbf16>, tensor<3xbf16>) -> tensor<bf16>
      %1 = stablehlo.dot_general %b, %one, contracting_dims = [0] x [0] : (tensor<3xbf16>, tensor<3xbf16>) -> tensor<bf16>
      %2 = stablehlo.reduce(%b init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<3xbf16>, tensor<bf16>) -> tensor<bf16>
      %x = stablehlo.reshape %a : (tensor<3xbf16>) -> tensor<1x3x1xbf16>
      %y = stablehlo.reshape %b : (tensor<3xbf16>) -> tensor<1x3x1xbf16>
      %k = stablehlo.reshape %one : (tensor<3xbf16>) -> tensor<3x1x1xbf16>
      %3 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x3x1xbf16>, tensor<3x1x1xbf16>) -> tensor<1x1x1xbf16>
      %4 = stablehlo.convolution(%y, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x3x1xbf16>, tensor<3x1x1xbf16>) -> tensor<1x1x1xbf16>
      return %0, %1, %2, %3, %4 : tensor<bf16>, tensor<bf16>, tensor<bf16>, tensor<1x1x1xbf16>, tensor<1x1x1xbf16>
    }";

#[test]
fn narrow_sums_run_in_f32_in_order() {
    for dot in [DotPrecision::Exact, DotPrecision::Tpu] {
        let r: Vec<f32> = run_as(BF16_SUMS, dot).iter().map(|t| t.to_f32()[0]).collect();
        assert_eq!(r, [0.0, 1.0, 1.0, 0.0, 1.0]);
    }
}

#[test]
fn sums_of_f32_round_once() {
    let text = BF16_SUMS.replace("bf16", "f32");
    let r: Vec<f32> = run(&text).iter().map(|t| t.to_f32()[0]).collect();
    assert_eq!(r, [1.0; 5]);
    // An MXU at DEFAULT sums in f32, as it does bf16; a reduction is no matter of the MXU.
    let r: Vec<f32> = run_as(&text, DotPrecision::Tpu).iter().map(|t| t.to_f32()[0]).collect();
    assert_eq!(r, [0.0, 1.0, 1.0, 0.0, 1.0]);
}

#[test]
fn conversions_between_floats_overflow_as_their_type_does() {
    let r = run("func.func @main() -> (tensor<2xf16>, tensor<2xf8E4M3FN>, tensor<2xf8E5M2>, tensor<2xf4E2M1FN>, tensor<3xi1>, tensor<2xi8>) {
      %x = stablehlo.constant dense<[1.0e6, -1.0e6]> : tensor<2xf32>
      %0 = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xf16>
      %1 = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xf8E4M3FN>
      %2 = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xf8E5M2>
      %3 = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xf4E2M1FN>
      %y = stablehlo.constant dense<[0x7FC00000, -0.0, 0x00000001]> : tensor<3xf32>
      %4 = stablehlo.convert %y : (tensor<3xf32>) -> tensor<3xi1>
      %i = stablehlo.constant dense<[300, -200]> : tensor<2xi32>
      %5 = stablehlo.convert %i : (tensor<2xi32>) -> tensor<2xi8>
      return %0, %1, %2, %3, %4, %5 : tensor<2xf16>, tensor<2xf8E4M3FN>, tensor<2xf8E5M2>, tensor<2xf4E2M1FN>, tensor<3xi1>, tensor<2xi8>
    }");
    assert_eq!(r[0].to_f32(), [f32::INFINITY, f32::NEG_INFINITY]);
    assert!(r[1].to_f32().iter().all(|v| v.is_nan()));
    assert_eq!(r[2].to_f32(), [f32::INFINITY, f32::NEG_INFINITY]);
    assert_eq!(r[3].to_f32(), [6.0, -6.0]);
    assert_eq!((r[4].to_i64(), r[5].to_i64()), (vec![1, 0, 1], vec![44, 56]));
}

#[test]
fn rounding_functions_and_signed_zeros() {
    let r = run("func.func @main() -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
      %x = stablehlo.constant dense<[0.5, 2.5, -0.5, -2.5]> : tensor<4xf32>
      %0 = stablehlo.round_nearest_even %x : tensor<4xf32>
      %1 = stablehlo.round_nearest_afz %x : tensor<4xf32>
      %2 = stablehlo.sign %0 : tensor<4xf32>
      return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }");
    assert_eq!(r[0].to_f32(), [0.0, 2.0, -0.0, -2.0]);
    assert_eq!(r[1].to_f32(), [1.0, 3.0, -1.0, -3.0]);
    assert!(r[0].to_f32()[2].is_sign_negative() && r[2].to_f32()[2].is_sign_negative());
}
