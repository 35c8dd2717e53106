// within 1e-11
// Fourier transforms of doubles, and the size of a dimension.
module {
  func.func @main(%z: tensor<3x5x6xcomplex<f64>>, %x: tensor<3x7xf64>, %h: tensor<2x4x3xcomplex<f64>>) -> (tensor<3x5x6xcomplex<f64>>, tensor<3x5x6xcomplex<f64>>, tensor<3x4xcomplex<f64>>, tensor<2x4x4xf64>, tensor<i32>) {
    %0 = stablehlo.fft %z, type = FFT, length = [5, 6] : (tensor<3x5x6xcomplex<f64>>) -> tensor<3x5x6xcomplex<f64>>
    %1 = stablehlo.fft %z, type = IFFT, length = [6] : (tensor<3x5x6xcomplex<f64>>) -> tensor<3x5x6xcomplex<f64>>
    %2 = stablehlo.fft %x, type = RFFT, length = [7] : (tensor<3x7xf64>) -> tensor<3x4xcomplex<f64>>
    %3 = stablehlo.fft %h, type = IRFFT, length = [4, 4] : (tensor<2x4x3xcomplex<f64>>) -> tensor<2x4x4xf64>
    %4 = stablehlo.get_dimension_size %x, dim = 1 : (tensor<3x7xf64>) -> tensor<i32>
    return %0, %1, %2, %3, %4 : tensor<3x5x6xcomplex<f64>>, tensor<3x5x6xcomplex<f64>>, tensor<3x4xcomplex<f64>>, tensor<2x4x4xf64>, tensor<i32>
  }
}
