//! Training steps that others measured, predicted: which rows can be, how far off, and what bounds them.

pub mod config;
pub mod rows;

use serde::Serialize;
use tpusim_backend::compile::HbmLimit;
use tpusim_driver::{DriverError, Mode, PodExecutable};
use tpusim_sim::RunOptions;
use tpusim_sim::pod::PodOptions;
use tpusim_traces::pod::PodReport;
use tpusim_traces::units::memory;
use tpusim_workloads::llm::train_step;

use crate::model::training;
use crate::parallel;
use config::Case;
use rows::Row;

/// A measurement and its prediction.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Row.
    pub id: String,
    /// Chip.
    pub chip: String,
    /// Chips.
    pub chips: u32,
    /// Mesh.
    pub mesh: String,
    /// `exact` or `partly`.
    pub confidence: String,
    /// What was measured.
    pub metric: String,
    /// The measurement: seconds, percent, tokens/s/chip or TFLOP/s/chip.
    pub measured: f64,
    /// The prediction.
    pub predicted: f64,
    /// Measured over predicted step time, whatever the metric: what both mean for the time of a step.
    pub measured_step_s: f64,
    /// Predicted seconds of a step.
    pub predicted_step_s: f64,
    /// Predicted over measured step time, less one.
    pub error: f64,
    /// Predicted MFU, half of attention counted.
    pub mfu: f64,
    /// What most of the step is, and its share.
    pub bound: (String, f64),
    /// The row whose run this is a metric of.
    pub run: String,
    /// What differs from the run, and memory that does not fit.
    pub notes: Vec<String>,
    /// Where the measurement is published.
    pub source: String,
}

/// A row that is not compared.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    /// Row.
    pub id: String,
    /// Why.
    pub reason: String,
}

/// Errors over rows.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// What is counted.
    pub what: String,
    /// How many.
    pub rows: usize,
    /// `exp(mean |ln(predicted / measured)|) - 1` of step times.
    pub geometric_error: f64,
    /// Geometric mean of `|predicted / measured - 1|`, of at least 0.1 % each.
    pub geometric_mean_of_errors: f64,
    /// Mean of `predicted / measured - 1`.
    pub bias: f64,
    /// The largest `|predicted / measured - 1|`.
    pub worst: f64,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct Validation {
    /// Rows that are compared, in their order.
    pub compared: Vec<Compared>,
    /// The others.
    pub skipped: Vec<Skipped>,
    /// Errors: of runs, each counted once, and of all rows.
    pub summaries: Vec<Summary>,
}

/// Compares the rows of `all` whose id contains `only`, on `threads` host threads; their number changes nothing.
pub fn validate(all: &[Row], only: &str, threads: usize) -> Validation {
    let mut skipped = Vec::new();
    let mut wanted: Vec<(&Row, &Row, usize)> = Vec::new();
    let mut cases: Vec<Case> = Vec::new();
    for row in all.iter().filter(|r| r.is_compared() && r.id.contains(only)) {
        let origin = row.origin(all).ok_or_else(|| "the row it refers to is not there".to_owned());
        match origin.and_then(|o| config::case(row, o).map(|c| (o, c))) {
            // Rows often differ in nothing that is expressed.
            Ok((origin, case)) => {
                let at = cases.iter().position(|c| *c == case).unwrap_or_else(|| {
                    cases.push(case);
                    cases.len() - 1
                });
                wanted.push((row, origin, at));
            }
            Err(reason) => skipped.push(Skipped { id: row.id.clone(), reason }),
        }
    }
    let reports = run_all(&cases, threads);
    let mut compared = Vec::new();
    for (row, origin, at) in wanted {
        match &reports[at] {
            Ok(report) => compared.push(compare(row, origin, &cases[at], report)),
            Err(e) => skipped.push(Skipped { id: row.id.clone(), reason: e.clone() }),
        }
    }
    let summaries = summaries(&compared);
    Validation { compared, skipped, summaries }
}

fn run_all(cases: &[Case], threads: usize) -> Vec<Result<PodReport, String>> {
    let all = parallel::map(cases, threads, "training steps", |c| run(c).map_err(|e| e.to_string()));
    all.into_iter().map(|r| r.unwrap_or_else(|| Err("its thread ended early".into()))).collect()
}

fn run(case: &Case) -> Result<PodReport, DriverError> {
    let module = train_step(&case.model, &case.options).map_err(|e| DriverError::Partition(e.to_string()))?;
    let pod = PodExecutable::within(&module, &case.chip, &case.cluster, HbmLimit::Ignored)?;
    let options = PodOptions { run: RunOptions { threads: 1, ..RunOptions::default() }, ..PodOptions::default() };
    let run = pod.run(Mode::Time, &[], &options)?;
    let report = PodReport::new(&pod.program, &case.chip, &case.cluster, &run.profile, "time");
    Ok(report.trains(training(&case.model, &case.options), &case.chip))
}

fn compare(row: &Row, origin: &Row, case: &Case, report: &PodReport) -> Compared {
    let mut notes = case.notes.clone();
    let (mut predicted, mut rate, mut mfu) = (report.time_s, false, 0.0);
    if let Some(t) = &report.training {
        let full = row.counting.as_deref() == Some("full");
        if ["MFU", "model_tflops_per_chip"].contains(&row.metric.as_str()) && row.counting.is_none() {
            notes.push("how FLOPs were counted is not stated: half of attention".into());
        }
        let pick = |causal: f64, all: f64| if full { all } else { causal };
        mfu = t.mfu;
        (predicted, rate) = match row.metric.as_str() {
            "MFU" => (100.0 * pick(t.mfu, t.mfu_full), true),
            "tokens_per_s_per_chip" => (t.tokens_per_s_chip, true),
            "model_tflops_per_chip" => (pick(t.flops_chip, t.flops_chip_full) / 1e12, true),
            _ => (report.time_s, false),
        };
    }
    // Rates are one over times.
    let ratio = if rate { row.value / predicted } else { predicted / row.value };
    if report.hbm_peak_bytes > report.hbm_capacity_bytes {
        let (needed, has) = (memory(report.hbm_peak_bytes), memory(report.hbm_capacity_bytes));
        notes.push(format!("does not fit HBM ({needed} of {has})"));
    }
    Compared {
        id: row.id.clone(),
        chip: case.chip.name.clone(),
        chips: case.cluster.chips(),
        mesh: case.options.mesh.to_string(),
        confidence: row.confidence.clone(),
        metric: row.metric.clone(),
        measured: row.value,
        predicted,
        measured_step_s: report.time_s / ratio,
        predicted_step_s: report.time_s,
        error: ratio - 1.0,
        mfu,
        bound: (report.bound().0.to_owned(), report.bound().1),
        run: origin.id.clone(),
        notes,
        source: row.source.clone(),
    }
}

/// Errors of runs by their first row, of those whose configuration is known exactly, and of all rows.
fn summaries(all: &[Compared]) -> Vec<Summary> {
    let mut runs: Vec<&Compared> = Vec::new();
    for c in all {
        if !runs.iter().any(|r| r.run == c.run) {
            runs.push(c);
        }
    }
    let exact: Vec<&Compared> = runs.iter().filter(|c| c.confidence == "exact").copied().collect();
    let each = [("runs", runs), ("runs with an exact configuration", exact), ("rows", all.iter().collect())];
    each.into_iter().filter(|(_, r)| !r.is_empty()).map(|(what, rows)| summary(what, &rows)).collect()
}

fn summary(what: &str, rows: &[&Compared]) -> Summary {
    const LEAST: f64 = 1e-3;
    let n = rows.len().max(1) as f64;
    let mean = |f: &dyn Fn(f64) -> f64| rows.iter().map(|r| f(r.error)).sum::<f64>() / n;
    Summary {
        what: what.to_owned(),
        rows: rows.len(),
        geometric_error: mean(&|e| (1.0 + e).ln().abs()).exp() - 1.0,
        geometric_mean_of_errors: mean(&|e| e.abs().max(LEAST).ln()).exp(),
        bias: mean(&|e| e),
        worst: rows.iter().fold(0.0, |m, r| m.max(r.error.abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        Row::read(tpusim_workloads::TRAINING_RUNS).unwrap()
    }

    // Oracle: the file itself, and by hand the shape of one run.
    #[test]
    fn published_runs_are_read() {
        let all = rows();
        assert!(all.len() > 200 && all.iter().all(|r| r.is_compared() && !r.source.is_empty()));
        let row = all.iter().find(|r| r.id == "v5p-mt256b-1xv5p-1024-mfu").unwrap();
        let case = config::case(row, row).unwrap();
        assert_eq!((case.cluster.chips(), case.options.mesh.to_string()), (512, "fsdp=64,tensor=8".into()));
        assert_eq!((case.options.batch, case.options.seq, case.model.heads), (1024, 2048, 64));
        let mesh = |id: &str| {
            let row = all.iter().find(|r| r.id == id).unwrap();
            config::case(row, row).map(|c| (c.options.mesh.to_string(), c.options.microbatches, c.options.repeats))
        };
        let long = "iw-llama3.1-70b-256c-s131072-bf16-gbs64-34.02-step";
        assert_eq!(mesh(long), Ok(("fsdp=64,context=8".into(), 1, 1)));
        assert!(mesh("tr-moe10T-16pod").is_err_and(|e| e.contains("num_pipeline_microbatches is not stated")));
        let stated = serde_json::json!({"num_pipeline_microbatches": 16, "num_layers_per_pipeline_stage": 1});
        let with = |id: &str| {
            let mut row = all.iter().find(|r| r.id == id).unwrap().clone();
            let both = row.config.as_object_mut().unwrap();
            both.extend(stated.as_object().unwrap().clone());
            config::case(&row, &row).map(|c| (c.options.mesh.to_string(), c.options.microbatches, c.options.repeats))
        };
        assert_eq!(with("tr-moe10T-16pod"), Ok(("pipeline=16,expert=64,tensor=4".into(), 16, 8)));
        // Ten trillion weights of twelve bytes on 2048 chips of 32 GB for each copy.
        assert!(with("tr-moe10T-pp8dp2").is_err_and(|e| e.contains("weights and optimizer state would need 56.")));
        let known = all.iter().filter(|r| r.origin(&all).is_some_and(|o| config::case(r, o).is_ok())).count();
        assert!(known > 60, "{known}");
    }

    // Oracle: by hand: twice too slow and twice too fast are both off by a factor of two.
    #[test]
    fn errors_are_summarised() {
        let one = |run: &str, error: f64| Compared {
            id: run.into(),
            chip: "v5e".into(),
            chips: 1,
            mesh: String::new(),
            confidence: "exact".into(),
            metric: "step_time".into(),
            measured: 1.0,
            predicted: 1.0 + error,
            measured_step_s: 1.0,
            predicted_step_s: 1.0 + error,
            error,
            mfu: 0.5,
            bound: ("MXU".into(), 0.5),
            run: run.into(),
            notes: Vec::new(),
            source: String::new(),
        };
        let all = summaries(&[one("a", 1.0), one("b", -0.5), one("b", -0.5)]);
        assert_eq!(all.iter().map(|s| s.rows).collect::<Vec<_>>(), [2, 2, 3]);
        let s = &all[0];
        assert!((s.geometric_error - 1.0).abs() < 1e-12 && (s.bias - 0.25).abs() < 1e-12 && s.worst == 1.0, "{s:?}");
        assert!((s.geometric_mean_of_errors - 0.5f64.sqrt()).abs() < 1e-12, "{s:?}");
    }
}
