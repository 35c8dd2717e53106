// refused: of HBM, the device has
func.func @main(%x: tensor<2097152xf32>) -> tensor<2097152x65536xf32> {
  %b = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<2097152xf32>) -> tensor<2097152x65536xf32>
  return %b : tensor<2097152x65536xf32>
}
