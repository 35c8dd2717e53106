// Many short arrays along lanes, one long one spread over lanes and rows, a selection from a vocabulary.
func.func @main(%a: tensor<4096x64xf32>, %b: tensor<1x100000xf32>, %c: tensor<2x151936xbf16>) -> (tensor<4096x64xf32>, tensor<1x100000xf32>, tensor<2x50xbf16>, tensor<2x50xi32>) {
  %0 = "stablehlo.sort"(%a) <{dimension = 1 : i64}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %c0 = stablehlo.compare LT, %p, %q, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c0 : tensor<i1>
  }) : (tensor<4096x64xf32>) -> tensor<4096x64xf32>
  %1 = "stablehlo.sort"(%b) <{dimension = 1 : i64}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %c0 = stablehlo.compare LT, %p, %q, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c0 : tensor<i1>
  }) : (tensor<1x100000xf32>) -> tensor<1x100000xf32>
  %2:2 = chlo.top_k(%c, k = 50) : tensor<2x151936xbf16> -> (tensor<2x50xbf16>, tensor<2x50xi32>)
  return %0, %1, %2#0, %2#1 : tensor<4096x64xf32>, tensor<1x100000xf32>, tensor<2x50xbf16>, tensor<2x50xi32>
}
