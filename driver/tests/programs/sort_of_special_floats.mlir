func.func @main(%a0: tensor<5x300xf32>) -> (tensor<5x300xi32>, tensor<5x300xi32>, tensor<5x300xi32>, tensor<5x300xi32>, tensor<5x300xi32>) {
  %v1 = stablehlo.constant dense<2.0> : tensor<5x300xf32>
  %v2 = stablehlo.compare EQ, %a0, %v1 : (tensor<5x300xf32>, tensor<5x300xf32>) -> tensor<5x300xi1>
  %v3 = stablehlo.constant dense<0x7FC00001> : tensor<5x300xf32>
  %v4 = stablehlo.select %v2, %v3, %a0 : tensor<5x300xi1>, tensor<5x300xf32>
  %v5 = stablehlo.constant dense<-2.0> : tensor<5x300xf32>
  %v6 = stablehlo.compare EQ, %a0, %v5 : (tensor<5x300xf32>, tensor<5x300xf32>) -> tensor<5x300xi1>
  %v7 = stablehlo.constant dense<0xFFC00000> : tensor<5x300xf32>
  %v8 = stablehlo.select %v6, %v7, %v4 : tensor<5x300xi1>, tensor<5x300xf32>
  %v9 = stablehlo.constant dense<1.0> : tensor<5x300xf32>
  %v10 = stablehlo.compare EQ, %a0, %v9 : (tensor<5x300xf32>, tensor<5x300xf32>) -> tensor<5x300xi1>
  %v11 = stablehlo.constant dense<-0.0> : tensor<5x300xf32>
  %v12 = stablehlo.select %v10, %v11, %v8 : tensor<5x300xi1>, tensor<5x300xf32>
  %v13 = stablehlo.constant dense<3.0> : tensor<5x300xf32>
  %v14 = stablehlo.compare EQ, %a0, %v13 : (tensor<5x300xf32>, tensor<5x300xf32>) -> tensor<5x300xi1>
  %v15 = stablehlo.constant dense<0x7F800000> : tensor<5x300xf32>
  %v16 = stablehlo.select %v14, %v15, %v12 : tensor<5x300xi1>, tensor<5x300xf32>
  %v17 = "stablehlo.sort"(%v16) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>):
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %nan = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %p1 = stablehlo.compare EQ, %p0, %z, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %p2 = stablehlo.select %p1, %z, %p0 : tensor<i1>, tensor<f32>
    %p3 = stablehlo.compare NE, %p0, %p0, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %p4 = stablehlo.select %p3, %nan, %p2 : tensor<i1>, tensor<f32>
    %q1 = stablehlo.compare EQ, %q0, %z, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %q2 = stablehlo.select %q1, %z, %q0 : tensor<i1>, tensor<f32>
    %q3 = stablehlo.compare NE, %q0, %q0, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %q4 = stablehlo.select %q3, %nan, %q2 : tensor<i1>, tensor<f32>
    %c = stablehlo.compare LT, %p4, %q4, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<5x300xf32>) -> (tensor<5x300xf32>)
  %v18 = stablehlo.iota dim = 1 : tensor<5x300xi32>
  %v19:2 = "stablehlo.sort"(%v16, %v18) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>, %p1: tensor<i32>, %q1: tensor<i32>):
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %nan = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %pp = stablehlo.compare EQ, %p0, %z, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %p2 = stablehlo.select %pp, %z, %p0 : tensor<i1>, tensor<f32>
    %p3 = stablehlo.compare NE, %p0, %p0, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %p4 = stablehlo.select %p3, %nan, %p2 : tensor<i1>, tensor<f32>
    %qq = stablehlo.compare EQ, %q0, %z, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %q2 = stablehlo.select %qq, %z, %q0 : tensor<i1>, tensor<f32>
    %q3 = stablehlo.compare NE, %q0, %q0, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %q4 = stablehlo.select %q3, %nan, %q2 : tensor<i1>, tensor<f32>
    %c = stablehlo.compare LT, %p4, %q4, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<5x300xf32>, tensor<5x300xi32>) -> (tensor<5x300xf32>, tensor<5x300xi32>)
  %v20:2 = "stablehlo.sort"(%v16, %v18) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>, %p1: tensor<i32>, %q1: tensor<i32>):
    %c = stablehlo.compare GT, %p0, %q0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<5x300xf32>, tensor<5x300xi32>) -> (tensor<5x300xf32>, tensor<5x300xi32>)
  %v21 = stablehlo.bitcast_convert %v17 : (tensor<5x300xf32>) -> tensor<5x300xi32>
  %v22 = stablehlo.bitcast_convert %v19#0 : (tensor<5x300xf32>) -> tensor<5x300xi32>
  %v23 = stablehlo.bitcast_convert %v20#0 : (tensor<5x300xf32>) -> tensor<5x300xi32>
  return %v21, %v22, %v19#1, %v23, %v20#1 : tensor<5x300xi32>, tensor<5x300xi32>, tensor<5x300xi32>, tensor<5x300xi32>, tensor<5x300xi32>
}
