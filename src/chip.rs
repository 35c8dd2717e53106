//! The chip of a command.

use clap::Args;
use tpusim_isa::chip::ChipSpec;

use crate::failure::Failure;

/// The chip if none is named.
pub const DEFAULT: &str = "v5e";

/// `--chip` and `--set`.
#[derive(Args, Clone, Debug)]
pub struct ChipArgs {
    /// Chip to run on; `tpusim chips` lists them [default: v5e; for a model on a pod, v5p]
    #[arg(long, value_name = "NAME", help_heading = "Chip")]
    pub chip: Option<String>,
    /// Change a number of the chip, e.g. hbm.bps_chip=1.6e12; `tpusim chips NAME` lists the keys
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, help_heading = "Chip")]
    pub set: Vec<(String, String)>,
}

impl ChipArgs {
    /// The chip with its overrides.
    pub fn load(&self) -> Result<ChipSpec, Failure> {
        self.load_or(None, DEFAULT)
    }

    /// The chip with its overrides, `name` if something else names it, else `default` if nothing does.
    pub fn load_or(&self, name: Option<&str>, default: &str) -> Result<ChipSpec, Failure> {
        load(name.or(self.chip.as_deref()).unwrap_or(default), &self.set)
    }
}

/// The chip `name` with `overrides`.
pub fn load(name: &str, overrides: &[(String, String)]) -> Result<ChipSpec, Failure> {
    ChipSpec::load_with(name, overrides).map_err(Failure::usage)
}

/// `key=value`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((k, v)) if !k.is_empty() => Ok((k.to_owned(), v.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}
