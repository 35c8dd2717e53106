// Rows of several types, many of them repeated or outside; 67 updates are no whole number of batches of 64.
module @scatter_of_rows {
  func.func @main(%a: tensor<5x256xf32>, %i: tensor<67x1xi32>, %u: tensor<67x256xf32>, %b: tensor<3x200xbf16>, %v: tensor<67x200xbf16>, %c: tensor<4x33xi8>, %w: tensor<67x33xi8>, %d: tensor<3x5xi1>, %x: tensor<67x5xi1>)
      -> (tensor<5x256xf32>, tensor<3x200xbf16>, tensor<4x33xi8>, tensor<3x5xi1>) {
    %0 = "stablehlo.scatter"(%a, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<5x256xf32>, tensor<67x1xi32>, tensor<67x256xf32>) -> tensor<5x256xf32>
    %1 = "stablehlo.scatter"(%b, %i, %v) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<bf16>, %q: tensor<bf16>):
      %s = stablehlo.add %p, %q : tensor<bf16>
      stablehlo.return %s : tensor<bf16>
    }) : (tensor<3x200xbf16>, tensor<67x1xi32>, tensor<67x200xbf16>) -> tensor<3x200xbf16>
    %2 = "stablehlo.scatter"(%c, %i, %w) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<i8>, %q: tensor<i8>):
      %three = stablehlo.constant dense<3> : tensor<i8>
      %m = stablehlo.multiply %p, %three : tensor<i8>
      %s = stablehlo.subtract %m, %q : tensor<i8>
      stablehlo.return %s : tensor<i8>
    }) : (tensor<4x33xi8>, tensor<67x1xi32>, tensor<67x33xi8>) -> tensor<4x33xi8>
    %3 = "stablehlo.scatter"(%d, %i, %x) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<i1>, %q: tensor<i1>):
      %s = stablehlo.xor %p, %q : tensor<i1>
      stablehlo.return %s : tensor<i1>
    }) : (tensor<3x5xi1>, tensor<67x1xi32>, tensor<67x5xi1>) -> tensor<3x5xi1>
    return %0, %1, %2, %3 : tensor<5x256xf32>, tensor<3x200xbf16>, tensor<4x33xi8>, tensor<3x5xi1>
  }
}
