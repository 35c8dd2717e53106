// Windows of rank 0 to 3, index vectors of one to three entries in any dimension, narrow and unsigned indices.
module @gather_of_windows {
  func.func @main(%a: tensor<6x5x7xf32>, %i: tensor<2x3x4xi32>, %j: tensor<3x11xi8>, %k: tensor<19xui32>, %l: tensor<2x4xi16>, %b: tensor<400x60xbf16>)
      -> (tensor<2x3xf32>, tensor<2x2x3x3x4xf32>, tensor<11x4x2x3xf32>, tensor<5x19xf32>, tensor<4x2x5x7xf32>, tensor<400x19xbf16>) {
    %r = stablehlo.slice %i [0:2, 0:3, 0:3] : (tensor<2x3x4xi32>) -> tensor<2x3x3xi32>
    %0 = "stablehlo.gather"(%a, %r) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1, 2], start_index_map = [2, 0, 1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1, 1>} : (tensor<6x5x7xf32>, tensor<2x3x3xi32>) -> tensor<2x3xf32>
    %p = stablehlo.slice %i [0:2, 0:3, 0:4] : (tensor<2x3x4xi32>) -> tensor<2x3x4xi32>
    %1 = "stablehlo.gather"(%a, %p) {dimension_numbers = #stablehlo.gather<offset_dims = [0, 1, 3], start_index_map = [2, 1], index_vector_dim = 0>, slice_sizes = array<i64: 2, 2, 3>} : (tensor<6x5x7xf32>, tensor<2x3x4xi32>) -> tensor<2x2x3x3x4xf32>
    %2 = "stablehlo.gather"(%a, %j) {dimension_numbers = #stablehlo.gather<offset_dims = [1, 2, 3], start_index_map = [0, 1, 2], index_vector_dim = 0>, slice_sizes = array<i64: 4, 2, 3>} : (tensor<6x5x7xf32>, tensor<3x11xi8>) -> tensor<11x4x2x3xf32>
    %3 = "stablehlo.gather"(%a, %k) {dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0, 2], start_index_map = [2], index_vector_dim = 1>, slice_sizes = array<i64: 1, 5, 1>} : (tensor<6x5x7xf32>, tensor<19xui32>) -> tensor<5x19xf32>
    %4 = "stablehlo.gather"(%a, %l) {dimension_numbers = #stablehlo.gather<offset_dims = [1, 2, 3], start_index_map = [1, 0], index_vector_dim = 0>, slice_sizes = array<i64: 2, 5, 7>} : (tensor<6x5x7xf32>, tensor<2x4xi16>) -> tensor<4x2x5x7xf32>
    %5 = "stablehlo.gather"(%b, %k) {dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 400, 1>} : (tensor<400x60xbf16>, tensor<19xui32>) -> tensor<400x19xbf16>
    return %0, %1, %2, %3, %4, %5 : tensor<2x3xf32>, tensor<2x2x3x3x4xf32>, tensor<11x4x2x3xf32>, tensor<5x19xf32>, tensor<4x2x5x7xf32>, tensor<400x19xbf16>
  }
}
