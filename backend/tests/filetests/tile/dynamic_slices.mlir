// One layer of stacked weights and biases, at an index that is wrapped as JAX does it: one kernel, which reads both where they are.
module @dynamic_slices {
  func.func @main(%x: tensor<256x512xbf16>, %w: tensor<8x512x384xbf16>, %b: tensor<8x384xbf16>, %i: tensor<i32>) -> tensor<256x384xbf16> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %eight = stablehlo.constant dense<8> : tensor<i32>
    %0 = stablehlo.compare LT, %i, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %1 = stablehlo.add %i, %eight : tensor<i32>
    %2 = stablehlo.select %0, %1, %i : tensor<i1>, tensor<i32>
    %3 = stablehlo.dynamic_slice %w, %2, %zero, %zero, sizes = [1, 512, 384] : (tensor<8x512x384xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x512x384xbf16>
    %4 = stablehlo.reshape %3 : (tensor<1x512x384xbf16>) -> tensor<512x384xbf16>
    %5 = stablehlo.dot_general %x, %4, contracting_dims = [1] x [0] : (tensor<256x512xbf16>, tensor<512x384xbf16>) -> tensor<256x384xbf16>
    %6 = stablehlo.dynamic_slice %b, %2, %zero, sizes = [1, 384] : (tensor<8x384xbf16>, tensor<i32>, tensor<i32>) -> tensor<1x384xbf16>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : (tensor<1x384xbf16>) -> tensor<256x384xbf16>
    %8 = stablehlo.add %5, %7 : tensor<256x384xbf16>
    return %8 : tensor<256x384xbf16>
  }
}
