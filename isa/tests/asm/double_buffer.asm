// y = 2 x over f32[1024,128] on v4, 64 rows at a time through two VMEM buffers.
//
// The load of the next block runs while this one is worked on. The last iteration loads the last block again, so that every
// iteration is the same and every wait has its DMA.
program "double buffer" chip "v4" hbm_peak 1048576 vmem_peak 131072

info 0 "multiply.1" source "" at "" mxu_flops 0 vector_flops 131072 dtype f32 cores 1 modelled 0

buffer 0 param 0 offset 0 bytes 524288 live 0..0
buffer 1 output 0 offset 524288 bytes 524288 live 0..0

desc d0 load elem 4 rows 64 stride 512 cols 128 stride 4 lane_tiles 1 hbm 0 + s5*32768 vmem 0 + s6*64
desc d1 store elem 4 rows 64 stride 512 cols 128 stride 4 lane_tiles 1 hbm 524288 + s2*32768 vmem 128 + s4*64

code {
  op 0 {
    { s.li s3, 1 ; s.li s5, 0 ; vimm v0, 2.0 }
    { s.li s6, 0 }
    { dma d0, flag0 }
    loop s2 = 0..16 {
      { s.and s4, s2, s3 ; s.addi s5, s2, 1 ; dma.wait flag0, 1 } // this block has landed
      { s.mini s5, s5, 15 ; s.xori s6, s4, 1 }
      { s.muli s7, s4, 64 ; dma d0, flag0 } // the next one, into the other buffer
      loop s8 = 0..8 {
        { s.muli s9, s8, 8 }
        { s.add s9, s9, s7 }
        { vld v1, [s9], 1 }
        { vmul.f32 v1, v1, v0 }
        { vst v1, [s9+128], 1 }
      }
      { dma d1, flag1 }
      { dma.wait flag1, 1 }
    }
    { dma.wait flag0, 1 }
  }
}
