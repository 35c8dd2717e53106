// No iteration: the results are what the loop starts with. One iteration of another, and a value nobody wants.
func.func @main(%x: tensor<5xf32>) -> (tensor<5xf32>, tensor<i32>, tensor<5xf32>, tensor<5xi32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %many = stablehlo.constant dense<[1, 2, 3, 4, 5]> : tensor<5xi32>
  %r:2 = stablehlo.while(%a = %x, %i = %one) : tensor<5xf32>, tensor<i32>
  cond {
    %p = stablehlo.compare LT, %i, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %i2 = stablehlo.add %i, %one : tensor<i32>
    %b = stablehlo.add %a, %a : tensor<5xf32>
    stablehlo.return %b, %i2 : tensor<5xf32>, tensor<i32>
  }
  %s:5 = stablehlo.while(%a = %r#0, %i = %zero, %unused = %x, %k = %many, %none = %many) : tensor<5xf32>, tensor<i32>, tensor<5xf32>, tensor<5xi32>, tensor<5xi32>
  cond {
    %p = stablehlo.compare NE, %one, %i, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %table = stablehlo.constant dense<[7, 6, 5, 4, 3]> : tensor<5xi32>
    %i2 = stablehlo.add %i, %one : tensor<i32>
    %b = stablehlo.add %a, %a : tensor<5xf32>
    %u = stablehlo.multiply %unused, %a : tensor<5xf32>
    %k2 = stablehlo.add %k, %table : tensor<5xi32>
    stablehlo.return %b, %i2, %u, %k2, %table : tensor<5xf32>, tensor<i32>, tensor<5xf32>, tensor<5xi32>, tensor<5xi32>
  }
  %t = stablehlo.add %s#3, %s#4 : tensor<5xi32>
  return %r#0, %r#1, %s#0, %t : tensor<5xf32>, tensor<i32>, tensor<5xf32>, tensor<5xi32>
}
