//! A training step in the words of those who train models: tokens, useful FLOPs, MFU.
//!
//! Useful FLOPs of a step are `6 N` a token for the `N` weights that multiply it, and `12 layers heads dim seq` for attention. *MFU* is
//! useful FLOPs over what all chips could do in the time at the peak of the type that is multiplied. What is computed again for the
//! backward pass does not count. The headline counts the half of attention that a causal mask leaves, as MaxText does
//! (`maxtext_utils.py`, since mid-2025); PaLM (arXiv:2204.02311, appendix B) and most older reports count all pairs of positions.

use serde::Serialize;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;

use crate::units::{percent, seconds, si};

/// What a step trains.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// Model.
    pub model: String,
    /// Mesh, e.g. `fsdp=128,tensor=4`.
    pub mesh: String,
    /// Sequences of the batch.
    pub batch: i64,
    /// Tokens of a sequence.
    pub seq: i64,
    /// Type that is multiplied, whose peak MFU is held against.
    pub dtype: DType,
    /// Useful FLOPs of weights, of the whole step.
    pub weight_flops: u128,
    /// Useful FLOPs of attention with all pairs of positions.
    pub attention_flops: u128,
    /// The pipeline that layers are in.
    pub pipeline: Option<Pipeline>,
}

/// A pipeline of stages, all of which compute in every iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Stages.
    pub stages: i64,
    /// Parts of the batch that go through.
    pub microbatches: i64,
    /// Iterations of a stage, each way.
    pub iterations: i64,
    /// Iterations of them in which a stage has no part.
    pub idle: i64,
    /// What the sources of operations of an iteration begin with.
    pub sources: Vec<String>,
}

/// What a pipeline costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelineReport {
    /// Stages.
    pub stages: i64,
    /// Parts of the batch that go through.
    pub microbatches: i64,
    /// Iterations of a stage, each way.
    pub iterations: i64,
    /// Iterations of them in which a stage has no part.
    pub idle: i64,
    /// Seconds of those, both ways.
    pub bubbles_s: f64,
}

impl PipelineReport {
    /// From the seconds that sources of operations and transfers took.
    pub(crate) fn new<'a>(p: &Pipeline, times: impl Iterator<Item = (&'a str, f64)>) -> PipelineReport {
        let inside = times.filter(|(s, _)| p.sources.iter().any(|begins| s.starts_with(begins.as_str())));
        let all = inside.fold(0.0, |sum, (_, s)| sum + s);
        let Pipeline { stages, microbatches, iterations, idle, .. } = *p;
        let bubbles_s = all * idle as f64 / iterations.max(1) as f64;
        PipelineReport { stages, microbatches, iterations, idle, bubbles_s }
    }
}

/// What a step reaches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainingReport {
    /// Model.
    pub model: String,
    /// Mesh.
    pub mesh: String,
    /// Sequences of the batch.
    pub batch: i64,
    /// Tokens of a sequence.
    pub seq: i64,
    /// Seconds of a step.
    pub step_time_s: f64,
    /// Tokens a second and chip.
    pub tokens_per_s_chip: f64,
    /// Useful FLOPs of a step, half of attention counted.
    pub useful_flops: f64,
    /// Useful FLOPs of a step, all pairs of positions counted.
    pub useful_flops_full: f64,
    /// Useful FLOP/s of a chip, half of attention counted.
    pub flops_chip: f64,
    /// As `flops_chip`, all pairs of positions counted.
    pub flops_chip_full: f64,
    /// FLOP/s that a chip could do in this type.
    pub peak_flops_chip: f64,
    /// `flops_chip` over `peak_flops_chip`.
    pub mfu: f64,
    /// `flops_chip_full` over `peak_flops_chip`.
    pub mfu_full: f64,
    /// What the pipeline costs, if layers are in one.
    pub pipeline: Option<PipelineReport>,
}

impl TrainingReport {
    /// The report of a step that took `time_s` on `devices` devices of `chip`.
    pub fn new(t: Training, chip: &ChipSpec, devices: u32, time_s: f64) -> TrainingReport {
        let per_chip = f64::from(chip.devices_per_chip());
        let chips = f64::from(devices) / per_chip;
        let rate = |amount: f64| if time_s > 0.0 { amount / time_s / chips } else { 0.0 };
        let (weights, attention) = (t.weight_flops as f64, t.attention_flops as f64);
        let (causal, full) = (weights + attention / 2.0, weights + attention);
        let peak = chip.peak_flops_device(t.dtype) * per_chip;
        TrainingReport {
            model: t.model,
            mesh: t.mesh,
            batch: t.batch,
            seq: t.seq,
            step_time_s: time_s,
            tokens_per_s_chip: rate(t.batch as f64 * t.seq as f64),
            useful_flops: causal,
            useful_flops_full: full,
            flops_chip: rate(causal),
            flops_chip_full: rate(full),
            peak_flops_chip: peak,
            mfu: rate(causal) / peak,
            mfu_full: rate(full) / peak,
            pipeline: None,
        }
    }

    /// Lines of a text report, each with its name.
    pub(crate) fn lines(&self, time_s: f64, line: &mut impl FnMut(&str, String)) {
        line("model", format!("{}, batch {} of {} tokens, mesh {}", self.model, self.batch, self.seq, self.mesh));
        line("step time", seconds(time_s));
        line(
            "throughput",
            format!("{:.0} tokens/s/chip, {}/chip", self.tokens_per_s_chip, si(self.flops_chip, "FLOP/s")),
        );
        line(
            "MFU",
            format!(
                "{} of {} ({} with all pairs of positions counted)",
                percent(self.mfu),
                si(self.peak_flops_chip, "FLOP/s"),
                percent(self.mfu_full)
            ),
        );
        if let Some(p) = &self.pipeline {
            let share = percent(if time_s > 0.0 { p.bubbles_s / time_s } else { 0.0 });
            let text = format!("{} stages, {} iterations of {} microbatches", p.stages, p.iterations, p.microbatches);
            line("pipeline", format!("{text}; {} ({share}) in bubbles", seconds(p.bubbles_s)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: by hand. A v7x has two devices; 256 of them are 128 chips.
    #[test]
    fn rates_are_those_of_a_chip() {
        let chip = ChipSpec::load("v7x").unwrap();
        let peak = 2.0 * chip.peak_flops_device(DType::BF16);
        let step = Training {
            model: "m".into(),
            mesh: "fsdp=256".into(),
            batch: 256,
            seq: 1000,
            dtype: DType::BF16,
            weight_flops: (128.0 * peak) as u128,
            attention_flops: (12.8 * peak) as u128,
            pipeline: None,
        };
        let r = TrainingReport::new(step, &chip, 256, 2.0);
        assert_eq!(r.tokens_per_s_chip, 1000.0);
        assert!((r.mfu - 0.525).abs() < 1e-9 && (r.mfu_full - 0.55).abs() < 1e-9, "{r:?}");
    }

    // Oracle: by hand. Three of seven iterations, of what is inside.
    #[test]
    fn bubbles_are_a_share_of_the_iterations() {
        let sources = vec!["there".to_owned()];
        let p = Pipeline { stages: 4, microbatches: 4, iterations: 7, idle: 3, sources };
        let r = PipelineReport::new(&p, [("there/a", 5.0), ("elsewhere", 9.0), ("there", 2.0)].into_iter());
        assert_eq!(r.bubbles_s, 3.0);
    }
}
