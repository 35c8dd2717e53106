func.func @main(%k: tensor<4xui32>) -> (tensor<4xui32>, tensor<7x4xui32>, tensor<4xui32>, tensor<5x3xui32>, tensor<4xui32>, tensor<3x9x2xi32>, tensor<4xui32>, tensor<11xui64>) {
  %s0, %v0 = stablehlo.rng_bit_generator %k, algorithm = DEFAULT : (tensor<4xui32>) -> (tensor<4xui32>, tensor<7x4xui32>)
  %s1, %v1 = stablehlo.rng_bit_generator %k, algorithm = DEFAULT : (tensor<4xui32>) -> (tensor<4xui32>, tensor<5x3xui32>)
  %s2, %v2 = stablehlo.rng_bit_generator %k, algorithm = DEFAULT : (tensor<4xui32>) -> (tensor<4xui32>, tensor<3x9x2xi32>)
  %s3, %v3 = stablehlo.rng_bit_generator %k, algorithm = DEFAULT : (tensor<4xui32>) -> (tensor<4xui32>, tensor<11xui64>)
  return %s0, %v0, %s1, %v1, %s2, %v2, %s3, %v3 : tensor<4xui32>, tensor<7x4xui32>, tensor<4xui32>, tensor<5x3xui32>, tensor<4xui32>, tensor<3x9x2xi32>, tensor<4xui32>, tensor<11xui64>
}
