module @wide_data_movement {
  func.func public @main(%a: tensor<3x5xi64>, %b: tensor<5x7xf64>, %c: tensor<2x3xcomplex<f32>>, %s: tensor<i64>, %p: tensor<3x5xi1>)
      -> (tensor<5x3xi64>, tensor<3x15xi64>, tensor<2x5x7xf64>, tensor<7x9xf64>, tensor<3x2x2xcomplex<f32>>, tensor<3x5xi64>, tensor<3x5xi64>, tensor<i64>, tensor<4xi64>, tensor<2x3xcomplex<f32>>) {
    %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<3x5xi64>) -> tensor<5x3xi64>
    %r = stablehlo.reverse %a, dims = [1] : tensor<3x5xi64>
    %cat = stablehlo.concatenate %a, %r, %a, dim = 1 : (tensor<3x5xi64>, tensor<3x5xi64>, tensor<3x5xi64>) -> tensor<3x15xi64>
    %bb = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<5x7xf64>) -> tensor<2x5x7xf64>
    %pi = stablehlo.constant dense<3.25> : tensor<f64>
    %bt = stablehlo.transpose %b, dims = [1, 0] : (tensor<5x7xf64>) -> tensor<7x5xf64>
    %pad = stablehlo.pad %bt, %pi, low = [0, 1], high = [0, -1], interior = [0, 1] : (tensor<7x5xf64>, tensor<f64>) -> tensor<7x9xf64>
    %ct = stablehlo.transpose %c, dims = [1, 0] : (tensor<2x3xcomplex<f32>>) -> tensor<3x2xcomplex<f32>>
    %cb = stablehlo.broadcast_in_dim %ct, dims = [0, 2] : (tensor<3x2xcomplex<f32>>) -> tensor<3x2x2xcomplex<f32>>
    %sb = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<i64>) -> tensor<3x5xi64>
    %sel = stablehlo.select %p, %a, %sb : tensor<3x5xi1>, tensor<3x5xi64>
    %io = stablehlo.iota dim = 1 : tensor<3x5xi64>
    %sum = stablehlo.add %io, %sb : tensor<3x5xi64>
    %k = stablehlo.constant dense<[1, -1, 9223372036854775807, -9223372036854775808]> : tensor<4xi64>
    return %t, %cat, %bb, %pad, %cb, %sel, %sum, %s, %k, %c : tensor<5x3xi64>, tensor<3x15xi64>, tensor<2x5x7xf64>, tensor<7x9xf64>, tensor<3x2x2xcomplex<f32>>, tensor<3x5xi64>, tensor<3x5xi64>, tensor<i64>, tensor<4xi64>, tensor<2x3xcomplex<f32>>
  }
}
