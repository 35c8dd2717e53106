// Meshes, shardings and manual computations.
module @jit_f attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["x"=4, "y"=2]> {stablehlo.mesh = {axes = [{name = "x", size = 4 : i64}]}}
  sdy.mesh @order = <["x"=2], device_ids=[1,0]>
  func.func public @main(%arg0: tensor<16x128xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y",?}], replicated={}>}) -> (tensor<16x128xf32> {sdy.sharding = #sdy.sharding< @mesh , [ {"x"} , {} ]>}) {
    %0 = sdy.sharding_constraint %arg0 <@mesh, [{"x":(1)2}p1, {?}]> : tensor<16x128xf32>
    %1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x", "y"} (%arg1: tensor<4x128xf32>) {
      %2 = "stablehlo.all_reduce"(%arg1) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "x">]>, use_global_device_ids}> ({
      ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
        %3 = stablehlo.add %arg2, %arg3 : tensor<f32>
        stablehlo.return %3 : tensor<f32>
      }) : (tensor<4x128xf32>) -> tensor<4x128xf32>
      sdy.return %2 : tensor<4x128xf32>
    } : (tensor<16x128xf32>) -> tensor<16x128xf32>
    %4 = sdy.all_gather [{"x"}, {}] %1 out_sharding=<@mesh, [{}, {}]> : tensor<16x128xf32>
    %5 = stablehlo.add %4, %4 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"y"}]>]>} : tensor<16x128xf32>
    sdy.sharding_group %5 group_id=3 : tensor<16x128xf32>
    return %5 : tensor<16x128xf32>
  }
}
