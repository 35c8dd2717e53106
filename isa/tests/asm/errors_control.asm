// What is wrong whichever way data decides; 0 or 1 before the last number says condition or body.
// check: op 0 (f), node 2.0, `while` inside an operation
program "errors" chip "v5e" hbm_peak 64 vmem_peak 0

info 0 "f" source "" at "" mxu_flops 0 vector_flops 0 dtype f32 cores 1 modelled 0

flow 0 while "stablehlo.while" at "f.py:3"
flow 1 case "stablehlo.case" at "f.py:5"

buffer 0 param 0 offset 0 bytes 64 live 0..0

desc d0 load elem 4 rows 4 stride 16 cols 4 stride 4 hbm 0 smem 262140
desc d1 load elem 4 rows 4 stride 16 cols 5 stride 4 hbm 0 smem 0

code {
  while 0 {
    { s.ld s2, [s0+0] }
  } test s3 {
    { vmov v1, v0 } // nothing wrote it
    case 0 s2 {
      branch {
        { dma d0, flag0 } // beyond SMEM
        { dma.wait flag0, 2 }
      }
      branch {
        { dma d1, flag0 } // beyond HBM
        { dma.wait flag0, 1 }
      }
    }
  }
  case 1 s2 {
    branch {
      { s.li s4, 1 ; eup.tanh v1 }
    }
    branch {
      { eup.rcp v1 }
    }
  }
  op 0 {
    while 0 {
    } test s4 {
    }
  }
}
