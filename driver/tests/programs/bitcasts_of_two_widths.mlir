func.func @main(%x: tensor<4xf32>) -> tensor<4x2xi16> {
  %b = stablehlo.bitcast_convert %x : (tensor<4xf32>) -> tensor<4x2xi16>
  return %b : tensor<4x2xi16>
}
