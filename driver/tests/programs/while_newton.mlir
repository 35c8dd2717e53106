// within 1e-6
// Newton's iteration for square roots, until no element moves: how often is decided by data.
func.func @main(%x: tensor<17x130xf32>) -> (tensor<17x130xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %most = stablehlo.constant dense<30> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %four = stablehlo.constant dense<4.0> : tensor<17x130xf32>
  %half = stablehlo.constant dense<0.5> : tensor<17x130xf32>
  %start = stablehlo.constant dense<1.0> : tensor<17x130xf32>
  %far = stablehlo.constant dense<1.0> : tensor<f32>
  %close = stablehlo.constant dense<1.0e-4> : tensor<f32>
  %v = stablehlo.add %x, %four : tensor<17x130xf32>
  %r:3 = stablehlo.while(%i = %zero, %a = %start, %d = %far) : tensor<i32>, tensor<17x130xf32>, tensor<f32>
  cond {
    %p = stablehlo.compare GT, %d, %close, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %q = stablehlo.compare LT, %i, %most, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c = stablehlo.and %p, %q : tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %i2 = stablehlo.add %i, %one : tensor<i32>
    %t = stablehlo.divide %v, %a : tensor<17x130xf32>
    %u = stablehlo.add %t, %a : tensor<17x130xf32>
    %b = stablehlo.multiply %u, %half : tensor<17x130xf32>
    %e = stablehlo.subtract %b, %a : tensor<17x130xf32>
    %f = stablehlo.abs %e : tensor<17x130xf32>
    %d2 = stablehlo.reduce(%f init: %none) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<17x130xf32>, tensor<f32>) -> tensor<f32>
    stablehlo.return %i2, %b, %d2 : tensor<i32>, tensor<17x130xf32>, tensor<f32>
  }
  return %r#1, %r#0 : tensor<17x130xf32>, tensor<i32>
}
