// within 1e-5
func.func @main(%n: tensor<7x5xf32>) -> (tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<7x5xf32>
  %z = stablehlo.divide %n, %zero : tensor<7x5xf32>
  %u = stablehlo.sign %n : tensor<7x5xf32>
  %big = stablehlo.constant dense<1.0e30> : tensor<7x5xf32>
  %v = stablehlo.multiply %n, %big : tensor<7x5xf32>
  %erf_z = chlo.erf %z : tensor<7x5xf32> -> tensor<7x5xf32>
  %erfc_z = chlo.erfc %z : tensor<7x5xf32> -> tensor<7x5xf32>
  %erf_inv_z = chlo.erf_inv %z : tensor<7x5xf32> -> tensor<7x5xf32>
  %asin_z = chlo.asin %z : tensor<7x5xf32> -> tensor<7x5xf32>
  %acos_z = chlo.acos %z : tensor<7x5xf32> -> tensor<7x5xf32>
  %atan_z = chlo.atan %z : tensor<7x5xf32> -> tensor<7x5xf32>
  %sinh_z = chlo.sinh %z : tensor<7x5xf32> -> tensor<7x5xf32>
  %cosh_z = chlo.cosh %z : tensor<7x5xf32> -> tensor<7x5xf32>
  %asinh_z = chlo.asinh %z : tensor<7x5xf32> -> tensor<7x5xf32>
  %acosh_z = chlo.acosh %z : tensor<7x5xf32> -> tensor<7x5xf32>
  %atanh_z = chlo.atanh %z : tensor<7x5xf32> -> tensor<7x5xf32>
  %erf_u = chlo.erf %u : tensor<7x5xf32> -> tensor<7x5xf32>
  %erfc_u = chlo.erfc %u : tensor<7x5xf32> -> tensor<7x5xf32>
  %erf_inv_u = chlo.erf_inv %u : tensor<7x5xf32> -> tensor<7x5xf32>
  %asin_u = chlo.asin %u : tensor<7x5xf32> -> tensor<7x5xf32>
  %acos_u = chlo.acos %u : tensor<7x5xf32> -> tensor<7x5xf32>
  %atan_u = chlo.atan %u : tensor<7x5xf32> -> tensor<7x5xf32>
  %sinh_u = chlo.sinh %u : tensor<7x5xf32> -> tensor<7x5xf32>
  %cosh_u = chlo.cosh %u : tensor<7x5xf32> -> tensor<7x5xf32>
  %asinh_u = chlo.asinh %u : tensor<7x5xf32> -> tensor<7x5xf32>
  %acosh_u = chlo.acosh %u : tensor<7x5xf32> -> tensor<7x5xf32>
  %atanh_u = chlo.atanh %u : tensor<7x5xf32> -> tensor<7x5xf32>
  %erf_v = chlo.erf %v : tensor<7x5xf32> -> tensor<7x5xf32>
  %erfc_v = chlo.erfc %v : tensor<7x5xf32> -> tensor<7x5xf32>
  %asin_v = chlo.asin %v : tensor<7x5xf32> -> tensor<7x5xf32>
  %acos_v = chlo.acos %v : tensor<7x5xf32> -> tensor<7x5xf32>
  %atan_v = chlo.atan %v : tensor<7x5xf32> -> tensor<7x5xf32>
  %asinh_v = chlo.asinh %v : tensor<7x5xf32> -> tensor<7x5xf32>
  %acosh_v = chlo.acosh %v : tensor<7x5xf32> -> tensor<7x5xf32>
  %atanh_v = chlo.atanh %v : tensor<7x5xf32> -> tensor<7x5xf32>
  return %erf_z, %erfc_z, %erf_inv_z, %asin_z, %acos_z, %atan_z, %sinh_z, %cosh_z, %asinh_z, %acosh_z, %atanh_z, %erf_u, %erfc_u, %erf_inv_u, %asin_u, %acos_u, %atan_u, %sinh_u, %cosh_u, %asinh_u, %acosh_u, %atanh_u, %erf_v, %erfc_v, %asin_v, %acos_v, %atan_v, %asinh_v, %acosh_v, %atanh_v : tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>
}
