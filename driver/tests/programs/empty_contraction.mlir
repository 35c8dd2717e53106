func.func @main(%x: tensor<0x4xf32>, %y: tensor<3x0xf32>, %z: tensor<4x0xbf16>) -> (tensor<3x4xf32>, tensor<4xbf16>, tensor<0xf32>) {
  %zero = stablehlo.constant dense<2.0> : tensor<bf16>
  %zerof = stablehlo.constant dense<0.0> : tensor<f32>
  %d = stablehlo.dot_general %y, %x, contracting_dims = [1] x [0] : (tensor<3x0xf32>, tensor<0x4xf32>) -> tensor<3x4xf32>
  %r = stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x0xbf16>, tensor<bf16>) -> tensor<4xbf16>
  %s = stablehlo.reduce(%x init: %zerof) applies stablehlo.add across dimensions = [1] : (tensor<0x4xf32>, tensor<f32>) -> tensor<0xf32>
  return %d, %r, %s : tensor<3x4xf32>, tensor<4xbf16>, tensor<0xf32>
}
