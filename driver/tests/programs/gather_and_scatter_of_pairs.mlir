// 64-bit indices, beyond 32 bits too, and arrays of 64-bit numbers.
module @gather_and_scatter_of_pairs {
  func.func @main(%a: tensor<6x5xf32>, %b: tensor<6x5xi64>, %i: tensor<3x7x2xi64>, %k: tensor<21xui64>, %u: tensor<21xi64>, %v: tensor<21x5xf32>)
      -> (tensor<3x7xf32>, tensor<3x7xi64>, tensor<21x5xi64>, tensor<6x5xi64>, tensor<6x5xf32>) {
    %big = stablehlo.constant dense<[[[4294967296, 1], [-4294967295, 1], [9223372036854775807, 0], [-9223372036854775808, 1], [1, 4294967297], [0, 0], [2, -2]]]> : tensor<1x7x2xi64>
    %rest = stablehlo.slice %i [0:2, 0:7, 0:2] : (tensor<3x7x2xi64>) -> tensor<2x7x2xi64>
    %j = stablehlo.concatenate %rest, %big, dim = 0 : (tensor<2x7x2xi64>, tensor<1x7x2xi64>) -> tensor<3x7x2xi64>
    %0 = "stablehlo.gather"(%a, %j) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>} : (tensor<6x5xf32>, tensor<3x7x2xi64>) -> tensor<3x7xf32>
    %1 = "stablehlo.gather"(%b, %j) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>} : (tensor<6x5xi64>, tensor<3x7x2xi64>) -> tensor<3x7xi64>
    %2 = "stablehlo.gather"(%b, %k) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 5>} : (tensor<6x5xi64>, tensor<21xui64>) -> tensor<21x5xi64>
    %f = stablehlo.reshape %j : (tensor<3x7x2xi64>) -> tensor<21x2xi64>
    %3 = "stablehlo.scatter"(%b, %f, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<i64>, %q: tensor<i64>):
      %s = stablehlo.add %p, %q : tensor<i64>
      stablehlo.return %s : tensor<i64>
    }) : (tensor<6x5xi64>, tensor<21x2xi64>, tensor<21xi64>) -> tensor<6x5xi64>
    %4 = "stablehlo.scatter"(%a, %k, %v) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<6x5xf32>, tensor<21xui64>, tensor<21x5xf32>) -> tensor<6x5xf32>
    return %0, %1, %2, %3, %4 : tensor<3x7xf32>, tensor<3x7xi64>, tensor<21x5xi64>, tensor<6x5xi64>, tensor<6x5xf32>
  }
}
