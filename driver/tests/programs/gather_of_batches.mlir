// Batching dimensions in any order (take_along_axis), no indices at all, empty slices.
module @gather_of_batches {
  func.func @main(%a: tensor<4x9x3xf32>, %i: tensor<3x4x6x1xi32>, %j: tensor<3x6x4xi32>, %n: tensor<0x1xi32>, %h: tensor<513x1xi32>, %t: tensor<300x3xbf16>)
      -> (tensor<3x4x6xf32>, tensor<3x6x4xf32>, tensor<0x9x3xf32>, tensor<3x4x6x0xf32>, tensor<513x2x3xbf16>) {
    %0 = "stablehlo.gather"(%a, %i) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0, 2], start_indices_batching_dims = [1, 0], start_index_map = [1], index_vector_dim = 3>, slice_sizes = array<i64: 1, 1, 1>} : (tensor<4x9x3xf32>, tensor<3x4x6x1xi32>) -> tensor<3x4x6xf32>
    %1 = "stablehlo.gather"(%a, %j) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0, 2], start_indices_batching_dims = [2, 0], start_index_map = [1], index_vector_dim = 3>, slice_sizes = array<i64: 1, 1, 1>} : (tensor<4x9x3xf32>, tensor<3x6x4xi32>) -> tensor<3x6x4xf32>
    %2 = "stablehlo.gather"(%a, %n) {dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 9, 3>} : (tensor<4x9x3xf32>, tensor<0x1xi32>) -> tensor<0x9x3xf32>
    %3 = "stablehlo.gather"(%a, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [3], operand_batching_dims = [0, 2], start_indices_batching_dims = [1, 0], start_index_map = [1], index_vector_dim = 3>, slice_sizes = array<i64: 1, 0, 1>} : (tensor<4x9x3xf32>, tensor<3x4x6x1xi32>) -> tensor<3x4x6x0xf32>
    %4 = "stablehlo.gather"(%t, %h) {dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 2, 3>} : (tensor<300x3xbf16>, tensor<513x1xi32>) -> tensor<513x2x3xbf16>
    return %0, %1, %2, %3, %4 : tensor<3x4x6xf32>, tensor<3x6x4xf32>, tensor<0x9x3xf32>, tensor<3x4x6x0xf32>, tensor<513x2x3xbf16>
  }
}
