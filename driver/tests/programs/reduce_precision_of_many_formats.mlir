func.func @main(%x: tensor<500xf32>) -> (tensor<500xf32>, tensor<500xf32>, tensor<500xf32>, tensor<500xbf16>) {
  %i = stablehlo.iota dim = 0 : tensor<500xf32>
  %c = stablehlo.constant dense<1.0927> : tensor<500xf32>
  %p = stablehlo.constant dense<1048576.0> : tensor<500xf32>
  %m = stablehlo.multiply %i, %c : tensor<500xf32>
  %y = stablehlo.multiply %x, %m : tensor<500xf32>
  %z = stablehlo.multiply %y, %p : tensor<500xf32>
  %0 = stablehlo.reduce_precision %y, format = e5m10 : tensor<500xf32>
  %1 = stablehlo.reduce_precision %z, format = e5m2 : tensor<500xf32>
  %2 = stablehlo.reduce_precision %y, format = e3m0 : tensor<500xf32>
  %b = stablehlo.convert %y : (tensor<500xf32>) -> tensor<500xbf16>
  %3 = stablehlo.reduce_precision %b, format = e4m3 : tensor<500xbf16>
  return %0, %1, %2, %3 : tensor<500xf32>, tensor<500xf32>, tensor<500xf32>, tensor<500xbf16>
}
