// within 1e-6
func.func @main(%x: tensor<3x13x37xf32>, %b: tensor<5x29xbf16>, %i: tensor<4x21xi32>) -> (tensor<3x7x19xf32>, tensor<3x13x37xf32>, tensor<3x13x37xf32>, tensor<5x29xbf16>, tensor<2x17xi32>, tensor<3x4x37xf32>, tensor<3x6x24xf32>, tensor<5x29xbf16>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %bzero = stablehlo.constant dense<0.0> : tensor<bf16>
  %bhigh = stablehlo.constant dense<0x7F80> : tensor<bf16>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = "stablehlo.reduce_window"(%x, %low) <{padding = dense<[[0, 0], [1, 1], [1, 1]]> : tensor<3x2xi64>, window_dimensions = array<i64: 1, 3, 3>, window_strides = array<i64: 1, 2, 2>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %r = stablehlo.maximum %p, %q : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }) : (tensor<3x13x37xf32>, tensor<f32>) -> tensor<3x7x19xf32>
  %1 = "stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[0, 0], [0, 0], [36, 0]]> : tensor<3x2xi64>, window_dimensions = array<i64: 1, 1, 37>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %r = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }) : (tensor<3x13x37xf32>, tensor<f32>) -> tensor<3x13x37xf32>
  %2 = "stablehlo.reduce_window"(%x, %low) <{padding = dense<[[0, 0], [0, 12], [0, 0]]> : tensor<3x2xi64>, window_dimensions = array<i64: 1, 13, 1>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %r = stablehlo.maximum %p, %q : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }) : (tensor<3x13x37xf32>, tensor<f32>) -> tensor<3x13x37xf32>
  %3 = "stablehlo.reduce_window"(%b, %bzero) <{padding = dense<[[0, 0], [5, 5]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 11>}> ({
  ^bb0(%p: tensor<bf16>, %q: tensor<bf16>):
    %r = stablehlo.add %p, %q : tensor<bf16>
    stablehlo.return %r : tensor<bf16>
  }) : (tensor<5x29xbf16>, tensor<bf16>) -> tensor<5x29xbf16>
  %4 = "stablehlo.reduce_window"(%i, %one) <{padding = dense<[[0, 0], [1, 2]]> : tensor<2x2xi64>, window_dimensions = array<i64: 2, 4>, window_strides = array<i64: 2, 1>, window_dilations = array<i64: 1, 2>, base_dilations = array<i64: 1, 1>}> ({
  ^bb0(%p: tensor<i32>, %q: tensor<i32>):
    %r = stablehlo.multiply %p, %q : tensor<i32>
    stablehlo.return %r : tensor<i32>
  }) : (tensor<4x21xi32>, tensor<i32>) -> tensor<2x18xi32>
  %cut = stablehlo.slice %4 [0:2, 1:18] : (tensor<2x18xi32>) -> tensor<2x17xi32>
  %5 = "stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[0, 0], [-2, -3], [0, 0]]> : tensor<3x2xi64>, window_dimensions = array<i64: 1, 2, 1>, window_strides = array<i64: 1, 2, 1>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %r = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }) : (tensor<3x13x37xf32>, tensor<f32>) -> tensor<3x4x37xf32>
  %6 = "stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[0, 0], [0, 0], [2, -3]]> : tensor<3x2xi64>, window_dimensions = array<i64: 1, 3, 5>, window_strides = array<i64: 1, 2, 3>, base_dilations = array<i64: 1, 1, 2>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %r = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }) : (tensor<3x13x37xf32>, tensor<f32>) -> tensor<3x6x23xf32>
  %wider = stablehlo.pad %6, %zero, low = [0, 0, 0], high = [0, 0, 1], interior = [0, 0, 0] : (tensor<3x6x23xf32>, tensor<f32>) -> tensor<3x6x24xf32>
  %7 = "stablehlo.reduce_window"(%b, %bhigh) <{padding = dense<[[4, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 5, 1>}> ({
  ^bb0(%p: tensor<bf16>, %q: tensor<bf16>):
    %r = stablehlo.minimum %p, %q : tensor<bf16>
    stablehlo.return %r : tensor<bf16>
  }) : (tensor<5x29xbf16>, tensor<bf16>) -> tensor<5x29xbf16>
  return %0, %1, %2, %3, %cut, %5, %wider, %7 : tensor<3x7x19xf32>, tensor<3x13x37xf32>, tensor<3x13x37xf32>, tensor<5x29xbf16>, tensor<2x17xi32>, tensor<3x4x37xf32>, tensor<3x6x24xf32>, tensor<5x29xbf16>
}
