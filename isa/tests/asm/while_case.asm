// A loop that a word of HBM ends, which an operation in its body counts down, and a branch by what it holds.
program "while case" chip "v4" hbm_peak 8 vmem_peak 0

info 0 "subtract.1" source "jit(f)/while/body/sub" at "f.py:4" mxu_flops 0 vector_flops 1 dtype i32 cores 1 modelled 0
info 1 "add.2" source "jit(f)/while/body/cond/branch_1_fun/add" at "f.py:6" mxu_flops 0 vector_flops 1 dtype i32 cores 1 modelled 0

flow 0 while "stablehlo.while" at "f.py:3"
flow 1 case "stablehlo.case" at "f.py:5"

buffer 0 param 0 offset 0 bytes 4 live 0..1
buffer 1 output 0 offset 4 bytes 4 live 1..1

desc d0 load elem 4 rows 1 stride 0 cols 1 stride 4 hbm 0 smem 0
desc d1 store elem 4 rows 1 stride 0 cols 1 stride 4 hbm 0 smem 0
desc d2 load elem 4 rows 1 stride 0 cols 1 stride 4 hbm 4 smem 0 + s3*1
desc d3 store elem 4 rows 1 stride 0 cols 1 stride 4 lane_tiles 7 hbm 4 smem 0

code {
  { s.li s3, 0 }
  while 0 {
    { dma d0, flag0 }
    { dma.wait flag0, 1 }
    { s.ld s2, [s0+0] }
  } test s2 {
    op 0 {
      { dma d0, flag0 }
      { dma.wait flag0, 1 }
      { s.ld s4, [s0+0] }
      { s.addi s4, s4, -1 }
      { s.st s4, [s0+0] }
      { dma d1, flag0 }
      { dma.wait flag0, 1 }
    }
    case 1 s2 {
      branch {
      }
      branch {
        op 1 {
          { dma d2, flag0 }
          { dma.wait flag0, 1 }
          { s.ld s4, [s0+0] }
          { s.addi s4, s4, 1 }
          { s.st s4, [s0+0] }
          { dma d3, flag0 }
          { dma.wait flag0, 1 }
        }
      }
    }
  }
}
