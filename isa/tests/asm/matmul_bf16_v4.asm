// bf16 matrix product in VMEM on v4: C f32[16,128] = A bf16[16,128] * B bf16[128,128].
//
// A is one packed register at row 0, B eight of them (16 rows each) from row 8, C two f32 registers from row 72. The eight weight
// slots of a 128 wide array are one packed register each; the product of 16 rows comes back as two registers of 8 rows.
program "matmul 16x128x128" chip "v4" hbm_peak 0 vmem_peak 45056

info 0 "dot_general.1" source "" at "" mxu_flops 524288 vector_flops 0 dtype bf16 cores 1 modelled 0

code {
  op 0 {
    // B into the shadow weights: each load is used in the next bundle.
    { vld v1, [s0+8], 1 }
    { vld v2, [s0+16], 1 ; vmatpush mxu0, v1, bf16, 0 }
    { vld v1, [s0+24], 1 ; vmatpush mxu0, v2, bf16, 1 }
    { vld v2, [s0+32], 1 ; vmatpush mxu0, v1, bf16, 2 }
    { vld v1, [s0+40], 1 ; vmatpush mxu0, v2, bf16, 3 }
    { vld v2, [s0+48], 1 ; vmatpush mxu0, v1, bf16, 4 }
    { vld v1, [s0+56], 1 ; vmatpush mxu0, v2, bf16, 5 }
    { vld v2, [s0+64], 1 ; vmatpush mxu0, v1, bf16, 6 }
    { vld v3, [s0], 1 ; vmatpush mxu0, v2, bf16, 7 }
    { vmatlatch mxu0 }
    { vmatmul mxu0, v3, v3, bf16 } // the second operand counts on 256 wide arrays only
    { vmatpop mxu0, v4 }
    { vst v4, [s0+72], 1 ; vmatpop mxu0, v5 }
    { vst v5, [s0+80], 1 }
  }
}
