// Accesses beyond the end on v4: 32768 rows of VMEM, a plan of 65536 bytes of HBM.
// check: op 0 (copy), node 0.0.1, instruction 0 `dma d0, flag0`: touches bytes 0..69632 of HBM, which has 65536
// check: op 0 (copy), node 0.0.1, instruction 0 `dma d0, flag0`: touches rows 32736..32776 of VMEM, which has 32768
// check: op 0 (copy), node 0.0.4, instruction 0 `vld v0, [s4+1], 1`: touches rows 1..32777 of VMEM, which has 32768
// check: op 0 (copy), node 0.1, instruction 0 `dma d1, flag0`: touches bytes 0..65537 of HBM, which has 65536
// check: op 0 (copy), node 0.4, instruction 0 `vst v0, [s0+6], -1`: touches rows -1..7 of VMEM, which has 32768
program "errors" chip "v4" hbm_peak 65536 vmem_peak 0

info 0 "copy" source "" at "" mxu_flops 0 vector_flops 0 dtype f32 cores 2 modelled 0

buffer 0 param 0 offset 0 bytes 65536 live 0..0

desc d0 load elem 4 rows 8 stride 512 cols 128 stride 4 lane_tiles 1 hbm 0 + s2*4096 vmem 32736 + s3*8
desc d1 load elem 4 rows 8 stride 512 cols 128 stride 4 lane_tiles 1 hbm 0 + s1*61441 vmem 0

code {
  op 0 {
    loop s2 = 0..17 {
      { s.mini s3, s2, 4 }
      { dma d0, flag0 }
      { dma.wait flag0, 1 }
      { s.muli s4, s2, 2048 }
      { vld v0, [s4+1], 1 }
    }
    { dma d1, flag0 }
    { dma.wait flag0, 1 }
    { vst v0, [s0+7], -1 }
    { vst v0, [s0+6], -1 }
  }
}
