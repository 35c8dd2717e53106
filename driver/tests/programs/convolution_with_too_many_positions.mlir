// refused: windows of more than 512 positions
func.func @main(%x: tensor<1x600x2xf32>, %w: tensor<601x2x3xf32>) -> (tensor<1x600x3xf32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[0, 600]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x600x2xf32>, tensor<601x2x3xf32>) -> tensor<1x600x3xf32>
  return %0 : tensor<1x600x3xf32>
}
