// Errors in more than one function of a module.
module {
  func.func @a(%x: tensor<4xf33>) {
    return
  }
  func.func @b(%x: tensor<4xf32>)
  func.func @c(%x: tensor<4xf32>) {
    %0 = stablehlo.negate %y : tensor<4xf32>
    return
  }
  func.func @c() {
    return
  }
}
