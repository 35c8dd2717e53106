//! The chip of a command.

use clap::Args;
use tpusim_isa::chip::ChipSpec;

use crate::failure::Failure;

/// `--chip` and `--set`.
#[derive(Args, Clone, Debug)]
pub struct ChipArgs {
    /// Chip to run on; `tpusim chips` lists them
    #[arg(long, value_name = "NAME", default_value = "v5e", help_heading = "Chip")]
    pub chip: String,
    /// Change a number of the chip, e.g. hbm.bps_chip=1.6e12; `tpusim chips NAME` lists the keys
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, help_heading = "Chip")]
    pub set: Vec<(String, String)>,
}

impl ChipArgs {
    /// The chip with its overrides.
    pub fn load(&self) -> Result<ChipSpec, Failure> {
        load(&self.chip, &self.set)
    }

    /// As [`ChipArgs::load`], unless something else names the chip.
    pub fn load_for(&self, name: Option<&str>) -> Result<ChipSpec, Failure> {
        load(name.unwrap_or(&self.chip), &self.set)
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
