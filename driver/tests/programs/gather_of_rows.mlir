// Rows of tables that are too large to compare every place with all of them.
module @gather_of_rows {
  func.func @main(%a: tensor<70x256xf32>, %x: tensor<37x1xi32>, %b: tensor<50x200xbf16>, %c: tensor<400x33xi8>, %d: tensor<3000x5xi1>, %e: tensor<90x130xf32>)
      -> (tensor<37x256xf32>, tensor<37x200xbf16>, tensor<37x33xi8>, tensor<37x5xi1>, tensor<130x37xf32>) {
    %k = stablehlo.constant dense<17> : tensor<37x1xi32>
    %m = stablehlo.multiply %x, %k : tensor<37x1xi32>
    %o = stablehlo.iota dim = 0 : tensor<37x1xi32>
    %i = stablehlo.add %m, %o : tensor<37x1xi32>
    %0 = "stablehlo.gather"(%a, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 256>} : (tensor<70x256xf32>, tensor<37x1xi32>) -> tensor<37x256xf32>
    %1 = "stablehlo.gather"(%b, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 200>} : (tensor<50x200xbf16>, tensor<37x1xi32>) -> tensor<37x200xbf16>
    %2 = "stablehlo.gather"(%c, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 33>} : (tensor<400x33xi8>, tensor<37x1xi32>) -> tensor<37x33xi8>
    %3 = "stablehlo.gather"(%d, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 5>} : (tensor<3000x5xi1>, tensor<37x1xi32>) -> tensor<37x5xi1>
    %4 = "stablehlo.gather"(%e, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 130>} : (tensor<90x130xf32>, tensor<37x1xi32>) -> tensor<130x37xf32>
    return %0, %1, %2, %3, %4 : tensor<37x256xf32>, tensor<37x200xbf16>, tensor<37x33xi8>, tensor<37x5xi1>, tensor<130x37xf32>
  }
}
