func.func @main(%a0: tensor<12x333xf32>, %a1: tensor<2x5000xbf16>, %a2: tensor<1x9000xi32>, %a3: tensor<6xf32>, %a4: tensor<4x16xi8>, %a5: tensor<3x5xf32>, %a6: tensor<200x64xf32>, %a7: tensor<130x300xui8>, %a8: tensor<8x128xi32>) -> (tensor<12x5xf32>, tensor<12x5xi32>, tensor<2x40xbf16>, tensor<2x40xi32>, tensor<1x9xi32>, tensor<1x9xi32>, tensor<6xf32>, tensor<6xi32>, tensor<4x1xi8>, tensor<4x1xi32>, tensor<3x0xf32>, tensor<3x0xi32>, tensor<200x2xf32>, tensor<200x2xi32>, tensor<130x20xui8>, tensor<130x20xi32>, tensor<8x8xi32>, tensor<8x8xi32>) {
  %v1 = stablehlo.iota dim = 1 : tensor<12x333xi32>
  %v2 = stablehlo.constant dense<7919> : tensor<12x333xi32>
  %v3 = stablehlo.multiply %v1, %v2 : tensor<12x333xi32>
  %v4 = stablehlo.constant dense<31> : tensor<12x333xi32>
  %v5 = stablehlo.and %v3, %v4 : tensor<12x333xi32>
  %v6 = stablehlo.convert %v5 : (tensor<12x333xi32>) -> tensor<12x333xf32>
  %v7 = stablehlo.add %a0, %v6 : tensor<12x333xf32>
  %v8:2 = chlo.top_k(%v7, k = 5) : tensor<12x333xf32> -> (tensor<12x5xf32>, tensor<12x5xi32>)
  %v9 = stablehlo.iota dim = 1 : tensor<2x5000xi32>
  %v10 = stablehlo.constant dense<7919> : tensor<2x5000xi32>
  %v11 = stablehlo.multiply %v9, %v10 : tensor<2x5000xi32>
  %v12 = stablehlo.constant dense<31> : tensor<2x5000xi32>
  %v13 = stablehlo.and %v11, %v12 : tensor<2x5000xi32>
  %v14 = stablehlo.convert %v13 : (tensor<2x5000xi32>) -> tensor<2x5000xbf16>
  %v15 = stablehlo.add %a1, %v14 : tensor<2x5000xbf16>
  %v16:2 = chlo.top_k(%v15, k = 40) : tensor<2x5000xbf16> -> (tensor<2x40xbf16>, tensor<2x40xi32>)
  %v17 = stablehlo.iota dim = 1 : tensor<1x9000xi32>
  %v18 = stablehlo.constant dense<7919> : tensor<1x9000xi32>
  %v19 = stablehlo.multiply %v17, %v18 : tensor<1x9000xi32>
  %v20 = stablehlo.constant dense<31> : tensor<1x9000xi32>
  %v21 = stablehlo.and %v19, %v20 : tensor<1x9000xi32>
  %v22 = stablehlo.convert %v21 : (tensor<1x9000xi32>) -> tensor<1x9000xi32>
  %v23 = stablehlo.add %a2, %v22 : tensor<1x9000xi32>
  %v24:2 = chlo.top_k(%v23, k = 9) : tensor<1x9000xi32> -> (tensor<1x9xi32>, tensor<1x9xi32>)
  %v25 = stablehlo.iota dim = 0 : tensor<6xi32>
  %v26 = stablehlo.constant dense<7919> : tensor<6xi32>
  %v27 = stablehlo.multiply %v25, %v26 : tensor<6xi32>
  %v28 = stablehlo.constant dense<31> : tensor<6xi32>
  %v29 = stablehlo.and %v27, %v28 : tensor<6xi32>
  %v30 = stablehlo.convert %v29 : (tensor<6xi32>) -> tensor<6xf32>
  %v31 = stablehlo.add %a3, %v30 : tensor<6xf32>
  %v32:2 = chlo.top_k(%v31, k = 6) : tensor<6xf32> -> (tensor<6xf32>, tensor<6xi32>)
  %v33 = stablehlo.iota dim = 1 : tensor<4x16xi32>
  %v34 = stablehlo.constant dense<7919> : tensor<4x16xi32>
  %v35 = stablehlo.multiply %v33, %v34 : tensor<4x16xi32>
  %v36 = stablehlo.constant dense<31> : tensor<4x16xi32>
  %v37 = stablehlo.and %v35, %v36 : tensor<4x16xi32>
  %v38 = stablehlo.convert %v37 : (tensor<4x16xi32>) -> tensor<4x16xi8>
  %v39 = stablehlo.add %a4, %v38 : tensor<4x16xi8>
  %v40:2 = chlo.top_k(%v39, k = 1) : tensor<4x16xi8> -> (tensor<4x1xi8>, tensor<4x1xi32>)
  %v41 = stablehlo.iota dim = 1 : tensor<3x5xi32>
  %v42 = stablehlo.constant dense<7919> : tensor<3x5xi32>
  %v43 = stablehlo.multiply %v41, %v42 : tensor<3x5xi32>
  %v44 = stablehlo.constant dense<31> : tensor<3x5xi32>
  %v45 = stablehlo.and %v43, %v44 : tensor<3x5xi32>
  %v46 = stablehlo.convert %v45 : (tensor<3x5xi32>) -> tensor<3x5xf32>
  %v47 = stablehlo.add %a5, %v46 : tensor<3x5xf32>
  %v48:2 = chlo.top_k(%v47, k = 0) : tensor<3x5xf32> -> (tensor<3x0xf32>, tensor<3x0xi32>)
  %v49 = stablehlo.iota dim = 1 : tensor<200x64xi32>
  %v50 = stablehlo.constant dense<7919> : tensor<200x64xi32>
  %v51 = stablehlo.multiply %v49, %v50 : tensor<200x64xi32>
  %v52 = stablehlo.constant dense<31> : tensor<200x64xi32>
  %v53 = stablehlo.and %v51, %v52 : tensor<200x64xi32>
  %v54 = stablehlo.convert %v53 : (tensor<200x64xi32>) -> tensor<200x64xf32>
  %v55 = stablehlo.add %a6, %v54 : tensor<200x64xf32>
  %v56:2 = chlo.top_k(%v55, k = 2) : tensor<200x64xf32> -> (tensor<200x2xf32>, tensor<200x2xi32>)
  %v57 = stablehlo.iota dim = 1 : tensor<130x300xi32>
  %v58 = stablehlo.constant dense<7919> : tensor<130x300xi32>
  %v59 = stablehlo.multiply %v57, %v58 : tensor<130x300xi32>
  %v60 = stablehlo.constant dense<31> : tensor<130x300xi32>
  %v61 = stablehlo.and %v59, %v60 : tensor<130x300xi32>
  %v62 = stablehlo.convert %v61 : (tensor<130x300xi32>) -> tensor<130x300xui8>
  %v63 = stablehlo.add %a7, %v62 : tensor<130x300xui8>
  %v64:2 = chlo.top_k(%v63, k = 20) : tensor<130x300xui8> -> (tensor<130x20xui8>, tensor<130x20xi32>)
  %v65 = stablehlo.iota dim = 1 : tensor<8x128xi32>
  %v66 = stablehlo.constant dense<7919> : tensor<8x128xi32>
  %v67 = stablehlo.multiply %v65, %v66 : tensor<8x128xi32>
  %v68 = stablehlo.constant dense<31> : tensor<8x128xi32>
  %v69 = stablehlo.and %v67, %v68 : tensor<8x128xi32>
  %v70 = stablehlo.convert %v69 : (tensor<8x128xi32>) -> tensor<8x128xi32>
  %v71 = stablehlo.add %a8, %v70 : tensor<8x128xi32>
  %v72:2 = chlo.top_k(%v71, k = 8) : tensor<8x128xi32> -> (tensor<8x8xi32>, tensor<8x8xi32>)
  return %v8#0, %v8#1, %v16#0, %v16#1, %v24#0, %v24#1, %v32#0, %v32#1, %v40#0, %v40#1, %v48#0, %v48#1, %v56#0, %v56#1, %v64#0, %v64#1, %v72#0, %v72#1 : tensor<12x5xf32>, tensor<12x5xi32>, tensor<2x40xbf16>, tensor<2x40xi32>, tensor<1x9xi32>, tensor<1x9xi32>, tensor<6xf32>, tensor<6xi32>, tensor<4x1xi8>, tensor<4x1xi32>, tensor<3x0xf32>, tensor<3x0xi32>, tensor<200x2xf32>, tensor<200x2xi32>, tensor<130x20xui8>, tensor<130x20xi32>, tensor<8x8xi32>, tensor<8x8xi32>
}
