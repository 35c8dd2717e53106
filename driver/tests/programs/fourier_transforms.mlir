// within 1e-5
module @fourier_transforms {
  func.func public @main(%a: tensor<3x20xcomplex<f32>>, %b: tensor<2x3x15xf32>, %c: tensor<4x9xcomplex<f32>>, %d: tensor<2x600xcomplex<f32>>, %e: tensor<2x540xf32>, %f: tensor<2x271xcomplex<f32>>, %g: tensor<17xcomplex<f32>>)
      -> (tensor<3x20xcomplex<f32>>, tensor<2x3x8xcomplex<f32>>, tensor<4x16xf32>, tensor<4x17xf32>, tensor<3x20xcomplex<f32>>, tensor<2x600xcomplex<f32>>, tensor<2x271xcomplex<f32>>, tensor<2x540xf32>, tensor<17xcomplex<f32>>) {
    %0 = stablehlo.fft %a, type = FFT, length = [20] : (tensor<3x20xcomplex<f32>>) -> tensor<3x20xcomplex<f32>>
    %1 = stablehlo.fft %b, type = RFFT, length = [3, 15] : (tensor<2x3x15xf32>) -> tensor<2x3x8xcomplex<f32>>
    %2 = stablehlo.fft %c, type = IRFFT, length = [16] : (tensor<4x9xcomplex<f32>>) -> tensor<4x16xf32>
    %3 = stablehlo.fft %c, type = IRFFT, length = [4, 17] : (tensor<4x9xcomplex<f32>>) -> tensor<4x17xf32>
    %4 = stablehlo.fft %a, type = IFFT, length = [3, 20] : (tensor<3x20xcomplex<f32>>) -> tensor<3x20xcomplex<f32>>
    %5 = stablehlo.fft %d, type = FFT, length = [600] : (tensor<2x600xcomplex<f32>>) -> tensor<2x600xcomplex<f32>>
    %6 = stablehlo.fft %e, type = RFFT, length = [540] : (tensor<2x540xf32>) -> tensor<2x271xcomplex<f32>>
    %7 = stablehlo.fft %f, type = IRFFT, length = [540] : (tensor<2x271xcomplex<f32>>) -> tensor<2x540xf32>
    %8 = stablehlo.fft %g, type = IFFT, length = [17] : (tensor<17xcomplex<f32>>) -> tensor<17xcomplex<f32>>
    return %0, %1, %2, %3, %4, %5, %6, %7, %8 : tensor<3x20xcomplex<f32>>, tensor<2x3x8xcomplex<f32>>, tensor<4x16xf32>, tensor<4x17xf32>, tensor<3x20xcomplex<f32>>, tensor<2x600xcomplex<f32>>, tensor<2x271xcomplex<f32>>, tensor<2x540xf32>, tensor<17xcomplex<f32>>
  }
}
