// Broken syntax.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x %x : tensor<4xf32>
  %1 = stablehlo.slice %x [0:] : (tensor<4xf32>) -> tensor<4xf32>
  %2 = stablehlo.custom_call @"unfinished
  %3 = stablehlo.reduce_precision %x, format = m8 : tensor<4xf32>
  %4 = stablehlo.convolution(%x, %x) dim_numbers = [b, 0, 0, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %5 = "stablehlo.sort"(%x) {dimension = 0 : i64, dimension = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %6 = stablehlo.reduce(%x init: %x) applies stablehlo.subtract across dimensions = [0] : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  %7 = stablehlo.while(%i = %x) : tensor<4xf32>
  cond { } do { }
