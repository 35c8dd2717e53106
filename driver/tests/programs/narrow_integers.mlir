// Integers of two and four bits, one to a byte in memory: they wrap to their width.
module {
  func.func @main(%a: tensor<5x7xi4>, %b: tensor<5x7xui4>, %c: tensor<33xi2>, %d: tensor<33xui2>) -> (tensor<5x7xi4>, tensor<5x7xui4>, tensor<33xi2>, tensor<33xui2>, tensor<7xi4>, tensor<5x7xf32>, tensor<7x5xui4>) {
    %0 = stablehlo.multiply %a, %a : tensor<5x7xi4>
    %b7 = stablehlo.multiply %b, %b : tensor<5x7xui4>
    %1 = stablehlo.subtract %b, %b7 : tensor<5x7xui4>
    %2 = stablehlo.add %c, %c : tensor<33xi2>
    %3 = stablehlo.add %d, %d : tensor<33xui2>
    %z = stablehlo.constant dense<0> : tensor<i4>
    %4 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0] : (tensor<5x7xi4>, tensor<i4>) -> tensor<7xi4>
    %5 = stablehlo.convert %0 : (tensor<5x7xi4>) -> tensor<5x7xf32>
    %6 = stablehlo.transpose %b, dims = [1, 0] : (tensor<5x7xui4>) -> tensor<7x5xui4>
    return %0, %1, %2, %3, %4, %5, %6 : tensor<5x7xi4>, tensor<5x7xui4>, tensor<33xi2>, tensor<33xui2>, tensor<7xi4>, tensor<5x7xf32>, tensor<7x5xui4>
  }
}
