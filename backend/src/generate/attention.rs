//! The operations of attention.

use tpusim_isa::program::{Node as Code, OpInfo};

use super::{Generator, Scope, attempt};
use crate::compile::CompileError;
use crate::lower::attention::AttentionKernel;
use crate::lower::emit::EmitError;
use crate::ops::attention::Attention;
use crate::tile::fuse::SpecialStep;
use crate::tile::kernel::Kernel;

impl Generator<'_> {
    /// The first blocks whose code fits.
    pub(super) fn attention(
        &mut self,
        scope: &Scope<'_>,
        s: &SpecialStep,
        spec: &Attention,
        body: &mut Vec<Code>,
    ) -> Result<(), CompileError> {
        let n = scope.g.node(s.node);
        let loads: Vec<i64> = n.args.iter().map(|&a| scope.base(a)).collect();
        let count = spec.types().1.len();
        let stores: Vec<Option<i64>> =
            (0..count).map(|k| s.results.get(k).copied().flatten().map(|r| scope.base(r))).collect();
        let mut reason = EmitError::Vmem { needed: 0, available: *self.chip.vmem_bytes };
        for kernel in AttentionKernel::candidates(spec, self.chip) {
            let descs = &mut self.program.descs;
            match attempt((self.chip, self.depth), descs, false, |e| kernel.emit(e, &loads, &stores)) {
                Ok(generated) => {
                    let info = OpInfo {
                        name: n.name.to_owned(),
                        source: n.source.clone(),
                        location: n.location.clone(),
                        mxu_flops: spec.flops(),
                        vector_flops: 0,
                        dtype: spec.dtype,
                        cores: kernel.cores(),
                        modelled_cycles: 0,
                    };
                    self.push(info, Kernel::Special(kernel.to_string()), generated, body);
                    return Ok(());
                }
                Err(e) => reason = e,
            }
        }
        Err(CompileError::Kernel { name: n.name.to_owned(), place: n.location.clone(), reason })
    }
}
