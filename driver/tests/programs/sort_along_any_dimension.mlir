func.func @main(%a0: tensor<4097xi32>, %a1: tensor<9001xf32>, %a2: tensor<5x37x3xi8>, %a3: tensor<129x4xbf16>, %a4: tensor<7x130xui16>, %a5: tensor<2x20x70xi1>, %a6: tensor<17x9xf16>, %a7: tensor<33x40xui32>) -> (tensor<4097xi32>, tensor<9001xf32>, tensor<5x37x3xi8>, tensor<129x4xbf16>, tensor<7x130xui16>, tensor<2x20x70xi1>, tensor<17x9xf16>, tensor<33x40xui32>) {
  %v1 = stablehlo.iota dim = 0 : tensor<4097xi32>
  %v2 = stablehlo.constant dense<7919> : tensor<4097xi32>
  %v3 = stablehlo.multiply %v1, %v2 : tensor<4097xi32>
  %v4 = stablehlo.constant dense<31> : tensor<4097xi32>
  %v5 = stablehlo.and %v3, %v4 : tensor<4097xi32>
  %v6 = stablehlo.convert %v5 : (tensor<4097xi32>) -> tensor<4097xi32>
  %v7 = stablehlo.add %a0, %v6 : tensor<4097xi32>
  %v8 = "stablehlo.sort"(%v7) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<i32>, %q0: tensor<i32>):
    %c = stablehlo.compare GT, %p0, %q0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<4097xi32>) -> (tensor<4097xi32>)
  %v9 = stablehlo.iota dim = 0 : tensor<9001xi32>
  %v10 = stablehlo.constant dense<7919> : tensor<9001xi32>
  %v11 = stablehlo.multiply %v9, %v10 : tensor<9001xi32>
  %v12 = stablehlo.constant dense<31> : tensor<9001xi32>
  %v13 = stablehlo.and %v11, %v12 : tensor<9001xi32>
  %v14 = stablehlo.convert %v13 : (tensor<9001xi32>) -> tensor<9001xf32>
  %v15 = stablehlo.add %a1, %v14 : tensor<9001xf32>
  %v16 = "stablehlo.sort"(%v15) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>):
    %c = stablehlo.compare LT, %p0, %q0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<9001xf32>) -> (tensor<9001xf32>)
  %v17 = stablehlo.iota dim = 1 : tensor<5x37x3xi32>
  %v18 = stablehlo.constant dense<7919> : tensor<5x37x3xi32>
  %v19 = stablehlo.multiply %v17, %v18 : tensor<5x37x3xi32>
  %v20 = stablehlo.constant dense<31> : tensor<5x37x3xi32>
  %v21 = stablehlo.and %v19, %v20 : tensor<5x37x3xi32>
  %v22 = stablehlo.convert %v21 : (tensor<5x37x3xi32>) -> tensor<5x37x3xi8>
  %v23 = stablehlo.add %a2, %v22 : tensor<5x37x3xi8>
  %v24 = "stablehlo.sort"(%v23) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<i8>, %q0: tensor<i8>):
    %c = stablehlo.compare LT, %p0, %q0, SIGNED : (tensor<i8>, tensor<i8>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<5x37x3xi8>) -> (tensor<5x37x3xi8>)
  %v25 = stablehlo.iota dim = 0 : tensor<129x4xi32>
  %v26 = stablehlo.constant dense<7919> : tensor<129x4xi32>
  %v27 = stablehlo.multiply %v25, %v26 : tensor<129x4xi32>
  %v28 = stablehlo.constant dense<31> : tensor<129x4xi32>
  %v29 = stablehlo.and %v27, %v28 : tensor<129x4xi32>
  %v30 = stablehlo.convert %v29 : (tensor<129x4xi32>) -> tensor<129x4xbf16>
  %v31 = stablehlo.add %a3, %v30 : tensor<129x4xbf16>
  %v32 = "stablehlo.sort"(%v31) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<bf16>, %q0: tensor<bf16>):
    %c = stablehlo.compare GT, %p0, %q0, TOTALORDER : (tensor<bf16>, tensor<bf16>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<129x4xbf16>) -> (tensor<129x4xbf16>)
  %v33 = stablehlo.iota dim = 0 : tensor<7x130xi32>
  %v34 = stablehlo.constant dense<7919> : tensor<7x130xi32>
  %v35 = stablehlo.multiply %v33, %v34 : tensor<7x130xi32>
  %v36 = stablehlo.constant dense<31> : tensor<7x130xi32>
  %v37 = stablehlo.and %v35, %v36 : tensor<7x130xi32>
  %v38 = stablehlo.convert %v37 : (tensor<7x130xi32>) -> tensor<7x130xui16>
  %v39 = stablehlo.add %a4, %v38 : tensor<7x130xui16>
  %v40 = "stablehlo.sort"(%v39) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<ui16>, %q0: tensor<ui16>):
    %c = stablehlo.compare LT, %p0, %q0, UNSIGNED : (tensor<ui16>, tensor<ui16>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<7x130xui16>) -> (tensor<7x130xui16>)
  %v41 = "stablehlo.sort"(%a5) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<i1>, %q0: tensor<i1>):
    %c = stablehlo.compare LT, %p0, %q0, UNSIGNED : (tensor<i1>, tensor<i1>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<2x20x70xi1>) -> (tensor<2x20x70xi1>)
  %v42 = stablehlo.iota dim = 1 : tensor<17x9xi32>
  %v43 = stablehlo.constant dense<7919> : tensor<17x9xi32>
  %v44 = stablehlo.multiply %v42, %v43 : tensor<17x9xi32>
  %v45 = stablehlo.constant dense<31> : tensor<17x9xi32>
  %v46 = stablehlo.and %v44, %v45 : tensor<17x9xi32>
  %v47 = stablehlo.convert %v46 : (tensor<17x9xi32>) -> tensor<17x9xf16>
  %v48 = stablehlo.add %a6, %v47 : tensor<17x9xf16>
  %v49 = "stablehlo.sort"(%v48) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f16>, %q0: tensor<f16>):
    %c = stablehlo.compare LT, %p0, %q0, TOTALORDER : (tensor<f16>, tensor<f16>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<17x9xf16>) -> (tensor<17x9xf16>)
  %v50 = stablehlo.iota dim = 1 : tensor<33x40xi32>
  %v51 = stablehlo.constant dense<7919> : tensor<33x40xi32>
  %v52 = stablehlo.multiply %v50, %v51 : tensor<33x40xi32>
  %v53 = stablehlo.constant dense<31> : tensor<33x40xi32>
  %v54 = stablehlo.and %v52, %v53 : tensor<33x40xi32>
  %v55 = stablehlo.convert %v54 : (tensor<33x40xi32>) -> tensor<33x40xui32>
  %v56 = stablehlo.add %a7, %v55 : tensor<33x40xui32>
  %v57 = "stablehlo.sort"(%v56) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<ui32>, %q0: tensor<ui32>):
    %c = stablehlo.compare GT, %p0, %q0, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<33x40xui32>) -> (tensor<33x40xui32>)
  return %v8, %v16, %v24, %v32, %v40, %v41, %v49, %v57 : tensor<4097xi32>, tensor<9001xf32>, tensor<5x37x3xi8>, tensor<129x4xbf16>, tensor<7x130xui16>, tensor<2x20x70xi1>, tensor<17x9xf16>, tensor<33x40xui32>
}
