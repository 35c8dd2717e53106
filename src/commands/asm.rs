//! `tpusim asm`, and how programs of our own are read and checked.

use std::path::{Path, PathBuf};

use clap::Args;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::Program;
use tpusim_isa::{asm, binary};

use crate::chip::load;
use crate::failure::Failure;
use crate::files::{self, Targets};

/// Assemble a program and check it against its chip
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  tpusim compile softmax --emit asm -o softmax.asm && tpusim asm softmax.asm -o softmax.bin")]
pub struct Asm {
    /// Assembly text
    file: PathBuf,
    /// Binary to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl Asm {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        Targets::default().file("-o", &self.output)?;
        let program = read(&self.file)?;
        check(&program, &load(&program.chip, &[])?, &self.file)?;
        files::write(&self.output, &binary::encode(&program))
    }
}

/// The program in the file `path`, assembly or binary.
pub fn read(path: &Path) -> Result<Program, Failure> {
    let bytes = files::read(path)?;
    let fail = |e: &dyn std::fmt::Display| Failure::program(format!("{}: {e}", path.display()));
    if bytes.starts_with(binary::MAGIC) {
        return binary::decode(&bytes).map_err(|e| fail(&e));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| fail(&"neither a program file nor assembly text"))?;
    asm::parse(text).map_err(|e| Failure::program(format!("{}:{e}", path.display())))
}

/// Everything certainly wrong with `program` on `chip` is an error.
pub fn check(program: &Program, chip: &ChipSpec, path: &Path) -> Result<(), Failure> {
    const SHOWN: usize = 20;
    let errors = tpusim_isa::check::check(program, chip);
    if errors.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<String> = errors.iter().take(SHOWN).map(|e| format!("{}: {e}", path.display())).collect();
    if errors.len() > SHOWN {
        lines.push(format!("... and {} more errors", errors.len() - SHOWN));
    }
    Err(Failure::program(lines.join("\n")))
}
