// within 2e-6
// Functions of doubles and complex numbers that CHLO alone has.
module {
  func.func @main(%x: tensor<5x7xf64>, %z: tensor<5x7xcomplex<f32>>) -> (tensor<5x7xf64>, tensor<5x7xf64>, tensor<5x7xf64>, tensor<5x7xcomplex<f32>>, tensor<5x7xcomplex<f32>>, tensor<5x7xcomplex<f32>>, tensor<5x7xcomplex<f32>>) {
    %0 = chlo.sinh %x : tensor<5x7xf64> -> tensor<5x7xf64>
    %1 = chlo.asinh %x : tensor<5x7xf64> -> tensor<5x7xf64>
    %2 = chlo.atan %x : tensor<5x7xf64> -> tensor<5x7xf64>
    %3 = chlo.cosh %z : tensor<5x7xcomplex<f32>> -> tensor<5x7xcomplex<f32>>
    %4 = chlo.asin %z : tensor<5x7xcomplex<f32>> -> tensor<5x7xcomplex<f32>>
    %5 = chlo.asinh %z : tensor<5x7xcomplex<f32>> -> tensor<5x7xcomplex<f32>>
    %6 = stablehlo.sign %z : tensor<5x7xcomplex<f32>>
    return %0, %1, %2, %3, %4, %5, %6 : tensor<5x7xf64>, tensor<5x7xf64>, tensor<5x7xf64>, tensor<5x7xcomplex<f32>>, tensor<5x7xcomplex<f32>>, tensor<5x7xcomplex<f32>>, tensor<5x7xcomplex<f32>>
  }
}
