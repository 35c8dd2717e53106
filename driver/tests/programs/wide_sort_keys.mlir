module @wide_keys {
  func.func public @main(%b: tensor<19xi64>, %u: tensor<2x9xui64>, %v: tensor<2x9xf32>) -> (tensor<19xi64>, tensor<19xi64>, tensor<2x9xui64>, tensor<2x9xf32>) {
    %io = stablehlo.iota dim = 0 : tensor<19xi64>
    %k = stablehlo.constant dense<4294967299> : tensor<19xi64>
    %x = stablehlo.multiply %b, %k : tensor<19xi64>
    %1:2 = "stablehlo.sort"(%x, %io) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%p: tensor<i64>, %q: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):
      %l = stablehlo.compare LT, %p, %q, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %l : tensor<i1>
    }) : (tensor<19xi64>, tensor<19xi64>) -> (tensor<19xi64>, tensor<19xi64>)
    %n = stablehlo.not %u : tensor<2x9xui64>
    %2:2 = "stablehlo.sort"(%n, %v) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%p: tensor<ui64>, %q: tensor<ui64>, %i: tensor<f32>, %j: tensor<f32>):
      %l = stablehlo.compare LT, %q, %p, UNSIGNED : (tensor<ui64>, tensor<ui64>) -> tensor<i1>
      stablehlo.return %l : tensor<i1>
    }) : (tensor<2x9xui64>, tensor<2x9xf32>) -> (tensor<2x9xui64>, tensor<2x9xf32>)
    return %1#0, %1#1, %2#0, %2#1 : tensor<19xi64>, tensor<19xi64>, tensor<2x9xui64>, tensor<2x9xf32>
  }
}
