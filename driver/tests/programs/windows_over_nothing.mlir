func.func @main(%x: tensor<0x5xf32>, %y: tensor<3x0xf32>) -> (tensor<0x5xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xi32>) {
  %zero = stablehlo.constant dense<1.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %none = stablehlo.constant dense<0> : tensor<i32>
  %0 = "stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[0, 0], [4, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 5>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %r = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }) : (tensor<0x5xf32>, tensor<f32>) -> tensor<0x5xf32>
  %1 = "stablehlo.reduce_window"(%y, %zero) <{padding = dense<[[0, 0], [1, 2]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 2>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %r = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }) : (tensor<3x0xf32>, tensor<f32>) -> tensor<3x2xf32>
  %e = stablehlo.slice %x [0:0, 0:2] : (tensor<0x5xf32>) -> tensor<0x2xf32>
  %i = stablehlo.iota dim = 0 : tensor<0x2xi32>
  %2:2 = stablehlo.reduce(%e init: %low), (%i init: %none) across dimensions = [0] : (tensor<0x2xf32>, tensor<0x2xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
   reducer(%a: tensor<f32>, %b: tensor<f32>) (%c: tensor<i32>, %d: tensor<i32>)  {
    %3 = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %4 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %5 = stablehlo.or %3, %4 : tensor<i1>
    %6 = stablehlo.compare EQ, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %7 = stablehlo.compare LT, %c, %d, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %8 = stablehlo.and %6, %7 : tensor<i1>
    %9 = stablehlo.or %5, %8 : tensor<i1>
    %10 = stablehlo.select %5, %a, %b : tensor<i1>, tensor<f32>
    %11 = stablehlo.select %9, %c, %d : tensor<i1>, tensor<i32>
    stablehlo.return %10, %11 : tensor<f32>, tensor<i32>
  }
  return %0, %1, %2#0, %2#1 : tensor<0x5xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xi32>
}
