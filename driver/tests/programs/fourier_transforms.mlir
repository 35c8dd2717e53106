// within 1e-5
module @fourier_transforms {
  func.func public @main(%a: tensor<3x20xcomplex<f32>>, %b: tensor<2x3x15xf32>, %c: tensor<2x9xcomplex<f32>>, %d: tensor<2x288xcomplex<f32>>, %e: tensor<2x136xcomplex<f32>>)
      -> (tensor<3x20xcomplex<f32>>, tensor<2x3x8xcomplex<f32>>, tensor<2x17xf32>, tensor<2x288xcomplex<f32>>, tensor<2x270xf32>) {
    %0 = stablehlo.fft %a, type = IFFT, length = [3, 20] : (tensor<3x20xcomplex<f32>>) -> tensor<3x20xcomplex<f32>>
    %1 = stablehlo.fft %b, type = RFFT, length = [3, 15] : (tensor<2x3x15xf32>) -> tensor<2x3x8xcomplex<f32>>
    %2 = stablehlo.fft %c, type = IRFFT, length = [17] : (tensor<2x9xcomplex<f32>>) -> tensor<2x17xf32>
    %3 = stablehlo.fft %d, type = FFT, length = [288] : (tensor<2x288xcomplex<f32>>) -> tensor<2x288xcomplex<f32>>
    %4 = stablehlo.fft %e, type = IRFFT, length = [270] : (tensor<2x136xcomplex<f32>>) -> tensor<2x270xf32>
    return %0, %1, %2, %3, %4 : tensor<3x20xcomplex<f32>>, tensor<2x3x8xcomplex<f32>>, tensor<2x17xf32>, tensor<2x288xcomplex<f32>>, tensor<2x270xf32>
  }
}
