// VMEM 2097152
// One row of input in front of which and behind which there are zeros: blocks of the result's rows all load the same row, each to
// another place.
module @convolution_of_one_row {
  func.func @main(%x: tensor<51x1x12x3xf32>, %w: tensor<1x3x3x21xf32>, %b: tensor<21xf32>) -> tensor<17x3x8x21xf32> {
    %c = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {stride = [1, 1], pad = [[1, 1], [0, 0]], rhs_dilate = [1, 2]}
      {batch_group_count = 3 : i64, feature_group_count = 1 : i64,
       precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}
      : (tensor<51x1x12x3xf32>, tensor<1x3x3x21xf32>) -> tensor<17x3x8x21xf32>
    %d = stablehlo.broadcast_in_dim %b, dims = [3] : (tensor<21xf32>) -> tensor<17x3x8x21xf32>
    %e = stablehlo.add %c, %d : tensor<17x3x8x21xf32>
    %z = stablehlo.constant dense<0.0> : tensor<17x3x8x21xf32>
    %r = stablehlo.maximum %e, %z : tensor<17x3x8x21xf32>
    return %r : tensor<17x3x8x21xf32>
  }
}
