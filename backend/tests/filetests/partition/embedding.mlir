// Rows of the table are cut over tp: each device looks up the rows it has, the others count as zero. The gradient adds updates to
// the rows that a device has, for its part of the batch.
module @embedding {
  sdy.mesh @mesh = <["data"=2, "tp"=4]>
  func.func public @main(%table: tensor<1024x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"tp"}, {}]>}, %tokens: tensor<4x2xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, %dy: tensor<4x2x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}, {}]>}) -> (tensor<4x2x64xf32>, tensor<1024x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"tp"}, {}]>}) {
    %i = stablehlo.reshape %tokens : (tensor<4x2xi32>) -> tensor<4x2x1xi32>
    %y = "stablehlo.gather"(%table, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 64>}> : (tensor<1024x64xf32>, tensor<4x2x1xi32>) -> tensor<4x2x64xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<1024x64xf32>
    %d = "stablehlo.scatter"(%zero, %i, %dy) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<1024x64xf32>, tensor<4x2x1xi32>, tensor<4x2x64xf32>) -> tensor<1024x64xf32>
    return %y, %d : tensor<4x2x64xf32>, tensor<1024x64xf32>
  }
}
