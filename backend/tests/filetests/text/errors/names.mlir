// Names: undefined, defined twice, wrong result numbers; an op that failed does not make its uses errors.
func.func @main(%x: tensor<4xf32>, %y: tensor<8xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %nowhere : tensor<4xf32>
  %1 = stablehlo.add %x, %0 : tensor<4xf32>
  %x = stablehlo.negate %x : tensor<4xf32>
  %2:2 = stablehlo.optimization_barrier %x, %y : tensor<4xf32>, tensor<8xf32>
  %3 = stablehlo.negate %2 : tensor<4xf32>
  %4 = stablehlo.negate %2#2 : tensor<4xf32>
  %5 = "stablehlo.case"(%i) ({
    %inner = stablehlo.negate %x : tensor<4xf32>
    stablehlo.return %inner : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  %6 = stablehlo.negate %inner : tensor<4xf32>
  return %1 : tensor<4xf32>
}
