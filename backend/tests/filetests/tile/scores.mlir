// Batched product of [batch, row, head, k] operands: strides, no copies; the contracted dimension runs along lanes on both sides.
module @scores {
  func.func @main(%q: tensor<2x128x4x64xbf16>, %k: tensor<2x128x4x64xbf16>) -> tensor<2x4x128x128xf32> {
    %0 = stablehlo.dot_general %q, %k, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<2x128x4x64xbf16>, tensor<2x128x4x64xbf16>) -> tensor<2x4x128x128xf32>
    return %0 : tensor<2x4x128x128xf32>
  }
}
