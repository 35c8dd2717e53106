// A whole module in the generic form: the same reduction as a pretty one, and a second function in the old form.
"builtin.module"() <{sym_name = "generic"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["x"=4, "y"=2]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{arg_attrs = [{jax.buffer_donor = true}, {}], function_type = (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>, res_attrs = [{jax.result_info = "r"}], sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg0: tensor<4x8xf32>, %arg1: tensor<f32>):
    %0 = "stablehlo.reduce"(%arg0, %arg1) <{dimensions = array<i64: 1>}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %1 = "stablehlo.add"(%arg2, %arg3) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%1) : (tensor<f32>) -> ()
    }) {discardable} : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
    "func.return"(%0) : (tensor<4xf32>) -> ()
  }) {a.note = 1 : i64} : () -> ()
  "func.func"() ({
  ^bb0(%arg0: tensor<f32>):
    %0:2 = "stablehlo.while"(%arg0, %arg0) ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %1 = "stablehlo.constant"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
      "stablehlo.return"(%1) : (tensor<i1>) -> ()
    }, {
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      "stablehlo.return"(%arg2, %arg1) : (tensor<f32>, tensor<f32>) -> ()
    }) : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    "func.return"(%0#1) : (tensor<f32>) -> ()
  }) {function_type = (tensor<f32>) -> tensor<f32>, sym_name = "old", sym_visibility = "private"} : () -> ()
}) {mhlo.num_partitions = 8 : i32} : () -> ()
