//! `tpusim eval`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use tpusim_backend::eval::{DotPrecision, EvalOptions, Tensor, eval_module_with};
use tpusim_backend::hlo::TensorType;

use crate::failure::Failure;
use crate::files::{self, Targets};
use crate::inputs::InputArgs;
use crate::out;
use crate::program::ProgramArgs;
use crate::progress::Progress;

/// Compute a program's results with the reference evaluator, without any chip
///
/// The evaluator is the plain definition of every op: slow, and what the compiled code is held against.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tpusim eval softmax rows=4 cols=8
  tpusim eval model.mlir --input x.npy --output-dir reference")]
pub struct Eval {
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    inputs: InputArgs,
    /// Write the outputs as out0.npy, out1.npy, ... to this folder
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Round the operands of f32 products to bf16, as a TPU does at default precision
    #[arg(long)]
    tpu_precision: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// What an output looks like.
#[derive(Serialize)]
struct Summary {
    output: usize,
    r#type: String,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    nan: usize,
    first: Vec<f64>,
}

impl Eval {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        if let Some(dir) = &self.output_dir {
            Targets::default().folder("--output-dir", dir)?;
        }
        let loaded = self.program.load()?;
        let progress = Progress::new("evaluating");
        let data = self.inputs.load(&loaded)?;
        let mut inputs = Vec::with_capacity(data.len());
        for ((_, ty), bytes) in loaded.params.iter().zip(data) {
            inputs.push(Tensor::new(ty.clone(), bytes).map_err(Failure::usage)?);
        }
        let dot = if self.tpu_precision { DotPrecision::Tpu } else { DotPrecision::Exact };
        let options = EvalOptions { dot, ..EvalOptions::default() };
        let outputs = eval_module_with(&loaded.module, &inputs, &options).map_err(Failure::program)?;
        drop(progress);
        let summaries: Vec<Summary> = outputs.iter().enumerate().map(|(i, t)| summary(i, t)).collect();
        if let Some(dir) = &self.output_dir {
            let arrays: Vec<(TensorType, Vec<u8>)> =
                outputs.into_iter().map(|t| (t.ty().clone(), t.into_bytes())).collect();
            files::write_outputs(dir, &arrays)?;
        }
        if self.json {
            return out::print_json(&summaries);
        }
        let lines: Vec<String> = summaries.iter().map(line).collect();
        out::print(&lines.concat())
    }
}

fn summary(output: usize, t: &Tensor) -> Summary {
    use tpusim_isa::num::DTypeKind;
    // Complex numbers have no order; their parts do not add up to a summary.
    let values = if t.dtype().kind() == DTypeKind::Complex { Vec::new() } else { t.to_f64() };
    let numbers: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    let some = |v: f64| (!numbers.is_empty()).then_some(v);
    Summary {
        output,
        r#type: t.ty().to_string(),
        min: some(numbers.iter().copied().fold(f64::INFINITY, f64::min)),
        max: some(numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        mean: some(numbers.iter().sum::<f64>() / numbers.len().max(1) as f64),
        nan: values.len() - numbers.len(),
        first: values.iter().copied().take(8).collect(),
    }
}

fn line(s: &Summary) -> String {
    let mut text = format!("out{} {}", s.output, s.r#type);
    if let (Some(min), Some(max), Some(mean)) = (s.min, s.max, s.mean) {
        text.push_str(&format!("  min {min:.6} max {max:.6} mean {mean:.6}"));
    }
    if s.nan > 0 {
        text.push_str(&format!("  NaN {}", s.nan));
    }
    let first: Vec<String> = s.first.iter().map(|v| format!("{v:.6}")).collect();
    format!("{text}\n  {}\n", first.join(" "))
}
