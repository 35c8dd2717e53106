// Every pretty form of StableHLO that has no region.
module @pretty attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @unary(%x: tensor<2x3xf32>, %i: tensor<2x3xi32>, %p: tensor<i1>, %c: tensor<4xcomplex<f32>>) -> tensor<2x3xf32> {
    %0 = stablehlo.abs %x : tensor<2x3xf32>
    %1 = stablehlo.abs %c : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
    %2 = stablehlo.convert %i : (tensor<2x3xi32>) -> tensor<2x3xf32>
    %3 = stablehlo.exponential %x {result_accuracy = #stablehlo.result_accuracy<ulps = 4, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<2x3xf32>
    %4 = stablehlo.exponential %x {result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<DEFAULT>>} : tensor<2x3xf32>
    %5 = stablehlo.is_finite %x : (tensor<2x3xf32>) -> tensor<2x3xi1>
    %6 = stablehlo.real %c : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
    %7 = stablehlo.bitcast_convert %x : (tensor<2x3xf32>) -> tensor<2x3xi32>
    %8 = stablehlo.reduce_precision %x, format = e8m7 : tensor<2x3xf32>
    %9 = stablehlo.cholesky %x, lower = true : tensor<2x3xf32>
    %10 = stablehlo.reverse %x, dims = [0, 1] : tensor<2x3xf32>
    return %3 : tensor<2x3xf32>
  }
  func.func private @more(%a: tensor<8xf32>, %b: tensor<8xf32>, %m: tensor<8xi1>, %s: tensor<f32>, %i: tensor<i32>, %x: tensor<4x8xf32>) {
    %0 = stablehlo.add %a, %b : tensor<8xf32>
    %1 = stablehlo.complex %a, %b : tensor<8xcomplex<f32>>
    %2 = stablehlo.compare GE, %a, %b, TOTALORDER : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>
    %3 = stablehlo.compare LT, %a, %b, NOTYPE : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>
    %4 = stablehlo.compare NE, %a, %b : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>
    %5 = stablehlo.select %m, %a, %b : tensor<8xi1>, tensor<8xf32>
    %6 = stablehlo.select %m, %a, %b : (tensor<8xi1>, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %7 = stablehlo.clamp %s, %a, %s : (tensor<f32>, tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
    %8 = stablehlo.iota dim = 1 : tensor<2x4xi64>
    %9 = stablehlo.slice %x [0:4:2, 1:5] : (tensor<4x8xf32>) -> tensor<2x4xf32>
    %10 = stablehlo.dynamic_slice %x, %i, %i, sizes = [1, 2] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %11 = stablehlo.dynamic_update_slice %x, %10, %i, %i : (tensor<4x8xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
    %12 = stablehlo.broadcast %s, sizes = [2] : (tensor<f32>) -> tensor<2xf32>
    %13 = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
    %14 = stablehlo.concatenate %a, %b, dim = 0 : (tensor<8xf32>, tensor<8xf32>) -> tensor<16xf32>
    %15 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %16 = stablehlo.pad %a, %s, low = [-1], high = [2], interior = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<9xf32>
    %17 = stablehlo.dot %x, %a, precision = [HIGH, DEFAULT] : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4xf32>
    %18 = stablehlo.dot_general %x, %15, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    %19 = stablehlo.dot_general %x, %x, batching_dims = [0] x [0], contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST], algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, allow_imprecise_accumulation = false> : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4xf32>
    %20 = stablehlo.get_dimension_size %x, dim = 1 : (tensor<4x8xf32>) -> tensor<i32>
    %21 = stablehlo.fft %1, type = FFT, length = [8] : (tensor<8xcomplex<f32>>) -> tensor<8xcomplex<f32>>
    %22 = stablehlo.einsum %x, %x, config = "ab,ab->a" : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4xf32>
    %23 = stablehlo.replica_id : tensor<ui32>
    %24 = stablehlo.create_token : !stablehlo.token
    %25 = stablehlo.after_all %24, %24 : !stablehlo.token
    %26 = stablehlo.tuple %a, %24 : tuple<tensor<8xf32>, !stablehlo.token>
    %27 = stablehlo.get_tuple_element %26[0] : (tuple<tensor<8xf32>, !stablehlo.token>) -> tensor<8xf32>
    %28:2 = stablehlo.optimization_barrier %a, %x : tensor<8xf32>, tensor<4x8xf32>
    %st, %bits = stablehlo.rng_bit_generator %a, algorithm = THREE_FRY : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xui32>)
    stablehlo.optimization_barrier ()
    return
  }
  func.func @conv(%x: tensor<1x8x8x4xf32>, %k: tensor<3x3x4x16xf32>) -> (tensor<1x4x4x16xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[0, 1], [0, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>) -> tensor<1x4x4x16xf32>
    return %0 : tensor<1x4x4x16xf32>
  }
}
