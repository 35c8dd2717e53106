// within 1e-5
func.func @main(%x: tensor<2x7x9xf32>, %b: tensor<2x7x3xf32>, %c: tensor<2x4x7xf32>) -> (tensor<2x7x7xf32>, tensor<2x7x7xf32>, tensor<2x7x3xf32>, tensor<2x4x7xf32>, tensor<2x7x3xf32>) {
  %0 = stablehlo.dot_general %x, %x, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<2x7x9xf32>, tensor<2x7x9xf32>) -> tensor<2x7x7xf32>
  %i = stablehlo.iota dim = 1 : tensor<2x7x7xi32>
  %j = stablehlo.iota dim = 2 : tensor<2x7x7xi32>
  %d = stablehlo.compare EQ, %i, %j : (tensor<2x7x7xi32>, tensor<2x7x7xi32>) -> tensor<2x7x7xi1>
  %ten = stablehlo.constant dense<10.0> : tensor<2x7x7xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<2x7x7xf32>
  %e = stablehlo.select %d, %ten, %zero : tensor<2x7x7xi1>, tensor<2x7x7xf32>
  %a = stablehlo.add %0, %e : tensor<2x7x7xf32>
  %l = stablehlo.cholesky %a, lower = true : tensor<2x7x7xf32>
  %u = stablehlo.cholesky %a, lower = false : tensor<2x7x7xf32>
  %1 = "stablehlo.triangular_solve"(%l, %b) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<2x7x7xf32>, tensor<2x7x3xf32>) -> tensor<2x7x3xf32>
  %2 = "stablehlo.triangular_solve"(%u, %c) <{left_side = false, lower = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<2x7x7xf32>, tensor<2x4x7xf32>) -> tensor<2x4x7xf32>
  %tenth = stablehlo.constant dense<0.125> : tensor<2x7x7xf32>
  %t = stablehlo.multiply %l, %tenth : tensor<2x7x7xf32>
  %3 = "stablehlo.triangular_solve"(%t, %b) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose TRANSPOSE>, unit_diagonal = true}> : (tensor<2x7x7xf32>, tensor<2x7x3xf32>) -> tensor<2x7x3xf32>
  return %l, %u, %1, %2, %3 : tensor<2x7x7xf32>, tensor<2x7x7xf32>, tensor<2x7x3xf32>, tensor<2x4x7xf32>, tensor<2x7x3xf32>
}
