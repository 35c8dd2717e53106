// A branch by the number of the iteration, from below the first to beyond the last; and two results from one branch.
func.func @main(%x: tensor<3x50xf32>) -> (tensor<3x50xf32>, tensor<3x50xf32>) {
  %first = stablehlo.constant dense<-1> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<4> : tensor<i32>
  %r:3 = stablehlo.while(%i = %first, %a = %x, %b = %x) : tensor<i32>, tensor<3x50xf32>, tensor<3x50xf32>
  cond {
    %p = stablehlo.compare LT, %i, %last, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %c:2 = "stablehlo.case"(%i) ({
      %d = stablehlo.add %a, %x : tensor<3x50xf32>
      stablehlo.return %d, %a : tensor<3x50xf32>, tensor<3x50xf32>
    }, {
      %d = stablehlo.subtract %b, %a : tensor<3x50xf32>
      stablehlo.return %d, %b : tensor<3x50xf32>, tensor<3x50xf32>
    }, {
      stablehlo.return %b, %a : tensor<3x50xf32>, tensor<3x50xf32>
    }) : (tensor<i32>) -> (tensor<3x50xf32>, tensor<3x50xf32>)
    %i2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %i2, %c#0, %c#1 : tensor<i32>, tensor<3x50xf32>, tensor<3x50xf32>
  }
  return %r#1, %r#2 : tensor<3x50xf32>, tensor<3x50xf32>
}
