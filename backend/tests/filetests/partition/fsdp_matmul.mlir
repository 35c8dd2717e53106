// A linear layer and its gradients. Weights and batch are cut over the same axis: the weight is gathered for both products, its
// gradient is scattered.
module @fsdp_matmul {
  sdy.mesh @mesh = <["fsdp"=4]>
  func.func public @main(%x: tensor<64x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>}, %w: tensor<8x12xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>}, %dy: tensor<64x12xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>}) -> (tensor<64x12xf32>, tensor<64x8xf32>, tensor<8x12xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>}) {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<64x8xf32>, tensor<8x12xf32>) -> tensor<64x12xf32>
    %dx = stablehlo.dot_general %dy, %w, contracting_dims = [1] x [1] : (tensor<64x12xf32>, tensor<8x12xf32>) -> tensor<64x8xf32>
    %dw = stablehlo.dot_general %x, %dy, contracting_dims = [0] x [0] : (tensor<64x8xf32>, tensor<64x12xf32>) -> tensor<8x12xf32>
    return %y, %dx, %dw : tensor<64x12xf32>, tensor<64x8xf32>, tensor<8x12xf32>
  }
}
