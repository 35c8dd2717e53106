func.func @main(%x: tensor<3x21x19x2xf32>, %w: tensor<20x17x2x5xf32>, %y: tensor<2x10x9x160xbf16>, %v: tensor<2x3x160x6xbf16>) -> (tensor<3x2x3x5xf32>, tensor<2x9x5x6xf32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {reverse = [0, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<3x21x19x2xf32>, tensor<20x17x2x5xf32>) -> tensor<3x2x3x5xf32>
  %1 = stablehlo.convolution(%y, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 2], pad = [[0, 0], [1, 1]], reverse = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x10x9x160xbf16>, tensor<2x3x160x6xbf16>) -> tensor<2x9x5x6xf32>
  return %0, %1 : tensor<3x2x3x5xf32>, tensor<2x9x5x6xf32>
}
