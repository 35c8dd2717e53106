//! `tpusim chips`.

use clap::Args;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;
use tpusim_isa::chip::{CHIP_FILES, ChipSpec};
use tpusim_isa::num::DType;
use tpusim_traces::units::{memory, si};

use crate::chip::{load, pair};
use crate::failure::Failure;
use crate::out;

/// List the chips, or every number of one with its source
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tpusim chips
  tpusim chips v5e
  tpusim chips v5p --set tensorcores_per_device=1 --json")]
pub struct Chips {
    /// Chip to show in full
    name: Option<String>,
    /// Change a number of the chip, e.g. hbm.bps_chip=1.6e12
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, requires = "name")]
    set: Vec<(String, String)>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: String,
    device_kind: String,
    clock_hz: u64,
    tensorcores_per_chip: u32,
    devices_per_chip: u32,
    mxus_per_core: u32,
    mxu_dim: u32,
    bf16_flops_per_device: f64,
    vmem_bytes_per_core: u64,
    hbm_usable_bytes_per_device: u64,
    hbm_bytes_per_s_per_chip: u64,
}

#[derive(Serialize)]
struct Number {
    key: String,
    value: String,
    source: String,
}

impl Chips {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        match &self.name {
            Some(name) => one(&load(name, &self.set)?, self.json),
            None => all(self.json),
        }
    }
}

fn all(json: bool) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (name, _) in CHIP_FILES {
        rows.push(row(&load(name, &[])?));
    }
    if json {
        return out::print_json(&rows);
    }
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["chip", "device", "clock", "cores", "devices", "MXUs", "bf16/device", "VMEM", "HBM", "HBM/chip"]);
    for r in &rows {
        table.add_row([
            r.name.clone(),
            r.device_kind.clone(),
            si(r.clock_hz as f64, "Hz"),
            r.tensorcores_per_chip.to_string(),
            r.devices_per_chip.to_string(),
            format!("{} x {}", r.mxus_per_core, r.mxu_dim),
            si(r.bf16_flops_per_device, "FLOP/s"),
            memory(r.vmem_bytes_per_core),
            memory(r.hbm_usable_bytes_per_device),
            si(r.hbm_bytes_per_s_per_chip as f64, "B/s"),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    out::print(&format!(
        "{}\n\ncores, devices and HBM rate per chip; MXUs and VMEM per core; HBM that programs of one device may use\n",
        table.trim_fmt()
    ))
}

fn row(c: &ChipSpec) -> Row {
    Row {
        name: c.name.clone(),
        device_kind: c.device_kind.clone(),
        clock_hz: *c.clock_hz,
        tensorcores_per_chip: *c.tensorcores_per_chip,
        devices_per_chip: c.devices_per_chip(),
        mxus_per_core: *c.mxu.count,
        mxu_dim: *c.mxu.dim,
        bf16_flops_per_device: c.peak_flops_device(DType::BF16),
        vmem_bytes_per_core: *c.vmem_bytes,
        hbm_usable_bytes_per_device: *c.hbm.usable_bytes_device,
        hbm_bytes_per_s_per_chip: *c.hbm.bps_chip,
    }
}

fn one(chip: &ChipSpec, json: bool) -> Result<(), Failure> {
    let numbers: Vec<Number> =
        chip.table().into_iter().map(|(key, value, source)| Number { key, value, source }).collect();
    if json {
        return out::print_json(&numbers);
    }
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(160);
    }
    table.set_header(["key", "value", "source"]);
    for n in numbers {
        table.add_row([n.key, n.value, n.source]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    out::print(&format!("{} ({})\n\n{}\n", chip.name, chip.device_kind, table.trim_fmt()))
}
