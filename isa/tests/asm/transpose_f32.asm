// Transpose of f32[128,128] in VMEM on v4: 16 registers of 8 rows from row 0 to row 128.
program "transpose 128x128" chip "v4" hbm_peak 0 vmem_peak 131072

info 0 "transpose.1" source "" at "" mxu_flops 0 vector_flops 0 dtype f32 cores 1 modelled 0

code {
  op 0 {
    loop s2 = 0..16 {
      { s.muli s3, s2, 8 }
      { vld v0, [s3+0], 1 }
      { xpose xlu0, v0 }
    }
    loop s2 = 0..16 {
      { s.muli s3, s2, 8 ; xpop xlu0, v0 }
      { vst v0, [s3+128], 1 }
    }
  }
}
