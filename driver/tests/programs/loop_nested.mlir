// Loops of three and two iterations: the inner one starts from the outer counter and works on the outer value.
func.func @main(%x: tensor<9x200xf32>, %y: tensor<9x200xf32>) -> (tensor<9x200xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %n = %zero) : tensor<i32>, tensor<9x200xf32>, tensor<i32>
  cond {
    %c = stablehlo.compare LT, %i, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s:3 = stablehlo.while(%j = %two, %b = %a, %m = %n) : tensor<i32>, tensor<9x200xf32>, tensor<i32>
    cond {
      %c = stablehlo.compare GT, %j, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %b2 = stablehlo.add %b, %y : tensor<9x200xf32>
      %f = stablehlo.convert %j : (tensor<i32>) -> tensor<f32>
      %fb = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<9x200xf32>
      %b3 = stablehlo.subtract %b2, %fb : tensor<9x200xf32>
      %m2 = stablehlo.add %m, %i : tensor<i32>
      %j2 = stablehlo.subtract %j, %one : tensor<i32>
      stablehlo.return %j2, %b3, %m2 : tensor<i32>, tensor<9x200xf32>, tensor<i32>
    }
    %i2 = stablehlo.add %one, %i : tensor<i32>
    stablehlo.return %i2, %s#1, %s#2 : tensor<i32>, tensor<9x200xf32>, tensor<i32>
  }
  return %r#1, %r#2 : tensor<9x200xf32>, tensor<i32>
}
