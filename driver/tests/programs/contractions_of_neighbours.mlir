// Several contracted dimensions that lie next to each other are joined where they are, leading as in gradients of weights, in the middle
// behind a batch, or last; where one operand's are apart, the other's order counts.
func.func @main(%x: tensor<2x9x24xf32>, %y: tensor<2x9x40xf32>, %b: tensor<3x2x5x7xf32>, %c: tensor<2x5x3x6xf32>, %d: tensor<2x4x9xf32>) -> (tensor<24x40xf32>, tensor<3x7x6xf32>, tensor<24x4xf32>) {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [0, 1] x [0, 1] : (tensor<2x9x24xf32>, tensor<2x9x40xf32>) -> tensor<24x40xf32>
  %1 = stablehlo.dot_general %b, %c, batching_dims = [0] x [2], contracting_dims = [1, 2] x [0, 1] : (tensor<3x2x5x7xf32>, tensor<2x5x3x6xf32>) -> tensor<3x7x6xf32>
  %2 = stablehlo.dot_general %x, %d, contracting_dims = [0, 1] x [0, 2] : (tensor<2x9x24xf32>, tensor<2x4x9xf32>) -> tensor<24x4xf32>
  return %0, %1, %2 : tensor<24x40xf32>, tensor<3x7x6xf32>, tensor<24x4xf32>
}
