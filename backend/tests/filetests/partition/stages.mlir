// Layers of a stack cut over devices. A layer that one device has is sent to all by a sum with zeros; an update is written where
// the layer is, and by the others over what they have with the same.
module @stages {
  sdy.mesh @mesh = <["stage"=4]>
  func.func public @main(%w: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"stage"}, {}]>}, %i: tensor<i32>, %u: tensor<1x16xf32>) -> (tensor<1x16xf32>, tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"stage"}, {}]>}) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %w, %i, %zero, sizes = [1, 16] : (tensor<8x16xf32>, tensor<i32>, tensor<i32>) -> tensor<1x16xf32>
    %1 = stablehlo.dynamic_update_slice %w, %u, %i, %zero : (tensor<8x16xf32>, tensor<1x16xf32>, tensor<i32>, tensor<i32>) -> tensor<8x16xf32>
    return %0, %1 : tensor<1x16xf32>, tensor<8x16xf32>
  }
}
