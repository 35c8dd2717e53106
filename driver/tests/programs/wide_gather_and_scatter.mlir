module @wide_gather_and_scatter {
  func.func public @main(%a: tensor<9x5xi64>, %i: tensor<7x1xi64>, %u: tensor<7x5xi64>, %x: tensor<9x5xf32>, %v: tensor<7x5xf32>, %d: tensor<9xf64>, %e: tensor<7xf64>)
      -> (tensor<7x5xi64>, tensor<7x5xf32>, tensor<9x5xi64>, tensor<9x5xf32>, tensor<9xf64>, tensor<9x5xi64>) {
    %0 = "stablehlo.gather"(%a, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 5>}> : (tensor<9x5xi64>, tensor<7x1xi64>) -> tensor<7x5xi64>
    %1 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 5>}> : (tensor<9x5xf32>, tensor<7x1xi64>) -> tensor<7x5xf32>
    %2 = "stablehlo.scatter"(%a, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<i64>, %q: tensor<i64>):
      %s = stablehlo.subtract %p, %q : tensor<i64>
      stablehlo.return %s : tensor<i64>
    }) : (tensor<9x5xi64>, tensor<7x1xi64>, tensor<7x5xi64>) -> tensor<9x5xi64>
    %3 = "stablehlo.scatter"(%x, %i, %v) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<9x5xf32>, tensor<7x1xi64>, tensor<7x5xf32>) -> tensor<9x5xf32>
    %4 = "stablehlo.scatter"(%d, %i, %e) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<f64>, %q: tensor<f64>):
      %s = stablehlo.add %p, %q : tensor<f64>
      stablehlo.return %s : tensor<f64>
    }) : (tensor<9xf64>, tensor<7x1xi64>, tensor<7xf64>) -> tensor<9xf64>
    %far = stablehlo.constant dense<4294967297> : tensor<7x1xi64>
    %j = stablehlo.multiply %i, %far : tensor<7x1xi64>
    %5 = "stablehlo.scatter"(%a, %j, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<i64>, %q: tensor<i64>):
      stablehlo.return %q : tensor<i64>
    }) : (tensor<9x5xi64>, tensor<7x1xi64>, tensor<7x5xi64>) -> tensor<9x5xi64>
    return %0, %1, %2, %3, %4, %5 : tensor<7x5xi64>, tensor<7x5xf32>, tensor<9x5xi64>, tensor<9x5xf32>, tensor<9xf64>, tensor<9x5xi64>
  }
}
