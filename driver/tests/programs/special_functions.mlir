// within 1e-5
func.func @main(%n: tensor<7x33xf32>, %b: tensor<7x33xbf16>) -> (tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xi1>, tensor<7x33xi1>, tensor<7x33xi1>, tensor<7x33xbf16>, tensor<7x33xbf16>, tensor<7x33xbf16>) {
  %i = stablehlo.iota dim = 1 : tensor<7x33xf32>
  %c = stablehlo.constant dense<0.03125> : tensor<7x33xf32>
  %f = stablehlo.multiply %i, %c : tensor<7x33xf32>
  %g = stablehlo.multiply %n, %f : tensor<7x33xf32>
  %h = stablehlo.constant dense<0.5> : tensor<7x33xf32>
  %x = stablehlo.multiply %g, %h : tensor<7x33xf32>
  %o = stablehlo.constant dense<0.0> : tensor<7x33xf32>
  %z = stablehlo.divide %n, %o : tensor<7x33xf32>
  %erf = chlo.erf %x : tensor<7x33xf32> -> tensor<7x33xf32>
  %erfc = chlo.erfc %x : tensor<7x33xf32> -> tensor<7x33xf32>
  %erf_inv = chlo.erf_inv %x : tensor<7x33xf32> -> tensor<7x33xf32>
  %asin = chlo.asin %x : tensor<7x33xf32> -> tensor<7x33xf32>
  %acos = chlo.acos %x : tensor<7x33xf32> -> tensor<7x33xf32>
  %atan = chlo.atan %x : tensor<7x33xf32> -> tensor<7x33xf32>
  %sinh = chlo.sinh %x : tensor<7x33xf32> -> tensor<7x33xf32>
  %cosh = chlo.cosh %x : tensor<7x33xf32> -> tensor<7x33xf32>
  %tan = chlo.tan %x : tensor<7x33xf32> -> tensor<7x33xf32>
  %asinh = chlo.asinh %x : tensor<7x33xf32> -> tensor<7x33xf32>
  %acosh = chlo.acosh %x : tensor<7x33xf32> -> tensor<7x33xf32>
  %atanh = chlo.atanh %x : tensor<7x33xf32> -> tensor<7x33xf32>
  %square = chlo.square %x : tensor<7x33xf32> -> tensor<7x33xf32>
  %is_inf = chlo.is_inf %z : tensor<7x33xf32> -> tensor<7x33xi1>
  %is_pos_inf = chlo.is_pos_inf %z : tensor<7x33xf32> -> tensor<7x33xi1>
  %is_neg_inf = chlo.is_neg_inf %z : tensor<7x33xf32> -> tensor<7x33xi1>
  %b_erf = chlo.erf %b : tensor<7x33xbf16> -> tensor<7x33xbf16>
  %b_cosh = chlo.cosh %b : tensor<7x33xbf16> -> tensor<7x33xbf16>
  %b_square = chlo.square %b : tensor<7x33xbf16> -> tensor<7x33xbf16>
  return %erf, %erfc, %erf_inv, %asin, %acos, %atan, %sinh, %cosh, %tan, %asinh, %acosh, %atanh, %square, %is_inf, %is_pos_inf, %is_neg_inf, %b_erf, %b_cosh, %b_square : tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xf32>, tensor<7x33xi1>, tensor<7x33xi1>, tensor<7x33xi1>, tensor<7x33xbf16>, tensor<7x33xbf16>, tensor<7x33xbf16>
}
