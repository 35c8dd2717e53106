// Types of signatures against those of values, counts of operands and results.
func.func @main(%x: tensor<4xf32>, %y: tensor<8xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %y : tensor<4xf32>
  %1 = "stablehlo.add"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "stablehlo.add"(%x, %x) : (tensor<4xf32>) -> tensor<4xf32>
  %3:3 = stablehlo.negate %x : tensor<4xf32>
  %4 = stablehlo.constant dense<[1.0, 2.0]> : tensor<3xf32>
  %5 = stablehlo.constant dense<1.5> : tensor<i32>
  %6 = stablehlo.constant dense<300> : tensor<ui8>
  %7 = stablehlo.custom_call @f() : () -> tensor<4xf33>
  %8 = stablehlo.custom_call @f() : () -> tensor<*xf32>
  %9 = stablehlo.custom_call @f() : () -> memref<4xf32>
  %10 = stablehlo.constant dense_resource<weights> : tensor<4xf32>
  %11 = "stablehlo.transpose"(%x) {permutation = dense<[[0]]> : tensor<1x1xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<8xf32>
}
