// within 1e-6
func.func @main(%x: tensor<13x24xf32>, %w: tensor<3x24x10xf32>) -> tensor<13x10xf32> {
  %g = stablehlo.constant dense<[4, 0, 6]> : tensor<3xi32>
  %0 = "chlo.ragged_dot"(%x, %w, %g) <{precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>], ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}> : (tensor<13x24xf32>, tensor<3x24x10xf32>, tensor<3xi32>) -> tensor<13x10xf32>
  return %0 : tensor<13x10xf32>
}
