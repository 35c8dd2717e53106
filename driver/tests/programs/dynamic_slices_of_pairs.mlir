// Indices and elements of 64 bits.
module @dynamic_slices_of_pairs {
  func.func @main(%x: tensor<40x33xf32>, %d: tensor<40x33xf64>, %l: tensor<17x130xi64>, %z: tensor<9x21xcomplex<f32>>, %u: tensor<3x5xi64>, %i: tensor<i64>, %k: tensor<ui64>, %j: tensor<i32>) -> (tensor<7x33xf32>, tensor<7x3xf32>, tensor<2x3xf64>, tensor<17x130xi64>, tensor<4x4xcomplex<f32>>, tensor<40x33xf32>, tensor<5x5xf32>, tensor<6x6xf32>) {
    %c0 = stablehlo.constant dense<0> : tensor<i64>
    %c40 = stablehlo.constant dense<40> : tensor<i64>
    %0 = stablehlo.compare LT, %i, %c0, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %1 = stablehlo.add %i, %c40 : tensor<i64>
    %2 = stablehlo.select %0, %1, %i : tensor<i1>, tensor<i64>
    %3 = stablehlo.dynamic_slice %x, %2, %c0, sizes = [7, 33] : (tensor<40x33xf32>, tensor<i64>, tensor<i64>) -> tensor<7x33xf32>
    %4 = stablehlo.dynamic_slice %x, %k, %k, sizes = [7, 3] : (tensor<40x33xf32>, tensor<ui64>, tensor<ui64>) -> tensor<7x3xf32>
    %5 = stablehlo.dynamic_slice %d, %i, %2, sizes = [2, 3] : (tensor<40x33xf64>, tensor<i64>, tensor<i64>) -> tensor<2x3xf64>
    %6 = stablehlo.dynamic_update_slice %l, %u, %2, %i : (tensor<17x130xi64>, tensor<3x5xi64>, tensor<i64>, tensor<i64>) -> tensor<17x130xi64>
    %7 = stablehlo.dynamic_slice %z, %j, %j, sizes = [4, 4] : (tensor<9x21xcomplex<f32>>, tensor<i32>, tensor<i32>) -> tensor<4x4xcomplex<f32>>
    %8 = stablehlo.negate %3 : tensor<7x33xf32>
    %9 = stablehlo.dynamic_update_slice %x, %8, %1, %i : (tensor<40x33xf32>, tensor<7x33xf32>, tensor<i64>, tensor<i64>) -> tensor<40x33xf32>
    %far = stablehlo.constant dense<8589934593> : tensor<i64>
    %low = stablehlo.constant dense<-8589934591> : tensor<i64>
    %10 = stablehlo.dynamic_slice %x, %far, %low, sizes = [5, 5] : (tensor<40x33xf32>, tensor<i64>, tensor<i64>) -> tensor<5x5xf32>
    %11 = stablehlo.multiply %i, %far : tensor<i64>
    %12 = stablehlo.convert %j : (tensor<i32>) -> tensor<i64>
    %13 = stablehlo.add %12, %i : tensor<i64>
    %14 = stablehlo.dynamic_slice %x, %11, %13, sizes = [6, 6] : (tensor<40x33xf32>, tensor<i64>, tensor<i64>) -> tensor<6x6xf32>
    return %3, %4, %5, %6, %7, %9, %10, %14 : tensor<7x33xf32>, tensor<7x3xf32>, tensor<2x3xf64>, tensor<17x130xi64>, tensor<4x4xcomplex<f32>>, tensor<40x33xf32>, tensor<5x5xf32>, tensor<6x6xf32>
  }
}
