module @gather_scatter {
  func.func @main(%t: tensor<9000x256xbf16>, %i: tensor<300x1xi32>, %s: tensor<30xf32>) -> (tensor<300x256xbf16>, tensor<9000x256xbf16>, tensor<300xf32>) {
    %0 = "stablehlo.gather"(%t, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 256>} : (tensor<9000x256xbf16>, tensor<300x1xi32>) -> tensor<300x256xbf16>
    %1 = "stablehlo.scatter"(%t, %i, %0) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<bf16>, %q: tensor<bf16>):
      %r = stablehlo.add %p, %q : tensor<bf16>
      stablehlo.return %r : tensor<bf16>
    }) : (tensor<9000x256xbf16>, tensor<300x1xi32>, tensor<300x256xbf16>) -> tensor<9000x256xbf16>
    %2 = "stablehlo.gather"(%s, %i) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>} : (tensor<30xf32>, tensor<300x1xi32>) -> tensor<300xf32>
    return %0, %1, %2 : tensor<300x256xbf16>, tensor<9000x256xbf16>, tensor<300xf32>
  }
}
