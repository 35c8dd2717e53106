// Windows of more bytes than are moved at once: cut into pieces, or taken apart where nothing divides them.
module @large_windows {
  func.func @main(%a: tensor<3x200000xf32>, %i: tensor<2x1xi32>, %b: tensor<2x100000xf32>, %u: tensor<2x100000xf32>) -> (tensor<2x200000xf32>, tensor<2x100000xf32>) {
    %0 = "stablehlo.gather"(%a, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 200000>} : (tensor<3x200000xf32>, tensor<2x1xi32>) -> tensor<2x200000xf32>
    %1 = "stablehlo.scatter"(%b, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<2x100000xf32>, tensor<2x1xi32>, tensor<2x100000xf32>) -> tensor<2x100000xf32>
    return %0, %1 : tensor<2x200000xf32>, tensor<2x100000xf32>
  }
}
