// Short branches are computed both; a case of four with numbers below and beyond them; one whose branches give the same.
func.func @main(%x: tensor<7xf32>, %n: tensor<4xi32>) -> (tensor<7xf32>, tensor<4xi64>, tensor<4xi32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<7xf32>, tensor<f32>) -> tensor<f32>
  %p = stablehlo.compare GT, %s, %zero, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %a:2 = "stablehlo.if"(%p) ({
    %b = stablehlo.add %x, %x : tensor<7xf32>
    stablehlo.return %b, %n : tensor<7xf32>, tensor<4xi32>
  }, {
    %b = stablehlo.sine %x : tensor<7xf32>
    stablehlo.return %b, %n : tensor<7xf32>, tensor<4xi32>
  }) : (tensor<i1>) -> (tensor<7xf32>, tensor<4xi32>)
  %many = stablehlo.constant dense<0> : tensor<4xi64>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %r:2 = stablehlo.while(%i = %i0, %t = %many) : tensor<i32>, tensor<4xi64>
  cond {
    %c = stablehlo.compare LE, %i, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %d = stablehlo.dynamic_slice %n, %i, sizes = [1] : (tensor<4xi32>, tensor<i32>) -> tensor<1xi32>
    %e = stablehlo.reshape %d : (tensor<1xi32>) -> tensor<i32>
    %f = "stablehlo.case"(%e) ({
      %g = stablehlo.constant dense<1> : tensor<i64>
      stablehlo.return %g : tensor<i64>
    }, {
      %g = stablehlo.convert %e : (tensor<i32>) -> tensor<i64>
      %h = stablehlo.subtract %g, %g : tensor<i64>
      %k = stablehlo.constant dense<-8589934592> : tensor<i64>
      %l = stablehlo.add %h, %k : tensor<i64>
      stablehlo.return %l : tensor<i64>
    }, {
      %g = stablehlo.constant dense<7> : tensor<i64>
      stablehlo.return %g : tensor<i64>
    }) : (tensor<i32>) -> tensor<i64>
    %g = stablehlo.reshape %f : (tensor<i64>) -> tensor<1xi64>
    %t2 = stablehlo.dynamic_update_slice %t, %g, %i : (tensor<4xi64>, tensor<1xi64>, tensor<i32>) -> tensor<4xi64>
    %i2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %i2, %t2 : tensor<i32>, tensor<4xi64>
  }
  return %a#0, %r#1, %a#1 : tensor<7xf32>, tensor<4xi64>, tensor<4xi32>
}
