module @wide_products {
  func.func public @main(%a: tensor<2x5x7xi64>, %b: tensor<2x7x3xi64>, %c: tensor<4x9xf64>, %d: tensor<9x3xf64>, %e: tensor<5x6xcomplex<f32>>, %f: tensor<6x4xcomplex<f32>>, %g: tensor<3x4xi32>, %h: tensor<5x4xi32>)
      -> (tensor<2x5x3xi64>, tensor<4x3xf64>, tensor<5x4xcomplex<f32>>, tensor<3x5xi64>, tensor<7x3xi64>) {
    %p = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x5x7xi64>, tensor<2x7x3xi64>) -> tensor<2x5x3xi64>
    %q = stablehlo.dot_general %c, %d, contracting_dims = [1] x [0] : (tensor<4x9xf64>, tensor<9x3xf64>) -> tensor<4x3xf64>
    %r = stablehlo.dot_general %e, %f, contracting_dims = [1] x [0] : (tensor<5x6xcomplex<f32>>, tensor<6x4xcomplex<f32>>) -> tensor<5x4xcomplex<f32>>
    %s = stablehlo.dot_general %g, %h, contracting_dims = [1] x [1] : (tensor<3x4xi32>, tensor<5x4xi32>) -> tensor<3x5xi64>
    %w = stablehlo.dot_general %a, %p, contracting_dims = [0, 1] x [0, 1] : (tensor<2x5x7xi64>, tensor<2x5x3xi64>) -> tensor<7x3xi64>
    return %p, %q, %r, %s, %w : tensor<2x5x3xi64>, tensor<4x3xf64>, tensor<5x4xcomplex<f32>>, tensor<3x5xi64>, tensor<7x3xi64>
  }
}
