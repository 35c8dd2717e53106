// Slices of what was transposed, sliced, reversed, reshaped and computed; products, norms and reductions that read them.
module @dynamic_slices_in_fusions {
  func.func @main(%w: tensor<6x130x70xbf16>, %x: tensor<20x130xbf16>, %s: tensor<6x70xf32>, %i: tensor<i32>, %j: tensor<i32>) -> (tensor<20x70xf32>, tensor<70x9xbf16>, tensor<3x35x2xbf16>, tensor<4x33xf32>, tensor<70xf32>, tensor<5x6xf32>, tensor<8x8xbf16>) {
    %c0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %w, %i, %c0, %c0, sizes = [1, 130, 70] : (tensor<6x130x70xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x130x70xbf16>
    %1 = stablehlo.reshape %0 : (tensor<1x130x70xbf16>) -> tensor<130x70xbf16>
    %2 = stablehlo.dot_general %x, %1, contracting_dims = [1] x [0] : (tensor<20x130xbf16>, tensor<130x70xbf16>) -> tensor<20x70xf32>
    %3 = stablehlo.dynamic_slice %s, %i, %c0, sizes = [1, 70] : (tensor<6x70xf32>, tensor<i32>, tensor<i32>) -> tensor<1x70xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<1x70xf32>) -> tensor<20x70xf32>
    %5 = stablehlo.add %2, %4 : tensor<20x70xf32>
    %6 = stablehlo.transpose %w, dims = [2, 1, 0] : (tensor<6x130x70xbf16>) -> tensor<70x130x6xbf16>
    %7 = stablehlo.dynamic_slice %6, %j, %i, %j, sizes = [70, 9, 1] : (tensor<70x130x6xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<70x9x1xbf16>
    %8 = stablehlo.reshape %7 : (tensor<70x9x1xbf16>) -> tensor<70x9xbf16>
    %9 = stablehlo.slice %w [0:6:2, 3:128:5, 1:67] : (tensor<6x130x70xbf16>) -> tensor<3x25x66xbf16>
    %10 = stablehlo.reverse %9, dims = [1, 2] : tensor<3x25x66xbf16>
    %11 = stablehlo.dynamic_slice %10, %j, %i, %j, sizes = [3, 7, 10] : (tensor<3x25x66xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x7x10xbf16>
    %12 = stablehlo.reshape %11 : (tensor<3x7x10xbf16>) -> tensor<3x35x2xbf16>
    %13 = stablehlo.add %s, %s : tensor<6x70xf32>
    %14 = stablehlo.multiply %13, %s : tensor<6x70xf32>
    %15 = stablehlo.dynamic_slice %14, %i, %j, sizes = [4, 33] : (tensor<6x70xf32>, tensor<i32>, tensor<i32>) -> tensor<4x33xf32>
    %16 = stablehlo.dynamic_slice %15, %j, %i, sizes = [4, 33] : (tensor<4x33xf32>, tensor<i32>, tensor<i32>) -> tensor<4x33xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %17 = stablehlo.reshape %w : (tensor<6x130x70xbf16>) -> tensor<780x70xbf16>
    %18 = stablehlo.dynamic_slice %17, %i, %c0, sizes = [400, 70] : (tensor<780x70xbf16>, tensor<i32>, tensor<i32>) -> tensor<400x70xbf16>
    %19 = stablehlo.convert %18 : (tensor<400x70xbf16>) -> tensor<400x70xf32>
    %20 = stablehlo.reduce(%19 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<400x70xf32>, tensor<f32>) -> tensor<70xf32>
    %21 = stablehlo.dynamic_slice %s, %j, %i, sizes = [5, 6] : (tensor<6x70xf32>, tensor<i32>, tensor<i32>) -> tensor<5x6xf32>
    %22 = stablehlo.dynamic_slice %s, %i, %j, sizes = [5, 6] : (tensor<6x70xf32>, tensor<i32>, tensor<i32>) -> tensor<5x6xf32>
    %23 = stablehlo.subtract %21, %22 : tensor<5x6xf32>
    %24 = stablehlo.dynamic_slice %w, %i, %i, %i, sizes = [1, 8, 33] : (tensor<6x130x70xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x33xbf16>
    %25 = stablehlo.dynamic_slice %w, %j, %j, %j, sizes = [1, 33, 8] : (tensor<6x130x70xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x33x8xbf16>
    %26 = stablehlo.dot_general %24, %25, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x8x33xbf16>, tensor<1x33x8xbf16>) -> tensor<1x8x8xbf16>
    %27 = stablehlo.reshape %26 : (tensor<1x8x8xbf16>) -> tensor<8x8xbf16>
    return %5, %8, %12, %16, %20, %23, %27 : tensor<20x70xf32>, tensor<70x9xbf16>, tensor<3x35x2xbf16>, tensor<4x33xf32>, tensor<70xf32>, tensor<5x6xf32>, tensor<8x8xbf16>
  }
}
