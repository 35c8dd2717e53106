// Rows of tokens, in groups that are cut over both axes, go to the experts by index and back: within a group locally, from groups to experts
// all to all over the experts' axis. The weight is converted for each of its products, but once gathered along fsdp.
module @experts {
  sdy.mesh @mesh = <["fsdp"=2, "expert"=2]>
  func.func public @main(%x: tensor<4x32x128xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp", "expert"}, {}, {}]>}, %token: tensor<4x32x1xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp", "expert"}, {}, {}]>}, %w: tensor<4x128x128xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"expert"}, {"fsdp"}, {}]>}) -> (tensor<4x32x128xf32>, tensor<4x32x128xf32>, tensor<4x128x128xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"expert"}, {"fsdp"}, {}]>}) {
    %rows = "stablehlo.gather"(%x, %token) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1, 128>, indices_are_sorted = false}> : (tensor<4x32x128xbf16>, tensor<4x32x1xi32>) -> tensor<4x32x128xbf16>
    %cut = stablehlo.reshape %rows : (tensor<4x32x128xbf16>) -> tensor<4x4x8x128xbf16>
    %turned = stablehlo.transpose %cut, dims = [1, 0, 2, 3] : (tensor<4x4x8x128xbf16>) -> tensor<4x4x8x128xbf16>
    %grouped = sdy.sharding_constraint %turned <@mesh, [{}, {"fsdp", "expert"}, {}, {}]> : tensor<4x4x8x128xbf16>
    %placed = sdy.sharding_constraint %grouped <@mesh, [{"expert"}, {"fsdp"}, {}, {}]> : tensor<4x4x8x128xbf16>
    %w1 = stablehlo.convert %w : (tensor<4x128x128xf32>) -> tensor<4x128x128xbf16>
    %y = stablehlo.dot_general %placed, %w1, batching_dims = [0] x [0], contracting_dims = [3] x [1] : (tensor<4x4x8x128xbf16>, tensor<4x128x128xbf16>) -> tensor<4x4x8x128xf32>
    %w2 = stablehlo.convert %w : (tensor<4x128x128xf32>) -> tensor<4x128x128xbf16>
    %z = stablehlo.dot_general %placed, %w2, batching_dims = [0] x [0], contracting_dims = [3] x [2] : (tensor<4x4x8x128xbf16>, tensor<4x128x128xbf16>) -> tensor<4x4x8x128xf32>
    %dw = stablehlo.dot_general %placed, %placed, batching_dims = [0] x [0], contracting_dims = [1, 2] x [1, 2] : (tensor<4x4x8x128xbf16>, tensor<4x4x8x128xbf16>) -> tensor<4x128x128xf32>
    %yb = sdy.sharding_constraint %y <@mesh, [{}, {"fsdp", "expert"}, {}, {}]> : tensor<4x4x8x128xf32>
    %yt = stablehlo.transpose %yb, dims = [1, 0, 2, 3] : (tensor<4x4x8x128xf32>) -> tensor<4x4x8x128xf32>
    %yr = stablehlo.reshape %yt : (tensor<4x4x8x128xf32>) -> tensor<4x32x128xf32>
    %zb = sdy.sharding_constraint %z <@mesh, [{}, {"fsdp", "expert"}, {}, {}]> : tensor<4x4x8x128xf32>
    %zt = stablehlo.transpose %zb, dims = [1, 0, 2, 3] : (tensor<4x4x8x128xf32>) -> tensor<4x4x8x128xf32>
    %zr = stablehlo.reshape %zt : (tensor<4x4x8x128xf32>) -> tensor<4x32x128xf32>
    return %yr, %zr, %dw : tensor<4x32x128xf32>, tensor<4x32x128xf32>, tensor<4x128x128xf32>
  }
}
