// Greatest common divisors of a number of pairs: a condition of integers that changes a lot, 64-bit numbers, and large branches inside.
func.func @main(%x: tensor<40x300xf32>) -> (tensor<i32>, tensor<i64>, tensor<40x300xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %a0 = stablehlo.constant dense<84> : tensor<i32>
  %b0 = stablehlo.constant dense<36> : tensor<i32>
  %wide = stablehlo.constant dense<5000000000> : tensor<i64>
  %end = stablehlo.constant dense<70000000000> : tensor<i64>
  %r:2 = stablehlo.while(%a = %a0, %b = %b0) : tensor<i32>, tensor<i32>
  cond {
    %p = stablehlo.compare NE, %b, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %m = stablehlo.remainder %a, %b : tensor<i32>
    stablehlo.return %b, %m : tensor<i32>, tensor<i32>
  }
  %s:3 = stablehlo.while(%w = %wide, %y = %x, %f = %r#0) : tensor<i64>, tensor<40x300xf32>, tensor<i32>
  cond {
    %p = stablehlo.compare LT, %w, %end, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %q = stablehlo.compare GT, %f, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c = stablehlo.and %p, %q : tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %w2 = stablehlo.add %w, %w : tensor<i64>
    %three = stablehlo.constant dense<3> : tensor<i32>
    %f2 = stablehlo.subtract %f, %three : tensor<i32>
    %c6 = stablehlo.constant dense<6> : tensor<i32>
    %p = stablehlo.compare GT, %f, %c6, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %y2 = "stablehlo.if"(%p) ({
      %z = stablehlo.add %y, %x : tensor<40x300xf32>
      stablehlo.return %z : tensor<40x300xf32>
    }, {
      %z = stablehlo.subtract %x, %y : tensor<40x300xf32>
      stablehlo.return %z : tensor<40x300xf32>
    }) : (tensor<i1>) -> tensor<40x300xf32>
    stablehlo.return %w2, %y2, %f2 : tensor<i64>, tensor<40x300xf32>, tensor<i32>
  }
  return %r#0, %s#0, %s#1 : tensor<i32>, tensor<i64>, tensor<40x300xf32>
}
