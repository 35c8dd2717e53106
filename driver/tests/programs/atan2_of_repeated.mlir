// within 0.13
func.func @main(%x: tensor<15x3xf8E4M3FN>) -> tensor<15x3x3xf8E4M3FN> {
  %b = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<15x3xf8E4M3FN>) -> tensor<15x3x3xf8E4M3FN>
  %a = stablehlo.atan2 %b, %b : tensor<15x3x3xf8E4M3FN>
  return %a : tensor<15x3x3xf8E4M3FN>
}
