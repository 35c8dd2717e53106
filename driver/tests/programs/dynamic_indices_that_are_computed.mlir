// Indices computed as JAX wraps negative ones, in every integer type, from constants, from the sum of a vector, and from another array.
module @dynamic_indices_that_are_computed {
  func.func @main(%x: tensor<40x64x33xf32>, %i: tensor<i32>, %k: tensor<i8>, %u: tensor<ui32>, %h: tensor<ui16>, %p: tensor<i1>, %j: tensor<9xi32>) -> (tensor<7x64x33xf32>, tensor<7x3x33xf32>, tensor<7x3x5xf32>, tensor<4x4x4xf32>, tensor<40x1x1xf32>, tensor<3x3x3xf32>, tensor<1x64x33xf32>, tensor<2x2x2xf32>) {
    %c0 = stablehlo.constant dense<0> : tensor<i32>
    %c40 = stablehlo.constant dense<40> : tensor<i32>
    %0 = stablehlo.compare LT, %i, %c0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %1 = stablehlo.add %i, %c40 : tensor<i32>
    %2 = stablehlo.select %0, %1, %i : tensor<i1>, tensor<i32>
    %3 = stablehlo.dynamic_slice %x, %2, %c0, %c0, sizes = [7, 64, 33] : (tensor<40x64x33xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<7x64x33xf32>
    %k100 = stablehlo.constant dense<100> : tensor<i8>
    %4 = stablehlo.multiply %k, %k100 : tensor<i8>
    %5 = stablehlo.negate %4 : tensor<i8>
    %6 = stablehlo.not %k : tensor<i8>
    %k0 = stablehlo.constant dense<0> : tensor<i8>
    %7 = stablehlo.dynamic_slice %x, %4, %5, %k0, sizes = [7, 3, 33] : (tensor<40x64x33xf32>, tensor<i8>, tensor<i8>, tensor<i8>) -> tensor<7x3x33xf32>
    %8 = stablehlo.dynamic_slice %x, %6, %5, %k, sizes = [7, 3, 5] : (tensor<40x64x33xf32>, tensor<i8>, tensor<i8>, tensor<i8>) -> tensor<7x3x5xf32>
    %u9 = stablehlo.constant dense<9> : tensor<ui32>
    %9 = stablehlo.subtract %u, %u9 : tensor<ui32>
    %10 = stablehlo.maximum %9, %u : tensor<ui32>
    %11 = stablehlo.dynamic_slice %x, %9, %u, %10, sizes = [4, 4, 4] : (tensor<40x64x33xf32>, tensor<ui32>, tensor<ui32>, tensor<ui32>) -> tensor<4x4x4xf32>
    %12 = stablehlo.convert %h : (tensor<ui16>) -> tensor<i32>
    %13 = stablehlo.convert %p : (tensor<i1>) -> tensor<i32>
    %14 = stablehlo.dynamic_slice %x, %c0, %12, %13, sizes = [40, 1, 1] : (tensor<40x64x33xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<40x1x1xf32>
    %15 = stablehlo.minimum %13, %12 : tensor<i32>
    %16 = stablehlo.xor %i, %12 : tensor<i32>
    %17 = stablehlo.reduce(%j init: %c0) applies stablehlo.add across dimensions = [0] : (tensor<9xi32>, tensor<i32>) -> tensor<i32>
    %18 = stablehlo.dynamic_slice %x, %15, %16, %17, sizes = [3, 3, 3] : (tensor<40x64x33xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x3x3xf32>
    %19 = stablehlo.dynamic_slice %j, %2, sizes = [1] : (tensor<9xi32>, tensor<i32>) -> tensor<1xi32>
    %20 = stablehlo.reshape %19 : (tensor<1xi32>) -> tensor<i32>
    %21 = stablehlo.multiply %20, %c40 : tensor<i32>
    %22 = stablehlo.dynamic_slice %x, %21, %c0, %c0, sizes = [1, 64, 33] : (tensor<40x64x33xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x64x33xf32>
    %23 = stablehlo.compare GE, %c0, %c40, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %24 = stablehlo.subtract %c40, %c0 : tensor<i32>
    %25 = stablehlo.select %23, %c0, %24 : tensor<i1>, tensor<i32>
    %26 = stablehlo.dynamic_slice %x, %25, %25, %25, sizes = [2, 2, 2] : (tensor<40x64x33xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x2xf32>
    return %3, %7, %8, %11, %14, %18, %22, %26 : tensor<7x64x33xf32>, tensor<7x3x33xf32>, tensor<7x3x5xf32>, tensor<4x4x4xf32>, tensor<40x1x1xf32>, tensor<3x3x3xf32>, tensor<1x64x33xf32>, tensor<2x2x2xf32>
  }
}
