// Windows that overlap, with padding, leave gaps, cover everything; ties; selections by greater, less and swapped.
module @max_pool_gradients {
  func.func @main(%a: tensor<2x13x9x3xf32>, %s: tensor<2x7x5x3xf32>, %b: tensor<11x8xbf16>, %t: tensor<4x3xbf16>, %c: tensor<7x5xf32>, %u: tensor<1x1xf32>, %d: tensor<9xi32>, %v: tensor<8xi32>)
      -> (tensor<2x13x9x3xf32>, tensor<11x8xbf16>, tensor<7x5xf32>, tensor<9xi32>) {
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = "stablehlo.select_and_scatter"(%a, %s, %z) <{padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>, window_dimensions = array<i64: 1, 3, 3, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %r = stablehlo.compare GE, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %r : tensor<i1>
    }, {
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %r = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %r : tensor<f32>
    }) : (tensor<2x13x9x3xf32>, tensor<2x7x5x3xf32>, tensor<f32>) -> tensor<2x13x9x3xf32>
    %y = stablehlo.constant dense<1.0> : tensor<bf16>
    %1 = "stablehlo.select_and_scatter"(%b, %t, %y) <{window_dimensions = array<i64: 2, 4>, window_strides = array<i64: 3, 2>}> ({
    ^bb0(%p: tensor<bf16>, %q: tensor<bf16>):
      %r = stablehlo.compare GT, %q, %p, FLOAT : (tensor<bf16>, tensor<bf16>) -> tensor<i1>
      stablehlo.return %r : tensor<i1>
    }, {
    ^bb0(%p: tensor<bf16>, %q: tensor<bf16>):
      %r = stablehlo.multiply %p, %q : tensor<bf16>
      stablehlo.return %r : tensor<bf16>
    }) : (tensor<11x8xbf16>, tensor<4x3xbf16>, tensor<bf16>) -> tensor<11x8xbf16>
    %2 = "stablehlo.select_and_scatter"(%c, %u, %z) <{window_dimensions = array<i64: 7, 5>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %r = stablehlo.compare LT, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %r : tensor<i1>
    }, {
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %r = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %r : tensor<f32>
    }) : (tensor<7x5xf32>, tensor<1x1xf32>, tensor<f32>) -> tensor<7x5xf32>
    %x = stablehlo.constant dense<-5> : tensor<i32>
    %3 = "stablehlo.select_and_scatter"(%d, %v, %x) <{padding = dense<[[-2, 4]]> : tensor<1x2xi64>, window_dimensions = array<i64: 4>, window_strides = array<i64: 1>}> ({
    ^bb0(%p: tensor<i32>, %q: tensor<i32>):
      %r = stablehlo.compare GE, %p, %q, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %r : tensor<i1>
    }, {
    ^bb0(%p: tensor<i32>, %q: tensor<i32>):
      %r = stablehlo.maximum %p, %q : tensor<i32>
      stablehlo.return %r : tensor<i32>
    }) : (tensor<9xi32>, tensor<8xi32>, tensor<i32>) -> tensor<9xi32>
    return %0, %1, %2, %3 : tensor<2x13x9x3xf32>, tensor<11x8xbf16>, tensor<7x5xf32>, tensor<9xi32>
  }
}
