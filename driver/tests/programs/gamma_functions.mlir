// within 1e-5
// Gamma's logarithm and its derivative, a Bessel function.
module {
  func.func @main(%n: tensor<9x7xf32>) -> (tensor<9x7xf32>, tensor<9x7xf32>, tensor<9x7xf32>) {
    %h = stablehlo.constant dense<0.375> : tensor<9x7xf32>
    %x = stablehlo.add %n, %h : tensor<9x7xf32>
    %0 = chlo.lgamma %x : tensor<9x7xf32> -> tensor<9x7xf32>
    %1 = chlo.digamma %x : tensor<9x7xf32> -> tensor<9x7xf32>
    %2 = chlo.bessel_i1e %x : tensor<9x7xf32> -> tensor<9x7xf32>
    return %0, %1, %2 : tensor<9x7xf32>, tensor<9x7xf32>, tensor<9x7xf32>
  }
}
