func.func @main(%x: tensor<6x17xf32>, %k: tensor<19xi32>) -> (tensor<4x6xf32>, tensor<4x6xi32>, tensor<19xi32>, tensor<19xi32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %none = stablehlo.constant dense<-1> : tensor<i32>
  %i = stablehlo.iota dim = 1 : tensor<6x17xi32>
  %0:2 = "stablehlo.reduce_window"(%x, %i, %low, %none) <{window_dimensions = array<i64: 3, 4>, window_strides = array<i64: 1, 3>, window_dilations = array<i64: 1, 2>, padding = dense<[[0, 0], [2, 3]]> : tensor<2x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %c: tensor<i32>, %b: tensor<f32>, %d: tensor<i32>):
    %2 = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %3 = stablehlo.select %2, %a, %b : tensor<i1>, tensor<f32>
    %4 = stablehlo.select %2, %c, %d : tensor<i1>, tensor<i32>
    stablehlo.return %3, %4 : tensor<f32>, tensor<i32>
  }) : (tensor<6x17xf32>, tensor<6x17xi32>, tensor<f32>, tensor<i32>) -> (tensor<4x6xf32>, tensor<4x6xi32>)
  // Affine maps composed along a running window.
  %one = stablehlo.constant dense<1> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<19xi32>
  %1:2 = "stablehlo.reduce_window"(%three, %k, %one, %zero) <{window_dimensions = array<i64: 19>, padding = dense<[[18, 0]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<i32>, %c: tensor<i32>, %b: tensor<i32>, %d: tensor<i32>):
    %2 = stablehlo.multiply %a, %b : tensor<i32>
    %3 = stablehlo.multiply %b, %c : tensor<i32>
    %4 = stablehlo.add %3, %d : tensor<i32>
    stablehlo.return %2, %4 : tensor<i32>, tensor<i32>
  }) : (tensor<19xi32>, tensor<19xi32>, tensor<i32>, tensor<i32>) -> (tensor<19xi32>, tensor<19xi32>)
  return %0#0, %0#1, %1#0, %1#1 : tensor<4x6xf32>, tensor<4x6xi32>, tensor<19xi32>, tensor<19xi32>
}
