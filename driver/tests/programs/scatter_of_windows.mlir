// Windows of rank 0 to 3 that start anywhere, partly outside too; assignment, index vectors in any dimension, a window of a whole array.
module @scatter_of_windows {
  func.func @main(%a: tensor<6x5x7xf32>, %i: tensor<3x11xi8>, %u: tensor<11xf32>, %v: tensor<2x11x3xf32>, %w: tensor<5x7x11xf32>, %k: tensor<11xui32>, %c: tensor<6xf32>, %e: tensor<1xi32>, %x: tensor<6x1x7xf32>)
      -> (tensor<6x5x7xf32>, tensor<6x5x7xf32>, tensor<6x5x7xf32>, tensor<6xf32>, tensor<6x5x7xf32>) {
    %0 = "stablehlo.scatter"(%a, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1, 2], scatter_dims_to_operand_dims = [2, 0, 1], index_vector_dim = 0>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      stablehlo.return %q : tensor<f32>
    }) : (tensor<6x5x7xf32>, tensor<3x11xi8>, tensor<11xf32>) -> tensor<6x5x7xf32>
    %1 = "stablehlo.scatter"(%0, %i, %v) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 2], inserted_window_dims = [1], scatter_dims_to_operand_dims = [0, 1, 2], index_vector_dim = 0>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %h = stablehlo.constant dense<0.5> : tensor<f32>
      %m = stablehlo.multiply %p, %h : tensor<f32>
      %s = stablehlo.add %m, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<6x5x7xf32>, tensor<3x11xi8>, tensor<2x11x3xf32>) -> tensor<6x5x7xf32>
    %2 = "stablehlo.scatter"(%a, %k, %w) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.minimum %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<6x5x7xf32>, tensor<11xui32>, tensor<5x7x11xf32>) -> tensor<6x5x7xf32>
    %3 = "stablehlo.scatter"(%c, %k, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.multiply %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<6xf32>, tensor<11xui32>, tensor<11xf32>) -> tensor<6xf32>
    %4 = "stablehlo.scatter"(%a, %e, %x) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1, 2], scatter_dims_to_operand_dims = [1], index_vector_dim = 0>, indices_are_sorted = true, unique_indices = true}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      stablehlo.return %q : tensor<f32>
    }) : (tensor<6x5x7xf32>, tensor<1xi32>, tensor<6x1x7xf32>) -> tensor<6x5x7xf32>
    return %1, %2, %2, %3, %4 : tensor<6x5x7xf32>, tensor<6x5x7xf32>, tensor<6x5x7xf32>, tensor<6xf32>, tensor<6x5x7xf32>
  }
}
