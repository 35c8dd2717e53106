//! `tpusim disasm`.

use std::path::PathBuf;

use clap::Args;
use tpusim_isa::asm;

use super::asm::{check, read};
use crate::chip::load;
use crate::failure::Failure;
use crate::files::{self, Targets};
use crate::out;

/// Print an assembled program as text and check it against its chip
///
/// The text is printed even if the program is wrong, so that it can be looked at.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  tpusim compile softmax --emit bin -o softmax.bin && tpusim disasm softmax.bin")]
pub struct Disasm {
    /// Binary of `tpusim asm` or `tpusim compile`
    file: PathBuf,
    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Disasm {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        if let Some(path) = &self.output {
            Targets::default().file("-o", path)?;
        }
        let program = read(&self.file)?;
        let text = asm::print(&program);
        match &self.output {
            Some(path) => files::write(path, text.as_bytes())?,
            None => out::print(&text)?,
        }
        check(&program, &load(&program.chip, &[])?, &self.file)
    }
}
