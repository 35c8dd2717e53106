// Attributes of every kind, old spellings included, and aliases.
#dims = dense<[1, 0]> : tensor<2xi64>
#name = "an alias"
!t = tensor<2x3xf32>
module attributes {a.int = -5 : i32, a.big = 0xFF : ui8, a.float = 9.99999974E-6 : f32, a.nan = 0x7FC00000 : f32, a.unit, a.list = [1, "two", @three::@four, i32, [true, unit]], a.dict = {x = 1.5, "odd name" = array<i1: true, false>}, a.text = "tab\09 quote\22 nl\n é", a.alias = #name, a.type = (tensor<2xf32>, i1) -> tensor<f64>} {
  func.func @main(%x: !t {jax.buffer_donor = true, mhlo.sharding = "{replicated}", tf.aliasing_output = 0 : i32}, %g: tensor<50x40xf32>, %ix: tensor<5x1xi32>) -> !t attributes {a.note = "kept"} {
    %0 = "stablehlo.transpose"(%x) {permutation = #dims} : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %1 = "stablehlo.compare"(%x, %x) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type FLOAT>} : (!t, !t) -> tensor<2x3xi1>
    %2 = "stablehlo.gather"(%g, %ix) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = dense<[1, 40]> : tensor<2xi64>}> : (tensor<50x40xf32>, tensor<5x1xi32>) -> tensor<5x40xf32>
    %3 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<2x3xf32>) -> tensor<4x3xf32>
    %4 = "stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %5:2 = stablehlo.custom_call @"odd target"(%x, %x) {api_version = 2 : i32, backend_config = {flag = true}, has_side_effect = false, operand_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<> : tensor<0xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 1, operand_tuple_indices = []>], mhlo.frontend_attributes = {kernel_metadata = "{}"}} : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<f32>)
    %6 = stablehlo.composite "x.y" %x {composite_attributes = {k = 5 : i64, dims = dense<1> : tensor<1xi64>, none = dense<> : tensor<0xi64>}, decomposition = @main, version = 1 : i32} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %7 = "stablehlo.convolution"(%g, %g) {dimension_numbers = #stablehlo.conv<[b, f]x[i, o]->[b, f]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64, padding = dense<> : tensor<0x2xi64>} : (tensor<50x40xf32>, tensor<50x40xf32>) -> tensor<50x50xf32>
    %8 = stablehlo.custom_call @f() {backend_config = "", called_computations = []} : () -> tensor<4x!quant.uniform<i8<-127:127>:f32:0, {0.1:-3, 2.5e-01, 1.0:5, 1.0}>>
    %9 = stablehlo.custom_call @f() : () -> tensor<4x?x!quant.uniform<u8:f32, 0.5:128>, #stablehlo.bounds<?, 7>>
    return %4 : !t
  }
}
