// VMEM 262144
// Donated arrays whose elements have seven factors of two: no block of whole registers divides them, and none may overlap the next.
module @update {
  func.func public @main(%w: tensor<1571x3x128xf32> {tf.aliasing_output = 0 : i32}, %m: tensor<1571x3x128xf32> {tf.aliasing_output = 1 : i32}, %g: tensor<1571x3x128xf32>) -> (tensor<1571x3x128xf32>, tensor<1571x3x128xf32>) {
    %three = stablehlo.constant dense<3.0> : tensor<1571x3x128xf32>
    %a = stablehlo.multiply %m, %three : tensor<1571x3x128xf32>
    %b = stablehlo.add %a, %g : tensor<1571x3x128xf32>
    %c = stablehlo.subtract %w, %b : tensor<1571x3x128xf32>
    return %c, %b : tensor<1571x3x128xf32>, tensor<1571x3x128xf32>
  }
}
