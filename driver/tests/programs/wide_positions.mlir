module @wide_positions {
  func.func public @main(%x: tensor<7x9xf32>, %y: tensor<5x6xi64>, %i: tensor<i64>, %u: tensor<2x2xi64>)
      -> (tensor<3x4xf32>, tensor<2x6xi64>, tensor<5x6xi64>, tensor<7x9xf32>) {
    %big = stablehlo.constant dense<4294967297> : tensor<i64>
    %far = stablehlo.multiply %i, %big : tensor<i64>
    %one = stablehlo.constant dense<1> : tensor<i64>
    %0 = stablehlo.dynamic_slice %x, %one, %far, sizes = [3, 4] : (tensor<7x9xf32>, tensor<i64>, tensor<i64>) -> tensor<3x4xf32>
    %z = stablehlo.constant dense<0> : tensor<i64>
    %1 = stablehlo.dynamic_slice %y, %i, %z, sizes = [2, 6] : (tensor<5x6xi64>, tensor<i64>, tensor<i64>) -> tensor<2x6xi64>
    %2 = stablehlo.dynamic_update_slice %y, %u, %far, %one : (tensor<5x6xi64>, tensor<2x2xi64>, tensor<i64>, tensor<i64>) -> tensor<5x6xi64>
    %3 = stablehlo.dynamic_update_slice %x, %0, %i, %far : (tensor<7x9xf32>, tensor<3x4xf32>, tensor<i64>, tensor<i64>) -> tensor<7x9xf32>
    return %0, %1, %2, %3 : tensor<3x4xf32>, tensor<2x6xi64>, tensor<5x6xi64>, tensor<7x9xf32>
  }
}
