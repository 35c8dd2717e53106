func.func @main(%x: tensor<23xf32>, %init: tensor<f32>) -> tensor<23xf32> {
  %r = stablehlo.reduce(%x init: %init) applies stablehlo.add across dimensions = [] : (tensor<23xf32>, tensor<f32>) -> tensor<23xf32>
  return %r : tensor<23xf32>
}
