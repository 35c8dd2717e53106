// A scan over a stack of inputs that fills two stacks of results: one row of each in every iteration, in place; one of them backwards,
// and one of them read where an earlier iteration wrote it.
func.func @main(%xs: tensor<7x5x130xf32>, %h: tensor<5x130xf32>) -> (tensor<5x130xf32>, tensor<7x5x130xf32>, tensor<7x130xf32>, tensor<7x4xi32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %six = stablehlo.constant dense<6> : tensor<i32>
  %seven = stablehlo.constant dense<7> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %ys = stablehlo.broadcast_in_dim %none, dims = [] : (tensor<f32>) -> tensor<7x5x130xf32>
  %zs = stablehlo.broadcast_in_dim %none, dims = [] : (tensor<f32>) -> tensor<7x130xf32>
  %ks = stablehlo.constant dense<3> : tensor<7x4xi32>
  %r:6 = stablehlo.while(%x = %xs, %i = %zero, %a = %h, %y = %ys, %z = %zs, %k = %ks) : tensor<7x5x130xf32>, tensor<i32>, tensor<5x130xf32>, tensor<7x5x130xf32>, tensor<7x130xf32>, tensor<7x4xi32>
  cond {
    %p = stablehlo.compare LT, %i, %seven, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %s = stablehlo.dynamic_slice %x, %i, %zero, %zero, sizes = [1, 5, 130] : (tensor<7x5x130xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x5x130xf32>
    %t = stablehlo.reshape %s : (tensor<1x5x130xf32>) -> tensor<5x130xf32>
    %b = stablehlo.add %a, %t : tensor<5x130xf32>
    %u = stablehlo.reshape %b : (tensor<5x130xf32>) -> tensor<1x5x130xf32>
    %y2 = stablehlo.dynamic_update_slice %y, %u, %i, %zero, %zero : (tensor<7x5x130xf32>, tensor<1x5x130xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<7x5x130xf32>
    %back = stablehlo.subtract %six, %i : tensor<i32>
    %m = stablehlo.reduce(%b init: %none) applies stablehlo.add across dimensions = [0] : (tensor<5x130xf32>, tensor<f32>) -> tensor<130xf32>
    %n = stablehlo.reshape %m : (tensor<130xf32>) -> tensor<1x130xf32>
    %z2 = stablehlo.dynamic_update_slice %z, %n, %back, %zero : (tensor<7x130xf32>, tensor<1x130xf32>, tensor<i32>, tensor<i32>) -> tensor<7x130xf32>
    %before = stablehlo.subtract %i, %one : tensor<i32>
    %o = stablehlo.dynamic_slice %k, %before, %zero, sizes = [1, 4] : (tensor<7x4xi32>, tensor<i32>, tensor<i32>) -> tensor<1x4xi32>
    %q = stablehlo.broadcast_in_dim %i, dims = [] : (tensor<i32>) -> tensor<1x4xi32>
    %v = stablehlo.add %o, %q : tensor<1x4xi32>
    %k2 = stablehlo.dynamic_update_slice %k, %v, %i, %zero : (tensor<7x4xi32>, tensor<1x4xi32>, tensor<i32>, tensor<i32>) -> tensor<7x4xi32>
    %i2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %x, %i2, %b, %y2, %z2, %k2 : tensor<7x5x130xf32>, tensor<i32>, tensor<5x130xf32>, tensor<7x5x130xf32>, tensor<7x130xf32>, tensor<7x4xi32>
  }
  return %r#2, %r#3, %r#4, %r#5 : tensor<5x130xf32>, tensor<7x5x130xf32>, tensor<7x130xf32>, tensor<7x4xi32>
}
