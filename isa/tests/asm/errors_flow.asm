// What goes wrong with registers, queues and flags on v4.
// check: op 0 (first), node 0.1, 2 VLoad instructions in a bundle that has 1 such slots
// check: op 0 (first), node 0.1, instruction 1 `vld v3, [s0+8], 1`: second write of v3 in one bundle
// check: op 0 (first), node 0.2, instruction 0 `vimm v40, 0`: v40: there are 32
// check: op 1 (second), node 1.1, instruction 0 `vmatpush mxu0, v1, s8, 9`: weight slot 9 is not below 4
// check: op 1 (second), node 1.2, instruction 0 `vmatpush mxu0, v1, e5m2, 0`: the MXU of v4 takes no e5m2
// check: op 1 (second), node 1.3, instruction 0 `vmatmul.acc mxu0, v1, v1, bf16, 0`: v4 has no MXU accumulators
// check: op 0 (first), node 0.0, instruction 0 `vadd.f32 v1, v2, v2`: v2 is read before anything writes it
// check: op 0 (first), node 0.3.1, instruction 0 `eup.pop v3`: the EUP holds no result for this pop: it would wait for ever
// check: op 0 (first), node 0.3.2, instruction 0 `eup.pop v3`: the EUP holds no result for this pop: it would wait for ever
// check: op 1 (second), node 1.4, instruction 0 `dma.wait flag3, 1`: flag3 can be 0 at most here: waiting for 1 never ends
// check: flag4 ends at 2: DMAs that signal it are never waited for
program "errors" chip "v4" hbm_peak 0 vmem_peak 0

info 0 "first" source "" at "" mxu_flops 0 vector_flops 0 dtype f32 cores 1 modelled 0
info 1 "second" source "" at "" mxu_flops 0 vector_flops 0 dtype f32 cores 1 modelled 0

code {
  op 0 {
    { vadd.f32 v1, v2, v2 ; vld v2, [s0], 1 } // reads before the load writes
    { vld v3, [s0], 1 ; vld v3, [s0+8], 1 }
    { vimm v40, 0 }
    loop s2 = 0..4 {
      { eup.pow2 v1 }
      { eup.pop v3 }
      { eup.pop v3 } // one more than was pushed
    }
  }
  op 1 {
    { vimm v1, 1 }
    { vmatpush mxu0, v1, s8, 9 }
    { vmatpush mxu0, v1, e5m2, 0 }
    { vmatmul.acc mxu0, v1, v1, bf16, 0 }
    { dma.wait flag3, 1 }
    { flag.add flag4, 2 }
  }
}
