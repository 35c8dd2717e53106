// Steps until 1, for a number that changes in an outer loop: the inner loop ends after another number of steps each time.
func.func @main() -> (tensor<i32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %r:3 = stablehlo.while(%i = %two, %steps = %zero, %last = %one) : tensor<i32>, tensor<i32>, tensor<i32>
  cond {
    %p = stablehlo.compare LE, %i, %five, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %s:2 = stablehlo.while(%n = %i, %k = %steps) : tensor<i32>, tensor<i32>
    cond {
      %p = stablehlo.compare NE, %n, %one, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %m = stablehlo.remainder %n, %two : tensor<i32>
      %odd = stablehlo.compare EQ, %m, %one, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %n2 = "stablehlo.if"(%odd) ({
        %a = stablehlo.multiply %n, %three : tensor<i32>
        %b = stablehlo.add %a, %one : tensor<i32>
        stablehlo.return %b : tensor<i32>
      }, {
        %a = stablehlo.divide %n, %two : tensor<i32>
        stablehlo.return %a : tensor<i32>
      }) : (tensor<i1>) -> tensor<i32>
      %k2 = stablehlo.add %k, %one : tensor<i32>
      stablehlo.return %n2, %k2 : tensor<i32>, tensor<i32>
    }
    %i2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %i2, %s#1, %s#0 : tensor<i32>, tensor<i32>, tensor<i32>
  }
  return %r#1, %r#2 : tensor<i32>, tensor<i32>
}
