//! `tpusim run`.

use clap::Args;
use tpusim_driver::{Executable, SimDriver};

use crate::chip::{self, ChipArgs};
use crate::compare::against_reference;
use crate::failure::Failure;
use crate::inputs::InputArgs;
use crate::model::{self, ModelArgs, Step};
use crate::out::note;
use crate::pod::PodArgs;
use crate::program::ProgramArgs;
use crate::progress::Progress;
use crate::run::{EngineArgs, ModeArg, ReportArgs};

/// Compile a program, run it on a simulated chip, and say what it cost
///
/// The program is a file of StableHLO, a built-in workload, or a step of training or serving a language model; without one, a decoder
/// block of Qwen3 runs, or on a pod a training step of Qwen3-8B. Inputs are .npy files or seeded random numbers; steps of models are
/// only timed unless --mode execute is given. The report goes to standard output; files are written only where a flag asks for them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tpusim run
  tpusim run matmul m=4096 n=4096 k=4096 dtype=bf16 --chip v6e --mode time
  tpusim run model.mlir --input x.npy --input w.npy --output-dir out --json report.json
  tpusim run softmax rows=100 cols=1000 --check
  tpusim run mlp --trace run.pftrace --plot util.svg --roofline roof.svg --csv ops.csv
  tpusim run --chips 1024
  tpusim run qwen3-8b --chip v7x --chips 256 --mesh fsdp=128,tensor=4 --batch 1024 --seq 4096
  tpusim run llama3.1-70b --chip v6e --chips 8 --step decode --batch 64 --context 8192
  tpusim run llama3.1-70b --chip v6e --chips 256 --slices 2 remat=dots --json report.json
  tpusim run qwen3-8b --chips 64 --plot step.svg --links links.svg --trace step.pftrace --trace-chips 0,5
  tpusim run step.mlir --topology v5p:8x8x8 --mode time
  tpusim run step.mlir --chip v5e --chips 8 --check --fail link:0:x+
  tpusim run generate.mlir --mode time --trip-count 20 --trip-count while.1=128 --branch case.2=0
  tpusim run attention --chip v4 --set tensorcores_per_device=1 --set hbm.bps_chip=2.4e12")]
pub struct Run {
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    chip: ChipArgs,
    #[command(flatten)]
    inputs: InputArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    report: ReportArgs,
    #[command(flatten)]
    pod: PodArgs,
    #[command(flatten)]
    model: ModelArgs,
    /// Compare the outputs with the reference evaluator (slow for large programs); exit code 1 if they differ
    #[arg(long, help_heading = "Engine")]
    check: bool,
}

impl Run {
    /// Runs the command.
    pub fn run(mut self) -> Result<(), Failure> {
        let model = self.program.model(self.pod.asked())?;
        let default = if model.is_some() && self.pod.asked() { model::DEFAULT_CHIP } else { chip::DEFAULT };
        let chip = self.chip.load_or(self.pod.chip_name(), default)?;
        if model.is_some() {
            self.engine.prefer(ModeArg::Time);
        }
        self.engine.check()?;
        self.report.check(self.engine.mode())?;
        if self.check && self.engine.mode() == ModeArg::Time {
            return Err(Failure::usage("--check: --mode time computes no outputs; use --mode execute"));
        }
        let settings = (&self.engine, &self.report, &self.inputs);
        if let Some((name, given)) = model {
            self.report.pods()?;
            let cluster = self.pod.cluster(&chip)?.map_or_else(|| PodArgs::one_chip(&chip), Ok)?;
            self.pod.check(&cluster)?;
            let step = Step::new(name, &given, &self.model, &cluster)?;
            return self.pod.run(&step.load()?, &chip, &cluster, settings, (self.check, Some(&step)));
        }
        self.model.unused()?;
        let loaded = self.program.load()?;
        if let Some(cluster) = self.pod.cluster(&chip)? {
            self.report.pods()?;
            self.pod.check(&cluster)?;
            return self.pod.run(&loaded, &chip, &cluster, settings, (self.check, None));
        }
        if let Some(devices) = loaded.partitions() {
            let m = "one device runs all of it; --topology or --chips runs it on a slice";
            note(&format!("the program is meant for {devices} devices; here {m}"));
        }
        let progress = Progress::new("compiling");
        let driver =
            SimDriver::new(chip).with_mode(self.engine.driver_mode()).with_options(self.engine.options(&self.report));
        // Inputs first: a wrong file should not have to wait for the compiler. Timing needs none, but a wrong one is still an error.
        let inputs = match self.engine.mode() {
            ModeArg::Time if !self.inputs.given() => Vec::new(),
            _ => self.inputs.load(&loaded)?,
        };
        let executable = driver.build(&loaded.module)?;
        progress.next("simulating");
        let run = executable.execute(&inputs)?;
        let notes = if self.check {
            progress.next("evaluating the reference");
            against_reference(&loaded, &inputs, executable.outputs(), &run.outputs)?
        } else {
            String::new()
        };
        drop(progress);
        let Some(program) = executable.program() else { return Ok(()) };
        self.report.write(self.engine.mode(), (program, driver.chip()), run, executable.outputs(), &notes)
    }
}
