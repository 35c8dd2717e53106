// within 1e-2
func.func @main(%x: tensor<4x1x11x1xbf16>, %y: tensor<3x4xf32>) -> (tensor<1x11x1x4xbf16>, tensor<4x1x11x1xbf16>, tensor<4x3xf32>, tensor<3x4xf32>) {
  %s = stablehlo.sine %x : tensor<4x1x11x1xbf16>
  %t = stablehlo.transpose %s, dims = [3, 2, 1, 0] : (tensor<4x1x11x1xbf16>) -> tensor<1x11x1x4xbf16>
  %u = stablehlo.sine %y : tensor<3x4xf32>
  %v = stablehlo.transpose %u, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
  return %t, %s, %v, %u : tensor<1x11x1x4xbf16>, tensor<4x1x11x1xbf16>, tensor<4x3xf32>, tensor<3x4xf32>
}
