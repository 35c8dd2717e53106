module @wide_sorts {
  func.func public @main(%a: tensor<3x21xf32>, %b: tensor<19xi64>, %c: tensor<19xf32>) -> (tensor<3x21xf32>, tensor<3x21xi64>, tensor<19xi64>) {
    %io = stablehlo.iota dim = 1 : tensor<3x21xi64>
    %0:2 = "stablehlo.sort"(%a, %io) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>, %i: tensor<i64>, %j: tensor<i64>):
      %l = stablehlo.compare LT, %p, %q, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1>
    }) : (tensor<3x21xf32>, tensor<3x21xi64>) -> (tensor<3x21xf32>, tensor<3x21xi64>)
    %k = stablehlo.constant dense<4294967299> : tensor<19xi64>
    %x = stablehlo.multiply %b, %k : tensor<19xi64>
    %2:2 = "stablehlo.sort"(%c, %x) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>, %i: tensor<i64>, %j: tensor<i64>):
      %l = stablehlo.compare GT, %p, %q, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1>
    }) : (tensor<19xf32>, tensor<19xi64>) -> (tensor<19xf32>, tensor<19xi64>)
    return %0#0, %0#1, %2#1 : tensor<3x21xf32>, tensor<3x21xi64>, tensor<19xi64>
  }
}
