// Slices, reversals and transposes of a parameter are strides of one load; parts of a concatenation are written in place.
module @movement {
  func.func @main(%x: tensor<64x256xf32>) -> (tensor<256x32xf32>, tensor<128x256xf32>) {
    %0 = stablehlo.slice %x [0:64:2, 0:256] : (tensor<64x256xf32>) -> tensor<32x256xf32>
    %1 = stablehlo.reverse %0, dims = [0] : tensor<32x256xf32>
    %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<32x256xf32>) -> tensor<256x32xf32>
    %3 = stablehlo.negate %x : tensor<64x256xf32>
    %4 = stablehlo.concatenate %x, %3, dim = 0 : (tensor<64x256xf32>, tensor<64x256xf32>) -> tensor<128x256xf32>
    return %2, %4 : tensor<256x32xf32>, tensor<128x256xf32>
  }
}
