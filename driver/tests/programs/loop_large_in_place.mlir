// A value of several blocks that do not divide it is overwritten while it is read; another is read by its neighbours too.
func.func @main(%x: tensor<1003x515xf32>, %y: tensor<300x4100xf32>) -> (tensor<1003x515xf32>, tensor<300x4100xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<2> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %b = %y) : tensor<i32>, tensor<1003x515xf32>, tensor<300x4100xf32>
  cond {
    %p = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %i2 = stablehlo.add %i, %one : tensor<i32>
    %s = stablehlo.add %a, %a : tensor<1003x515xf32>
    %o = stablehlo.constant dense<1.0> : tensor<1003x515xf32>
    %t = stablehlo.subtract %s, %o : tensor<1003x515xf32>
    %v = stablehlo.reverse %b, dims = [0] : tensor<300x4100xf32>
    %u = stablehlo.add %v, %b : tensor<300x4100xf32>
    stablehlo.return %i2, %t, %u : tensor<i32>, tensor<1003x515xf32>, tensor<300x4100xf32>
  }
  return %r#1, %r#2 : tensor<1003x515xf32>, tensor<300x4100xf32>
}
