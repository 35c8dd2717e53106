// One kernel: both reductions and the quotient stay in VMEM.
module @softmax {
  func.func @main(%x: tensor<64x1000xf32>) -> tensor<64x1000xf32> {
    %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %max = stablehlo.reduce(%x init: %lowest) applies stablehlo.maximum across dimensions = [1] : (tensor<64x1000xf32>, tensor<f32>) -> tensor<64xf32>
    %maxes = stablehlo.broadcast_in_dim %max, dims = [0] : (tensor<64xf32>) -> tensor<64x1000xf32>
    %shifted = stablehlo.subtract %x, %maxes : tensor<64x1000xf32>
    %exp = stablehlo.exponential %shifted : tensor<64x1000xf32>
    %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x1000xf32>, tensor<f32>) -> tensor<64xf32>
    %sums = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<64xf32>) -> tensor<64x1000xf32>
    %y = stablehlo.divide %exp, %sums : tensor<64x1000xf32>
    return %y : tensor<64x1000xf32>
  }
}
