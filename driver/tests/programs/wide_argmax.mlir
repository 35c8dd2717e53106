module @wide_argmax {
  func.func public @main(%a: tensor<5x37xf32>, %b: tensor<6x21xi64>) -> (tensor<5xf32>, tensor<5xi64>, tensor<6xi64>, tensor<6xi32>, tensor<5x37xi32>) {
    %io = stablehlo.iota dim = 0 : tensor<37xi64>
    %ib = stablehlo.broadcast_in_dim %io, dims = [1] : (tensor<37xi64>) -> tensor<5x37xi64>
    %ninf = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %z = stablehlo.constant dense<0> : tensor<i64>
    %m:2 = stablehlo.reduce(%a init: %ninf), (%ib init: %z) across dimensions = [1] : (tensor<5x37xf32>, tensor<5x37xi64>, tensor<f32>, tensor<i64>) -> (tensor<5xf32>, tensor<5xi64>)
     reducer(%v: tensor<f32>, %w: tensor<f32>) (%i: tensor<i64>, %j: tensor<i64>)  {
      %gt = stablehlo.compare GT, %v, %w, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %nan = stablehlo.compare NE, %v, %v, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %better = stablehlo.or %gt, %nan : tensor<i1>
      %eq = stablehlo.compare EQ, %v, %w, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %lt = stablehlo.compare LT, %i, %j, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
      %tie = stablehlo.and %eq, %lt : tensor<i1>
      %first = stablehlo.or %better, %tie : tensor<i1>
      %bv = stablehlo.select %better, %v, %w : tensor<i1>, tensor<f32>
      %bi = stablehlo.select %first, %i, %j : tensor<i1>, tensor<i64>
      stablehlo.return %bv, %bi : tensor<f32>, tensor<i64>
    }
    %i32 = stablehlo.iota dim = 1 : tensor<6x21xi32>
    %max = stablehlo.constant dense<-9223372036854775808> : tensor<i64>
    %z32 = stablehlo.constant dense<0> : tensor<i32>
    %k = stablehlo.constant dense<4294967296> : tensor<6x21xi64>
    %x = stablehlo.multiply %b, %k : tensor<6x21xi64>
    %n:2 = stablehlo.reduce(%x init: %max), (%i32 init: %z32) across dimensions = [1] : (tensor<6x21xi64>, tensor<6x21xi32>, tensor<i64>, tensor<i32>) -> (tensor<6xi64>, tensor<6xi32>)
     reducer(%v: tensor<i64>, %w: tensor<i64>) (%i: tensor<i32>, %j: tensor<i32>)  {
      %gt = stablehlo.compare GT, %v, %w, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
      %nan = stablehlo.compare NE, %v, %v, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
      %better = stablehlo.or %gt, %nan : tensor<i1>
      %eq = stablehlo.compare EQ, %v, %w, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
      %lt = stablehlo.compare LT, %i, %j, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %tie = stablehlo.and %eq, %lt : tensor<i1>
      %first = stablehlo.or %better, %tie : tensor<i1>
      %bv = stablehlo.select %better, %v, %w : tensor<i1>, tensor<i64>
      %bi = stablehlo.select %first, %i, %j : tensor<i1>, tensor<i32>
      stablehlo.return %bv, %bi : tensor<i64>, tensor<i32>
    }
    %low = stablehlo.convert %ib : (tensor<5x37xi64>) -> tensor<5x37xi32>
    return %m#0, %m#1, %n#0, %n#1, %low : tensor<5xf32>, tensor<5xi64>, tensor<6xi64>, tensor<6xi32>, tensor<5x37xi32>
  }
}
