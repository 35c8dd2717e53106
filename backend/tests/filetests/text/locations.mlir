// options: locations
#loc1 = loc("x")
#loc6 = loc("add"(#loc4))
module {
  func.func @main(%arg0: tensor<f32> loc("x"), %arg1: tensor<f32> loc(#loc1)) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32> loc(#loc6)
    %1 = stablehlo.reduce(%0 init: %arg1) applies stablehlo.maximum across dimensions = [] : (tensor<f32>, tensor<f32>) -> tensor<f32> loc("here":3:1)
    %2 = stablehlo.negate %1 : tensor<f32> loc(fused<"pass">["a", callsite("b" at "c":1:2), unknown])
    return %2 : tensor<f32> loc(unknown)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("f.py":30:10 to :53)
#loc3 = loc("f.py":30:10 to 31:5)
#loc4 = loc(callsite(#loc2 at #loc3))
