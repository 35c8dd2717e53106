func.func @main(%x: tensor<4x17x129xf32>, %y: tensor<129x4x17xf32>, %a: tensor<9x33001xbf16>, %b: tensor<33001x130xbf16>) -> (tensor<f32>, tensor<9x130xf32>) {
  %r = stablehlo.dot_general %x, %y, contracting_dims = [0, 1, 2] x [1, 2, 0] : (tensor<4x17x129xf32>, tensor<129x4x17xf32>) -> tensor<f32>
  %s = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<9x33001xbf16>, tensor<33001x130xbf16>) -> tensor<9x130xf32>
  return %r, %s : tensor<f32>, tensor<9x130xf32>
}
