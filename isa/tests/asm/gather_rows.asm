// out[i] = table[index[i]] over rows of f32[1000,128] on v5e: the indices come to SMEM, and each decides the address of a DMA. All
// rows are on their way at once.
program "gather" chip "v5e" hbm_peak 545024 vmem_peak 32768

info 0 "gather.1" source "jit(f)/gather" at "f.py:3" mxu_flops 0 vector_flops 0 dtype f32 cores 1 modelled 0

buffer 0 param 0 offset 0 bytes 512000 live 0..0
buffer 1 param 1 offset 512000 bytes 256 live 0..0
buffer 2 output 0 offset 512256 bytes 32768 live 0..0

desc d0 load elem 4 rows 1 stride 0 cols 64 stride 4 hbm 512000 smem 0
desc d1 load elem 4 rows 1 stride 0 cols 128 stride 4 lane_tiles 1 hbm 0 + s3*512 vmem 0 + s2*1
desc d2 store elem 4 rows 64 stride 512 cols 128 stride 4 lane_tiles 1 hbm 512256 vmem 0

code {
  op 0 {
    { dma d0, flag0 }
    { dma.wait flag0, 1 ; s.li s4, 999 }
    loop s2 = 0..64 {
      { s.ld s3, [s2+0] }
      { s.max s3, s3, s0 }
      { s.min s3, s3, s4 }
      { dma d1, flag1 }
    }
    { dma.wait flag1, 64 }
    { dma d2, flag0 }
    { dma.wait flag0, 1 }
  }
}
