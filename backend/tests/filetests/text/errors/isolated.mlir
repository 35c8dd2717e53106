// The body of a manual computation sees nothing from outside.
sdy.mesh @mesh = <["x"=2]>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"x"}]>] out_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"} (%y: tensor<2xf32>) {
    %1 = stablehlo.add %y, %x : tensor<2xf32>
    sdy.return %1 : tensor<2xf32>
  } : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
