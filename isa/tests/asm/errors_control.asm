// What is wrong whichever way data decides; 0 or 1 before the last number says condition or body.
// check: node 0.1.1, flow 0 is no `case`
// check: op 0 (f), node 2.0, `while` inside an operation
// check: node 0, s3 is read before anything writes it
// check: node 0.1.0, instruction 0 `vmov v1, v0`: v0 is read before anything writes it
// check: node 1.0.0, instruction 1 `eup.tanh v1`: v1 is read before anything writes it
// check: node 1.1.0, instruction 0 `eup.rcp v1`: v1 is read before anything writes it
// check: op 0 (f), node 2.0, s4 is read before anything writes it
// check: node 0.1.1.0.1, instruction 0 `dma.wait flag0, 2`: flag0 can be 1 at most here: waiting for 2 never ends
// check: 1 results of the EUP are never popped
// check: node 0.1.1.0.0, instruction 0 `dma d0, flag0`: touches words 262140..262156 of SMEM, which has 262144
// check: node 0.1.1.1.0, instruction 0 `dma d1, flag0`: touches bytes 0..68 of HBM, which has 64
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
