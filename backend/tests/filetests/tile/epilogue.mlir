// Bias, activation and residual run where the product's results leave the arrays.
module @epilogue {
  func.func @main(%x: tensor<256x512xbf16>, %w: tensor<512x384xbf16>, %b: tensor<384xbf16>, %r: tensor<256x384xbf16>) -> tensor<256x384xbf16> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<256x512xbf16>, tensor<512x384xbf16>) -> tensor<256x384xbf16>
    %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<384xbf16>) -> tensor<256x384xbf16>
    %2 = stablehlo.add %0, %1 : tensor<256x384xbf16>
    %3 = stablehlo.tanh %2 : tensor<256x384xbf16>
    %4 = stablehlo.add %3, %r : tensor<256x384xbf16>
    return %4 : tensor<256x384xbf16>
  }
}
