// within 1e-6
func.func @main(%x: tensor<2x13x6xf32>, %w: tensor<3x1x6xf32>) -> tensor<2x13x6xf32> {
  %c = stablehlo.constant dense<0.333333343> : tensor<2x13x6xf32>
  %y = stablehlo.multiply %x, %c : tensor<2x13x6xf32>
  %0 = stablehlo.convolution(%y, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 6 : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x13x6xf32>, tensor<3x1x6xf32>) -> tensor<2x13x6xf32>
  return %0 : tensor<2x13x6xf32>
}
