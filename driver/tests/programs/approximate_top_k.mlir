func.func @main(%x: tensor<4x200xf32>) -> (tensor<4x10xf32>, tensor<4x10xi32>) {
  %i = stablehlo.iota dim = 1 : tensor<4x200xi32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %none = stablehlo.constant dense<-1> : tensor<i32>
  %0:2 = stablehlo.custom_call @ApproxTopK(%x, %i, %low, %none) {called_computations = [@more], mhlo.backend_config = {aggregate_to_topk = true, recall_target = 0.95 : f32, reduction_dim = 1 : i64, reduction_input_size_override = -1 : i64, top_k = 10 : i64}} : (tensor<4x200xf32>, tensor<4x200xi32>, tensor<f32>, tensor<i32>) -> (tensor<4x10xf32>, tensor<4x10xi32>)
  return %0#0, %0#1 : tensor<4x10xf32>, tensor<4x10xi32>
}
func.func private @more(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>) -> tensor<i1> {
  %0 = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1>
}
