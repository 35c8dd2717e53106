// within 1e-6
func.func @main(%x: tensor<3x40xf32>, %l: tensor<4xi64>) -> (tensor<3x40xf32>, tensor<4xi64>, tensor<5xf32>, tensor<3x40xf32>, tensor<3x6xf32>, tensor<3x6xi32>) {
  %0 = stablehlo.custom_call @Sharding(%x) : (tensor<3x40xf32>) -> tensor<3x40xf32>
  %1 = stablehlo.custom_call @annotate_device_placement(%l) : (tensor<4xi64>) -> tensor<4xi64>
  %2 = stablehlo.custom_call @AllocateBuffer() : () -> tensor<5xf32>
  %3 = stablehlo.custom_call @mhlo.erf(%x) {mhlo.attributes = {}, mhlo.version = 1 : i64} : (tensor<3x40xf32>) -> tensor<3x40xf32>
  %4:2 = stablehlo.custom_call @mhlo.topk(%x) {mhlo.attributes = {k = 6 : i64, largest = false}, mhlo.version = 1 : i64} : (tensor<3x40xf32>) -> (tensor<3x6xf32>, tensor<3x6xi32>)
  return %0, %1, %2, %3, %4#0, %4#1 : tensor<3x40xf32>, tensor<4xi64>, tensor<5xf32>, tensor<3x40xf32>, tensor<3x6xf32>, tensor<3x6xi32>
}
