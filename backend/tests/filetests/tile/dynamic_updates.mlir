// A projection writes its rows into a donated cache, and a second update follows in the same array: two kernels, no copy. The cache that
// is not donated is copied, and the new one that starts as zeros is filled, then updated.
module @dynamic_updates {
  func.func @main(%x: tensor<16x512xbf16>, %w: tensor<512x384xbf16>, %cache: tensor<1024x384xbf16> {tf.aliasing_output = 0 : i32}, %other: tensor<1024x384xbf16>, %u: tensor<1x384xbf16>, %i: tensor<i32>, %j: tensor<i32>) -> (tensor<1024x384xbf16>, tensor<1024x384xbf16>, tensor<1024x384xbf16>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %zeros = stablehlo.constant dense<0.0> : tensor<1024x384xbf16>
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<16x512xbf16>, tensor<512x384xbf16>) -> tensor<16x384xbf16>
    %1 = stablehlo.tanh %0 : tensor<16x384xbf16>
    %2 = stablehlo.dynamic_update_slice %cache, %1, %i, %c : (tensor<1024x384xbf16>, tensor<16x384xbf16>, tensor<i32>, tensor<i32>) -> tensor<1024x384xbf16>
    %3 = stablehlo.dynamic_update_slice %2, %u, %j, %c : (tensor<1024x384xbf16>, tensor<1x384xbf16>, tensor<i32>, tensor<i32>) -> tensor<1024x384xbf16>
    %4 = stablehlo.dynamic_update_slice %other, %u, %i, %c : (tensor<1024x384xbf16>, tensor<1x384xbf16>, tensor<i32>, tensor<i32>) -> tensor<1024x384xbf16>
    %5 = stablehlo.dynamic_update_slice %zeros, %u, %i, %c : (tensor<1024x384xbf16>, tensor<1x384xbf16>, tensor<i32>, tensor<i32>) -> tensor<1024x384xbf16>
    return %3, %4, %5 : tensor<1024x384xbf16>, tensor<1024x384xbf16>, tensor<1024x384xbf16>
  }
}
