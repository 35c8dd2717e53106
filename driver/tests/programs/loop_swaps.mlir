// Every iteration hands three values on in a circle, and an odd number of them leaves the order changed.
func.func @main(%x: tensor<40x33xf32>, %y: tensor<40x33xf32>, %z: tensor<40x33xf32>) -> (tensor<40x33xf32>, tensor<40x33xf32>, tensor<40x33xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %four = stablehlo.constant dense<4> : tensor<i32>
  %r:4 = stablehlo.while(%i = %zero, %a = %x, %b = %y, %c = %z) : tensor<i32>, tensor<40x33xf32>, tensor<40x33xf32>, tensor<40x33xf32>
  cond {
    %p = stablehlo.compare LE, %i, %four, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %i2 = stablehlo.add %i, %one : tensor<i32>
    %d = stablehlo.subtract %c, %a : tensor<40x33xf32>
    stablehlo.return %i2, %b, %d, %a : tensor<i32>, tensor<40x33xf32>, tensor<40x33xf32>, tensor<40x33xf32>
  }
  return %r#1, %r#2, %r#3 : tensor<40x33xf32>, tensor<40x33xf32>, tensor<40x33xf32>
}
