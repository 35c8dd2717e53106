module @wide_windows {
  func.func public @main(%a: tensor<3x21xi64>, %b: tensor<4x19xf64>) -> (tensor<3x21xi64>, tensor<3x10xi64>, tensor<4x19xf64>, tensor<4x5xf64>) {
    %z = stablehlo.constant dense<0> : tensor<i64>
    %k = stablehlo.constant dense<4294967299> : tensor<3x21xi64>
    %x = stablehlo.multiply %a, %k : tensor<3x21xi64>
    %0 = "stablehlo.reduce_window"(%x, %z) <{padding = dense<[[0, 0], [20, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 21>}> ({
    ^bb0(%p: tensor<i64>, %q: tensor<i64>):
      %s = stablehlo.add %p, %q : tensor<i64>
      stablehlo.return %s : tensor<i64>
    }) : (tensor<3x21xi64>, tensor<i64>) -> tensor<3x21xi64>
    %min = stablehlo.constant dense<-5> : tensor<i64>
    %1 = "stablehlo.reduce_window"(%x, %min) <{window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 2>}> ({
    ^bb0(%p: tensor<i64>, %q: tensor<i64>):
      %s = stablehlo.maximum %p, %q : tensor<i64>
      stablehlo.return %s : tensor<i64>
    }) : (tensor<3x21xi64>, tensor<i64>) -> tensor<3x10xi64>
    %fz = stablehlo.constant dense<0.0> : tensor<f64>
    %2 = "stablehlo.reduce_window"(%b, %fz) <{padding = dense<[[0, 0], [0, 18]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 19>}> ({
    ^bb0(%p: tensor<f64>, %q: tensor<f64>):
      %s = stablehlo.add %p, %q : tensor<f64>
      stablehlo.return %s : tensor<f64>
    }) : (tensor<4x19xf64>, tensor<f64>) -> tensor<4x19xf64>
    %3 = "stablehlo.reduce_window"(%b, %fz) <{window_dimensions = array<i64: 1, 11>, window_strides = array<i64: 1, 2>}> ({
    ^bb0(%p: tensor<f64>, %q: tensor<f64>):
      %s = stablehlo.add %p, %q : tensor<f64>
      stablehlo.return %s : tensor<f64>
    }) : (tensor<4x19xf64>, tensor<f64>) -> tensor<4x5xf64>
    return %0, %1, %2, %3 : tensor<3x21xi64>, tensor<3x10xi64>, tensor<4x19xf64>, tensor<4x5xf64>
  }
}
