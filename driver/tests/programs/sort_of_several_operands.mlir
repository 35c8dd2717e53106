func.func @main(%a0: tensor<6x200xi32>, %a1: tensor<6x200xbf16>, %a2: tensor<6x200xi1>, %a3: tensor<6x200xf32>) -> (tensor<6x200xi32>, tensor<6x200xi32>, tensor<6x200xf32>, tensor<6x200xi32>, tensor<6x200xbf16>, tensor<6x200xi1>, tensor<6x200xbf16>, tensor<6x200xi32>, tensor<6x200xi32>, tensor<6x200xbf16>, tensor<6x200xi32>, tensor<6x200xi1>, tensor<6x200xf32>, tensor<6x200xi32>, tensor<6x200xf32>, tensor<6x200xi32>, tensor<6x200xf32>) {
  %five = stablehlo.constant dense<2> : tensor<i32>
  %v1 = stablehlo.iota dim = 1 : tensor<6x200xi32>
  %v2:2 = "stablehlo.sort"(%a0, %v1) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<i32>, %q0: tensor<i32>, %p1: tensor<i32>, %q1: tensor<i32>):
    %c = stablehlo.compare GT, %p0, %q0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<6x200xi32>, tensor<6x200xi32>) -> (tensor<6x200xi32>, tensor<6x200xi32>)
  %v3:4 = "stablehlo.sort"(%a3, %a0, %a1, %a2) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>, %p1: tensor<i32>, %q1: tensor<i32>, %p2: tensor<bf16>, %q2: tensor<bf16>, %p3: tensor<i1>, %q3: tensor<i1>):
    %c = stablehlo.compare LT, %p0, %q0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<6x200xf32>, tensor<6x200xi32>, tensor<6x200xbf16>, tensor<6x200xi1>) -> (tensor<6x200xf32>, tensor<6x200xi32>, tensor<6x200xbf16>, tensor<6x200xi1>)
  %v4:3 = "stablehlo.sort"(%a1, %a0, %v1) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<bf16>, %q0: tensor<bf16>, %p1: tensor<i32>, %q1: tensor<i32>, %p2: tensor<i32>, %q2: tensor<i32>):
    %e = stablehlo.compare EQ, %p0, %q0, FLOAT : (tensor<bf16>, tensor<bf16>) -> tensor<i1>
    %l = stablehlo.compare LT, %p0, %q0, FLOAT : (tensor<bf16>, tensor<bf16>) -> tensor<i1>
    %m = stablehlo.compare GT, %p1, %q1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %n = stablehlo.and %e, %m : tensor<i1>
    %o = stablehlo.or %l, %n : tensor<i1>
    stablehlo.return %o : tensor<i1>
  }) : (tensor<6x200xbf16>, tensor<6x200xi32>, tensor<6x200xi32>) -> (tensor<6x200xbf16>, tensor<6x200xi32>, tensor<6x200xi32>)
  %v5:2 = "stablehlo.sort"(%a1, %a0) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<bf16>, %q0: tensor<bf16>, %p1: tensor<i32>, %q1: tensor<i32>):
    %e = stablehlo.compare EQ, %p0, %q0, FLOAT : (tensor<bf16>, tensor<bf16>) -> tensor<i1>
    %l = stablehlo.compare LT, %p0, %q0, FLOAT : (tensor<bf16>, tensor<bf16>) -> tensor<i1>
    %m = stablehlo.compare GT, %p1, %q1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %n = stablehlo.and %e, %m : tensor<i1>
    %o = stablehlo.or %l, %n : tensor<i1>
    stablehlo.return %o : tensor<i1>
  }) : (tensor<6x200xbf16>, tensor<6x200xi32>) -> (tensor<6x200xbf16>, tensor<6x200xi32>)
  %v6:2 = "stablehlo.sort"(%a2, %a3) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<i1>, %q0: tensor<i1>, %p1: tensor<f32>, %q1: tensor<f32>):
    %c = stablehlo.compare LT, %p0, %q0, UNSIGNED : (tensor<i1>, tensor<i1>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<6x200xi1>, tensor<6x200xf32>) -> (tensor<6x200xi1>, tensor<6x200xf32>)
  %v7:2 = "stablehlo.sort"(%a0, %a3) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<i32>, %q0: tensor<i32>, %p1: tensor<f32>, %q1: tensor<f32>):
    %s = stablehlo.subtract %p0, %five : tensor<i32>
    %t = stablehlo.subtract %q0, %five : tensor<i32>
    %s1 = stablehlo.abs %s : tensor<i32>
    %t1 = stablehlo.abs %t : tensor<i32>
    %c = stablehlo.compare GT, %t1, %s1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<6x200xi32>, tensor<6x200xf32>) -> (tensor<6x200xi32>, tensor<6x200xf32>)
  %v8:2 = "stablehlo.sort"(%a0, %a3) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<i32>, %q0: tensor<i32>, %p1: tensor<f32>, %q1: tensor<f32>):
    %c = stablehlo.constant dense<false> : tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<6x200xi32>, tensor<6x200xf32>) -> (tensor<6x200xi32>, tensor<6x200xf32>)
  return %v2#0, %v2#1, %v3#0, %v3#1, %v3#2, %v3#3, %v4#0, %v4#1, %v4#2, %v5#0, %v5#1, %v6#0, %v6#1, %v7#0, %v7#1, %v8#0, %v8#1 : tensor<6x200xi32>, tensor<6x200xi32>, tensor<6x200xf32>, tensor<6x200xi32>, tensor<6x200xbf16>, tensor<6x200xi1>, tensor<6x200xbf16>, tensor<6x200xi32>, tensor<6x200xi32>, tensor<6x200xbf16>, tensor<6x200xi32>, tensor<6x200xi1>, tensor<6x200xf32>, tensor<6x200xi32>, tensor<6x200xf32>, tensor<6x200xi32>, tensor<6x200xf32>
}
