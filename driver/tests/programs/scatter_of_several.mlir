// Several arrays of different types updated together, batching dimensions, no updates at all, the operand needed afterwards.
module @scatter_of_several {
  func.func @main(%a: tensor<9x130xf32>, %b: tensor<9x130xbf16>, %i: tensor<70x1xi32>, %u: tensor<70x130xf32>, %v: tensor<70x130xbf16>, %n: tensor<0x1xi32>, %z: tensor<0x130xf32>, %c: tensor<4x9x3xi32>, %j: tensor<3x4x6x1xi32>, %w: tensor<3x4x6xi32>)
      -> (tensor<9x130xf32>, tensor<9x130xbf16>, tensor<9x130xf32>, tensor<4x9x3xi32>, tensor<9x130xf32>) {
    %k = stablehlo.add %a, %a : tensor<9x130xf32>
    %0:2 = "stablehlo.scatter"(%k, %b, %i, %u, %v) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<bf16>, %r: tensor<f32>, %s: tensor<bf16>):
      %g = stablehlo.compare GE, %p, %r, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %x = stablehlo.select %g, %p, %r : tensor<i1>, tensor<f32>
      %y = stablehlo.select %g, %q, %s : tensor<i1>, tensor<bf16>
      stablehlo.return %x, %y : tensor<f32>, tensor<bf16>
    }) : (tensor<9x130xf32>, tensor<9x130xbf16>, tensor<70x1xi32>, tensor<70x130xf32>, tensor<70x130xbf16>) -> (tensor<9x130xf32>, tensor<9x130xbf16>)
    %1 = "stablehlo.scatter"(%a, %n, %z) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      stablehlo.return %q : tensor<f32>
    }) : (tensor<9x130xf32>, tensor<0x1xi32>, tensor<0x130xf32>) -> tensor<9x130xf32>
    %2 = "stablehlo.scatter"(%c, %j, %w) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0, 2], scatter_indices_batching_dims = [1, 0], scatter_dims_to_operand_dims = [1], index_vector_dim = 3>}> ({
    ^bb0(%p: tensor<i32>, %q: tensor<i32>):
      %s = stablehlo.add %p, %q : tensor<i32>
      stablehlo.return %s : tensor<i32>
    }) : (tensor<4x9x3xi32>, tensor<3x4x6x1xi32>, tensor<3x4x6xi32>) -> tensor<4x9x3xi32>
    return %0#0, %0#1, %1, %2, %k : tensor<9x130xf32>, tensor<9x130xbf16>, tensor<9x130xf32>, tensor<4x9x3xi32>, tensor<9x130xf32>
  }
}
