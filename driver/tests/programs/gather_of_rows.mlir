module @gather_of_rows {
  func.func @main(%a: tensor<7x256xf32>, %i: tensor<37x1xi32>, %b: tensor<5x200xbf16>, %c: tensor<4x33xi8>, %d: tensor<3x5xi1>, %e: tensor<9x130xf32>)
      -> (tensor<37x256xf32>, tensor<37x200xbf16>, tensor<37x33xi8>, tensor<37x5xi1>, tensor<130x37xf32>) {
    %0 = "stablehlo.gather"(%a, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 256>} : (tensor<7x256xf32>, tensor<37x1xi32>) -> tensor<37x256xf32>
    %1 = "stablehlo.gather"(%b, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 200>} : (tensor<5x200xbf16>, tensor<37x1xi32>) -> tensor<37x200xbf16>
    %2 = "stablehlo.gather"(%c, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 33>} : (tensor<4x33xi8>, tensor<37x1xi32>) -> tensor<37x33xi8>
    %3 = "stablehlo.gather"(%d, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 5>} : (tensor<3x5xi1>, tensor<37x1xi32>) -> tensor<37x5xi1>
    %4 = "stablehlo.gather"(%e, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 130>} : (tensor<9x130xf32>, tensor<37x1xi32>) -> tensor<130x37xf32>
    return %0, %1, %2, %3, %4 : tensor<37x256xf32>, tensor<37x200xbf16>, tensor<37x33xi8>, tensor<37x5xi1>, tensor<130x37xf32>
  }
}
