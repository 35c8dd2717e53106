//! The commands. Each is a file with its flags, its help with an example, and its `run`; here is one line for each.

mod asm;
mod chips;
mod compile;
mod disasm;
mod eval;
mod exec;
mod run;
mod scale;
mod validate;
mod workloads;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// A TPU without the silicon: compiles StableHLO programs and runs them on simulated TPU chips.
#[derive(Parser, Debug)]
#[command(
    name = "tpusim",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "\
Example:
  tpusim run matmul m=4096 n=4096 k=4096 --chip v5p --mode time

Exit codes: 0 fine, 1 the program is at fault, 2 the command line or a file is."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(Box<run::Run>),
    Compile(compile::Compile),
    Eval(eval::Eval),
    Exec(exec::Exec),
    Asm(asm::Asm),
    Disasm(disasm::Disasm),
    Chips(chips::Chips),
    Workloads(workloads::Workloads),
    Scale(scale::Scale),
    Validate(validate::Validate),
}

impl Cli {
    /// Does what was asked.
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Run(c) => c.run(),
            Command::Compile(c) => c.run(),
            Command::Eval(c) => c.run(),
            Command::Exec(c) => c.run(),
            Command::Asm(c) => c.run(),
            Command::Disasm(c) => c.run(),
            Command::Chips(c) => c.run(),
            Command::Workloads(c) => c.run(),
            Command::Scale(c) => c.run(),
            Command::Validate(c) => c.run(),
        }
    }
}
