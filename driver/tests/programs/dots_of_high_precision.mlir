// within 3e-5
func.func @main(%x: tensor<3x37x200xf32>, %y: tensor<3x200x50xf32>) -> (tensor<3x37x50xf32>, tensor<3x37x50xf32>) {
  %0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [HIGHEST, HIGHEST] : (tensor<3x37x200xf32>, tensor<3x200x50xf32>) -> tensor<3x37x50xf32>
  %1 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [HIGH, HIGH] : (tensor<3x37x200xf32>, tensor<3x200x50xf32>) -> tensor<3x37x50xf32>
  return %0, %1 : tensor<3x37x50xf32>, tensor<3x37x50xf32>
}
