module @wide_bitcasts {
  func.func public @main(%a: tensor<3x5xi64>, %b: tensor<4x2xi32>, %c: tensor<3x8xi8>, %d: tensor<6xf32>, %e: tensor<5xf64>, %f: tensor<3x2xbf16>, %g: tensor<2x4xui16>)
      -> (tensor<3x5x2xi32>, tensor<4xi64>, tensor<3xi64>, tensor<3x5x8xi8>, tensor<6x4xui8>, tensor<5xi64>, tensor<3xf32>, tensor<2xui64>, tensor<6x2xbf16>, tensor<3x5xui64>, tensor<3x5x4xi16>, tensor<5xf64>) {
    %0 = stablehlo.bitcast_convert %a : (tensor<3x5xi64>) -> tensor<3x5x2xi32>
    %1 = stablehlo.bitcast_convert %b : (tensor<4x2xi32>) -> tensor<4xi64>
    %2 = stablehlo.bitcast_convert %c : (tensor<3x8xi8>) -> tensor<3xi64>
    %3 = stablehlo.bitcast_convert %a : (tensor<3x5xi64>) -> tensor<3x5x8xi8>
    %4 = stablehlo.bitcast_convert %d : (tensor<6xf32>) -> tensor<6x4xui8>
    %5 = stablehlo.bitcast_convert %e : (tensor<5xf64>) -> tensor<5xi64>
    %6 = stablehlo.bitcast_convert %f : (tensor<3x2xbf16>) -> tensor<3xf32>
    %7 = stablehlo.bitcast_convert %g : (tensor<2x4xui16>) -> tensor<2xui64>
    %8 = stablehlo.bitcast_convert %d : (tensor<6xf32>) -> tensor<6x2xbf16>
    %9 = stablehlo.bitcast_convert %a : (tensor<3x5xi64>) -> tensor<3x5xui64>
    %10 = stablehlo.bitcast_convert %a : (tensor<3x5xi64>) -> tensor<3x5x4xi16>
    %11 = stablehlo.bitcast_convert %5 : (tensor<5xi64>) -> tensor<5xf64>
    return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11 : tensor<3x5x2xi32>, tensor<4xi64>, tensor<3xi64>, tensor<3x5x8xi8>, tensor<6x4xui8>, tensor<5xi64>, tensor<3xf32>, tensor<2xui64>, tensor<6x2xbf16>, tensor<3x5xui64>, tensor<3x5x4xi16>, tensor<5xf64>
  }
}
