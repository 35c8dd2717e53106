func.func @main(%x: tensor<11x7x1xi32>, %y: tensor<32x1xf32>) -> (tensor<1xi32>, tensor<1xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %zerof = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<11x7x1xi32>, tensor<i32>) -> tensor<1xi32>
  %s = stablehlo.reduce(%y init: %zerof) applies stablehlo.add across dimensions = [0] : (tensor<32x1xf32>, tensor<f32>) -> tensor<1xf32>
  return %r, %s : tensor<1xi32>, tensor<1xf32>
}
