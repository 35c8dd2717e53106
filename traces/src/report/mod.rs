//! What a run cost and why, computed from the profile and the chip alone.
//!
//! **MFU** is useful MXU FLOPs over what the MXUs could have done in the time. Operations of several types are each held against
//! their own type's peak: the sum of their ideal seconds over the run's seconds. Padding, recomputation inside a fusion and the
//! extra passes of f32 products are not useful.
//!
//! **Bound** of an operation is the unit with the highest utilization, if that is at least [`BOUND_THRESHOLD`]; otherwise the
//! operation is bound by latency (waiting, start-up, dependences). Load and store slots feed the vector units, so whichever of VPU,
//! VLD and VST is busiest counts as VPU. Scalar slots never count: code that is limited by them is limited by its loop structure.

mod advice;
mod text;

use crate::held::HeldArrays;
use serde::ser::{Serialize, SerializeMap, Serializer};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::{OpInfo, Program};
use tpusim_sim::profile::{Assumed, Assumption, OpProfile, Profile, Stall, Unit};

pub use text::TextOptions;
pub(crate) use text::clip;

/// Utilization from which a unit bounds an operation.
pub const BOUND_THRESHOLD: f64 = 0.6;

/// What limits an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub enum Bound {
    /// Matrix units.
    #[serde(rename = "MXU")]
    Mxu,
    /// Vector units with their load and store slots.
    #[serde(rename = "VPU")]
    Vpu,
    /// Cross-lane units.
    #[serde(rename = "XLU")]
    Xlu,
    /// Transcendental unit.
    #[serde(rename = "EUP")]
    Eup,
    /// HBM bandwidth.
    #[serde(rename = "HBM")]
    Hbm,
    /// No unit: waiting, dependences and start-up.
    #[serde(rename = "latency")]
    Latency,
}

impl Bound {
    /// Every bound, in order of their numbers.
    pub const ALL: [Bound; 6] = [Bound::Mxu, Bound::Vpu, Bound::Xlu, Bound::Eup, Bound::Hbm, Bound::Latency];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Bound::Mxu => "MXU",
            Bound::Vpu => "VPU",
            Bound::Xlu => "XLU",
            Bound::Eup => "EUP",
            Bound::Hbm => "HBM",
            Bound::Latency => "latency",
        }
    }

    /// The bound of an operation whose units are used as `shares` says. Of equals the first in [`Bound::ALL`] wins.
    pub fn of(shares: &PerUnit) -> Bound {
        let vpu = shares.get(Unit::Vpu).max(shares.get(Unit::VLoad)).max(shares.get(Unit::VStore));
        let candidates = [
            (Bound::Mxu, shares.get(Unit::Mxu)),
            (Bound::Vpu, vpu),
            (Bound::Xlu, shares.get(Unit::Xlu)),
            (Bound::Eup, shares.get(Unit::Eup)),
            (Bound::Hbm, shares.get(Unit::Hbm)),
        ];
        let busiest = candidates.iter().fold((Bound::Latency, 0.0), |best, c| if c.1 > best.1 { *c } else { best });
        if busiest.1 >= BOUND_THRESHOLD { busiest.0 } else { Bound::Latency }
    }
}

/// A share of capacity (0..1) for each unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PerUnit(pub [f64; Unit::ALL.len()]);

impl PerUnit {
    /// Shares from busy cycles added over instances, in `cycles` cycles of `instances` each. Nothing can be busy above its capacity.
    pub fn from_busy(busy: &[f64; Unit::ALL.len()], cycles: f64, instances: &[u32; Unit::ALL.len()]) -> PerUnit {
        let mut shares = [0.0; Unit::ALL.len()];
        for ((share, busy), n) in shares.iter_mut().zip(busy).zip(instances) {
            *share = ratio(*busy, cycles * f64::from(*n)).clamp(0.0, 1.0);
        }
        PerUnit(shares)
    }

    /// The share of `unit`.
    pub fn get(&self, unit: Unit) -> f64 {
        self.0.get(unit as usize).copied().unwrap_or(0.0)
    }
}

impl Serialize for PerUnit {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(self.0.len()))?;
        for u in Unit::ALL {
            map.serialize_entry(u.name(), &self.get(u))?;
        }
        map.end()
    }
}

/// Cycles for each reason to stall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerStall(pub [u64; Stall::ALL.len()]);

impl PerStall {
    /// The cycles of `stall`.
    pub fn get(&self, stall: Stall) -> u64 {
        self.0.get(stall as usize).copied().unwrap_or(0)
    }

    /// The reason with the most cycles, if there is any.
    pub fn top(&self) -> Option<(Stall, u64)> {
        let best = Stall::ALL.iter().map(|s| (*s, self.get(*s))).reduce(|a, b| if b.1 > a.1 { b } else { a })?;
        (best.1 > 0).then_some(best)
    }

    fn add(&mut self, other: &PerStall) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a = a.saturating_add(*b);
        }
    }
}

impl Serialize for PerStall {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(self.0.len()))?;
        for r in Stall::ALL {
            map.serialize_entry(r.name(), &self.get(r))?;
        }
        map.end()
    }
}

/// One lowered fusion as it ran once.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct OpReport {
    /// Index into [`Program::ops`].
    pub op: u32,
    /// Number of earlier runs of the same operation.
    pub occurrence: u32,
    /// Short name.
    pub name: String,
    /// Names of the source's operations in it.
    pub source: String,
    /// `file:line`, empty if unknown.
    pub location: String,
    /// Type whose peak the MXU work is held against.
    pub dtype: &'static str,
    /// TensorCores that took part.
    pub cores: u32,
    /// First cycle.
    pub start_cycle: u64,
    /// Duration in cycles.
    pub cycles: u64,
    /// Start in seconds.
    pub start_s: f64,
    /// Duration in seconds.
    pub time_s: f64,
    /// What limited it.
    pub bound: Bound,
    /// Share of each unit's capacity that was used.
    pub utilization: PerUnit,
    /// Stall cycles by reason.
    pub stall_cycles: PerStall,
    /// Bundles issued.
    pub bundles: u64,
    /// Bytes read from HBM by the device.
    pub hbm_bytes_read: u64,
    /// Bytes written to HBM by the device.
    pub hbm_bytes_written: u64,
    /// Useful MXU operations.
    pub flops: u64,
    /// Useful elementwise operations.
    pub vector_flops: u64,
    /// Peak of the device for `dtype`.
    pub peak_flops_per_s: f64,
    /// Useful MXU FLOPs over the peak in the operation's time.
    pub mfu: f64,
    /// Useful share of the multiply-adds the busy MXUs did; the rest is padding or extra passes. None if they did nothing.
    pub mxu_useful_fraction: Option<f64>,
    /// Cycles that come from a formula instead of generated code.
    pub modelled_cycles: u64,
}

impl OpReport {
    /// Useful operations per byte of HBM traffic. None without traffic or without operations.
    pub fn intensity(&self) -> Option<f64> {
        let bytes = self.hbm_bytes_read.saturating_add(self.hbm_bytes_written);
        let flops = self.flops.saturating_add(self.vector_flops);
        (bytes > 0 && flops > 0).then(|| flops as f64 / bytes as f64)
    }

    /// Useful operations per second.
    pub fn flops_per_s(&self) -> f64 {
        ratio(self.flops.saturating_add(self.vector_flops) as f64, self.time_s)
    }
}

/// A run of one device.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Report {
    /// Name of the program.
    pub program: String,
    /// Chip name.
    pub chip: String,
    /// What frameworks call the device.
    pub device_kind: String,
    /// How it was run, e.g. `functional` or `timing`.
    pub mode: String,
    /// TensorCores of the device.
    pub cores: u32,
    /// Core clock.
    pub clock_hz: u64,
    /// Duration in cycles.
    pub cycles: u64,
    /// Duration in seconds.
    pub time_s: f64,
    /// Useful MXU operations.
    pub flops: u64,
    /// Useful elementwise operations.
    pub vector_flops: u64,
    /// Useful MXU operations per second.
    pub flops_per_s: f64,
    /// Ideal MXU seconds over seconds, each operation at its own type's peak.
    pub mfu: f64,
    /// Useful share of the multiply-adds the busy MXUs did. None if they did nothing.
    pub mxu_useful_fraction: Option<f64>,
    /// Bytes read from HBM.
    pub hbm_bytes_read: u64,
    /// Bytes written to HBM.
    pub hbm_bytes_written: u64,
    /// Bytes moved per second, both directions.
    pub hbm_bandwidth_bytes_per_s: f64,
    /// Peak HBM bandwidth of the device.
    pub hbm_bandwidth_peak_bytes_per_s: f64,
    /// Share of that peak.
    pub hbm_bandwidth_fraction: f64,
    /// Bytes of HBM in use at the worst moment.
    pub hbm_peak_bytes: u64,
    /// Bytes of HBM that programs may use.
    pub hbm_capacity_bytes: u64,
    /// The largest arrays in HBM at the worst moment, largest first.
    pub hbm_at_peak: Vec<HeldArrays>,
    /// Bytes of VMEM in use at the worst moment, per core.
    pub vmem_peak_bytes: u64,
    /// Bytes of VMEM per core.
    pub vmem_capacity_bytes: u64,
    /// Elementwise operations per second of the device with every vector ALU busy.
    pub vpu_peak_flops_per_s: f64,
    /// Share of the time that comes from formulas instead of generated code.
    pub modelled_fraction: f64,
    /// What was assumed where only data could decide how often a loop runs or which branch is taken, a sentence each.
    pub assumptions: Vec<String>,
    /// Share of the time outside operations, where loops and branches are decided. None if the program has none that data decides.
    pub control_fraction: Option<f64>,
    /// Share of each unit's capacity that was used.
    pub utilization: PerUnit,
    /// Stall cycles by reason.
    pub stall_cycles: PerStall,
    /// What would help most, in sentences.
    pub advice: Vec<String>,
    /// Operations in the order they ran.
    pub ops: Vec<OpReport>,
}

impl Report {
    /// The report of `program` run on one device of `chip` as `profile` recorded.
    pub fn new(program: &Program, chip: &ChipSpec, profile: &Profile, mode: &str) -> Report {
        let clock = *chip.clock_hz as f64;
        let time_s = profile.cycles as f64 / clock;
        let mut runs = vec![0u32; program.ops.len()];
        let mut ops: Vec<OpReport> = Vec::with_capacity(profile.ops.len());
        for p in &profile.ops {
            let occurrence = match runs.get_mut(p.op as usize) {
                Some(n) => std::mem::replace(n, n.saturating_add(1)),
                None => 0,
            };
            ops.push(op_report(program.ops.get(p.op as usize), chip, profile, p, occurrence));
        }
        let sum = |f: fn(&OpReport) -> u64| ops.iter().map(f).fold(0u64, u64::saturating_add);
        let (read, written) = (sum(|o| o.hbm_bytes_read), sum(|o| o.hbm_bytes_written));
        let (flops, vector_flops) = (sum(|o| o.flops), sum(|o| o.vector_flops));
        let mut busy = [0.0; Unit::ALL.len()];
        let mut stall_cycles = PerStall::default();
        for (p, op) in profile.ops.iter().zip(&ops) {
            busy.iter_mut().zip(&p.busy).for_each(|(a, b)| *a += *b as f64);
            stall_cycles.add(&op.stall_cycles);
        }
        let ideal_s: f64 = ops.iter().map(|o| ratio(o.flops as f64, o.peak_flops_per_s)).sum();
        let issued: f64 = profile.ops.iter().zip(&ops).map(|(p, o)| issued_flops(chip, p, o)).sum();
        let hbm_peak = *chip.hbm.bps_chip as f64 / f64::from(chip.devices_per_chip());
        let bandwidth = ratio(read.saturating_add(written) as f64, time_s);
        let lanes = 8.0 * 128.0 * f64::from(*chip.slots.valu) * f64::from(*chip.tensorcores_per_device);
        let mut report = Report {
            program: program.name.clone(),
            chip: chip.name.clone(),
            device_kind: chip.device_kind.clone(),
            mode: mode.to_owned(),
            cores: *chip.tensorcores_per_device,
            clock_hz: *chip.clock_hz,
            cycles: profile.cycles,
            time_s,
            flops,
            vector_flops,
            flops_per_s: ratio(flops as f64, time_s),
            mfu: ratio(ideal_s, time_s),
            mxu_useful_fraction: (issued > 0.0).then(|| (flops as f64 / issued).min(1.0)),
            hbm_bytes_read: read,
            hbm_bytes_written: written,
            hbm_bandwidth_bytes_per_s: bandwidth,
            hbm_bandwidth_peak_bytes_per_s: hbm_peak,
            hbm_bandwidth_fraction: ratio(bandwidth, hbm_peak),
            hbm_peak_bytes: program.hbm_peak_bytes,
            hbm_capacity_bytes: *chip.hbm.usable_bytes_device,
            hbm_at_peak: HeldArrays::of(program),
            vmem_peak_bytes: program.vmem_peak_bytes,
            vmem_capacity_bytes: *chip.vmem_bytes,
            vpu_peak_flops_per_s: lanes * clock,
            modelled_fraction: ratio(sum(|o| o.modelled_cycles) as f64, profile.cycles as f64).min(1.0),
            assumptions: profile.assumed.iter().map(assumption).collect(),
            control_fraction: (!program.flows.is_empty()).then(|| {
                let outside = profile.cycles.saturating_sub(sum(|o| o.cycles));
                ratio(outside as f64, profile.cycles as f64)
            }),
            utilization: PerUnit::from_busy(&busy, profile.cycles as f64, &profile.instances),
            stall_cycles,
            advice: Vec::new(),
            ops,
        };
        report.advice = advice::advice(&report);
        report
    }

    /// Share of the time spent in operations with this bound.
    pub fn bound_fraction(&self, bound: Bound) -> f64 {
        let cycles = self.ops.iter().filter(|o| o.bound == bound).map(|o| o.cycles as f64).sum();
        ratio(cycles, self.cycles as f64)
    }

    /// The report as JSON, ending in a newline.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }
}

/// An assumption as a sentence without its end.
fn assumption(a: &Assumption) -> String {
    let source = match (a.name.as_str(), a.location.as_str()) {
        ("", "") => String::new(),
        (name, "") => format!(" ({name})"),
        ("", location) => format!(" ({location})"),
        (name, location) => format!(" ({name} at {location})"),
    };
    match a.what {
        Assumed::Trips(1) => format!("{}{source} runs once", a.key),
        Assumed::Trips(n) => format!("{}{source} runs {n} times", a.key),
        Assumed::Branch(k) => format!("{}{source} takes branch {k}", a.key),
        Assumed::Longest(k) => format!("{}{source} takes branch {k}, the longest", a.key),
    }
}

fn op_report(info: Option<&OpInfo>, chip: &ChipSpec, profile: &Profile, p: &OpProfile, occurrence: u32) -> OpReport {
    // A profile of another program has no names; its times are still worth showing.
    let unknown = OpInfo {
        name: format!("op{}", p.op),
        source: String::new(),
        location: String::new(),
        mxu_flops: 0,
        vector_flops: 0,
        dtype: tpusim_isa::num::DType::BF16,
        cores: 1,
        modelled_cycles: 0,
    };
    let info = info.unwrap_or(&unknown);
    let clock = *chip.clock_hz as f64;
    let cycles = p.end.saturating_sub(p.start);
    let time_s = cycles as f64 / clock;
    let peak = chip.peak_flops_device(info.dtype);
    let utilization = PerUnit::from_busy(&p.busy.map(|b| b as f64), cycles as f64, &profile.instances);
    let stall_cycles = PerStall(p.stalls);
    let mut report = OpReport {
        op: p.op,
        occurrence,
        name: info.name.clone(),
        source: info.source.clone(),
        location: info.location.clone(),
        dtype: info.dtype.name(),
        cores: info.cores,
        start_cycle: p.start,
        cycles,
        start_s: p.start as f64 / clock,
        time_s,
        bound: Bound::of(&utilization),
        utilization,
        stall_cycles,
        bundles: p.bundles,
        hbm_bytes_read: p.hbm_read,
        hbm_bytes_written: p.hbm_written,
        flops: info.mxu_flops,
        vector_flops: info.vector_flops,
        peak_flops_per_s: peak,
        mfu: ratio(info.mxu_flops as f64, peak * time_s),
        mxu_useful_fraction: None,
        // What the program declares and what the engine counted should agree; a routine must never pass for generated code.
        modelled_cycles: stall_cycles.get(Stall::Modelled).max(info.modelled_cycles.min(cycles)),
    };
    let issued = issued_flops(chip, p, &report);
    report.mxu_useful_fraction = (issued > 0.0).then(|| (info.mxu_flops as f64 / issued).min(1.0));
    report
}

/// Operations the busy cycles of the MXUs stand for, on every core that takes part.
fn issued_flops(chip: &ChipSpec, p: &OpProfile, op: &OpReport) -> f64 {
    let units = f64::from(*chip.tensorcores_per_device) * f64::from(*chip.mxu.count);
    let per_cycle = ratio(op.peak_flops_per_s, units * *chip.clock_hz as f64);
    let cores = op.cores.clamp(1, (*chip.tensorcores_per_device).max(1));
    p.busy.get(Unit::Mxu as usize).map_or(0.0, |b| *b as f64) * per_cycle * f64::from(cores)
}

/// `a / b`, 0 if `b` is.
pub(crate) fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}
