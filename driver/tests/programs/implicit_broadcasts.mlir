// CHLO's operations that broadcast: lower ranks, sizes of one, given dimensions, pairs of registers; and a size as a value.
func.func @main(%x: tensor<3x5x7xf32>, %v: tensor<7xf32>, %o: tensor<5x1xf32>, %i: tensor<9x4xi64>, %s: tensor<i64>, %w: tensor<9xi64>, %p: tensor<i1>) -> (tensor<3x5x7xf32>, tensor<3x5x7xf32>, tensor<3x5x7xi1>, tensor<9x4xi64>, tensor<9x4xi64>, tensor<3x5x7xf32>, tensor<3x5x7xcomplex<f32>>, tensor<i32>) {
  %0 = chlo.broadcast_add %x, %v : (tensor<3x5x7xf32>, tensor<7xf32>) -> tensor<3x5x7xf32>
  %1 = chlo.broadcast_multiply %o, %x : (tensor<5x1xf32>, tensor<3x5x7xf32>) -> tensor<3x5x7xf32>
  %2 = chlo.broadcast_compare %x, %o {comparison_direction = #chlo<comparison_direction LT>} : (tensor<3x5x7xf32>, tensor<5x1xf32>) -> tensor<3x5x7xi1>
  %3 = chlo.broadcast_subtract %s, %i : (tensor<i64>, tensor<9x4xi64>) -> tensor<9x4xi64>
  %4 = chlo.broadcast_maximum %i, %w {broadcast_dimensions = array<i64: 0>} : (tensor<9x4xi64>, tensor<9xi64>) -> tensor<9x4xi64>
  %5 = chlo.broadcast_select %p, %x, %0 : (tensor<i1>, tensor<3x5x7xf32>, tensor<3x5x7xf32>) -> tensor<3x5x7xf32>
  %6 = chlo.broadcast_complex %x, %v : (tensor<3x5x7xf32>, tensor<7xf32>) -> tensor<3x5x7xcomplex<f32>>
  %7 = stablehlo.get_dimension_size %i, dim = 0 : (tensor<9x4xi64>) -> tensor<i32>
  return %0, %1, %2, %3, %4, %5, %6, %7 : tensor<3x5x7xf32>, tensor<3x5x7xf32>, tensor<3x5x7xi1>, tensor<9x4xi64>, tensor<9x4xi64>, tensor<3x5x7xf32>, tensor<3x5x7xcomplex<f32>>, tensor<i32>
}
