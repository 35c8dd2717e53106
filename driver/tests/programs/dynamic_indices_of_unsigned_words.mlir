// Comparisons, extremes and shifts that the scalar unit makes of signed ones.
module @dynamic_indices_of_unsigned_words {
  func.func @main(%x: tensor<60xf32>, %u: tensor<ui32>, %i: tensor<i32>, %k: tensor<i8>, %h: tensor<ui16>) -> (tensor<9xf32>, tensor<9xf32>, tensor<9xf32>, tensor<9xf32>, tensor<9xf32>, tensor<9xf32>) {
    %c5 = stablehlo.constant dense<5> : tensor<ui32>
    %c9 = stablehlo.constant dense<9> : tensor<ui32>
    %0 = stablehlo.subtract %u, %c5 : tensor<ui32>
    %1 = stablehlo.minimum %0, %c9 : tensor<ui32>
    %2 = stablehlo.dynamic_slice %x, %1, sizes = [9] : (tensor<60xf32>, tensor<ui32>) -> tensor<9xf32>
    %3 = stablehlo.compare LT, %0, %c9, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    %4 = stablehlo.select %3, %c5, %c9 : tensor<i1>, tensor<ui32>
    %5 = stablehlo.dynamic_slice %x, %4, sizes = [9] : (tensor<60xf32>, tensor<ui32>) -> tensor<9xf32>
    %c1 = stablehlo.constant dense<1> : tensor<i32>
    %6 = stablehlo.shift_right_arithmetic %i, %c1 : tensor<i32>
    %7 = stablehlo.negate %6 : tensor<i32>
    %8 = stablehlo.shift_left %7, %c1 : tensor<i32>
    %9 = stablehlo.dynamic_slice %x, %8, sizes = [9] : (tensor<60xf32>, tensor<i32>) -> tensor<9xf32>
    %c30 = stablehlo.constant dense<30> : tensor<i32>
    %10 = stablehlo.shift_right_logical %6, %c30 : tensor<i32>
    %11 = stablehlo.dynamic_slice %x, %10, sizes = [9] : (tensor<60xf32>, tensor<i32>) -> tensor<9xf32>
    %k3 = stablehlo.constant dense<3> : tensor<i8>
    %12 = stablehlo.shift_left %k, %k3 : tensor<i8>
    %13 = stablehlo.shift_right_arithmetic %12, %k : tensor<i8>
    %14 = stablehlo.dynamic_slice %x, %13, sizes = [9] : (tensor<60xf32>, tensor<i8>) -> tensor<9xf32>
    %h1 = stablehlo.constant dense<1> : tensor<ui16>
    %15 = stablehlo.shift_left %h, %h1 : tensor<ui16>
    %16 = stablehlo.shift_right_logical %15, %h1 : tensor<ui16>
    %17 = stablehlo.dynamic_slice %x, %16, sizes = [9] : (tensor<60xf32>, tensor<ui16>) -> tensor<9xf32>
    return %2, %5, %9, %11, %14, %17 : tensor<9xf32>, tensor<9xf32>, tensor<9xf32>, tensor<9xf32>, tensor<9xf32>, tensor<9xf32>
  }
}
