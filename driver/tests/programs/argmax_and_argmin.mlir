func.func @main(%x: tensor<5x37xf32>, %k: tensor<3x9x11xi32>) -> (tensor<5xf32>, tensor<5xi32>, tensor<3x11xi32>, tensor<3x11xi32>, tensor<37xi32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %high = stablehlo.constant dense<0x7F800000> : tensor<f32>
  %most = stablehlo.constant dense<2147483647> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %i = stablehlo.iota dim = 1 : tensor<5x37xi32>
  %c3 = stablehlo.constant dense<2.0> : tensor<5x37xf32>
  %is3 = stablehlo.compare EQ, %x, %c3 : (tensor<5x37xf32>, tensor<5x37xf32>) -> tensor<5x37xi1>
  %row = stablehlo.iota dim = 0 : tensor<5x37xi32>
  %two = stablehlo.constant dense<2> : tensor<5x37xi32>
  %is2 = stablehlo.compare EQ, %row, %two : (tensor<5x37xi32>, tensor<5x37xi32>) -> tensor<5x37xi1>
  %both = stablehlo.and %is3, %is2 : tensor<5x37xi1>
  %nans = stablehlo.constant dense<0x7FC00000> : tensor<5x37xf32>
  %y = stablehlo.select %both, %nans, %x : tensor<5x37xi1>, tensor<5x37xf32>
  %0:2 = stablehlo.reduce(%y init: %low), (%i init: %zero) across dimensions = [1] : (tensor<5x37xf32>, tensor<5x37xi32>, tensor<f32>, tensor<i32>) -> (tensor<5xf32>, tensor<5xi32>)
   reducer(%a: tensor<f32>, %b: tensor<f32>) (%c: tensor<i32>, %d: tensor<i32>)  {
    %2 = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %3 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %4 = stablehlo.or %2, %3 : tensor<i1>
    %5 = stablehlo.compare EQ, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %6 = stablehlo.compare LT, %c, %d, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %7 = stablehlo.and %5, %6 : tensor<i1>
    %8 = stablehlo.or %4, %7 : tensor<i1>
    %9 = stablehlo.select %4, %a, %b : tensor<i1>, tensor<f32>
    %10 = stablehlo.select %8, %c, %d : tensor<i1>, tensor<i32>
    stablehlo.return %9, %10 : tensor<f32>, tensor<i32>
  }
  %j = stablehlo.iota dim = 1 : tensor<3x9x11xi32>
  %1:2 = stablehlo.reduce(%k init: %most), (%j init: %zero) across dimensions = [1] : (tensor<3x9x11xi32>, tensor<3x9x11xi32>, tensor<i32>, tensor<i32>) -> (tensor<3x11xi32>, tensor<3x11xi32>)
   reducer(%a: tensor<i32>, %b: tensor<i32>) (%c: tensor<i32>, %d: tensor<i32>)  {
    %2 = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %3 = stablehlo.compare NE, %a, %a, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %4 = stablehlo.or %2, %3 : tensor<i1>
    %5 = stablehlo.compare EQ, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %6 = stablehlo.compare LT, %c, %d, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %7 = stablehlo.and %5, %6 : tensor<i1>
    %8 = stablehlo.or %4, %7 : tensor<i1>
    %9 = stablehlo.select %4, %a, %b : tensor<i1>, tensor<i32>
    %10 = stablehlo.select %8, %c, %d : tensor<i1>, tensor<i32>
    stablehlo.return %9, %10 : tensor<i32>, tensor<i32>
  }
  %r = stablehlo.iota dim = 0 : tensor<5x37xi32>
  %11:2 = stablehlo.reduce(%y init: %high), (%r init: %zero) across dimensions = [0] : (tensor<5x37xf32>, tensor<5x37xi32>, tensor<f32>, tensor<i32>) -> (tensor<37xf32>, tensor<37xi32>)
   reducer(%a: tensor<f32>, %b: tensor<f32>) (%c: tensor<i32>, %d: tensor<i32>)  {
    %2 = stablehlo.compare LT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %3 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %4 = stablehlo.or %2, %3 : tensor<i1>
    %5 = stablehlo.compare EQ, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %6 = stablehlo.compare LT, %c, %d, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %7 = stablehlo.and %5, %6 : tensor<i1>
    %8 = stablehlo.or %4, %7 : tensor<i1>
    %9 = stablehlo.select %4, %a, %b : tensor<i1>, tensor<f32>
    %10 = stablehlo.select %8, %c, %d : tensor<i1>, tensor<i32>
    stablehlo.return %9, %10 : tensor<f32>, tensor<i32>
  }
  return %0#0, %0#1, %1#0, %1#1, %11#1 : tensor<5xf32>, tensor<5xi32>, tensor<3x11xi32>, tensor<3x11xi32>, tensor<37xi32>
}
