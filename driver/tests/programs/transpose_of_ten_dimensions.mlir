func.func @main(%x: tensor<2x3x1x2x1x3x2x2x1x2xf32>) -> (tensor<2x1x3x2x2x2x1x1x2x3xf32>, tensor<2x1x3x2x2x2x1x1x2x3xf32>) {
  %a = stablehlo.transpose %x, dims = [9, 4, 1, 7, 0, 3, 8, 2, 6, 5] : (tensor<2x3x1x2x1x3x2x2x1x2xf32>) -> tensor<2x1x3x2x2x2x1x1x2x3xf32>
  %b = stablehlo.add %a, %a : tensor<2x1x3x2x2x2x1x1x2x3xf32>
  return %a, %b : tensor<2x1x3x2x2x2x1x1x2x3xf32>, tensor<2x1x3x2x2x2x1x1x2x3xf32>
}
