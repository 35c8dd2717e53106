//! What `run` and `exec` share: how to run, and what to make of it.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use tpusim_backend::hlo::TensorType;
use tpusim_driver::{Execution, Mode};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::Program;
use tpusim_sim::{RunOptions, TripCounts};
use tpusim_traces::figure::FigureError;
use tpusim_traces::report::{Report, TextOptions};
use tpusim_traces::{figure, perfetto, tables};

use crate::chip::pair;
use crate::failure::Failure;
use crate::files::{self, Targets};
use crate::out;

/// Spans recorded for a trace: some hundreds of megabytes of host memory at most.
const TRACE_SPANS: usize = 2_000_000;

/// What a run computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Results and time
    #[default]
    Execute,
    /// Time only: same cycles, no data
    Time,
}

/// When the data of a DMA moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DmaArg {
    /// When it starts
    #[default]
    Early,
    /// As late as its wait allows
    Late,
}

/// Flags of how to run.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// What to compute [default: execute; for a model time, as its data would not fit a host]
    #[arg(long, value_enum, help_heading = "Engine")]
    mode: Option<ModeArg>,
    /// Simulate every chip of a pod instead of one of each kind; the result is the same
    #[arg(long, help_heading = "Engine")]
    no_fold: bool,
    /// Simulate every iteration of every loop instead of jumping over repeating ones; the result is the same
    #[arg(long, help_heading = "Engine")]
    no_fold_loops: bool,
    /// Fill uninitialised memory and registers with NaN, to find reads of what was never written
    #[arg(long, help_heading = "Engine")]
    poison: bool,
    /// When the data of a DMA moves; a program that is right does not notice
    #[arg(long, value_enum, value_name = "WHEN", default_value_t, help_heading = "Engine")]
    dma: DmaArg,
    /// Host threads; results do not depend on it [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Engine")]
    threads: Option<u16>,
    /// How often loops run whose end depends on data, with --mode time: one number for all, or LOOP=N for one (repeatable).
    /// LOOP is what the report calls it, e.g. while.0, or its name in the source
    #[arg(long, value_name = "[LOOP=]N", value_parser = trip_count, help_heading = "Engine")]
    trip_count: Vec<(Option<String>, u32)>,
    /// The branch that a `case` or `if` takes, with --mode time (repeatable), e.g. case.0=1; others take the branch that takes
    /// longest
    #[arg(long, value_name = "CASE=N", value_parser = numbered, help_heading = "Engine")]
    branch: Vec<(String, u32)>,
    /// Iterations after which a loop whose end depends on data is taken to be endless
    #[arg(long, value_name = "N", default_value_t = RunOptions::default().max_iterations, help_heading = "Engine")]
    max_iterations: u64,
}

/// `name=number`.
fn numbered(text: &str) -> Result<(String, u32), String> {
    let (name, n) = pair(text).map_err(|_| "expected NAME=N".to_owned())?;
    n.parse().map(|n| (name, n)).map_err(|_| format!("expected a number from 0 to {} after `=`", u32::MAX))
}

/// `number` or `name=number`.
fn trip_count(text: &str) -> Result<(Option<String>, u32), String> {
    match text.parse() {
        Ok(n) => Ok((None, n)),
        Err(_) if text.contains('=') => numbered(text).map(|(name, n)| (Some(name), n)),
        Err(_) => Err(format!("expected a number from 0 to {} or LOOP=N", u32::MAX)),
    }
}

/// Flags of what to write.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Write the outputs as out0.npy, out1.npy, ... to this folder
    #[arg(long, value_name = "DIR", help_heading = "Inputs and outputs")]
    pub output_dir: Option<PathBuf>,
    /// Write the report as JSON; `-` prints it instead of the text
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub json: Option<PathBuf>,
    /// Write a trace for ui.perfetto.dev
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub trace: Option<PathBuf>,
    /// Draw utilization over time; of a pod, time by class and memory over the step (.svg or .png, with a .csv beside it)
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub plot: Option<PathBuf>,
    /// Draw the operations under the chip's roofline (.svg or .png, with a .csv beside it)
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    roofline: Option<PathBuf>,
    /// Write a table of the operations
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    csv: Option<PathBuf>,
    /// Operations to list in the text
    #[arg(long, value_name = "N", default_value_t = 15, help_heading = "Reports")]
    pub top: usize,
}

impl EngineArgs {
    /// What to compute.
    pub fn mode(&self) -> ModeArg {
        self.mode.unwrap_or_default()
    }

    /// Computes `mode` if nothing else is asked for.
    pub fn prefer(&mut self, mode: ModeArg) {
        self.mode.get_or_insert(mode);
    }

    /// The driver's mode.
    pub fn driver_mode(&self) -> Mode {
        match self.mode() {
            ModeArg::Execute => Mode::Execute,
            ModeArg::Time => Mode::Time,
        }
    }

    /// Checks that the flags fit together.
    pub fn check(&self) -> Result<(), Failure> {
        let assumes = [("--trip-count", !self.trip_count.is_empty()), ("--branch", !self.branch.is_empty())];
        match assumes.into_iter().find(|(_, given)| *given && self.mode() == ModeArg::Execute) {
            Some((flag, _)) => {
                Err(Failure::usage(format!("{flag}: --mode execute has data to decide; use --mode time")))
            }
            None => Ok(()),
        }
    }

    /// How often loops run; of several counts for one, the last.
    fn trip_counts(&self) -> TripCounts {
        let all = self.trip_count.iter().rev().find(|(name, _)| name.is_none()).map(|(_, n)| *n);
        let by_name = self.trip_count.iter().filter_map(|(name, n)| Some((name.clone()?, *n))).collect();
        TripCounts { all, by_name }
    }

    /// Whether one chip of a pod may stand for others.
    pub fn folds_chips(&self) -> bool {
        !self.no_fold
    }

    /// The engine's options; spans are recorded only for a trace.
    pub fn options(&self, report: &ReportArgs) -> RunOptions {
        let all = std::thread::available_parallelism().map_or(1, |n| n.get());
        RunOptions {
            fold: !self.no_fold_loops,
            poison: self.poison,
            dma_late: self.dma == DmaArg::Late,
            trace_spans: if report.trace.is_some() { TRACE_SPANS } else { 0 },
            threads: self.threads.map_or(all, usize::from),
            trip_counts: self.trip_counts(),
            branches: self.branch.iter().cloned().collect(),
            max_iterations: self.max_iterations,
        }
    }
}

impl ReportArgs {
    /// Checks that everything asked for can be written.
    pub fn check(&self, mode: ModeArg) -> Result<(), Failure> {
        let mut targets = Targets::default();
        if let Some(dir) = &self.output_dir {
            if mode == ModeArg::Time {
                return Err(Failure::usage("--output-dir: --mode time computes no outputs; use --mode execute"));
            }
            targets.folder("--output-dir", dir)?;
        }
        if let Some(path) = self.json.as_deref().filter(|p| *p != Path::new("-")) {
            targets.file("--json", path)?;
        }
        for (flag, path) in [("--trace", &self.trace), ("--csv", &self.csv)] {
            if let Some(path) = path {
                targets.file(flag, path)?;
            }
        }
        for (flag, path) in [("--plot", &self.plot), ("--roofline", &self.roofline)] {
            if let Some(path) = path {
                targets.figure(flag, path)?;
            }
        }
        Ok(())
    }

    /// Refuses what is made from a core's profile, which a pod has none of.
    pub fn pods(&self) -> Result<(), Failure> {
        let given = [("--roofline", self.roofline.is_some()), ("--csv", self.csv.is_some())];
        match given.into_iter().find(|g| g.1) {
            Some((flag, _)) => Err(Failure::usage(format!("{flag}: not made of a run on a pod; use --json or --plot"))),
            None => Ok(()),
        }
    }

    /// Writes and prints everything asked for. `notes` are lines for people, after the report.
    pub fn write(
        &self,
        mode: ModeArg,
        (program, chip): (&Program, &ChipSpec),
        run: Execution,
        outputs: &[TensorType],
        notes: &str,
    ) -> Result<(), Failure> {
        let name = match mode {
            ModeArg::Execute => "execute",
            ModeArg::Time => "time",
        };
        let profile = run.profile.unwrap_or_default();
        let report = Report::new(program, chip, &profile, name);
        if let Some(dir) = &self.output_dir {
            let arrays: Vec<_> = outputs.iter().cloned().zip(run.outputs).collect();
            files::write_outputs(dir, &arrays)?;
        }
        if let Some(path) = &self.csv {
            tables::write_ops(path, &report).map_err(Failure::usage)?;
        }
        if let Some(path) = &self.trace {
            let core = perfetto::Core { name: "core 0", program, chip, profile: &profile };
            perfetto::write(path, &[core]).map_err(Failure::usage)?;
        }
        if let Some(path) = &self.plot {
            drawn("--plot", figure::utilization(path, &report, &profile))?;
        }
        if let Some(path) = &self.roofline {
            drawn("--roofline", figure::roofline(path, &report))?;
        }
        let to_stdout = self.json.as_deref() == Some(Path::new("-"));
        if let Some(path) = &self.json {
            let text = report.to_json().map_err(Failure::usage)?;
            if to_stdout {
                return out::print(&text);
            }
            files::write(path, text.as_bytes())?;
        }
        let mut text = report.text(TextOptions { top: self.top, color: out::color() });
        if profile.spans_truncated && self.trace.is_some() {
            text.push_str(&format!("the trace ends after {TRACE_SPANS} spans; later activity is missing\n"));
        }
        text.push_str(notes);
        out::print(&text)
    }
}

/// A program without work has no figure, which is no reason to withhold the rest.
pub fn drawn(flag: &str, result: Result<(), FigureError>) -> Result<(), Failure> {
    match result {
        Err(e @ FigureError::Empty(_)) => {
            out::note(&format!("{flag}: {e}"));
            Ok(())
        }
        other => other.map_err(Failure::usage),
    }
}
