func.func @main(%a0: tensor<3x0xf32>, %a1: tensor<3x1xf32>, %a2: tensor<3x2xf32>, %a3: tensor<3x3xf32>, %a4: tensor<3x127xf32>, %a5: tensor<3x128xf32>, %a6: tensor<3x129xf32>, %a7: tensor<3x1000xf32>) -> (tensor<3x0xf32>, tensor<3x1xf32>, tensor<3x2xf32>, tensor<3x3xf32>, tensor<3x127xf32>, tensor<3x128xf32>, tensor<3x129xf32>, tensor<3x1000xf32>) {
  %v1 = stablehlo.iota dim = 1 : tensor<3x0xi32>
  %v2 = stablehlo.constant dense<7919> : tensor<3x0xi32>
  %v3 = stablehlo.multiply %v1, %v2 : tensor<3x0xi32>
  %v4 = stablehlo.constant dense<31> : tensor<3x0xi32>
  %v5 = stablehlo.and %v3, %v4 : tensor<3x0xi32>
  %v6 = stablehlo.convert %v5 : (tensor<3x0xi32>) -> tensor<3x0xf32>
  %v7 = stablehlo.add %a0, %v6 : tensor<3x0xf32>
  %v8 = "stablehlo.sort"(%v7) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>):
    %c = stablehlo.compare LT, %p0, %q0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<3x0xf32>) -> (tensor<3x0xf32>)
  %v9 = stablehlo.iota dim = 1 : tensor<3x1xi32>
  %v10 = stablehlo.constant dense<7919> : tensor<3x1xi32>
  %v11 = stablehlo.multiply %v9, %v10 : tensor<3x1xi32>
  %v12 = stablehlo.constant dense<31> : tensor<3x1xi32>
  %v13 = stablehlo.and %v11, %v12 : tensor<3x1xi32>
  %v14 = stablehlo.convert %v13 : (tensor<3x1xi32>) -> tensor<3x1xf32>
  %v15 = stablehlo.add %a1, %v14 : tensor<3x1xf32>
  %v16 = "stablehlo.sort"(%v15) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>):
    %c = stablehlo.compare LT, %p0, %q0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<3x1xf32>) -> (tensor<3x1xf32>)
  %v17 = stablehlo.iota dim = 1 : tensor<3x2xi32>
  %v18 = stablehlo.constant dense<7919> : tensor<3x2xi32>
  %v19 = stablehlo.multiply %v17, %v18 : tensor<3x2xi32>
  %v20 = stablehlo.constant dense<31> : tensor<3x2xi32>
  %v21 = stablehlo.and %v19, %v20 : tensor<3x2xi32>
  %v22 = stablehlo.convert %v21 : (tensor<3x2xi32>) -> tensor<3x2xf32>
  %v23 = stablehlo.add %a2, %v22 : tensor<3x2xf32>
  %v24 = "stablehlo.sort"(%v23) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>):
    %c = stablehlo.compare LT, %p0, %q0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<3x2xf32>) -> (tensor<3x2xf32>)
  %v25 = stablehlo.iota dim = 1 : tensor<3x3xi32>
  %v26 = stablehlo.constant dense<7919> : tensor<3x3xi32>
  %v27 = stablehlo.multiply %v25, %v26 : tensor<3x3xi32>
  %v28 = stablehlo.constant dense<31> : tensor<3x3xi32>
  %v29 = stablehlo.and %v27, %v28 : tensor<3x3xi32>
  %v30 = stablehlo.convert %v29 : (tensor<3x3xi32>) -> tensor<3x3xf32>
  %v31 = stablehlo.add %a3, %v30 : tensor<3x3xf32>
  %v32 = "stablehlo.sort"(%v31) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>):
    %c = stablehlo.compare LT, %p0, %q0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<3x3xf32>) -> (tensor<3x3xf32>)
  %v33 = stablehlo.iota dim = 1 : tensor<3x127xi32>
  %v34 = stablehlo.constant dense<7919> : tensor<3x127xi32>
  %v35 = stablehlo.multiply %v33, %v34 : tensor<3x127xi32>
  %v36 = stablehlo.constant dense<31> : tensor<3x127xi32>
  %v37 = stablehlo.and %v35, %v36 : tensor<3x127xi32>
  %v38 = stablehlo.convert %v37 : (tensor<3x127xi32>) -> tensor<3x127xf32>
  %v39 = stablehlo.add %a4, %v38 : tensor<3x127xf32>
  %v40 = "stablehlo.sort"(%v39) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>):
    %c = stablehlo.compare LT, %p0, %q0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<3x127xf32>) -> (tensor<3x127xf32>)
  %v41 = stablehlo.iota dim = 1 : tensor<3x128xi32>
  %v42 = stablehlo.constant dense<7919> : tensor<3x128xi32>
  %v43 = stablehlo.multiply %v41, %v42 : tensor<3x128xi32>
  %v44 = stablehlo.constant dense<31> : tensor<3x128xi32>
  %v45 = stablehlo.and %v43, %v44 : tensor<3x128xi32>
  %v46 = stablehlo.convert %v45 : (tensor<3x128xi32>) -> tensor<3x128xf32>
  %v47 = stablehlo.add %a5, %v46 : tensor<3x128xf32>
  %v48 = "stablehlo.sort"(%v47) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>):
    %c = stablehlo.compare LT, %p0, %q0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<3x128xf32>) -> (tensor<3x128xf32>)
  %v49 = stablehlo.iota dim = 1 : tensor<3x129xi32>
  %v50 = stablehlo.constant dense<7919> : tensor<3x129xi32>
  %v51 = stablehlo.multiply %v49, %v50 : tensor<3x129xi32>
  %v52 = stablehlo.constant dense<31> : tensor<3x129xi32>
  %v53 = stablehlo.and %v51, %v52 : tensor<3x129xi32>
  %v54 = stablehlo.convert %v53 : (tensor<3x129xi32>) -> tensor<3x129xf32>
  %v55 = stablehlo.add %a6, %v54 : tensor<3x129xf32>
  %v56 = "stablehlo.sort"(%v55) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>):
    %c = stablehlo.compare LT, %p0, %q0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<3x129xf32>) -> (tensor<3x129xf32>)
  %v57 = stablehlo.iota dim = 1 : tensor<3x1000xi32>
  %v58 = stablehlo.constant dense<7919> : tensor<3x1000xi32>
  %v59 = stablehlo.multiply %v57, %v58 : tensor<3x1000xi32>
  %v60 = stablehlo.constant dense<31> : tensor<3x1000xi32>
  %v61 = stablehlo.and %v59, %v60 : tensor<3x1000xi32>
  %v62 = stablehlo.convert %v61 : (tensor<3x1000xi32>) -> tensor<3x1000xf32>
  %v63 = stablehlo.add %a7, %v62 : tensor<3x1000xf32>
  %v64 = "stablehlo.sort"(%v63) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p0: tensor<f32>, %q0: tensor<f32>):
    %c = stablehlo.compare LT, %p0, %q0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<3x1000xf32>) -> (tensor<3x1000xf32>)
  return %v8, %v16, %v24, %v32, %v40, %v48, %v56, %v64 : tensor<3x0xf32>, tensor<3x1xf32>, tensor<3x2xf32>, tensor<3x3xf32>, tensor<3x127xf32>, tensor<3x128xf32>, tensor<3x129xf32>, tensor<3x1000xf32>
}
