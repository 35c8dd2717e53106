func.func @main(%x: tensor<2x4x5xf32>) -> (tensor<2x4x5xf32>, tensor<4x5xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %b = stablehlo.broadcast_in_dim %x, dims = [0, 1, 2] : (tensor<2x4x5xf32>) -> tensor<2x4x5x3xf32>
  %r = stablehlo.reduce(%b init: %zero) applies stablehlo.add across dimensions = [3] : (tensor<2x4x5x3xf32>, tensor<f32>) -> tensor<2x4x5xf32>
  %c = stablehlo.broadcast_in_dim %x, dims = [1, 2, 3] : (tensor<2x4x5xf32>) -> tensor<6x2x4x5xf32>
  %s = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<6x2x4x5xf32>, tensor<f32>) -> tensor<4x5xf32>
  return %r, %s : tensor<2x4x5xf32>, tensor<4x5xf32>
}
