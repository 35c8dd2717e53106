// 523 updates are no whole number of batches; most go to the same few elements.
module @scatter_in_batches {
  func.func @main(%a: tensor<3x4xf32>, %i: tensor<523x2xi32>, %u: tensor<523xf32>) -> tensor<3x4xf32> {
    %0 = "stablehlo.scatter"(%a, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %h = stablehlo.constant dense<0.5> : tensor<f32>
      %m = stablehlo.multiply %p, %h : tensor<f32>
      %s = stablehlo.add %m, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<3x4xf32>, tensor<523x2xi32>, tensor<523xf32>) -> tensor<3x4xf32>
    return %0 : tensor<3x4xf32>
  }
}
