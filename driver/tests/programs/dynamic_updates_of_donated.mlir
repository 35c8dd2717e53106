// Donated parameters are overwritten: in one step, in a chain, and not before the last read of them.
module @dynamic_updates_of_donated {
  func.func @main(%a: tensor<40x200xbf16> {tf.aliasing_output = 0 : i32}, %b: tensor<40x200xbf16> {jax.buffer_donor = true}, %c: tensor<40x200xbf16> {tf.aliasing_output = 2 : i32}, %u: tensor<3x200xbf16>, %i: tensor<i32>, %j: tensor<i32>) -> (tensor<40x200xbf16>, tensor<40x200xbf16>, tensor<40x200xbf16>, tensor<40x200xbf16>, tensor<200xbf16>, tensor<200xbf16>) {
    %c0 = stablehlo.constant dense<0> : tensor<i32>
    %zero = stablehlo.constant dense<0.0> : tensor<bf16>
    %0 = stablehlo.dynamic_update_slice %a, %u, %i, %c0 : (tensor<40x200xbf16>, tensor<3x200xbf16>, tensor<i32>, tensor<i32>) -> tensor<40x200xbf16>
    %1 = stablehlo.reduce(%b init: %zero) applies stablehlo.maximum across dimensions = [0] : (tensor<40x200xbf16>, tensor<bf16>) -> tensor<200xbf16>
    %2 = stablehlo.dynamic_update_slice %b, %u, %i, %j : (tensor<40x200xbf16>, tensor<3x200xbf16>, tensor<i32>, tensor<i32>) -> tensor<40x200xbf16>
    %3 = stablehlo.negate %u : tensor<3x200xbf16>
    %4 = stablehlo.dynamic_update_slice %2, %3, %j, %c0 : (tensor<40x200xbf16>, tensor<3x200xbf16>, tensor<i32>, tensor<i32>) -> tensor<40x200xbf16>
    %5 = stablehlo.dynamic_update_slice %c, %u, %i, %c0 : (tensor<40x200xbf16>, tensor<3x200xbf16>, tensor<i32>, tensor<i32>) -> tensor<40x200xbf16>
    %6 = stablehlo.reduce(%c init: %zero) applies stablehlo.maximum across dimensions = [0] : (tensor<40x200xbf16>, tensor<bf16>) -> tensor<200xbf16>
    %7 = stablehlo.add %0, %0 : tensor<40x200xbf16>
    return %0, %4, %5, %7, %1, %6 : tensor<40x200xbf16>, tensor<40x200xbf16>, tensor<40x200xbf16>, tensor<40x200xbf16>, tensor<200xbf16>, tensor<200xbf16>
  }
}
