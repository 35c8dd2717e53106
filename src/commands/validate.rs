//! `tpusim validate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, LineStyle, Table};
use tpusim_traces::figure::{self, Correlation};
use tpusim_traces::units::percent;

use crate::failure::Failure;
use crate::files::{self, Targets};
use crate::out;
use crate::parallel;
use crate::validate::rows::Row;
use crate::validate::{Validation, validate};

/// What to hold predictions against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Steps of training language models that were published with their configuration
    Training,
}

/// Hold predictions against what others measured on real TPUs
///
/// Every row of the file that states model, mesh, batch and slice is written as a training step and timed; the others are listed with the
/// reason why not. An error is predicted over measured step time less one, whatever the metric.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tpusim validate training
  tpusim validate training --only v5e- --plot correlation.svg
  tpusim validate training --data measured.jsonl --json")]
pub struct Validate {
    /// What to hold predictions against
    #[arg(value_enum)]
    suite: Suite,
    /// Measurements, a JSON object a line [default: those that come with tpusim]
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Only rows whose id contains this
    #[arg(long, value_name = "PATTERN", default_value = "", hide_default_value = true)]
    only: String,
    /// Draw predicted over measured step times (.svg or .png, with a .csv beside it)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Host threads; results do not depend on it [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

impl Validate {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        let Suite::Training = self.suite;
        if let Some(path) = &self.plot {
            Targets::default().figure("--plot", path)?;
        }
        let (text, name) = match &self.data {
            Some(path) => {
                let bytes = files::read(path)?;
                (String::from_utf8(bytes).map_err(Failure::usage)?, path.display().to_string())
            }
            None => (tpusim_workloads::TRAINING_RUNS.to_owned(), "measurements".to_owned()),
        };
        let rows = Row::read(&text).map_err(|e| Failure::usage(format!("{name}: {e}")))?;
        let made = validate(&rows, &self.only, parallel::threads(self.threads));
        if made.compared.is_empty() && made.skipped.is_empty() {
            return Err(Failure::usage(format!("{name}: no row of training whose id contains `{}`", self.only)));
        }
        if let Some(path) = &self.plot {
            let point = |c: &crate::validate::Compared| Correlation {
                name: c.id.clone(),
                group: c.chip.clone(),
                measured: c.measured_step_s,
                predicted: c.predicted_step_s,
            };
            // One point a run, though several numbers of it may be published.
            let firsts = made.compared.iter().enumerate();
            let firsts = firsts.filter(|(i, c)| !made.compared.iter().take(*i).any(|o| o.run == c.run));
            let points: Vec<Correlation> = firsts.map(|(_, c)| point(c)).collect();
            crate::run::drawn("--plot", figure::correlation(path, "time of a training step", &points))?;
        }
        if self.json { out::print_json(&made) } else { out::print(&text_of(&made)) }
    }
}

fn text_of(v: &Validation) -> String {
    let mut t = Table::new();
    t.load_style(NOTHING.header_separator(LineStyle::none().fill('-')));
    t.set_header(["row", "chip", "chips", "metric", "measured", "predicted", "error", "MFU", "bound", "notes"]);
    let mut notes: Vec<&str> = Vec::new();
    for c in &v.compared {
        let mut marks = Vec::new();
        for n in &c.notes {
            let at = notes.iter().position(|o| o == n).unwrap_or_else(|| {
                notes.push(n);
                notes.len() - 1
            });
            marks.push((at + 1).to_string());
        }
        let metric = match c.metric.as_str() {
            "step_time" => "step, s",
            "tokens_per_s_per_chip" => "tok/s/chip",
            "model_tflops_per_chip" => "TFLOP/s/chip",
            _ => "MFU, %",
        };
        let cells = [
            c.id.clone(),
            c.chip.clone(),
            c.chips.to_string(),
            metric.to_owned(),
            format!("{:.4}", Digits(c.measured)),
            format!("{:.4}", Digits(c.predicted)),
            format!("{:+.1} %", 100.0 * c.error),
            percent(c.mfu),
            format!("{} {}", c.bound.0, percent(c.bound.1)),
            marks.join(","),
        ];
        let numbers = [2, 4, 5, 6, 7];
        t.add_row(cells.into_iter().enumerate().map(|(i, text)| {
            let align = if numbers.contains(&i) { CellAlignment::Right } else { CellAlignment::Left };
            Cell::new(text).set_alignment(align)
        }));
    }
    let mut out = String::new();
    if !v.compared.is_empty() {
        t.lines().for_each(|l| {
            out.push_str(l.trim_end());
            out.push('\n');
        });
    }
    for (i, n) in notes.iter().enumerate() {
        out.push_str(&format!("  {}: {n}\n", i + 1));
    }
    if !v.summaries.is_empty() {
        out.push_str("\nerror is predicted over measured step time less one\n");
    }
    for s in &v.summaries {
        out.push_str(&format!(
            "  {} {}: {} off in the geometric mean (exp of the mean of |ln(predicted / measured)|, less one),\n    geometric mean of |error| {}, mean error {:+.1} %, worst {}\n",
            s.rows,
            s.what,
            percent(s.geometric_error),
            percent(s.geometric_mean_of_errors),
            100.0 * s.bias,
            percent(s.worst)
        ));
    }
    if !v.skipped.is_empty() {
        out.push_str(&format!("\n{} rows are not compared\n", v.skipped.len()));
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for s in &v.skipped {
            match reasons.iter_mut().find(|(r, _)| *r == s.reason) {
                Some((_, ids)) => ids.push(&s.id),
                None => reasons.push((&s.reason, vec![&s.id])),
            }
        }
        for (reason, ids) in reasons {
            out.push_str(&format!("  {reason}\n"));
            ids.iter().for_each(|id| out.push_str(&format!("    {id}\n")));
        }
    }
    out
}

/// A number with four significant digits.
struct Digits(f64);

impl std::fmt::Display for Digits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let whole = if self.0 >= 1.0 { self.0.log10().floor() as i32 + 1 } else { 0 };
        let places = (f.precision().unwrap_or(4) as i32 - whole).clamp(0, 6) as usize;
        write!(f, "{:.places$}", self.0)
    }
}
