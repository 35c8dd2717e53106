//! The operations of gathers and scatters.

use tpusim_isa::program::{Node as Code, OpInfo};

use super::{Generator, Scope};
use crate::compile::CompileError;
use crate::graph::{Graph, Scatter, Windows};
use crate::lower::gather::{Array, GatherKernel, Layout, ScatterKernel};
use crate::tile::fuse::SpecialStep;

fn text(w: &Windows) -> String {
    let dims: Vec<String> = w.dims.iter().map(|(n, s)| format!("{n} by {s}")).collect();
    format!("{} windows of [{}], places of {}", w.count, dims.join(", "), w.unit)
}

fn info(g: &Graph, s: &SpecialStep, name: &str, vector_flops: u64, cores: u32) -> OpInfo {
    let n = g.node(s.node);
    OpInfo {
        name: name.to_owned(),
        source: n.source.clone(),
        location: n.location.clone(),
        mxu_flops: 0,
        vector_flops,
        dtype: n.args.first().map_or(n.dtype, |a| g.node(*a).dtype),
        cores,
        modelled_cycles: 0,
    }
}

impl Generator<'_> {
    pub(super) fn gather(
        &mut self,
        scope: &Scope<'_>,
        s: &SpecialStep,
        w: &Windows,
        body: &mut Vec<Code>,
    ) -> Result<(), CompileError> {
        let (&[array, places], Some(Some(result))) = (&scope.g.node(s.node).args[..], s.results.first()) else {
            return Ok(());
        };
        let elem = scope.g.node(array).dtype.bytes() as u64;
        let layout = Layout::new(w, elem, true);
        let chip = self.chip;
        let cores = *chip.tensorcores_per_device;
        let (block, cores) = GatherKernel::tile(w.count, layout.rows(), *chip.vmem_bytes, *chip.smem_bytes, cores);
        let kernel = GatherKernel {
            count: w.count,
            unit: (w.unit * elem) as i64,
            array: scope.base(array),
            places: scope.base(places),
            result: scope.base(*result),
            layout,
            block,
            cores,
        };
        let text = format!("gather {}\n  block {block}, cores {cores}\n", text(w));
        self.operation(info(scope.g, s, "gather", 0, cores), text, body, |e| kernel.emit(e))
    }

    pub(super) fn scatter(
        &mut self,
        scope: &Scope<'_>,
        s: &SpecialStep,
        w: &Scatter,
        body: &mut Vec<Code>,
    ) -> Result<(), CompileError> {
        let (args, n) = (&scope.g.node(s.node).args, w.arrays());
        let words = w.words(args.iter().take(n).map(|a| scope.g.node(*a).dtype));
        let arrays: Vec<Array> = (args.iter().take(n).zip(args.iter().skip(n + 2)))
            .map(|(&array, &updates)| {
                let dtype = scope.g.node(array).dtype;
                let elem = dtype.bytes() as u64;
                Array {
                    dtype,
                    layout: Layout::new(&w.windows, elem, words),
                    unit: (w.windows.unit * elem) as i64,
                    base: scope.base(array),
                    updates: scope.base(updates),
                }
            })
            .collect();
        let (Some(&places), Some(&slots)) = (args.get(n), args.get(n + 1)) else { return Ok(()) };
        let kernel = ScatterKernel {
            batches: (w.windows.count / w.batch.max(1)) as u32,
            batch: w.batch as u32,
            arrays,
            places: scope.base(places),
            slots: scope.base(slots),
            region: w.region.clone(),
        };
        let text = format!("scatter {} in batches of {}\n", text(&w.windows), w.batch);
        let operations = w.region.values.len().saturating_sub(2 * n) as u64;
        let flops = operations * w.windows.count * w.windows.elements();
        self.operation(info(scope.g, s, "scatter", flops, 1), text, body, |e| kernel.emit(e))
    }
}
