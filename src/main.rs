//! The `tpusim` command: one file per subcommand under [`commands`], what they share beside it. The only part of tpusim that prints.

mod chip;
mod commands;
mod compare;
mod failure;
mod files;
mod inputs;
mod model;
mod out;
mod parallel;
mod plan;
mod pod;
mod program;
mod progress;
mod run;
mod validate;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match commands::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
