func.func @main(%x: tensor<5x37x3xf32>, %k: tensor<4x13xi32>, %p: tensor<6x9xi1>, %l: tensor<3x11xi64>, %s: tensor<i32>, %e: tensor<0x4xi32>) -> (tensor<5x3xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<i32>, tensor<9xi1>, tensor<3xi64>, tensor<3xi64>, tensor<4xi32>, tensor<13xi32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %i1 = stablehlo.constant dense<1> : tensor<i32>
  // The largest magnitude, sign and all.
  %0 = stablehlo.reduce(%x init: %zero) across dimensions = [1] : (tensor<5x37x3xf32>, tensor<f32>) -> tensor<5x3xf32>
   reducer(%a: tensor<f32>, %b: tensor<f32>)  {
    %2 = stablehlo.abs %a : tensor<f32>
    %3 = stablehlo.abs %b : tensor<f32>
    %4 = stablehlo.compare GE, %2, %3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %5 = stablehlo.select %4, %a, %b : tensor<i1>, tensor<f32>
    stablehlo.return %5 : tensor<f32>
  }
  // Three operands: affine maps composed in order, and a count.
  %m = stablehlo.constant dense<3> : tensor<4x13xi32>
  %one = stablehlo.constant dense<1> : tensor<4x13xi32>
  %1:3 = stablehlo.reduce(%m init: %i1), (%k init: %i0), (%one init: %i0) across dimensions = [1] : (tensor<4x13xi32>, tensor<4x13xi32>, tensor<4x13xi32>, tensor<i32>, tensor<i32>, tensor<i32>) -> (tensor<4xi32>, tensor<4xi32>, tensor<4xi32>)
   reducer(%a: tensor<i32>, %b: tensor<i32>) (%c: tensor<i32>, %d: tensor<i32>) (%g: tensor<i32>, %h: tensor<i32>)  {
    %2 = stablehlo.multiply %a, %b : tensor<i32>
    %3 = stablehlo.multiply %b, %c : tensor<i32>
    %4 = stablehlo.add %3, %d : tensor<i32>
    %5 = stablehlo.add %g, %h : tensor<i32>
    stablehlo.return %2, %4, %5 : tensor<i32>, tensor<i32>, tensor<i32>
  }
  // With a value from outside.
  %6 = stablehlo.reduce(%k init: %i0) across dimensions = [0, 1] : (tensor<4x13xi32>, tensor<i32>) -> tensor<i32>
   reducer(%a: tensor<i32>, %b: tensor<i32>)  {
    %2 = stablehlo.add %a, %b : tensor<i32>
    %3 = stablehlo.and %2, %s : tensor<i32>
    %4 = stablehlo.xor %2, %3 : tensor<i32>
    %5 = stablehlo.or %4, %3 : tensor<i32>
    stablehlo.return %5 : tensor<i32>
  }
  %true = stablehlo.constant dense<true> : tensor<i1>
  %7 = stablehlo.reduce(%p init: %true) across dimensions = [0] : (tensor<6x9xi1>, tensor<i1>) -> tensor<9xi1>
   reducer(%a: tensor<i1>, %b: tensor<i1>)  {
    %2 = stablehlo.xor %a, %b : tensor<i1>
    %3 = stablehlo.not %2 : tensor<i1>
    stablehlo.return %3 : tensor<i1>
  }
  // Of 64 bits, with the last place of the smallest.
  %big = stablehlo.constant dense<9223372036854775807> : tensor<i64>
  %l0 = stablehlo.constant dense<0> : tensor<i64>
  %li = stablehlo.iota dim = 1 : tensor<3x11xi64>
  %8:2 = stablehlo.reduce(%l init: %big), (%li init: %l0) across dimensions = [1] : (tensor<3x11xi64>, tensor<3x11xi64>, tensor<i64>, tensor<i64>) -> (tensor<3xi64>, tensor<3xi64>)
   reducer(%a: tensor<i64>, %b: tensor<i64>) (%c: tensor<i64>, %d: tensor<i64>)  {
    %2 = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %3 = stablehlo.select %2, %a, %b : tensor<i1>, tensor<i64>
    %4 = stablehlo.select %2, %c, %d : tensor<i1>, tensor<i64>
    stablehlo.return %3, %4 : tensor<i64>, tensor<i64>
  }
  %9 = stablehlo.reduce(%e init: %s) across dimensions = [0] : (tensor<0x4xi32>, tensor<i32>) -> tensor<4xi32>
   reducer(%a: tensor<i32>, %b: tensor<i32>)  {
    %2 = stablehlo.subtract %a, %b : tensor<i32>
    stablehlo.return %2 : tensor<i32>
  }
  %10 = "stablehlo.map"(%k, %k) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %2 = stablehlo.multiply %a, %b : tensor<i32>
    %3 = stablehlo.add %2, %s : tensor<i32>
    stablehlo.return %3 : tensor<i32>
  }) {dimensions = array<i64: 0, 1>} : (tensor<4x13xi32>, tensor<4x13xi32>) -> tensor<4x13xi32>
  %11 = stablehlo.reduce(%10 init: %i0) applies stablehlo.add across dimensions = [0] : (tensor<4x13xi32>, tensor<i32>) -> tensor<13xi32>
  return %0, %1#0, %1#1, %1#2, %6, %7, %8#0, %8#1, %9, %11 : tensor<5x3xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<i32>, tensor<9xi1>, tensor<3xi64>, tensor<3xi64>, tensor<4xi32>, tensor<13xi32>
}
