// Floats of eight bits of two kinds multiply as they are on chips that have them: activations by gradients, either as the latched operand.
func.func @main(%a: tensor<72x160xf8E4M3FN>, %b: tensor<160x130xf8E5M2>, %c: tensor<2x40x96xf8E5M2>, %d: tensor<2x40x64xf8E4M3FN>) -> (tensor<72x130xf32>, tensor<2x96x64xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<72x160xf8E4M3FN>, tensor<160x130xf8E5M2>) -> tensor<72x130xf32>
  %1 = stablehlo.dot_general %c, %d, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<2x40x96xf8E5M2>, tensor<2x40x64xf8E4M3FN>) -> tensor<2x96x64xf32>
  return %0, %1 : tensor<72x130xf32>, tensor<2x96x64xf32>
}
