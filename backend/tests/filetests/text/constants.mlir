// Constants of every element type and spelling.
func.func @main() {
  %0 = stablehlo.constant dense<[[1, -2], [3, 4]]> : tensor<2x2xi32>
  %1 = stablehlo.constant dense<[7, 7, 7]> : tensor<3xui8>
  %2 = stablehlo.constant dense<[0xFF800000, 1.5, -0.0, 0x7FC00000]> : tensor<4xf32>
  %3 = stablehlo.constant dense<[1.001, 3.4e38, 0x7FC0]> : tensor<3xbf16>
  %4 = stablehlo.constant dense<[true, false, true]> : tensor<3xi1>
  %5 = stablehlo.constant dense<[(1.0, 2.0), (-3.5, 0xFF800000)]> : tensor<2xcomplex<f32>>
  %6 = stablehlo.constant dense<"0x000000400000C03F0000803F"> : tensor<3xf32>
  %7 = stablehlo.constant dense<"0x0000803F"> : tensor<9x9xf32>
  %8 = stablehlo.constant dense<"0x05"> : tensor<3xi1>
  %9 = stablehlo.constant dense<> : tensor<0x4xf32>
  %10 = stablehlo.constant dense<18446744073709551615> : tensor<ui64>
  %11 = stablehlo.constant dense<[-8, 7]> : tensor<2xi4>
  %12 = stablehlo.constant dense<[448.0, 1.0e9, 0.001]> : tensor<3xf8E4M3FN>
  %13 = stablehlo.constant dense<[0.5, 6.0]> : tensor<2xf4E2M1FN>
  %14 = stablehlo.constant {a.note = "x"} dense<1.0> : tensor<f64>
  %15 = stablehlo.constant() <{value = dense<3> : tensor<1xi8>}> : () -> tensor<1x!quant.uniform<i8:f32, 2.000000e+00:15>>
  %16 = stablehlo.constant dense<1e-4> : tensor<65536x65536xf32>
  return
}
