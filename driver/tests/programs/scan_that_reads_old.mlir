// Each iteration overwrites a row of a carried array and afterwards still wants the whole old one; and a nested loop fills a row.
func.func @main(%x: tensor<6x40xf32>) -> (tensor<6x40xf32>, tensor<40xf32>, tensor<6x40xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %start = stablehlo.constant dense<0.0> : tensor<40xf32>
  %r:4 = stablehlo.while(%i = %zero, %a = %x, %c = %start, %e = %x) : tensor<i32>, tensor<6x40xf32>, tensor<40xf32>, tensor<6x40xf32>
  cond {
    %p = stablehlo.compare LT, %i, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %s = stablehlo.dynamic_slice %a, %i, %zero, sizes = [1, 40] : (tensor<6x40xf32>, tensor<i32>, tensor<i32>) -> tensor<1x40xf32>
    %t = stablehlo.add %s, %s : tensor<1x40xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %b = stablehlo.dynamic_update_slice %a, %t, %j, %zero : (tensor<6x40xf32>, tensor<1x40xf32>, tensor<i32>, tensor<i32>) -> tensor<6x40xf32>
    %old = stablehlo.reduce(%a init: %none) applies stablehlo.add across dimensions = [0] : (tensor<6x40xf32>, tensor<f32>) -> tensor<40xf32>
    %new = stablehlo.reduce(%b init: %none) applies stablehlo.add across dimensions = [0] : (tensor<6x40xf32>, tensor<f32>) -> tensor<40xf32>
    %d = stablehlo.subtract %new, %old : tensor<40xf32>
    %c2 = stablehlo.add %c, %d : tensor<40xf32>
    %q:2 = stablehlo.while(%k = %zero, %f = %e) : tensor<i32>, tensor<6x40xf32>
    cond {
      %p = stablehlo.compare LT, %k, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %g = stablehlo.reshape %d : (tensor<40xf32>) -> tensor<1x40xf32>
      %l = stablehlo.add %k, %i : tensor<i32>
      %m = stablehlo.dynamic_update_slice %f, %g, %l, %zero : (tensor<6x40xf32>, tensor<1x40xf32>, tensor<i32>, tensor<i32>) -> tensor<6x40xf32>
      %k2 = stablehlo.add %k, %one : tensor<i32>
      stablehlo.return %k2, %m : tensor<i32>, tensor<6x40xf32>
    }
    stablehlo.return %j, %b, %c2, %q#1 : tensor<i32>, tensor<6x40xf32>, tensor<40xf32>, tensor<6x40xf32>
  }
  return %r#1, %r#2, %r#3 : tensor<6x40xf32>, tensor<40xf32>, tensor<6x40xf32>
}
