// CHLO's pretty forms, and its ops that have none.
func.func @main(%x: tensor<4x8xf32>, %y: tensor<8xf32>, %g: tensor<2x8x3xf32>, %n: tensor<2xi32>, %p: tensor<i1>) -> tensor<4x8xf32> {
  %0 = chlo.erf %x : tensor<4x8xf32> -> tensor<4x8xf32>
  %1 = chlo.is_inf %x : tensor<4x8xf32> -> tensor<4x8xi1>
  %2 = chlo.broadcast_add %x, %y {broadcast_dimensions = array<i64: 1>} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %3 = chlo.broadcast_compare %x, %y {comparison_direction = #chlo<comparison_direction LT>} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xi1>
  %4 = chlo.broadcast_select %p, %x, %x : (tensor<i1>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %5 = chlo.next_after %x, %x : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %v, %i = chlo.top_k(%x, k = 2) : tensor<4x8xf32> -> (tensor<4x2xf32>, tensor<4x2xi32>)
  %6:2 = chlo.top_k(%x, k = 2, is_stable = false) : tensor<4x8xf32> -> (tensor<4x2xf32>, tensor<4x2xi32>)
  %7 = "chlo.ragged_dot"(%x, %g, %n) <{precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>], ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[1], lhs_ragged_dimensions=[0], rhs_group_dimensions=[0]>}> : (tensor<4x8xf32>, tensor<2x8x3xf32>, tensor<2xi32>) -> tensor<4x3xf32>
  %8 = chlo.constant dense<1.0> : tensor<2xf32>
  %9:2 = chlo.scan(%x) inits (%y) dimension=0 attributes {is_reverse = false} {
  ^bb0(%input: tensor<8xf32>, %carry: tensor<8xf32>):
    %s = stablehlo.add %input, %carry : tensor<8xf32>
    stablehlo.return %s, %s : tensor<8xf32>, tensor<8xf32>
  } : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>)
  return %9#0 : tensor<4x8xf32>
}
