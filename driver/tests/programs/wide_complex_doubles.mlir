// within 1e-11
// Complex doubles as two doubles: parameters and results, arithmetic, sums, products of matrices, loops, calls and conversions.
module {
  func.func private @twice(%x: tensor<4x3xcomplex<f64>>) -> tensor<4x3xcomplex<f64>> {
    %0 = stablehlo.add %x, %x : tensor<4x3xcomplex<f64>>
    return %0 : tensor<4x3xcomplex<f64>>
  }
  func.func @main(%a: tensor<4x3xcomplex<f64>>, %b: tensor<3x5xcomplex<f64>>, %n: tensor<4x3xf64>) -> (tensor<4x3xcomplex<f64>>, tensor<4x5xcomplex<f64>>, tensor<3xcomplex<f64>>, tensor<3x4xcomplex<f64>>, tensor<4x3xf64>, tensor<4x3xi1>, tensor<4x3xcomplex<f32>>, tensor<4x3xcomplex<f64>>, tensor<4x6xcomplex<f64>>) {
    %0 = stablehlo.multiply %a, %a : tensor<4x3xcomplex<f64>>
    %1 = func.call @twice(%0) : (tensor<4x3xcomplex<f64>>) -> tensor<4x3xcomplex<f64>>
    %2 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4x3xcomplex<f64>>, tensor<3x5xcomplex<f64>>) -> tensor<4x5xcomplex<f64>>
    %z = stablehlo.constant dense<(0.5, -0.25)> : tensor<complex<f64>>
    %3 = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0] : (tensor<4x3xcomplex<f64>>, tensor<complex<f64>>) -> tensor<3xcomplex<f64>>
    %4 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x3xcomplex<f64>>) -> tensor<3x4xcomplex<f64>>
    %5 = stablehlo.abs %a : (tensor<4x3xcomplex<f64>>) -> tensor<4x3xf64>
    %6 = stablehlo.compare EQ, %a, %0 : (tensor<4x3xcomplex<f64>>, tensor<4x3xcomplex<f64>>) -> tensor<4x3xi1>
    %7 = stablehlo.convert %0 : (tensor<4x3xcomplex<f64>>) -> tensor<4x3xcomplex<f32>>
    %i = stablehlo.constant dense<0> : tensor<i32>
    %8:2 = stablehlo.while(%k = %i, %v = %a) : tensor<i32>, tensor<4x3xcomplex<f64>>
    cond {
      %m = stablehlo.constant dense<3> : tensor<i32>
      %9 = stablehlo.compare LT, %k, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %9 : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %9 = stablehlo.add %k, %one : tensor<i32>
      %10 = stablehlo.convert %n : (tensor<4x3xf64>) -> tensor<4x3xcomplex<f64>>
      %11 = stablehlo.multiply %v, %10 : tensor<4x3xcomplex<f64>>
      stablehlo.return %9, %11 : tensor<i32>, tensor<4x3xcomplex<f64>>
    }
    %12 = stablehlo.concatenate %a, %8#1, dim = 1 : (tensor<4x3xcomplex<f64>>, tensor<4x3xcomplex<f64>>) -> tensor<4x6xcomplex<f64>>
    return %1, %2, %3, %4, %5, %6, %7, %8#1, %12 : tensor<4x3xcomplex<f64>>, tensor<4x5xcomplex<f64>>, tensor<3xcomplex<f64>>, tensor<3x4xcomplex<f64>>, tensor<4x3xf64>, tensor<4x3xi1>, tensor<4x3xcomplex<f32>>, tensor<4x3xcomplex<f64>>, tensor<4x6xcomplex<f64>>
  }
}
