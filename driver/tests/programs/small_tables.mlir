// Tables so small that every place is compared with all of them, and counts of a few kinds of things.
module @small_tables {
  func.func @main(%a: tensor<7x12xf32>, %i: tensor<31x40xi32>, %b: tensor<3x5x4xbf16>, %j: tensor<300x2xi64>, %c: tensor<6xi1>, %u: tensor<300xi32>, %n: tensor<9xi32>, %e: tensor<4x3xbf16>, %v: tensor<300x3xbf16>)
      -> (tensor<31x40x12xf32>, tensor<300x5xbf16>, tensor<31x40xi1>, tensor<9xi32>, tensor<4x3xbf16>, tensor<9xi32>) {
    %0 = "stablehlo.gather"(%a, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 12>} : (tensor<7x12xf32>, tensor<31x40xi32>) -> tensor<31x40x12xf32>
    %1 = "stablehlo.gather"(%b, %j) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0, 2], start_index_map = [2, 0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 5, 1>} : (tensor<3x5x4xbf16>, tensor<300x2xi64>) -> tensor<300x5xbf16>
    %2 = "stablehlo.gather"(%c, %i) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1>} : (tensor<6xi1>, tensor<31x40xi32>) -> tensor<31x40xi1>
    %k = stablehlo.slice %j [0:300, 1:2] : (tensor<300x2xi64>) -> tensor<300x1xi64>
    %3 = "stablehlo.scatter"(%n, %k, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<i32>, %q: tensor<i32>):
      %s = stablehlo.add %p, %q : tensor<i32>
      stablehlo.return %s : tensor<i32>
    }) : (tensor<9xi32>, tensor<300x1xi64>, tensor<300xi32>) -> tensor<9xi32>
    %4 = "stablehlo.scatter"(%e, %k, %v) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<bf16>, %q: tensor<bf16>):
      %s = stablehlo.maximum %p, %q : tensor<bf16>
      stablehlo.return %s : tensor<bf16>
    }) : (tensor<4x3xbf16>, tensor<300x1xi64>, tensor<300x3xbf16>) -> tensor<4x3xbf16>
    %one = stablehlo.constant dense<1> : tensor<300xi32>
    %zero = stablehlo.constant dense<0> : tensor<9xi32>
    %5 = "stablehlo.scatter"(%zero, %k, %one) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<i32>, %q: tensor<i32>):
      %s = stablehlo.add %p, %q : tensor<i32>
      stablehlo.return %s : tensor<i32>
    }) : (tensor<9xi32>, tensor<300x1xi64>, tensor<300xi32>) -> tensor<9xi32>
    return %0, %1, %2, %3, %4, %5 : tensor<31x40x12xf32>, tensor<300x5xbf16>, tensor<31x40xi1>, tensor<9xi32>, tensor<4x3xbf16>, tensor<9xi32>
  }
}
