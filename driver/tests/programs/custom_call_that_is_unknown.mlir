// refused: stablehlo.custom_call at custom_call_that_is_unknown.mlir:3: to `my_kernel`: its meaning is not known here
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @my_kernel(%x) : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
