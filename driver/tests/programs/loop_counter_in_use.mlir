// A counter that steps down by 3 as a number, as an index and after the loop; one of 64 bits; and one that wraps is left alone.
func.func @main(%x: tensor<9x136xf32>, %w: tensor<136x40xf32>) -> (tensor<9x40xf32>, tensor<i32>, tensor<9x136xf32>, tensor<i64>, tensor<ui8>, tensor<3x4xi64>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %from = stablehlo.constant dense<8> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<9x40xf32>
  %wide0 = stablehlo.constant dense<2> : tensor<i64>
  %wide1 = stablehlo.constant dense<1> : tensor<i64>
  %wide5 = stablehlo.constant dense<5> : tensor<i64>
  %byte = stablehlo.constant dense<250> : tensor<ui8>
  %byte1 = stablehlo.constant dense<1> : tensor<ui8>
  %byte3 = stablehlo.constant dense<3> : tensor<ui8>
  %table = stablehlo.constant dense<0> : tensor<3x4xi64>
  %r:3 = stablehlo.while(%i = %from, %a = %none, %b = %x) : tensor<i32>, tensor<9x40xf32>, tensor<9x136xf32>
  cond {
    %p = stablehlo.compare GE, %i, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %f = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
    %g = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<9x40xf32>
    %d = stablehlo.dot_general %b, %w, contracting_dims = [1] x [0] : (tensor<9x136xf32>, tensor<136x40xf32>) -> tensor<9x40xf32>
    %e = stablehlo.add %d, %g : tensor<9x40xf32>
    %a2 = stablehlo.add %a, %e : tensor<9x40xf32>
    %row = stablehlo.dynamic_slice %b, %i, %zero, sizes = [1, 136] : (tensor<9x136xf32>, tensor<i32>, tensor<i32>) -> tensor<1x136xf32>
    %k:2 = stablehlo.while(%j = %zero, %s = %row) : tensor<i32>, tensor<1x136xf32>
    cond {
      %p = stablehlo.compare LT, %j, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j2 = stablehlo.add %j, %one : tensor<i32>
      %ij = stablehlo.add %i, %j : tensor<i32>
      %h = stablehlo.convert %ij : (tensor<i32>) -> tensor<f32>
      %m = stablehlo.broadcast_in_dim %h, dims = [] : (tensor<f32>) -> tensor<1x136xf32>
      %n = stablehlo.add %s, %m : tensor<1x136xf32>
      stablehlo.return %j2, %n : tensor<i32>, tensor<1x136xf32>
    }
    %b2 = stablehlo.dynamic_update_slice %b, %k#1, %i, %zero : (tensor<9x136xf32>, tensor<1x136xf32>, tensor<i32>, tensor<i32>) -> tensor<9x136xf32>
    %i2 = stablehlo.subtract %i, %three : tensor<i32>
    stablehlo.return %i2, %a2, %b2 : tensor<i32>, tensor<9x40xf32>, tensor<9x136xf32>
  }
  %q:2 = stablehlo.while(%i = %wide0, %t = %table) : tensor<i64>, tensor<3x4xi64>
  cond {
    %p = stablehlo.compare LT, %i, %wide5, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %u = stablehlo.subtract %i, %wide0 : tensor<i64>
    %v = stablehlo.broadcast_in_dim %i, dims = [] : (tensor<i64>) -> tensor<1x4xi64>
    %c0 = stablehlo.constant dense<0> : tensor<i64>
    %t2 = stablehlo.dynamic_update_slice %t, %v, %u, %c0 : (tensor<3x4xi64>, tensor<1x4xi64>, tensor<i64>, tensor<i64>) -> tensor<3x4xi64>
    %i2 = stablehlo.add %wide1, %i : tensor<i64>
    stablehlo.return %i2, %t2 : tensor<i64>, tensor<3x4xi64>
  }
  %o = stablehlo.while(%i = %byte) : tensor<ui8>
  cond {
    %p = stablehlo.compare NE, %i, %byte3, UNSIGNED : (tensor<ui8>, tensor<ui8>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %i2 = stablehlo.add %i, %byte1 : tensor<ui8>
    stablehlo.return %i2 : tensor<ui8>
  }
  return %r#1, %r#0, %r#2, %q#0, %o, %q#1 : tensor<9x40xf32>, tensor<i32>, tensor<9x136xf32>, tensor<i64>, tensor<ui8>, tensor<3x4xi64>
}
