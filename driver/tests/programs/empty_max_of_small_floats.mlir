func.func @main(%x: tensor<0x2xf8E4M3B11FNUZ>, %y: tensor<5x2xf8E4M3B11FNUZ>, %init: tensor<f8E4M3B11FNUZ>) -> (tensor<2xf8E4M3B11FNUZ>, tensor<2xf8E4M3B11FNUZ>) {
  %a = stablehlo.reduce(%x init: %init) applies stablehlo.maximum across dimensions = [0] : (tensor<0x2xf8E4M3B11FNUZ>, tensor<f8E4M3B11FNUZ>) -> tensor<2xf8E4M3B11FNUZ>
  %b = stablehlo.reduce(%y init: %init) applies stablehlo.maximum across dimensions = [0] : (tensor<5x2xf8E4M3B11FNUZ>, tensor<f8E4M3B11FNUZ>) -> tensor<2xf8E4M3B11FNUZ>
  return %a, %b : tensor<2xf8E4M3B11FNUZ>, tensor<2xf8E4M3B11FNUZ>
}
