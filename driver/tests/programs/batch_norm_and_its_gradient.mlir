// within 2e-6
func.func @main(%x: tensor<3x5x7xf32>, %s: tensor<5xf32>, %o: tensor<5xf32>, %g: tensor<3x5x7xf32>) -> (tensor<3x5x7xf32>, tensor<5xf32>, tensor<5xf32>, tensor<3x5x7xf32>, tensor<5xf32>, tensor<5xf32>) {
  %0:3 = "stablehlo.batch_norm_training"(%x, %s, %o) <{epsilon = 1.000000e-03 : f32, feature_index = 1 : i64}> : (tensor<3x5x7xf32>, tensor<5xf32>, tensor<5xf32>) -> (tensor<3x5x7xf32>, tensor<5xf32>, tensor<5xf32>)
  %1:3 = "stablehlo.batch_norm_grad"(%x, %s, %0#1, %0#2, %g) <{epsilon = 1.000000e-03 : f32, feature_index = 1 : i64}> : (tensor<3x5x7xf32>, tensor<5xf32>, tensor<5xf32>, tensor<5xf32>, tensor<3x5x7xf32>) -> (tensor<3x5x7xf32>, tensor<5xf32>, tensor<5xf32>)
  return %0#0, %0#1, %0#2, %1#0, %1#1, %1#2 : tensor<3x5x7xf32>, tensor<5xf32>, tensor<5xf32>, tensor<3x5x7xf32>, tensor<5xf32>, tensor<5xf32>
}
