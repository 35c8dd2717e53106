// A reduction over rows: columns stay in lanes, blocks of rows accumulate.
module @column_sum {
  func.func @main(%x: tensor<3000x256xf32>) -> tensor<256xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<3000x256xf32>, tensor<f32>) -> tensor<256xf32>
    return %0 : tensor<256xf32>
  }
}
