// Operations that are none of ours.
module {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = tosa.abs %x : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "mhlo.add"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %2 = stablehlo.gather %x, %x : tensor<4xf32>
    cf.br ^bb1(%0 : tensor<4xf32>)
  ^bb1(%3: tensor<4xf32>):
    return %3 : tensor<4xf32>
  }
  ml_program.global private @state(dense<0> : tensor<i32>) : tensor<i32>
}
