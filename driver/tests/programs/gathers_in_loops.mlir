// Rows gathered and scattered in a loop, at places that change, into an array that the loop carries.
module @gathers_in_loops {
  func.func @main(%t: tensor<90x130xf32>, %i: tensor<20x1xi32>) -> (tensor<90x130xf32>, tensor<90x130xf32>) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%n = %zero, %x = %t, %j = %i) : tensor<i32>, tensor<90x130xf32>, tensor<20x1xi32>
    cond {
      %three = stablehlo.constant dense<3> : tensor<i32>
      %c = stablehlo.compare LT, %n, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %m = stablehlo.add %n, %one : tensor<i32>
      %seven = stablehlo.constant dense<7> : tensor<20x1xi32>
      %r = "stablehlo.gather"(%x, %j) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 130>} : (tensor<90x130xf32>, tensor<20x1xi32>) -> tensor<20x130xf32>
      %k = stablehlo.add %j, %seven : tensor<20x1xi32>
      %y = "stablehlo.scatter"(%x, %k, %r) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        %s = stablehlo.add %p, %q : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }) : (tensor<90x130xf32>, tensor<20x1xi32>, tensor<20x130xf32>) -> tensor<90x130xf32>
      stablehlo.return %m, %y, %k : tensor<i32>, tensor<90x130xf32>, tensor<20x1xi32>
    }
    return %0#1, %t : tensor<90x130xf32>, tensor<90x130xf32>
  }
}
