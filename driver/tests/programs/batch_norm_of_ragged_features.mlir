// within 1e-5
func.func @main(%x: tensor<3x13x7xf32>, %b: tensor<2x5xbf16>, %s: tensor<13xf32>, %o: tensor<13xf32>, %m: tensor<13xf32>, %v: tensor<13xf32>, %p: tensor<5xbf16>) -> (tensor<3x13x7xf32>, tensor<2x5xbf16>, tensor<3x13x7xf32>) {
  %w = stablehlo.abs %v : tensor<13xf32>
  %q = stablehlo.abs %p : tensor<5xbf16>
  %y = "stablehlo.batch_norm_inference"(%x, %s, %o, %m, %w) {epsilon = 0.001 : f32, feature_index = 1 : i64} : (tensor<3x13x7xf32>, tensor<13xf32>, tensor<13xf32>, tensor<13xf32>, tensor<13xf32>) -> tensor<3x13x7xf32>
  %z = "stablehlo.batch_norm_inference"(%b, %p, %q, %p, %q) {epsilon = 1.0 : f32, feature_index = 1 : i64} : (tensor<2x5xbf16>, tensor<5xbf16>, tensor<5xbf16>, tensor<5xbf16>, tensor<5xbf16>) -> tensor<2x5xbf16>
  %third = stablehlo.constant dense<0.333333343> : tensor<3x13x7xf32>
  %t = stablehlo.multiply %x, %third : tensor<3x13x7xf32>
  %r = stablehlo.reduce_precision %t, format = e8m7 : tensor<3x13x7xf32>
  return %y, %z, %r : tensor<3x13x7xf32>, tensor<2x5xbf16>, tensor<3x13x7xf32>
}
