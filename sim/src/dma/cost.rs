//! Cost of DMAs. HBM serves the transfers of one core in order, at this core's share of the bandwidth.
//!
//! A transfer takes its bytes over the rate. Runs of contiguous bytes shorter than the access granule cost a whole granule, so that
//! strided columns are slow. Dimensions that repeat (stride 0) are read once.

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::BytesPerCycle;
use tpusim_isa::program::{DmaDesc, DmaDir};

/// Cost of one execution of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Cycles HBM is taken.
    pub service: u64,
    /// Bytes of data.
    pub payload: u64,
    /// Whether HBM is written.
    pub write: bool,
}

impl Cost {
    /// Cost of `d` on a device with `cores` cores at work.
    pub fn new(d: &DmaDesc, chip: &ChipSpec, cores: u32) -> Cost {
        let (runs, run) = runs(d);
        let granule = u128::from((*chip.hbm.granule_bytes).max(1));
        let effective = runs.saturating_mul(run.div_ceil(granule).saturating_mul(granule));
        let write = d.dir == DmaDir::Store;
        let efficiency = if write { *chip.hbm.write_efficiency } else { *chip.hbm.read_efficiency };
        let bits = scaled(chip.hbm_rate_per_core(cores), efficiency);
        let bytes = effective.saturating_mul(1 << 32).div_ceil(u128::from(bits));
        Cost { service: clamp(bytes), payload: clamp(runs.saturating_mul(run)), write }
    }
}

fn clamp(x: u128) -> u64 {
    // Far beyond any real transfer, and small enough that sums of many do not overflow.
    u64::try_from(x).unwrap_or(u64::MAX).min(1 << 48)
}

fn scaled(rate: BytesPerCycle, efficiency: f64) -> u64 {
    ((rate.to_bits() as f64 * efficiency) as u64).max(1)
}

/// Contiguous runs in HBM: how many, and the bytes of each.
fn runs(d: &DmaDesc) -> (u128, u128) {
    let inner = [(d.cols, d.col_stride), (d.rows, d.row_stride)];
    let dims = inner.into_iter().chain(d.outer.iter().rev().map(|o| (o.count, o.hbm_stride)));
    let (mut runs, mut run, mut contiguous) = (1u128, u128::from(d.elem_bytes), true);
    for (count, stride) in dims {
        if count == 0 {
            return (0, 0);
        }
        if count == 1 || stride == 0 {
            continue;
        }
        if contiguous && u128::from(stride.unsigned_abs()) == run {
            run = run.saturating_mul(u128::from(count));
        } else {
            contiguous = false;
            runs = runs.saturating_mul(u128::from(count));
        }
    }
    (runs, run)
}

/// Timing state of a core's descriptor engine and of its share of HBM. Times are absolute cycles.
#[derive(Clone, Debug, Default)]
pub(crate) struct DmaTiming {
    engine_free: u64,
    server_free: u64,
    done: u64,
}

impl DmaTiming {
    /// A DMA issued at `t`: returns when HBM serves it, from and to, and when its data has landed.
    pub fn start(&mut self, t: u64, service: u64, gap: u64, latency: u64) -> (u64, u64, u64) {
        let start = t.max(self.engine_free);
        self.engine_free = start + gap;
        let from = start.max(self.server_free);
        let to = from + service;
        self.server_free = to;
        self.done = to + latency;
        (from, to, self.done)
    }

    /// When all DMAs so far have landed.
    pub fn drained_at(&self) -> u64 {
        self.done
    }

    pub fn snapshot(&self, now: u64, out: &mut Vec<u64>) {
        out.extend([self.engine_free, self.server_free, self.done].map(|t| t.saturating_sub(now)));
    }

    pub fn shift(&mut self, by: u64) {
        self.engine_free += by;
        self.server_free += by;
        self.done += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tpusim_isa::program::{Addr, DmaDim, OnChip};

    fn desc(cols: u32, rows: u32, row_stride: i64, outer: Vec<DmaDim>) -> DmaDesc {
        DmaDesc {
            dir: DmaDir::Load,
            mem: OnChip::Vmem,
            elem_bytes: 4,
            outer,
            rows,
            row_stride,
            cols,
            col_stride: 4,
            lane_tiles: cols.div_ceil(128),
            hbm: Addr::default(),
            local: Addr::default(),
        }
    }

    // Oracle: counting by hand.
    #[test]
    fn finds_contiguous_runs() {
        assert_eq!(runs(&desc(256, 8, 1024, vec![])), (1, 8192));
        assert_eq!(runs(&desc(256, 8, 4096, vec![])), (8, 1024));
        let dim = |count, hbm_stride| DmaDim { count, hbm_stride, local_stride: 8 };
        assert_eq!(runs(&desc(256, 8, 1024, vec![dim(3, 8192)])), (1, 3 * 8192));
        assert_eq!(runs(&desc(256, 8, 1024, vec![dim(5, 0), dim(3, 9000)])), (3, 8192));
        assert_eq!(runs(&desc(256, 8, 4096, vec![dim(3, 8 * 4096)])), (24, 1024));
        assert_eq!(runs(&desc(256, 8, -1024, vec![])), (1, 8192));
        assert_eq!(runs(&desc(0, 8, 1024, vec![])), (0, 0));
    }

    // Oracle: bytes / (bandwidth / clock x efficiency), rounded up.
    #[test]
    fn long_reads_take_bytes_over_rate() {
        let chip = ChipSpec::load("v5e").unwrap();
        let c = Cost::new(&desc(1024, 1024, 4096, vec![]), &chip, 1);
        let rate = *chip.hbm.bps_chip as f64 / *chip.clock_hz as f64 * *chip.hbm.read_efficiency;
        assert_eq!(c.service, (4194304.0 / rate).ceil() as u64);
        assert_eq!(c.payload, 4194304);
        let short = Cost::new(&desc(1, 1024, 4096, vec![]), &chip, 1);
        assert_eq!(short.service, ((1024.0 * 64.0) / rate).ceil() as u64);
        assert_eq!(short.payload, 4096);
    }
}
