func.func @main(%x: tensor<2xbf16>, %y: tensor<32x33xf32>, %z: tensor<127xf8E4M3FN>) -> (tensor<f32>, tensor<32xf32>, tensor<f32>) {
  %a = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0] : (tensor<2xbf16>, tensor<2xbf16>) -> tensor<f32>
  %b = stablehlo.dot_general %y, %y, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<32x33xf32>, tensor<32x33xf32>) -> tensor<32xf32>
  %c = stablehlo.dot_general %z, %z, contracting_dims = [0] x [0] : (tensor<127xf8E4M3FN>, tensor<127xf8E4M3FN>) -> tensor<f32>
  return %a, %b, %c : tensor<f32>, tensor<32xf32>, tensor<f32>
}
