//! `tpusim exec`.

use std::path::PathBuf;

use clap::Args;
use tpusim_backend::hlo::TensorType;
use tpusim_driver::{Executable, SimDriver};
use tpusim_isa::num::DType;
use tpusim_isa::program::{BufferKind, Program};

use crate::chip::{load, pair};
use crate::failure::Failure;
use crate::inputs::{InputArgs, load_untyped};
use crate::progress::Progress;
use crate::run::{EngineArgs, ModeArg, ReportArgs};

/// Run an assembled program, text or binary
///
/// The program names its chip. Its arrays have sizes but no types: inputs are .npy files of any type with as many bytes, outputs
/// are written as bytes.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  tpusim compile softmax --emit asm -o softmax.asm && tpusim exec softmax.asm --mode time")]
pub struct Exec {
    /// Assembly text, or a binary of `tpusim asm` or `tpusim compile`
    file: PathBuf,
    /// Change a number of the program's chip, e.g. hbm.bps_chip=1.6e12
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, help_heading = "Chip")]
    set: Vec<(String, String)>,
    #[command(flatten)]
    inputs: InputArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    report: ReportArgs,
}

impl Exec {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        self.engine.check()?;
        self.report.check(self.engine.mode())?;
        let program = super::asm::read(&self.file)?;
        let chip = load(&program.chip, &self.set)?;
        super::asm::check(&program, &chip, &self.file)?;
        let params = sizes(&program, |k| if let BufferKind::Param(n) = k { Some(*n) } else { None })?;
        let outputs = sizes(&program, |k| if let BufferKind::Output(n) = k { Some(*n) } else { None })?;
        let inputs = match self.engine.mode() {
            ModeArg::Time if !self.inputs.given() => Vec::new(),
            _ => load_untyped(&self.inputs, &params)?,
        };
        let bytes = |sizes: &[u64]| sizes.iter().map(|&n| TensorType::new([n as i64], DType::U8)).collect();
        let progress = Progress::new("simulating");
        let driver =
            SimDriver::new(chip).with_mode(self.engine.driver_mode()).with_options(self.engine.options(&self.report));
        let executable = driver.load(program, bytes(&params), bytes(&outputs))?;
        let run = executable.execute(&inputs)?;
        drop(progress);
        let Some(program) = executable.program() else { return Ok(()) };
        self.report.write(self.engine.mode(), (program, driver.chip()), run, executable.outputs(), "")
    }
}

/// Bytes of the buffers that `number` gives a number, in its order.
fn sizes(program: &Program, number: impl Fn(&BufferKind) -> Option<u32>) -> Result<Vec<u64>, Failure> {
    let mut found: Vec<(u32, u64)> =
        program.buffers.iter().filter_map(|b| number(&b.kind).map(|n| (n, b.bytes))).collect();
    found.sort_unstable();
    for (i, (n, _)) in (0..).zip(&found) {
        if i != *n {
            return Err(Failure::program(format!(
                "the program's arrays are not numbered in order: {n} stands for {i}"
            )));
        }
    }
    Ok(found.into_iter().map(|(_, bytes)| bytes).collect())
}
