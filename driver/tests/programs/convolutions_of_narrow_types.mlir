// within 0.005
func.func @main(%x: tensor<2x13x6xbf16>, %w: tensor<3x6x9xbf16>, %i: tensor<2x13x6xi8>, %j: tensor<3x6x9xi8>, %k: tensor<3x1x6xi8>, %z: tensor<0x13x6xbf16>, %m: tensor<2x13x0xbf16>, %n: tensor<3x0x9xbf16>) -> (tensor<2x13x9xbf16>, tensor<2x13x9xi32>, tensor<2x13x6xi32>, tensor<0x13x9xbf16>, tensor<2x13x9xbf16>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x13x6xbf16>, tensor<3x6x9xbf16>) -> tensor<2x13x9xbf16>
  %1 = stablehlo.convolution(%i, %j) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x13x6xi8>, tensor<3x6x9xi8>) -> tensor<2x13x9xi32>
  %2 = stablehlo.convolution(%i, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 6 : i64} : (tensor<2x13x6xi8>, tensor<3x1x6xi8>) -> tensor<2x13x6xi32>
  %3 = stablehlo.convolution(%z, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<0x13x6xbf16>, tensor<3x6x9xbf16>) -> tensor<0x13x9xbf16>
  %4 = stablehlo.convolution(%m, %n) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x13x0xbf16>, tensor<3x0x9xbf16>) -> tensor<2x13x9xbf16>
  return %0, %1, %2, %3, %4 : tensor<2x13x9xbf16>, tensor<2x13x9xi32>, tensor<2x13x6xi32>, tensor<0x13x9xbf16>, tensor<2x13x9xbf16>
}
