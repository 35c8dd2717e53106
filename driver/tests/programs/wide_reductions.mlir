module @wide_reductions {
  func.func public @main(%a: tensor<5x37xi64>, %b: tensor<9x13xf64>, %c: tensor<7x3xcomplex<f32>>, %u: tensor<6x11xui64>)
      -> (tensor<5xi64>, tensor<37xi64>, tensor<5xi64>, tensor<i64>, tensor<5xi64>, tensor<11xui64>, tensor<6xui64>, tensor<9xf64>, tensor<f64>, tensor<13xf64>, tensor<7xcomplex<f32>>) {
    %z = stablehlo.constant dense<0> : tensor<i64>
    %one = stablehlo.constant dense<1> : tensor<i64>
    %five = stablehlo.constant dense<4294967295> : tensor<i64>
    %min = stablehlo.constant dense<-9223372036854775808> : tensor<i64>
    %max = stablehlo.constant dense<9223372036854775807> : tensor<i64>
    %uz = stablehlo.constant dense<0> : tensor<ui64>
    %big = stablehlo.constant dense<123456789012345> : tensor<5x37xi64>
    %x = stablehlo.multiply %a, %big : tensor<5x37xi64>
    %r0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : (tensor<5x37xi64>, tensor<i64>) -> tensor<5xi64>
    %r1 = stablehlo.reduce(%x init: %five) applies stablehlo.add across dimensions = [0] : (tensor<5x37xi64>, tensor<i64>) -> tensor<37xi64>
    %r2 = stablehlo.reduce(%x init: %min) applies stablehlo.maximum across dimensions = [1] : (tensor<5x37xi64>, tensor<i64>) -> tensor<5xi64>
    %r3 = stablehlo.reduce(%x init: %max) applies stablehlo.minimum across dimensions = [0, 1] : (tensor<5x37xi64>, tensor<i64>) -> tensor<i64>
    %r4 = stablehlo.reduce(%x init: %one) applies stablehlo.multiply across dimensions = [1] : (tensor<5x37xi64>, tensor<i64>) -> tensor<5xi64>
    %n = stablehlo.not %u : tensor<6x11xui64>
    %r5 = stablehlo.reduce(%n init: %uz) applies stablehlo.maximum across dimensions = [0] : (tensor<6x11xui64>, tensor<ui64>) -> tensor<11xui64>
    %r6 = stablehlo.reduce(%n init: %uz) applies stablehlo.xor across dimensions = [1] : (tensor<6x11xui64>, tensor<ui64>) -> tensor<6xui64>
    %fz = stablehlo.constant dense<0.0> : tensor<f64>
    %inf = stablehlo.constant dense<0x7FF0000000000000> : tensor<f64>
    %f7 = stablehlo.reduce(%b init: %fz) applies stablehlo.add across dimensions = [1] : (tensor<9x13xf64>, tensor<f64>) -> tensor<9xf64>
    %f8 = stablehlo.reduce(%b init: %fz) applies stablehlo.add across dimensions = [0, 1] : (tensor<9x13xf64>, tensor<f64>) -> tensor<f64>
    %f9 = stablehlo.reduce(%b init: %inf) applies stablehlo.minimum across dimensions = [0] : (tensor<9x13xf64>, tensor<f64>) -> tensor<13xf64>
    %cz = stablehlo.constant dense<(0.0, 0.0)> : tensor<complex<f32>>
    %ca = stablehlo.reduce(%c init: %cz) applies stablehlo.add across dimensions = [1] : (tensor<7x3xcomplex<f32>>, tensor<complex<f32>>) -> tensor<7xcomplex<f32>>
    return %r0, %r1, %r2, %r3, %r4, %r5, %r6, %f7, %f8, %f9, %ca : tensor<5xi64>, tensor<37xi64>, tensor<5xi64>, tensor<i64>, tensor<5xi64>, tensor<11xui64>, tensor<6xui64>, tensor<9xf64>, tensor<f64>, tensor<13xf64>, tensor<7xcomplex<f32>>
  }
}
