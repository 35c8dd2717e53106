// Weights that every iteration passes on are neither copied nor stored again; the value multiplied by them is read whole by each block.
func.func @main(%x: tensor<24x136xf32>, %w: tensor<136x136xf32>) -> (tensor<24x136xf32>, tensor<136x136xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<3> : tensor<i32>
  %r:4 = stablehlo.while(%a = %x, %v = %w, %i = %zero, %limit = %n) : tensor<24x136xf32>, tensor<136x136xf32>, tensor<i32>, tensor<i32>
  cond {
    %p = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %d = stablehlo.dot_general %a, %v, contracting_dims = [1] x [0] : (tensor<24x136xf32>, tensor<136x136xf32>) -> tensor<24x136xf32>
    %t = stablehlo.constant dense<3.0> : tensor<24x136xf32>
    %u = stablehlo.negate %t : tensor<24x136xf32>
    %e = stablehlo.clamp %u, %d, %t : tensor<24x136xf32>
    %i2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %e, %v, %i2, %limit : tensor<24x136xf32>, tensor<136x136xf32>, tensor<i32>, tensor<i32>
  }
  return %r#0, %r#1 : tensor<24x136xf32>, tensor<136x136xf32>
}
