//! The chip of a command.

use clap::Args;
use tpusim_isa::chip::{ChipError, ChipSpec};

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
}

/// The chip `name` with `overrides`.
pub fn load(name: &str, overrides: &[(String, String)]) -> Result<ChipSpec, Failure> {
    let chip = ChipSpec::load_with(name, overrides).map_err(Failure::usage)?;
    sane(&chip, overrides)?;
    Ok(chip)
}

/// Zero and absurd overrides that no machine could have.
fn sane(chip: &ChipSpec, overrides: &[(String, String)]) -> Result<(), Failure> {
    let fail = |message: &str| {
        let (key, value) = overrides.last().cloned().unwrap_or_default();
        Err(Failure::usage(ChipError::Override { key, value, message: message.to_owned() }))
    };
    let counts = [
        *chip.tensorcores_per_chip,
        *chip.tensorcores_per_device,
        *chip.mxu.count,
        *chip.mxu.dim,
        *chip.mxu.rows_per_cycle_16bit,
        *chip.slots.scalar,
        *chip.slots.valu,
        *chip.slots.vload,
        *chip.slots.vstore,
        *chip.slots.extended,
        *chip.slots.pop,
        *chip.slots.dma,
        *chip.xlus,
    ];
    if *chip.clock_hz == 0 || *chip.hbm.bps_chip == 0 || counts.contains(&0) {
        return fail("a chip cannot do without it; use at least 1");
    }
    if *chip.tensorcores_per_chip % *chip.tensorcores_per_device != 0 {
        return fail("tensorcores_per_device must divide tensorcores_per_chip");
    }
    let efficiencies = [*chip.hbm.read_efficiency, *chip.hbm.write_efficiency];
    if efficiencies.iter().any(|e| !(*e > 0.0 && *e <= 1.0)) {
        return fail("an efficiency is above 0 and at most 1");
    }
    let seconds = [*chip.hbm.latency_s, *chip.overhead.op_launch_s, *chip.overhead.dma_issue_s];
    if seconds.iter().any(|s| !(*s >= 0.0 && *s < 1.0)) {
        return fail("a time is at least 0 and below a second");
    }
    Ok(())
}

/// `key=value`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((k, v)) if !k.is_empty() => Ok((k.to_owned(), v.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}
