// The older annotations. The mesh follows from them: two axes of 4 and 2, the second cuts the weight.
module @gspmd attributes {mhlo.num_partitions = 8 : i32} {
  func.func public @main(%x: tensor<64x8xf32> {mhlo.sharding = "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"}, %w: tensor<8x16xf32> {mhlo.sharding = "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"}) -> (tensor<64x16xf32> {mhlo.sharding = "{devices=[8,1]<=[8]}"}) {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<64x8xf32>, tensor<8x16xf32>) -> tensor<64x16xf32>
    %1 = stablehlo.custom_call @Sharding(%0) {mhlo.sharding = "{devices=[4,2]<=[8]}"} : (tensor<64x16xf32>) -> tensor<64x16xf32>
    return %1 : tensor<64x16xf32>
  }
}
