func.func @main(%k: tensor<3xui64>) -> (tensor<3xui64>, tensor<7x4xui32>, tensor<3xui64>, tensor<5x3xui32>, tensor<3xui64>, tensor<3x9x2xi32>, tensor<3xui64>, tensor<11xui64>, tensor<3xui64>, tensor<6x5xui8>, tensor<3xui64>, tensor<130xi16>, tensor<3xui64>, tensor<ui32>, tensor<3xui64>, tensor<33xf32>, tensor<3xui64>, tensor<0x4xui32>) {
  %s0, %v0 = stablehlo.rng_bit_generator %k, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<7x4xui32>)
  %s1, %v1 = stablehlo.rng_bit_generator %k, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<5x3xui32>)
  %s2, %v2 = stablehlo.rng_bit_generator %k, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<3x9x2xi32>)
  %s3, %v3 = stablehlo.rng_bit_generator %k, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<11xui64>)
  %s4, %v4 = stablehlo.rng_bit_generator %k, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<6x5xui8>)
  %s5, %v5 = stablehlo.rng_bit_generator %k, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<130xi16>)
  %s6, %v6 = stablehlo.rng_bit_generator %k, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<ui32>)
  %s7, %v7 = stablehlo.rng_bit_generator %k, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<33xf32>)
  %s8, %v8 = stablehlo.rng_bit_generator %k, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<0x4xui32>)
  return %s0, %v0, %s1, %v1, %s2, %v2, %s3, %v3, %s4, %v4, %s5, %v5, %s6, %v6, %s7, %v7, %s8, %v8 : tensor<3xui64>, tensor<7x4xui32>, tensor<3xui64>, tensor<5x3xui32>, tensor<3xui64>, tensor<3x9x2xi32>, tensor<3xui64>, tensor<11xui64>, tensor<3xui64>, tensor<6x5xui8>, tensor<3xui64>, tensor<130xi16>, tensor<3xui64>, tensor<ui32>, tensor<3xui64>, tensor<33xf32>, tensor<3xui64>, tensor<0x4xui32>
}
