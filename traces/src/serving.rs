//! A serving step in the words of those who serve models: tokens a second, MFU, MBU.
//!
//! Useful FLOPs are `2 N` a token for the `N` weights that multiply it, and attention over the positions that it sees. *MBU*, the utilization of
//! memory bandwidth, is the bytes that a device has to read at least once, its weights and its part of the cache, over what its HBM
//! could have read in the time (the definition of databricks.com/blog/llm-inference-performance-engineering-best-practices). The cache counts
//! with all positions it has room for, since all are read and masked.

use serde::Serialize;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;

use crate::units::{percent, seconds, si};

/// What a step serves.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    /// Model.
    pub model: String,
    /// Mesh, e.g. `data=2,tensor=4`.
    pub mesh: String,
    /// `prefill` or `decode`.
    pub phase: &'static str,
    /// Sequences of the batch.
    pub batch: i64,
    /// Tokens that the step takes of a sequence.
    pub tokens: i64,
    /// Positions of the cache.
    pub context: i64,
    /// Type that is multiplied, whose peak MFU is held against.
    pub dtype: DType,
    /// Useful FLOPs of the whole step, of pairs of positions those that masks leave.
    pub flops: u128,
    /// Bytes of weights that each device reads.
    pub weight_bytes: u64,
    /// Bytes of the cache that each device reads.
    pub cache_bytes: u64,
}

/// What a step reaches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServingReport {
    /// Model.
    pub model: String,
    /// Mesh.
    pub mesh: String,
    /// `prefill` or `decode`.
    pub phase: &'static str,
    /// Sequences of the batch.
    pub batch: i64,
    /// Tokens that the step takes of a sequence.
    pub tokens: i64,
    /// Positions of the cache.
    pub context: i64,
    /// Seconds of a step.
    pub step_time_s: f64,
    /// Tokens a second of all chips: of prompts, or new ones.
    pub tokens_per_s: f64,
    /// Tokens a second and chip.
    pub tokens_per_s_chip: f64,
    /// Useful FLOPs of a step.
    pub useful_flops: f64,
    /// Useful FLOP/s of a chip.
    pub flops_chip: f64,
    /// FLOP/s that a chip could do in this type.
    pub peak_flops_chip: f64,
    /// `flops_chip` over `peak_flops_chip`.
    pub mfu: f64,
    /// Bytes of weights that a device reads.
    pub weight_bytes_device: u64,
    /// Bytes of the cache that a device reads.
    pub cache_bytes_device: u64,
    /// Bytes a second that a device's HBM could move.
    pub peak_hbm_bps_device: f64,
    /// Seconds that reading weights and cache takes at that peak.
    pub hbm_bound_s: f64,
    /// `hbm_bound_s` over `step_time_s`.
    pub mbu: f64,
}

impl ServingReport {
    /// The report of a step that took `time_s` on `devices` devices of `chip`.
    pub fn new(s: Serving, chip: &ChipSpec, devices: u32, time_s: f64) -> ServingReport {
        let per_chip = f64::from(chip.devices_per_chip());
        let chips = f64::from(devices) / per_chip;
        let rate = |amount: f64| if time_s > 0.0 { amount / time_s } else { 0.0 };
        let tokens = s.batch as f64 * s.tokens as f64;
        let peak = chip.peak_flops_device(s.dtype) * per_chip;
        let bps = *chip.hbm.bps_chip as f64 / per_chip;
        let bound = (s.weight_bytes + s.cache_bytes) as f64 / bps;
        ServingReport {
            model: s.model,
            mesh: s.mesh,
            phase: s.phase,
            batch: s.batch,
            tokens: s.tokens,
            context: s.context,
            step_time_s: time_s,
            tokens_per_s: rate(tokens),
            tokens_per_s_chip: rate(tokens) / chips,
            useful_flops: s.flops as f64,
            flops_chip: rate(s.flops as f64) / chips,
            peak_flops_chip: peak,
            mfu: rate(s.flops as f64) / chips / peak,
            weight_bytes_device: s.weight_bytes,
            cache_bytes_device: s.cache_bytes,
            peak_hbm_bps_device: bps,
            hbm_bound_s: bound,
            mbu: rate(bound),
        }
    }

    /// Lines of a text report, each with its name.
    pub(crate) fn lines(&self, line: &mut impl FnMut(&str, String)) {
        let Self { model, mesh, phase, batch, tokens, context, .. } = self;
        let what = match *tokens {
            1 => format!("{model} {phase}, a token of {batch} sequences against {context} positions"),
            n => format!("{model} {phase}, {batch} sequences of {n} tokens, cache of {context} positions"),
        };
        line("model", format!("{what}, mesh {mesh}"));
        line("step time", seconds(self.step_time_s));
        line("throughput", format!("{:.0} tokens/s, {:.0} tokens/s/chip", self.tokens_per_s, self.tokens_per_s_chip));
        line("MFU", format!("{} of {}", percent(self.mfu), si(self.peak_flops_chip, "FLOP/s")));
        line(
            "MBU",
            format!(
                "{} of {} on each device: {} of weights and {} of cache take {} at least",
                percent(self.mbu),
                si(self.peak_hbm_bps_device, "B/s"),
                si(self.weight_bytes_device as f64, "B"),
                si(self.cache_bytes_device as f64, "B"),
                seconds(self.hbm_bound_s)
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: by hand. A v7x has two devices, which share its bandwidth; 8 of them are 4 chips.
    #[test]
    fn rates_are_those_of_a_chip_and_bandwidth_of_a_device() {
        let chip = ChipSpec::load("v7x").unwrap();
        let bps = *chip.hbm.bps_chip as f64 / 2.0;
        let step = Serving {
            model: "m".into(),
            mesh: "tensor=8".into(),
            phase: "decode",
            batch: 16,
            tokens: 1,
            context: 100,
            dtype: DType::BF16,
            flops: (4.0 * 2.0 * chip.peak_flops_device(DType::BF16)) as u128,
            weight_bytes: (bps * 0.75) as u64,
            cache_bytes: (bps * 0.25) as u64,
        };
        let r = ServingReport::new(step, &chip, 8, 2.0);
        assert_eq!((r.tokens_per_s, r.tokens_per_s_chip), (8.0, 2.0));
        assert!(
            (r.mfu - 0.5).abs() < 1e-9 && (r.mbu - 0.5).abs() < 1e-9 && (r.hbm_bound_s - 1.0).abs() < 1e-9,
            "{r:?}"
        );
    }
}
