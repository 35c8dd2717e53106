// Indices are clamped to where the part fits; those of parameters lie between -3 and 3, so negative ones occur.
module @dynamic_slices_of_many_ranks {
  func.func @main(%a: tensor<301xf32>, %b: tensor<37x259xbf16>, %c: tensor<5x19x133xi8>, %d: tensor<3x4x9x35xf32>, %e: tensor<2x3x4x5x130xi32>, %i: tensor<i32>, %j: tensor<7xi32>, %k: tensor<i8>, %l: tensor<ui32>, %m: tensor<i16>, %n: tensor<ui8>) -> (tensor<100xf32>, tensor<20x200xbf16>, tensor<2x10x133xi8>, tensor<1x3x5x35xf32>, tensor<1x2x3x4x100xi32>, tensor<5x1xbf16>, tensor<1xf32>, tensor<20x259xbf16>, tensor<0x3xbf16>) {
    %0 = stablehlo.dynamic_slice %a, %i, sizes = [100] : (tensor<301xf32>, tensor<i32>) -> tensor<100xf32>
    %j0 = stablehlo.slice %j [3:4] : (tensor<7xi32>) -> tensor<1xi32>
    %j1 = stablehlo.reshape %j0 : (tensor<1xi32>) -> tensor<i32>
    %1 = stablehlo.dynamic_slice %b, %i, %j1, sizes = [20, 200] : (tensor<37x259xbf16>, tensor<i32>, tensor<i32>) -> tensor<20x200xbf16>
    %2 = stablehlo.dynamic_slice %c, %k, %k, %k, sizes = [2, 10, 133] : (tensor<5x19x133xi8>, tensor<i8>, tensor<i8>, tensor<i8>) -> tensor<2x10x133xi8>
    %3 = stablehlo.dynamic_slice %d, %l, %l, %l, %l, sizes = [1, 3, 5, 35] : (tensor<3x4x9x35xf32>, tensor<ui32>, tensor<ui32>, tensor<ui32>, tensor<ui32>) -> tensor<1x3x5x35xf32>
    %4 = stablehlo.dynamic_slice %e, %m, %m, %m, %m, %m, sizes = [1, 2, 3, 4, 100] : (tensor<2x3x4x5x130xi32>, tensor<i16>, tensor<i16>, tensor<i16>, tensor<i16>, tensor<i16>) -> tensor<1x2x3x4x100xi32>
    %5 = stablehlo.dynamic_slice %b, %n, %n, sizes = [5, 1] : (tensor<37x259xbf16>, tensor<ui8>, tensor<ui8>) -> tensor<5x1xbf16>
    %large = stablehlo.constant dense<1000000> : tensor<i32>
    %6 = stablehlo.dynamic_slice %a, %large, sizes = [1] : (tensor<301xf32>, tensor<i32>) -> tensor<1xf32>
    %minus = stablehlo.constant dense<-5> : tensor<i32>
    %7 = stablehlo.dynamic_slice %b, %i, %minus, sizes = [20, 259] : (tensor<37x259xbf16>, tensor<i32>, tensor<i32>) -> tensor<20x259xbf16>
    %8 = stablehlo.dynamic_slice %b, %i, %i, sizes = [0, 3] : (tensor<37x259xbf16>, tensor<i32>, tensor<i32>) -> tensor<0x3xbf16>
    return %0, %1, %2, %3, %4, %5, %6, %7, %8 : tensor<100xf32>, tensor<20x200xbf16>, tensor<2x10x133xi8>, tensor<1x3x5x35xf32>, tensor<1x2x3x4x100xi32>, tensor<5x1xbf16>, tensor<1xf32>, tensor<20x259xbf16>, tensor<0x3xbf16>
  }
}
