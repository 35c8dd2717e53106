// The least and the largest of numbers whose types have no infinities.
func.func @main(%a: tensor<131xf8E4M3FN>, %i: tensor<11xui32>, %u: tensor<11xf8E4M3FN>, %b: tensor<40xf8E5M2FNUZ>, %v: tensor<11xf8E5M2FNUZ>) -> (tensor<131xf8E4M3FN>, tensor<40xf8E5M2FNUZ>) {
  %0 = "stablehlo.scatter"(%a, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%p: tensor<f8E4M3FN>, %q: tensor<f8E4M3FN>):
    %m = stablehlo.minimum %p, %q : tensor<f8E4M3FN>
    stablehlo.return %m : tensor<f8E4M3FN>
  }) : (tensor<131xf8E4M3FN>, tensor<11xui32>, tensor<11xf8E4M3FN>) -> tensor<131xf8E4M3FN>
  %1 = "stablehlo.scatter"(%b, %i, %v) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%p: tensor<f8E5M2FNUZ>, %q: tensor<f8E5M2FNUZ>):
    %m = stablehlo.maximum %p, %q : tensor<f8E5M2FNUZ>
    stablehlo.return %m : tensor<f8E5M2FNUZ>
  }) : (tensor<40xf8E5M2FNUZ>, tensor<11xui32>, tensor<11xf8E5M2FNUZ>) -> tensor<40xf8E5M2FNUZ>
  return %0, %1 : tensor<131xf8E4M3FN>, tensor<40xf8E5M2FNUZ>
}
