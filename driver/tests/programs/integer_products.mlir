// Products of integers that no MXU multiplies, with and without batch and several contracted dimensions.
module {
  func.func @main(%a: tensor<5x7xi16>, %b: tensor<7x3xi32>, %c: tensor<2x4x3x2xi32>, %d: tensor<2x2x5x3xi32>, %e: tensor<4xui16>, %g: tensor<6xi8>) -> (tensor<5x3xi32>, tensor<2x4x5xi32>, tensor<4x4xui16>, tensor<i8>) {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<5x7xi16>, tensor<7x3xi32>) -> tensor<5x3xi32>
    %1 = stablehlo.dot_general %c, %d, batching_dims = [0] x [0], contracting_dims = [2, 3] x [3, 1] : (tensor<2x4x3x2xi32>, tensor<2x2x5x3xi32>) -> tensor<2x4x5xi32>
    %2 = stablehlo.dot_general %e, %e, contracting_dims = [] x [] : (tensor<4xui16>, tensor<4xui16>) -> tensor<4x4xui16>
    %3 = stablehlo.dot_general %g, %g, contracting_dims = [0] x [0] : (tensor<6xi8>, tensor<6xi8>) -> tensor<i8>
    return %0, %1, %2, %3 : tensor<5x3xi32>, tensor<2x4x5xi32>, tensor<4x4xui16>, tensor<i8>
  }
}
