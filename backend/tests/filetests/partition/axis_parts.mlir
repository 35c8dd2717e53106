// Parts of an axis: the outer two of eight devices cut rows, the inner four columns; then all eight the rows.
module @axis_parts {
  sdy.mesh @mesh = <["x"=8]>
  func.func public @main(%a: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2}, {"x":(2)4}]>}) -> (tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
    %0 = stablehlo.negate %a : tensor<16x8xf32>
    return %0 : tensor<16x8xf32>
  }
}
