// A loop over stacked layers. Each iteration gathers the weight of its layer only.
module @scan {
  sdy.mesh @mesh = <["fsdp"=2, "tp"=2]>
  func.func public @main(%x: tensor<64x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>}, %w: tensor<3x8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"fsdp"}, {"tp"}]>}) -> tensor<64x8xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%i = %zero, %h = %x, %ws = %w) : tensor<i32>, tensor<64x8xf32>, tensor<3x8x8xf32>
    cond {
      %n = stablehlo.constant dense<3> : tensor<i32>
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %z = stablehlo.constant dense<0> : tensor<i32>
      %s = stablehlo.dynamic_slice %ws, %i, %z, %z, sizes = [1, 8, 8] : (tensor<3x8x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x8xf32>
      %layer = func.call @squeeze(%s) : (tensor<1x8x8xf32>) -> tensor<8x8xf32>
      %y = stablehlo.dot_general %h, %layer, contracting_dims = [1] x [0] : (tensor<64x8xf32>, tensor<8x8xf32>) -> tensor<64x8xf32>
      %five = stablehlo.constant dense<5.0> : tensor<64x8xf32>
      %r = stablehlo.remainder %y, %five : tensor<64x8xf32>
      %c = sdy.sharding_constraint %r <@mesh, [{"fsdp"}, {}]> : tensor<64x8xf32>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %c, %ws : tensor<i32>, tensor<64x8xf32>, tensor<3x8x8xf32>
    }
    return %0#1 : tensor<64x8xf32>
  }
  func.func private @squeeze(%a: tensor<1x8x8xf32>) -> tensor<8x8xf32> {
    %0 = stablehlo.reshape %a : (tensor<1x8x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
}
