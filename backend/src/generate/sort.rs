//! The operations of sorts.

use tpusim_isa::program::{Node as Code, OpInfo};

use super::{Generator, Scope, attempt};
use crate::compile::CompileError;
use crate::graph::Node;
use crate::lower::emit::EmitError;
use crate::lower::sort::{SortKernel, SortSpec};
use crate::tile::fuse::SpecialStep;
use crate::tile::kernel::Kernel;

impl Generator<'_> {
    /// The first layout whose code fits.
    pub(super) fn sort(
        &mut self,
        scope: &Scope<'_>,
        s: &SpecialStep,
        spec: &SortSpec,
        body: &mut Vec<Code>,
    ) -> Result<(), CompileError> {
        let n = scope.g.node(s.node);
        let loads: Vec<i64> = n.args.iter().map(|&a| scope.base(a)).collect();
        let stores: Vec<Option<i64>> =
            (0..spec.results.len()).map(|k| s.results.get(k).copied().flatten().map(|r| scope.base(r))).collect();
        let mut reason = EmitError::Vmem { needed: 0, available: *self.chip.vmem_bytes };
        for in_order in [false, true] {
            for kernel in SortKernel::candidates(spec, self.chip) {
                if kernel.vmem() > *self.chip.vmem_bytes {
                    reason = EmitError::Vmem { needed: kernel.vmem(), available: *self.chip.vmem_bytes };
                    continue;
                }
                let descs = &mut self.program.descs;
                match attempt((self.chip, self.depth), descs, in_order, |e| kernel.emit(e, &loads, &stores)) {
                    Ok(generated) => {
                        let info = special_info(n, spec.comparisons(), kernel.cores());
                        self.push(info, Kernel::Special(kernel.to_string()), generated, body);
                        return Ok(());
                    }
                    Err(e) => reason = e,
                }
            }
            if !matches!(reason, EmitError::Registers(_)) {
                break;
            }
        }
        Err(CompileError::Kernel { name: n.name.to_owned(), place: n.location.clone(), reason })
    }
}

/// What a special node is, for reports.
fn special_info(n: &Node, vector_flops: u64, cores: u32) -> OpInfo {
    OpInfo {
        name: n.name.to_owned(),
        source: n.source.clone(),
        location: n.location.clone(),
        mxu_flops: 0,
        vector_flops,
        dtype: n.dtype,
        cores,
        modelled_cycles: 0,
    }
}
