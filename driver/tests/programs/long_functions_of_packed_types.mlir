// within 0.13
func.func @main(%x: tensor<15x3xf8E4M3FN>, %y: tensor<15x3xf8E4M3FN>) -> (tensor<15x3xf8E4M3FN>, tensor<15x3xf8E4M3FN>, tensor<15x3xf8E4M3FN>, tensor<15x3xf8E4M3FN>, tensor<15x3xf8E4M3FN>) {
  %a = stablehlo.atan2 %x, %y : tensor<15x3xf8E4M3FN>
  %b = stablehlo.abs %x : tensor<15x3xf8E4M3FN>
  %c = stablehlo.power %b, %y : tensor<15x3xf8E4M3FN>
  %d = stablehlo.sine %y : tensor<15x3xf8E4M3FN>
  %e = stablehlo.atan2 %d, %c : tensor<15x3xf8E4M3FN>
  %f = stablehlo.remainder %x, %y : tensor<15x3xf8E4M3FN>
  %g = stablehlo.atan2 %e, %x : tensor<15x3xf8E4M3FN>
  return %a, %c, %d, %e, %g : tensor<15x3xf8E4M3FN>, tensor<15x3xf8E4M3FN>, tensor<15x3xf8E4M3FN>, tensor<15x3xf8E4M3FN>, tensor<15x3xf8E4M3FN>
}
