func.func @main(%y: tensor<3x0xi64>) -> tensor<3x2xi64> {
  %two = stablehlo.constant dense<2> : tensor<i64>
  %0 = "stablehlo.reduce_window"(%y, %two) <{padding = dense<[[0, 0], [1, 2]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 2>}> ({
  ^bb0(%p: tensor<i64>, %q: tensor<i64>):
    %r = stablehlo.add %p, %q : tensor<i64>
    stablehlo.return %r : tensor<i64>
  }) : (tensor<3x0xi64>, tensor<i64>) -> tensor<3x2xi64>
  return %0 : tensor<3x2xi64>
}
