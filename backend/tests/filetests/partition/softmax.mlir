// Softmax and argmax over a dimension that is cut: maxima, sums and pairs of (value, index) are combined, not the logits gathered.
module @softmax {
  sdy.mesh @mesh = <["tp"=4]>
  func.func public @main(%x: tensor<4x256xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"tp"}]>}) -> (tensor<4x256xf32>, tensor<4xi32>) {
    %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %first = stablehlo.constant dense<0> : tensor<i32>
    %max = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [1] : (tensor<4x256xf32>, tensor<f32>) -> tensor<4xf32>
    %m = stablehlo.broadcast_in_dim %max, dims = [0] : (tensor<4xf32>) -> tensor<4x256xf32>
    %shifted = stablehlo.subtract %x, %m : tensor<4x256xf32>
    %e = stablehlo.exponential %shifted : tensor<4x256xf32>
    %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x256xf32>, tensor<f32>) -> tensor<4xf32>
    %s = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<4xf32>) -> tensor<4x256xf32>
    %y = stablehlo.divide %e, %s : tensor<4x256xf32>
    %i = stablehlo.iota dim = 1 : tensor<4x256xi32>
    %arg:2 = "stablehlo.reduce"(%x, %i, %least, %first) <{dimensions = array<i64: 1>}> ({
    ^bb0(%a: tensor<f32>, %ai: tensor<i32>, %b: tensor<f32>, %bi: tensor<i32>):
      %more = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %v = stablehlo.select %more, %a, %b : tensor<i1>, tensor<f32>
      %vi = stablehlo.select %more, %ai, %bi : tensor<i1>, tensor<i32>
      stablehlo.return %v, %vi : tensor<f32>, tensor<i32>
    }) : (tensor<4x256xf32>, tensor<4x256xi32>, tensor<f32>, tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>)
    return %y, %arg#1 : tensor<4x256xf32>, tensor<4xi32>
  }
}
