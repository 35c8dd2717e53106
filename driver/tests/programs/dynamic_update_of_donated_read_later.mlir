// A donated array that is read after the update must keep what it had.
module @m {
  func.func public @main(%x: tensor<24x130xf32> {tf.aliasing_output = 0 : i32}, %u: tensor<3x130xf32>, %i: tensor<i32>) -> (tensor<24x130xf32>, tensor<24x130xf32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %y = stablehlo.dynamic_update_slice %x, %u, %i, %c : (tensor<24x130xf32>, tensor<3x130xf32>, tensor<i32>, tensor<i32>) -> tensor<24x130xf32>
    %z = stablehlo.negate %x : tensor<24x130xf32>
    return %y, %z : tensor<24x130xf32>, tensor<24x130xf32>
  }
}
