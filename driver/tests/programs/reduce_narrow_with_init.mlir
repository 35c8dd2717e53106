func.func @main(%x: tensor<2x5x77xf8E5M2>, %init: tensor<f8E5M2>, %y: tensor<5x300xbf16>, %initb: tensor<bf16>) -> (tensor<2x5xf8E5M2>, tensor<5xbf16>) {
  %a = stablehlo.reduce(%x init: %init) applies stablehlo.add across dimensions = [2] : (tensor<2x5x77xf8E5M2>, tensor<f8E5M2>) -> tensor<2x5xf8E5M2>
  %b = stablehlo.reduce(%y init: %initb) applies stablehlo.add across dimensions = [1] : (tensor<5x300xbf16>, tensor<bf16>) -> tensor<5xbf16>
  return %a, %b : tensor<2x5xf8E5M2>, tensor<5xbf16>
}
