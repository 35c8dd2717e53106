// Stored integers with zero points: products, windows of them, scales along an axis, arithmetic and data movement.
module {
  func.func @main(%a: tensor<5x7xf32>, %b: tensor<7x3xf32>, %x: tensor<2x6x5x2xf32>, %k: tensor<3x3x2x4xf32>) -> (tensor<5x3xf32>, tensor<5x3xf32>, tensor<2x6x5x4xf32>, tensor<3x5xi8>, tensor<5x7xf32>, tensor<5xf32>) {
    %0 = stablehlo.uniform_quantize %a : (tensor<5x7xf32>) -> tensor<5x7x!quant.uniform<i8:f32, 0.03125:-5>>
    %1 = stablehlo.uniform_quantize %b : (tensor<7x3xf32>) -> tensor<7x3x!quant.uniform<i8:f32:1, {0.0625, 0.03125, 0.125}>>
    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : (tensor<5x7x!quant.uniform<i8:f32, 0.03125:-5>>, tensor<7x3x!quant.uniform<i8:f32:1, {0.0625, 0.03125, 0.125}>>) -> tensor<5x3x!quant.uniform<i32:f32:1, {0.0009765625, 0.0009765625, 0.0009765625}>>
    %3 = stablehlo.uniform_dequantize %2 : (tensor<5x3x!quant.uniform<i32:f32:1, {0.0009765625, 0.0009765625, 0.0009765625}>>) -> tensor<5x3xf32>
    %4 = stablehlo.uniform_quantize %3 : (tensor<5x3xf32>) -> tensor<5x3x!quant.uniform<i8:f32, 0.3:-128>>
    %5 = stablehlo.add %4, %4 : tensor<5x3x!quant.uniform<i8:f32, 0.3:-128>>
    %6 = stablehlo.uniform_dequantize %5 : (tensor<5x3x!quant.uniform<i8:f32, 0.3:-128>>) -> tensor<5x3xf32>
    %7 = stablehlo.uniform_quantize %x : (tensor<2x6x5x2xf32>) -> tensor<2x6x5x2x!quant.uniform<ui8:f32, 0.025:128>>
    %8 = stablehlo.uniform_quantize %k : (tensor<3x3x2x4xf32>) -> tensor<3x3x2x4x!quant.uniform<i8:f32, 0.05:3>>
    %9 = stablehlo.convolution(%7, %8) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x6x5x2x!quant.uniform<ui8:f32, 0.025:128>>, tensor<3x3x2x4x!quant.uniform<i8:f32, 0.05:3>>) -> tensor<2x6x5x4x!quant.uniform<i32:f32, 0.00125>>
    %10 = stablehlo.uniform_dequantize %9 : (tensor<2x6x5x4x!quant.uniform<i32:f32, 0.00125>>) -> tensor<2x6x5x4xf32>
    %11 = stablehlo.transpose %5, dims = [1, 0] : (tensor<5x3x!quant.uniform<i8:f32, 0.3:-128>>) -> tensor<3x5x!quant.uniform<i8:f32, 0.3:-128>>
    %12 = stablehlo.bitcast_convert %11 : (tensor<3x5x!quant.uniform<i8:f32, 0.3:-128>>) -> tensor<3x5xi8>
    %13 = stablehlo.uniform_quantize %a : (tensor<5x7xf32>) -> tensor<5x7x!quant.uniform<i4:f32, 0.7:1>>
    %14 = stablehlo.uniform_dequantize %13 : (tensor<5x7x!quant.uniform<i4:f32, 0.7:1>>) -> tensor<5x7xf32>
    %c = stablehlo.constant dense<-128> : tensor<i8>
    %15 = stablehlo.bitcast_convert %c : (tensor<i8>) -> tensor<!quant.uniform<i8:f32, 0.3:-128>>
    %16 = stablehlo.reduce(%5 init: %15) applies stablehlo.maximum across dimensions = [1] : (tensor<5x3x!quant.uniform<i8:f32, 0.3:-128>>, tensor<!quant.uniform<i8:f32, 0.3:-128>>) -> tensor<5x!quant.uniform<i8:f32, 0.3:-128>>
    %17 = stablehlo.uniform_dequantize %16 : (tensor<5x!quant.uniform<i8:f32, 0.3:-128>>) -> tensor<5xf32>
    return %3, %6, %10, %12, %14, %17 : tensor<5x3xf32>, tensor<5x3xf32>, tensor<2x6x5x4xf32>, tensor<3x5xi8>, tensor<5x7xf32>, tensor<5xf32>
  }
}
