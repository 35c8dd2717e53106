func.func @main(%a0: tensor<3x77xf32>, %a1: tensor<3x77xi64>, %a2: tensor<3x77xui64>, %a3: tensor<3x77xf64>) -> (tensor<3x77xf32>, tensor<3x77xi64>, tensor<3x77xf32>, tensor<3x77xi64>, tensor<3x77xi64>, tensor<3x77xf32>, tensor<3x77xui64>, tensor<3x77xf64>, tensor<3x77xi64>) {
  %v1 = stablehlo.iota dim = 1 : tensor<3x77xi32>
  %v2 = stablehlo.constant dense<7919> : tensor<3x77xi32>
  %v3 = stablehlo.multiply %v1, %v2 : tensor<3x77xi32>
  %v4 = stablehlo.constant dense<31> : tensor<3x77xi32>
  %v5 = stablehlo.and %v3, %v4 : tensor<3x77xi32>
  %v6 = stablehlo.convert %v5 : (tensor<3x77xi32>) -> tensor<3x77xf32>
  %v7 = stablehlo.add %a0, %v6 : tensor<3x77xf32>
  %v8 = stablehlo.iota dim = 1 : tensor<3x77xi64>
  %v9:2 = "stablehlo.sort"(%v7, %v8) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>, %p1: tensor<i64>, %q1: tensor<i64>):
    %c = stablehlo.compare GT, %p0, %q0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<3x77xf32>, tensor<3x77xi64>) -> (tensor<3x77xf32>, tensor<3x77xi64>)
  %v10:2 = "stablehlo.sort"(%v7, %a1) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>, %p1: tensor<i64>, %q1: tensor<i64>):
    %c = stablehlo.compare LT, %p0, %q0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<3x77xf32>, tensor<3x77xi64>) -> (tensor<3x77xf32>, tensor<3x77xi64>)
  %v11:2 = "stablehlo.sort"(%a1, %v7) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<i64>, %q0: tensor<i64>, %p1: tensor<f32>, %q1: tensor<f32>):
    %c = stablehlo.compare LT, %p0, %q0, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<3x77xi64>, tensor<3x77xf32>) -> (tensor<3x77xi64>, tensor<3x77xf32>)
  %v12 = "stablehlo.sort"(%a2) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<ui64>, %q0: tensor<ui64>):
    %c = stablehlo.compare GT, %p0, %q0, UNSIGNED : (tensor<ui64>, tensor<ui64>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<3x77xui64>) -> (tensor<3x77xui64>)
  %v13:2 = "stablehlo.sort"(%a3, %v8) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f64>, %q0: tensor<f64>, %p1: tensor<i64>, %q1: tensor<i64>):
    %c = stablehlo.compare LT, %p0, %q0, FLOAT : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<3x77xf64>, tensor<3x77xi64>) -> (tensor<3x77xf64>, tensor<3x77xi64>)
  return %v9#0, %v9#1, %v10#0, %v10#1, %v11#0, %v11#1, %v12, %v13#0, %v13#1 : tensor<3x77xf32>, tensor<3x77xi64>, tensor<3x77xf32>, tensor<3x77xi64>, tensor<3x77xi64>, tensor<3x77xf32>, tensor<3x77xui64>, tensor<3x77xf64>, tensor<3x77xi64>
}
