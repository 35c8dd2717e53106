func.func @main(%x: tensor<5x13xi8>, %y: tensor<16x7x13x4xi8>, %p: tensor<5x16x7x4xi1>) -> tensor<5x16x7x4xi32> {
  %a = stablehlo.dot_general %x, %y, contracting_dims = [1] x [2] : (tensor<5x13xi8>, tensor<16x7x13x4xi8>) -> tensor<5x16x7x4xi32>
  %b = stablehlo.negate %a : tensor<5x16x7x4xi32>
  %r = stablehlo.select %p, %a, %b : tensor<5x16x7x4xi1>, tensor<5x16x7x4xi32>
  return %r : tensor<5x16x7x4xi32>
}
