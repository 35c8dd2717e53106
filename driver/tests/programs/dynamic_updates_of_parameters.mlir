// The operand is copied, since the caller keeps it; indices are clamped.
module @dynamic_updates_of_parameters {
  func.func @main(%a: tensor<301xf32>, %b: tensor<37x259xbf16>, %c: tensor<5x19x133xi8>, %d: tensor<3x4x9x35xf32>, %e: tensor<2x3x4x5x130xi1>, %ua: tensor<100xf32>, %ub: tensor<1x259xbf16>, %uc: tensor<2x10x1xi8>, %ud: tensor<1x3x5x35xf32>, %ue: tensor<1x1x1x1x130xi1>, %i: tensor<i32>, %k: tensor<i8>, %l: tensor<ui32>, %z: tensor<0x3xbf16>) -> (tensor<301xf32>, tensor<37x259xbf16>, tensor<5x19x133xi8>, tensor<3x4x9x35xf32>, tensor<2x3x4x5x130xi1>, tensor<37x259xbf16>, tensor<37x259xbf16>, tensor<37x259xbf16>, tensor<1xf32>) {
    %0 = stablehlo.dynamic_update_slice %a, %ua, %i : (tensor<301xf32>, tensor<100xf32>, tensor<i32>) -> tensor<301xf32>
    %1 = stablehlo.dynamic_update_slice %b, %ub, %i, %i : (tensor<37x259xbf16>, tensor<1x259xbf16>, tensor<i32>, tensor<i32>) -> tensor<37x259xbf16>
    %2 = stablehlo.dynamic_update_slice %c, %uc, %k, %k, %k : (tensor<5x19x133xi8>, tensor<2x10x1xi8>, tensor<i8>, tensor<i8>, tensor<i8>) -> tensor<5x19x133xi8>
    %3 = stablehlo.dynamic_update_slice %d, %ud, %l, %l, %l, %l : (tensor<3x4x9x35xf32>, tensor<1x3x5x35xf32>, tensor<ui32>, tensor<ui32>, tensor<ui32>, tensor<ui32>) -> tensor<3x4x9x35xf32>
    %4 = stablehlo.dynamic_update_slice %e, %ue, %i, %i, %i, %i, %i : (tensor<2x3x4x5x130xi1>, tensor<1x1x1x1x130xi1>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x3x4x5x130xi1>
    %large = stablehlo.constant dense<1000000> : tensor<i32>
    %5 = stablehlo.dynamic_update_slice %b, %ub, %large, %i : (tensor<37x259xbf16>, tensor<1x259xbf16>, tensor<i32>, tensor<i32>) -> tensor<37x259xbf16>
    %6 = stablehlo.dynamic_update_slice %b, %z, %i, %i : (tensor<37x259xbf16>, tensor<0x3xbf16>, tensor<i32>, tensor<i32>) -> tensor<37x259xbf16>
    %7 = stablehlo.negate %b : tensor<37x259xbf16>
    %8 = stablehlo.dynamic_update_slice %b, %7, %i, %i : (tensor<37x259xbf16>, tensor<37x259xbf16>, tensor<i32>, tensor<i32>) -> tensor<37x259xbf16>
    %9 = stablehlo.slice %a [7:8] : (tensor<301xf32>) -> tensor<1xf32>
    %10 = stablehlo.slice %a [9:10] : (tensor<301xf32>) -> tensor<1xf32>
    %11 = stablehlo.dynamic_update_slice %9, %10, %i : (tensor<1xf32>, tensor<1xf32>, tensor<i32>) -> tensor<1xf32>
    return %0, %1, %2, %3, %4, %5, %6, %8, %11 : tensor<301xf32>, tensor<37x259xbf16>, tensor<5x19x133xi8>, tensor<3x4x9x35xf32>, tensor<2x3x4x5x130xi1>, tensor<37x259xbf16>, tensor<37x259xbf16>, tensor<37x259xbf16>, tensor<1xf32>
  }
}
