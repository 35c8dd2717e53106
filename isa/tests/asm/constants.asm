// Every table of a program, with a constant that is mostly zeros.
program "constants \"quoted\"\n" chip "v7x" hbm_peak 8192 vmem_peak 4096

info 0 "fusion.1" source "jit(f)/mul" at "model.py:7" mxu_flops 1 vector_flops 2 dtype f8E4M3FN cores 1 modelled 3
info 1 "fusion.2" source "" at "" mxu_flops 0 vector_flops 0 dtype c64 cores 1 modelled 0

buffer 0 param 0 offset 0 bytes 4096 live 0..1
buffer 1 output 0 offset 4096 bytes 2048 live 0..1
buffer 2 const offset 6144 bytes 1024 live 0..0 data x"0000803f" zero*1020
buffer 3 temp offset 7168 bytes 1024 live 1..1

desc d0 load elem 1 rows 32 stride 128 cols 128 stride 1 lane_tiles 1 outer [2: 0, 8] hbm 0 vmem 0
desc d1 store elem 2 rows 8 stride -256 cols 128 stride 2 lane_tiles 1 hbm 5888 + s2*0 vmem 0 + s1*8

code {
  op 0 {
    { dma d0, flag0 }
    { dma.wait flag0, 1 }
    { vld v0, [s0+0], 1 }
    { vmatpush.t mxu1, v0, e4m3fn, 0 }
    { vmatlatch mxu1 }
    { vmatmul.ini mxu1, v0, v0, e4m3fn, 0 }
    { vmatpop.acc mxu1, v1, 7 }
  }
  op 1 {
    { vmlane.lt m1, s0, 100 ; vmsub.lt m2, s0, 3 }
    { vmand m3, m1, m2 }
    { vst.msk v1, [s0+8], 1, m3 }
    loop s2 = 0..0 {
    }
    { dma d1, flag255 }
    { dma.wait flag255, 1 }
  }
}
