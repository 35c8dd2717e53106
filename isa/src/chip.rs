//! Chip descriptions: one TOML file per generation, every number with its source.
//!
//! All fields are per TensorCore unless the name says chip or device. Rates are exact integers; times are seconds at the edges and
//! cycles inside.

use std::collections::BTreeMap;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::num::{BytesPerCycle, DType, Format};
use crate::op::{Slot, Timing};

/// A number and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The value.
    pub v: T,
    /// Its source, and why this one where sources disagree.
    pub src: String,
}

impl<T> Deref for Sourced<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.v
    }
}

/// Matrix unit geometry and timing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MxuSpec {
    /// MXUs per TensorCore.
    pub count: Sourced<u32>,
    /// Rows and columns of the array.
    pub dim: Sourced<u32>,
    /// Left-hand rows accepted per cycle for 16-bit operands.
    pub rows_per_cycle_16bit: Sourced<u32>,
    /// Left-hand rows per cycle for 8-bit floats; 0 if the chip widens them to bf16 first.
    pub rows_per_cycle_fp8: Sourced<u32>,
    /// Left-hand rows per cycle for 8-bit integers; 0 if the chip has no integer path.
    pub rows_per_cycle_int8: Sourced<u32>,
    /// Cycles between two weight pushes to one MXU.
    pub push_interval: Sourced<u32>,
    /// Cycles from a `vmatmul` to its first result.
    pub latency: Sourced<u32>,
    /// Results the queue holds, in registers; a push that would overflow it waits.
    pub result_queue: Sourced<u32>,
    /// Accumulator buffers of 8 x dim 32-bit words; 0 if results only leave through the queue.
    pub accumulators: Sourced<u32>,
}

/// Slots of a bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotSpec {
    /// Scalar slots.
    pub scalar: Sourced<u32>,
    /// Vector ALU slots.
    pub valu: Sourced<u32>,
    /// Vector load slots.
    pub vload: Sourced<u32>,
    /// Vector store slots.
    pub vstore: Sourced<u32>,
    /// Push slots.
    pub extended: Sourced<u32>,
    /// Pop slots.
    pub pop: Sourced<u32>,
    /// DMA and sync slots.
    pub dma: Sourced<u32>,
    /// 32-bit immediates shared by the slots of a bundle.
    pub immediates: Sourced<u32>,
}

/// Register files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegSpec {
    /// Vector registers.
    pub vector: Sourced<u32>,
    /// Mask registers.
    pub mask: Sourced<u32>,
    /// Scalar registers.
    pub scalar: Sourced<u32>,
    /// Sync flags.
    pub flags: Sourced<u32>,
}

/// Latencies (cycles until a dependent instruction can issue) and intervals (cycles between two submissions to one unit).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencySpec {
    /// Scalar ALU latency.
    pub scalar: Sourced<u32>,
    /// SMEM load latency.
    pub scalar_load: Sourced<u32>,
    /// Cycles between SMEM loads.
    pub scalar_load_interval: Sourced<u32>,
    /// Integer vector op latency.
    pub valu_int: Sourced<u32>,
    /// Float vector op latency.
    pub valu_float: Sourced<u32>,
    /// Vector load latency.
    pub vload: Sourced<u32>,
    /// EUP push to pop.
    pub eup: Sourced<u32>,
    /// Cycles between EUP pushes.
    pub eup_interval: Sourced<u32>,
    /// XLU rotate or lane broadcast, push to pop.
    pub xlu_rotate: Sourced<u32>,
    /// XLU lane reduction, push to pop.
    pub xlu_reduce: Sourced<u32>,
    /// Cycles between XLU pushes, and between pops of a transpose.
    pub xlu_interval: Sourced<u32>,
    /// Last push of a transpose to its first pop.
    pub xlu_transpose: Sourced<u32>,
    /// Pop to use.
    pub pop: Sourced<u32>,
    /// Extra cycles at the end of each loop iteration (branch delay).
    pub branch: Sourced<u32>,
}

/// HBM of the chip as one device sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HbmSpec {
    /// Bytes per chip.
    pub bytes_chip: Sourced<u64>,
    /// Bytes of one device that programs may use.
    pub usable_bytes_device: Sourced<u64>,
    /// Peak bytes per second per chip.
    pub bps_chip: Sourced<u64>,
    /// Share of the peak that long reads reach.
    pub read_efficiency: Sourced<f64>,
    /// Share of the peak that long writes reach.
    pub write_efficiency: Sourced<f64>,
    /// Seconds from a DMA's start to its first byte.
    pub latency_s: Sourced<f64>,
    /// Smallest access in bytes: shorter runs cost as much.
    pub granule_bytes: Sourced<u32>,
}

/// Fixed costs of running a fusion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverheadSpec {
    /// Seconds from the end of one fusion to the first bundle of the next.
    pub op_launch_s: Sourced<f64>,
    /// Cycles from a core's first cycle in an operation to its first bundle, and from its last bundle to the end, together.
    pub entry_cycles: Sourced<u32>,
    /// Seconds between two DMAs that one core's descriptor engine starts.
    pub dma_issue_s: Sourced<f64>,
    /// Seconds from the start of a transfer between devices to the first instruction of its code.
    pub transfer_launch_s: Sourced<f64>,
}

/// Interconnect of the chip.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IciSpec {
    /// Torus dimensions (2 or 3).
    pub dims: Sourced<u32>,
    /// Links per chip.
    pub links: Sourced<u32>,
    /// Bytes per second and direction of one link.
    pub link_oneway_bps: Sourced<u64>,
    /// Largest pod, one size per torus dimension.
    pub pod: Sourced<Vec<u32>>,
    /// An axis has its wrap-around links if its length is a multiple of this.
    pub wrap_multiple: Sourced<u32>,
    /// Seconds a message takes to cross one link, apart from its bytes.
    pub hop_latency_s: Sourced<f64>,
    /// Share of a link's rate that payload reaches.
    pub link_efficiency: Sourced<f64>,
    /// Bytes per second and direction between the devices of one chip; 0 if there is one device.
    pub d2d_bps: Sourced<u64>,
    /// Bytes per second and direction of one chip on the data center network between slices.
    pub dcn_bps_chip: Sourced<u64>,
    /// Seconds across the data center network, apart from the bytes.
    pub dcn_latency_s: Sourced<f64>,
}

/// Published peaks per chip, which the geometry must reproduce.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeakSpec {
    /// bf16 FLOP/s.
    pub bf16_flops: Sourced<f64>,
    /// 8-bit float FLOP/s.
    pub fp8_flops: Sourced<f64>,
    /// 8-bit integer OP/s.
    pub int8_ops: Sourced<f64>,
}

/// A TPU generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChipSpec {
    /// Name on the command line, e.g. `v5e`.
    pub name: String,
    /// What frameworks call the device, e.g. `TPU v5 lite`.
    pub device_kind: String,
    /// Core clock.
    pub clock_hz: Sourced<u64>,
    /// TensorCores per chip.
    pub tensorcores_per_chip: Sourced<u32>,
    /// TensorCores that work as one device (2 for a megacore).
    pub tensorcores_per_device: Sourced<u32>,
    /// VMEM bytes.
    pub vmem_bytes: Sourced<u64>,
    /// VMEM bytes one fusion's buffers may take (the compiler's scoped limit).
    pub scoped_vmem_bytes: Sourced<u64>,
    /// SMEM bytes.
    pub smem_bytes: Sourced<u64>,
    /// XLUs.
    pub xlus: Sourced<u32>,
    /// Matrix units.
    pub mxu: MxuSpec,
    /// Bundle slots.
    pub slots: SlotSpec,
    /// Registers.
    pub regs: RegSpec,
    /// Latencies.
    pub latency: LatencySpec,
    /// HBM.
    pub hbm: HbmSpec,
    /// Fixed costs.
    pub overhead: OverheadSpec,
    /// Interconnect.
    pub ici: IciSpec,
    /// Published peaks.
    pub peak: PeakSpec,
}

/// A chip file, name or override is wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChipError {
    /// No such chip.
    #[error("unknown chip `{name}`; known chips: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file does not parse.
    #[error("chip file `{name}`: {message}")]
    Parse {
        /// Chip name.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// An override does not fit.
    #[error("--set {key}={value}: {message}")]
    Override {
        /// Dotted key.
        key: String,
        /// Value text.
        value: String,
        /// What is wrong.
        message: String,
    },
}

macro_rules! chips {
    ($($name:literal),* $(,)?) => {
        /// Built-in chip files by name, oldest first.
        pub const CHIP_FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../chips/", $name, ".toml"))),)*];
    };
}

chips!("v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x");

impl ChipSpec {
    /// The built-in chip called `name`. `tpu7x` and `ironwood` are spellings of `v7x`.
    pub fn load(name: &str) -> Result<ChipSpec, ChipError> {
        Self::load_with(name, &[])
    }

    /// The built-in chip `name` with values replaced: keys are dotted paths such as `hbm.bps_chip`.
    pub fn load_with(name: &str, overrides: &[(String, String)]) -> Result<ChipSpec, ChipError> {
        let lower = name.to_ascii_lowercase();
        let wanted = match lower.as_str() {
            "tpu7x" | "7x" | "v7" | "ironwood" => "v7x",
            "v5litepod" | "v5lite" => "v5e",
            "trillium" | "v6" => "v6e",
            "v5" => "v5p",
            other => other,
        };
        let Some((_, text)) = CHIP_FILES.iter().find(|(n, _)| *n == wanted) else {
            let known = CHIP_FILES.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ");
            return Err(ChipError::Unknown { name: name.to_owned(), known });
        };
        let chip = Self::parse(wanted, text, overrides)?;
        crate::limits::check(&chip, overrides)?;
        Ok(chip)
    }

    /// Parses a chip file.
    pub fn parse(name: &str, text: &str, overrides: &[(String, String)]) -> Result<ChipSpec, ChipError> {
        let parse_error = |e: toml::de::Error| ChipError::Parse { name: name.to_owned(), message: e.to_string() };
        let mut table: toml::Table = toml::from_str(text).map_err(parse_error)?;
        for (key, value) in overrides {
            set(&mut table, key, value)?;
        }
        table.try_into().map_err(|e: toml::de::Error| match overrides.last() {
            None => parse_error(e),
            Some((key, value)) => {
                ChipError::Override { key: key.clone(), value: value.clone(), message: e.message().to_owned() }
            }
        })
    }

    /// Latency of a timing class in cycles: until a dependent instruction (for pushes: the pop) can issue.
    pub fn latency(&self, t: Timing) -> u32 {
        let l = &self.latency;
        match t {
            Timing::Scalar => *l.scalar,
            Timing::ScalarLoad => *l.scalar_load,
            Timing::ValuInt => *l.valu_int,
            Timing::ValuFloat => *l.valu_float,
            Timing::VLoad => *l.vload,
            Timing::Eup => *l.eup,
            Timing::XluRotate => *l.xlu_rotate,
            Timing::XluReduce => *l.xlu_reduce,
            Timing::XluTranspose => *l.xlu_transpose,
            Timing::EupPop | Timing::XluPop | Timing::MxuPop | Timing::MxuPopAcc => *l.pop,
            Timing::MxuMul | Timing::MxuAcc => *self.mxu.latency,
            Timing::ScalarStore
            | Timing::VStore
            | Timing::MxuPush
            | Timing::MxuLatch
            | Timing::DmaStart
            | Timing::DmaSend
            | Timing::DmaWait
            | Timing::Flag => 1,
        }
    }

    /// Slots of a class in one bundle.
    pub fn slots(&self, slot: Slot) -> u32 {
        let s = &self.slots;
        match slot {
            Slot::Scalar => *s.scalar,
            Slot::Valu => *s.valu,
            Slot::VLoad => *s.vload,
            Slot::VStore => *s.vstore,
            Slot::Extended => *s.extended,
            Slot::Pop => *s.pop,
            Slot::Dma => *s.dma,
        }
    }

    /// Left-hand rows per cycle of one MXU for operands of `format`; 0 if the MXU does not take it.
    pub fn mxu_rows_per_cycle(&self, format: Format) -> u32 {
        match format {
            Format::Bf16 => *self.mxu.rows_per_cycle_16bit,
            Format::S8 | Format::U8 => *self.mxu.rows_per_cycle_int8,
            Format::F16 | Format::S16 | Format::U16 => 0,
            _ => *self.mxu.rows_per_cycle_fp8,
        }
    }

    /// Cycles one MXU is busy with a `vmatmul` of one packed register of `format`.
    pub fn mxu_interval(&self, format: Format) -> u32 {
        let rows = 8 * format.packing() as u32;
        rows.div_ceil(self.mxu_rows_per_cycle(format).max(1))
    }

    /// Peak FLOP/s (OP/s for integers) of one device for operands of `dtype`, from the MXU's geometry and clock. Types the MXU
    /// does not take natively run at the bf16 rate.
    pub fn peak_flops_device(&self, dtype: DType) -> f64 {
        let native = match Format::of(dtype) {
            Some(f) => self.mxu_rows_per_cycle(f),
            None => 0,
        };
        let rows = if native == 0 { *self.mxu.rows_per_cycle_16bit } else { native };
        let per_cycle = 2.0 * f64::from(*self.mxu.dim).powi(2) * f64::from(rows) * f64::from(*self.mxu.count);
        per_cycle * *self.clock_hz as f64 * f64::from(*self.tensorcores_per_device)
    }

    /// Devices per chip.
    pub fn devices_per_chip(&self) -> u32 {
        (*self.tensorcores_per_chip / *self.tensorcores_per_device).max(1)
    }

    /// HBM bytes per core cycle at peak, for a device with `cores` of its TensorCores active: each gets an equal share.
    pub fn hbm_rate_per_core(&self, cores: u32) -> BytesPerCycle {
        let share = u64::from(self.devices_per_chip()) * u64::from(cores.max(1));
        let scaled = (u128::from(*self.hbm.bps_chip) << 32) / (u128::from(*self.clock_hz) * u128::from(share));
        BytesPerCycle::from_bits(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// Seconds as cycles, rounded to nearest.
    pub fn cycles(&self, seconds: f64) -> u64 {
        (seconds * *self.clock_hz as f64).round() as u64
    }

    /// Every number of the file with its dotted key, value text and source, for `tpusim chips NAME`.
    pub fn table(&self) -> Vec<(String, String, String)> {
        let mut rows = Vec::new();
        if let Ok(t) = toml::Table::try_from(self) {
            walk("", &t, &mut rows);
        }
        rows
    }
}

fn walk(prefix: &str, table: &toml::Table, rows: &mut Vec<(String, String, String)>) {
    let sorted: BTreeMap<_, _> = table.iter().collect();
    for (k, v) in sorted {
        let key = if prefix.is_empty() { k.clone() } else { format!("{prefix}.{k}") };
        if let toml::Value::Table(t) = v {
            match (t.get("v"), t.get("src").and_then(|s| s.as_str())) {
                (Some(value), Some(src)) => rows.push((key, value.to_string(), src.to_owned())),
                _ => walk(&key, t, rows),
            }
        }
    }
}

fn set(table: &mut toml::Table, key: &str, value: &str) -> Result<(), ChipError> {
    let fail = |message: String| ChipError::Override { key: key.to_owned(), value: value.to_owned(), message };
    let mut at = table;
    let mut parts = key.split('.').peekable();
    while let Some(part) = parts.next() {
        let known = at.keys().cloned().collect::<Vec<_>>().join(", ");
        let entry = at.get_mut(part).ok_or_else(|| fail(format!("no such key; there are: {known}")))?;
        let toml::Value::Table(next) = entry else {
            return Err(fail("not a number of the chip file".to_owned()));
        };
        if parts.peek().is_none() {
            let old = next.get("v").ok_or_else(|| fail("names a group; name one of its keys".to_owned()))?;
            let new = parse_as(old, value).ok_or_else(|| fail(format!("expected a value like {old}")))?;
            next.insert("v".to_owned(), new);
            next.insert("src".to_owned(), toml::Value::String("set by the user".to_owned()));
            return Ok(());
        }
        at = next;
    }
    Err(fail("empty key".to_owned()))
}

fn parse_as(old: &toml::Value, text: &str) -> Option<toml::Value> {
    let number: f64 = text.replace('_', "").parse().ok()?;
    match old {
        toml::Value::Integer(_) if number >= 0.0 && number.fract() == 0.0 && number < 9e18 => {
            Some(toml::Value::Integer(number as i64))
        }
        toml::Value::Float(_) if number.is_finite() => Some(toml::Value::Float(number)),
        _ => None,
    }
}
