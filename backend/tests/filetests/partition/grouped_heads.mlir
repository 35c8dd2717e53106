// Eight heads of queries share four of keys, over a tp axis of eight: keys are cut by the four that divide them, and two devices
// have the same.
module @grouped_heads {
  sdy.mesh @mesh = <["data"=2, "tp"=8]>
  func.func public @main(%x: tensor<4x64x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}, {}]>}, %wq: tensor<32x8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"tp"}, {}]>}, %wk: tensor<32x4x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {}]>}) -> tensor<4x8x64x64xf32> {
    %q = stablehlo.dot_general %x, %wq, contracting_dims = [2] x [0] : (tensor<4x64x32xf32>, tensor<32x8x16xf32>) -> tensor<4x64x8x16xf32>
    %k = stablehlo.dot_general %x, %wk, contracting_dims = [2] x [0] : (tensor<4x64x32xf32>, tensor<32x4x16xf32>) -> tensor<4x64x4x16xf32>
    %b = stablehlo.broadcast_in_dim %k, dims = [0, 1, 2, 4] : (tensor<4x64x4x16xf32>) -> tensor<4x64x4x2x16xf32>
    %kk = stablehlo.reshape %b : (tensor<4x64x4x2x16xf32>) -> tensor<4x64x8x16xf32>
    %s = stablehlo.dot_general %q, %kk, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<4x64x8x16xf32>, tensor<4x64x8x16xf32>) -> tensor<4x8x64x64xf32>
    return %s : tensor<4x8x64x64xf32>
  }
}
