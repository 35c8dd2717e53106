//! `tpusim compile`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tpusim_backend::compile::compile;
use tpusim_isa::{asm, binary};

use crate::chip::ChipArgs;
use crate::failure::Failure;
use crate::files::{self, Targets};
use crate::program::ProgramArgs;
use crate::progress::Progress;
use crate::{out, plan};

/// Form of the compiled program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Emit {
    /// The program as it was read, as StableHLO text
    Hlo,
    /// The kernels it was cut into
    Tile,
    /// Assembly
    Asm,
    /// The binary that `tpusim exec` runs
    Bin,
}

/// Compile a program and show a stage of it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tpusim compile softmax rows=64 cols=256 --emit asm
  tpusim compile model.mlir --chip v5p --emit bin -o model.bin")]
pub struct Compile {
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    chip: ChipArgs,
    /// Stage to show
    #[arg(long, value_enum, default_value = "asm")]
    emit: Emit,
    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Compile {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        let chip = self.chip.load()?;
        if let Some(path) = &self.output {
            Targets::default().file("-o", path)?;
        } else if self.emit == Emit::Bin && out::is_terminal() {
            return Err(Failure::usage("a binary is not for terminals; name a file with -o"));
        }
        let loaded = self.program.load()?;
        let progress = Progress::new("compiling");
        let compiled = || compile(&loaded.module, &chip).map_err(Failure::program);
        let bytes = match self.emit {
            Emit::Hlo => loaded.module.to_text(false).into_bytes(),
            Emit::Tile => plan::text(&loaded.module, &chip)?.into_bytes(),
            Emit::Asm => asm::print(&compiled()?).into_bytes(),
            Emit::Bin => binary::encode(&compiled()?),
        };
        drop(progress);
        match &self.output {
            Some(path) => files::write(path, &bytes),
            None => out::print_bytes(&bytes),
        }
    }
}
