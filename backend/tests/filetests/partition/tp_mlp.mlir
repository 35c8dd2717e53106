// A gated MLP, columns of the first weights and rows of the last cut over tp: one all_reduce forwards. Backwards the two partial
// gradients of x are added before they are reduced.
module @tp_mlp {
  sdy.mesh @mesh = <["data"=2, "tp"=4]>
  func.func public @main(%x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, %up: tensor<16x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"tp"}]>}, %gate: tensor<16x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"tp"}]>}, %down: tensor<64x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"tp"}, {}]>}) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
    %u = stablehlo.dot_general %x, %up, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x64xf32>) -> tensor<8x64xf32>
    %g = stablehlo.dot_general %x, %gate, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x64xf32>) -> tensor<8x64xf32>
    %h = stablehlo.multiply %u, %g : tensor<8x64xf32>
    %y = stablehlo.dot_general %h, %down, contracting_dims = [1] x [0] : (tensor<8x64xf32>, tensor<64x16xf32>) -> tensor<8x16xf32>
    %du = stablehlo.dot_general %g, %up, contracting_dims = [1] x [1] : (tensor<8x64xf32>, tensor<16x64xf32>) -> tensor<8x16xf32>
    %dg = stablehlo.dot_general %u, %gate, contracting_dims = [1] x [1] : (tensor<8x64xf32>, tensor<16x64xf32>) -> tensor<8x16xf32>
    %dx = stablehlo.add %du, %dg : tensor<8x16xf32>
    return %y, %dx : tensor<8x16xf32>, tensor<8x16xf32>
  }
}
