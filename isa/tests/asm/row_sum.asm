// Sum of each row of f32[8,128] on v5e, with the DMAs around it: the sums come out in all lanes, and column 0 is stored.
program "row sum" chip "v5e" hbm_peak 4128 vmem_peak 8192

info 0 "reduce.1" source "jit(f)/reduce_sum" at "f.py:3" mxu_flops 0 vector_flops 1016 dtype f32 cores 1 modelled 0

buffer 0 param 0 offset 0 bytes 4096 live 0..0
buffer 1 output 0 offset 4096 bytes 32 live 0..0

desc d0 load elem 4 rows 8 stride 512 cols 128 stride 4 lane_tiles 1 hbm 0 vmem 0
desc d1 store elem 4 rows 8 stride 4 cols 1 stride 4 lane_tiles 1 hbm 4096 vmem 8

code {
  op 0 {
    { dma d0, flag0 }
    { dma.wait flag0, 1 }
    { vld v0, [s0+0], 1 }
    { xred.add.f32 xlu1, v0 }
    { xpop xlu1, v1 }
    { vst v1, [s0+8], 1 }
    { dma d1, flag0 }
    { dma.wait flag0, 1 }
  }
}
