func.func @main(%x: tensor<5x13xi8>, %y: tensor<5x129xi8>, %u: tensor<5xbf16>, %v: tensor<7xbf16>) -> (tensor<5x13x129xi32>, tensor<5x7xf32>) {
  %a = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [] x [] : (tensor<5x13xi8>, tensor<5x129xi8>) -> tensor<5x13x129xi32>
  %b = stablehlo.dot_general %u, %v, contracting_dims = [] x [] : (tensor<5xbf16>, tensor<7xbf16>) -> tensor<5x7xf32>
  return %a, %b : tensor<5x13x129xi32>, tensor<5x7xf32>
}
