func.func @main(%x: tensor<4x4x11xf32>, %y: tensor<1x4x11xf32>, %one: tensor<f32>) -> tensor<11x1xf32> {
  %a = stablehlo.dot_general %x, %y, batching_dims = [2] x [2], contracting_dims = [1] x [1] : (tensor<4x4x11xf32>, tensor<1x4x11xf32>) -> tensor<11x4x1xf32>
  %r = stablehlo.reduce(%a init: %one) applies stablehlo.multiply across dimensions = [1] : (tensor<11x4x1xf32>, tensor<f32>) -> tensor<11x1xf32>
  return %r : tensor<11x1xf32>
}
