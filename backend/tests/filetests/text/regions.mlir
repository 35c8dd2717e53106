// Operations with regions, pretty and generic.
func.func @main(%x: tensor<4x8xf32>, %i: tensor<4x8xi32>, %z: tensor<f32>, %n: tensor<i32>, %ix: tensor<2x1xi32>, %u: tensor<2x8xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %1:2 = stablehlo.reduce(%x init: %z), (%i init: %n) across dimensions = [1] : (tensor<4x8xf32>, tensor<4x8xi32>, tensor<f32>, tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>)
   reducer(%a: tensor<f32>, %c: tensor<f32>) (%b: tensor<i32>, %d: tensor<i32>) {
    %s = stablehlo.compare GT, %a, %c, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %v = stablehlo.select %s, %a, %c : tensor<i1>, tensor<f32>
    %w = stablehlo.select %s, %b, %d : tensor<i1>, tensor<i32>
    stablehlo.return %v, %w : tensor<f32>, tensor<i32>
  }
  %2:2 = stablehlo.while(%k = %n, %acc = %x) : tensor<i32>, tensor<4x8xf32> attributes {mhlo.note = "loop"}
  cond {
    %c5 = stablehlo.constant dense<5> : tensor<i32>
    %t = stablehlo.compare LT, %k, %c5, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %c1 = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %k, %c1 : tensor<i32>
    %twice = stablehlo.add %acc, %acc : tensor<4x8xf32>
    stablehlo.return %next, %twice : tensor<i32>, tensor<4x8xf32>
  }
  %3 = "stablehlo.case"(%n) ({
    %y = stablehlo.sine %x : tensor<4x8xf32>
    stablehlo.return %y : tensor<4x8xf32>
  }, {
    stablehlo.return %x : tensor<4x8xf32>
  }) : (tensor<i32>) -> tensor<4x8xf32>
  %4 = "stablehlo.scatter"(%x, %ix, %u) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %r = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }) : (tensor<4x8xf32>, tensor<2x1xi32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %5 = "stablehlo.reduce_window"(%x, %z) <{base_dilations = array<i64: 1, 1>, padding = dense<[[0, 0], [1, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 2>, window_strides = dense<1> : tensor<2xi64>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %r = stablehlo.maximum %p, %q : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %6 = call @helper(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %7:2 = func.call @two() : () -> (tensor<f32>, tensor<f32>)
  func.return %6, %1#0 : tensor<4xf32>, tensor<4xf32>
}
func.func private @helper(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
func.func private @two() -> (tensor<f32>, tensor<f32>) {
  %0 = stablehlo.constant dense<0.0> : tensor<f32>
  "stablehlo.return"(%0, %0) : (tensor<f32>, tensor<f32>) -> ()
}
