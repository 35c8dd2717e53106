//! What a run on a pod cost: one device of each class, its operations and transfers, and the links.
//!
//! The slowest device stands for the pod. Its time is the operations of its main thread, waiting for transfers (*exposed*
//! communication: what ran beside operations is hidden), and what is left, control code. **MFU** is useful MXU FLOPs of the device
//! over what its MXUs could have done in the time, each type of operation held against its own peak.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, LineStyle, Table};
use serde::Serialize;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::pod::MAIN_QUEUES;
use tpusim_isa::program::{BufferKind, Program};
use tpusim_sim::network::{Cluster, Port};
use tpusim_sim::pod::PodProfile;
use tpusim_sim::pod::profile::DeviceProfile;

use crate::held::{self, HeldArrays};
use crate::report::clip;
use crate::routing::Experts;
use crate::serving::{Serving, ServingReport};
use crate::training::{PipelineReport, Training, TrainingReport};
use crate::units::{memory, percent, seconds, si};

/// An operation of the slowest device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodOp {
    /// Short name.
    pub name: String,
    /// Names of the source's operations.
    pub source: String,
    /// How often it ran.
    pub runs: u64,
    /// Seconds of all runs.
    pub time_s: f64,
    /// Useful MXU FLOPs of all runs.
    pub flops: f64,
}

/// A transfer of the slowest device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodTransfer {
    /// Short name, e.g. `all_gather.3`.
    pub name: String,
    /// Names of the source's operations.
    pub source: String,
    /// Mesh axes it goes along, empty if unknown.
    pub axes: String,
    /// How often it ran.
    pub runs: u64,
    /// Bytes of its result.
    pub bytes: u64,
    /// Seconds from start to end, of all runs.
    pub time_s: f64,
    /// Seconds the device waited for it, of all runs.
    pub exposed_s: f64,
    /// Whether it runs beside another iteration of its loop, so that its result has an array throughout.
    pub pipelined: bool,
}

/// What the links in one direction did, over all chips.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodLink {
    /// Port, e.g. `x+`.
    pub port: String,
    /// Share of the time the busiest one was taken.
    pub max: f64,
    /// Mean share over the chips that have it.
    pub mean: f64,
    /// Bytes over all chips.
    pub bytes: u64,
}

/// Everything a report says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodReport {
    /// Program.
    pub program: String,
    /// Chip.
    pub chip: String,
    /// Shape of a slice, e.g. `4x4x8`.
    pub topology: String,
    /// Slices.
    pub slices: u32,
    /// Devices.
    pub devices: u32,
    /// Devices that were simulated, each for a class.
    pub simulated: usize,
    /// `execute` or `time`.
    pub mode: String,
    /// Seconds until the last device was done.
    pub time_s: f64,
    /// Useful MXU FLOPs of one device.
    pub flops_device: f64,
    /// Useful share of the MXUs' peak.
    pub mfu: f64,
    /// Seconds of operations with MXU work.
    pub mxu_s: f64,
    /// Seconds of other operations.
    pub vector_s: f64,
    /// Seconds of waiting for transfers.
    pub exposed_s: f64,
    /// Seconds of transfers beside operations.
    pub hidden_s: f64,
    /// Seconds of control code.
    pub control_s: f64,
    /// Bytes of HBM of one device at the worst moment.
    pub hbm_peak_bytes: u64,
    /// Of them, arrays that stay from run to run: parameters and results, for a training step weights and optimizer state.
    pub hbm_arguments_bytes: u64,
    /// Of them, constants of the program.
    pub hbm_constants_bytes: u64,
    /// Of them, what is left for temporaries.
    pub hbm_temporaries_bytes: u64,
    /// Bytes of HBM of one device that programs may use.
    pub hbm_capacity_bytes: u64,
    /// The largest arrays in HBM at that moment, largest first.
    pub hbm_at_peak: Vec<HeldArrays>,
    /// Messages times the links they crossed.
    pub messages: u64,
    /// What the step reaches, if it trains a model.
    pub training: Option<TrainingReport>,
    /// What the step reaches, if it serves a model.
    pub serving: Option<ServingReport>,
    /// What its experts get, if they are not liked equally.
    pub experts: Option<Experts>,
    /// Operations, longest first.
    pub ops: Vec<PodOp>,
    /// Transfers, longest waits first.
    pub transfers: Vec<PodTransfer>,
    /// Links that did something.
    pub links: Vec<PodLink>,
}

impl PodReport {
    /// The report of a run.
    pub fn new(program: &Program, chip: &ChipSpec, cluster: &Cluster, p: &PodProfile, mode: &str) -> PodReport {
        let none = DeviceProfile::default();
        let slowest = slowest(p).unwrap_or(&none);
        let time_s = p.end.seconds();
        let (mut mxu_s, mut vector_s, mut flops_device, mut ideal) = (0.0, 0.0, 0.0, 0.0);
        let mut ops = Vec::new();
        for (info, &(runs, time)) in program.ops.iter().zip(&slowest.op_totals).filter(|(_, t)| t.0 > 0) {
            let flops = info.mxu_flops as f64 * runs as f64;
            *(if info.mxu_flops > 0 { &mut mxu_s } else { &mut vector_s }) += time.seconds();
            flops_device += flops;
            ideal += flops / chip.peak_flops_device(info.dtype);
            let (name, source) = (info.name.clone(), info.source.clone());
            ops.push(PodOp { name, source, runs, time_s: time.seconds(), flops });
        }
        ops.sort_by(|a, b| b.time_s.total_cmp(&a.time_s));
        let mut transfers = Vec::new();
        for (info, &(runs, time, exposed)) in
            program.transfers.iter().zip(&slowest.transfer_totals).filter(|(i, t)| t.0 > 0 && i.queue < MAIN_QUEUES)
        {
            transfers.push(PodTransfer {
                name: info.name.clone(),
                source: info.source.clone(),
                axes: info.axes.clone(),
                runs,
                bytes: info.bytes,
                time_s: time.seconds(),
                exposed_s: exposed.seconds(),
                pipelined: info.queue > 0,
            });
        }
        transfers.sort_by(|a, b| b.exposed_s.total_cmp(&a.exposed_s));
        // From zero, as the sum of nothing is -0.
        let exposed_s = transfers.iter().fold(0.0, |sum, t| sum + t.exposed_s);
        let transfer_s = transfers.iter().fold(0.0, |sum, t| sum + t.time_s);
        let (hbm_arguments_bytes, hbm_constants_bytes) = lasting(program);
        PodReport {
            program: program.name.clone(),
            chip: chip.name.clone(),
            topology: cluster.slice.to_string(),
            slices: cluster.slices,
            devices: cluster.devices(),
            simulated: p.devices.len(),
            mode: mode.to_owned(),
            time_s,
            flops_device,
            mfu: if time_s > 0.0 { ideal / time_s } else { 0.0 },
            mxu_s,
            vector_s,
            exposed_s,
            hidden_s: (transfer_s - exposed_s).max(0.0),
            control_s: (time_s - mxu_s - vector_s - exposed_s).max(0.0),
            hbm_peak_bytes: program.hbm_peak_bytes,
            hbm_arguments_bytes,
            hbm_constants_bytes,
            hbm_temporaries_bytes: program.hbm_peak_bytes.saturating_sub(hbm_arguments_bytes + hbm_constants_bytes),
            hbm_capacity_bytes: *chip.hbm.usable_bytes_device,
            hbm_at_peak: HeldArrays::of(program),
            messages: p.messages,
            training: None,
            serving: None,
            experts: None,
            ops,
            transfers,
            links: links(p, time_s),
        }
    }

    /// With what the step reaches as training of a model.
    pub fn trains(mut self, step: Training, chip: &ChipSpec) -> PodReport {
        let spent = self.ops.iter().map(|o| (o.source.as_str(), o.time_s));
        let waited = self.transfers.iter().map(|t| (t.source.as_str(), t.exposed_s));
        let pipeline = step.pipeline.as_ref().map(|p| PipelineReport::new(p, spent.chain(waited)));
        let report = TrainingReport::new(step, chip, self.devices, self.time_s);
        self.training = Some(TrainingReport { pipeline, ..report });
        self
    }

    /// With what the step reaches as serving of a model.
    pub fn serves(mut self, step: Serving, chip: &ChipSpec) -> PodReport {
        self.serving = Some(ServingReport::new(step, chip, self.devices, self.time_s));
        self
    }

    /// With what the step's experts get.
    pub fn routes(self, experts: Option<Experts>) -> PodReport {
        PodReport { experts, ..self }
    }

    /// What takes most of the time, and its share: `MXU`, `vector`, `network` (waiting for transfers) or `control`.
    pub fn bound(&self) -> (&'static str, f64) {
        let all =
            [("MXU", self.mxu_s), ("vector", self.vector_s), ("network", self.exposed_s), ("control", self.control_s)];
        let most = all.into_iter().reduce(|a, b| if b.1 > a.1 { b } else { a }).unwrap_or(("MXU", 0.0));
        (most.0, if self.time_s > 0.0 { most.1 / self.time_s } else { 0.0 })
    }

    /// As JSON.
    ///
    /// # Errors
    /// None that this type can cause.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|t| t + "\n")
    }

    /// For people, at most `top` operations and transfers.
    pub fn text(&self, top: usize) -> String {
        let name = if self.program.is_empty() { "program" } else { self.program.as_str() };
        let slices = if self.slices == 1 { String::new() } else { format!("{} slices of ", self.slices) };
        let mut out = format!(
            "{} on {slices}{} {} ({} devices), {}\n",
            clip(name, 48),
            self.chip,
            self.topology,
            self.devices,
            self.mode
        );
        let mut line = |name: &str, value: String| out.push_str(&format!("  {name:<12}{value}\n"));
        let share = |s: f64| percent(if self.time_s > 0.0 { s / self.time_s } else { 0.0 });
        if let Some(t) = &self.training {
            t.lines(self.time_s, &mut line);
        }
        if let Some(s) = &self.serving {
            s.lines(&mut line);
        }
        if let Some(e) = &self.experts {
            line("experts", e.text());
        }
        let rate = if self.time_s > 0.0 { self.flops_device / self.time_s } else { 0.0 };
        let (share_of_peak, done, rate) = (percent(self.mfu), si(self.flops_device, "FLOP"), si(rate, "FLOP/s"));
        if self.serving.is_some() {
            line("HFU", format!("{share_of_peak} ({done} on each device, {rate})"));
        } else if self.training.is_none() {
            line("time", seconds(self.time_s));
            line("MFU", format!("{share_of_peak} ({done} useful on each device, {rate})"));
        } else {
            line("HFU", format!("{share_of_peak} ({done} on each device with what is computed again, {rate})"));
        }
        line("MXU work", format!("{} ({})", seconds(self.mxu_s), share(self.mxu_s)));
        line("other work", format!("{} ({})", seconds(self.vector_s), share(self.vector_s)));
        line(
            "network",
            format!(
                "{} exposed ({}), {} hidden",
                seconds(self.exposed_s),
                share(self.exposed_s),
                seconds(self.hidden_s)
            ),
        );
        let beside: Vec<u64> = self.transfers.iter().filter(|t| t.pipelined).map(|t| t.bytes).collect();
        if !beside.is_empty() {
            let bytes = si(beside.iter().sum::<u64>() as f64, "B");
            line("pipelined", format!("{} transfers beside other iterations, with {bytes} of results", beside.len()));
        }
        line("control", format!("{} ({})", seconds(self.control_s), share(self.control_s)));
        line(
            "HBM memory",
            format!(
                "{} of {} on each device ({}): {} {}, {} temporaries",
                memory(self.hbm_peak_bytes),
                memory(self.hbm_capacity_bytes),
                percent(self.hbm_peak_bytes as f64 / self.hbm_capacity_bytes.max(1) as f64),
                memory(self.hbm_arguments_bytes),
                match (&self.training, &self.serving) {
                    (Some(_), _) => "weights and optimizer state",
                    (_, Some(_)) => "weights and cache",
                    _ => "parameters and results",
                },
                memory(self.hbm_temporaries_bytes),
            ),
        );
        line(
            "simulated",
            match self.simulated {
                n if n as u32 == self.devices => format!("all {n} devices"),
                n => format!("{n} of {} devices, the others behave the same", self.devices),
            },
        );
        if !self.links.is_empty() {
            let list: Vec<String> = self.links.iter().map(|l| format!("{} {}", l.port, percent(l.max))).collect();
            line("links", format!("busiest {}", list.join(", ")));
        }
        if !self.ops.is_empty() {
            out.push_str("\nlongest operations\n");
            let rows = self.ops.iter().take(top).map(|o| {
                let rate =
                    if o.time_s > 0.0 && o.flops > 0.0 { si(o.flops / o.time_s, "FLOP/s") } else { String::new() };
                [o.name.clone(), o.runs.to_string(), seconds(o.time_s), share(o.time_s), rate, clip(&o.source, 40)]
            });
            out.push_str(&table(["operation", "runs", "time", "share", "rate", "source"], rows));
        }
        if !self.transfers.is_empty() {
            out.push_str("\ntransfers, longest waits first\n");
            let rows = self.transfers.iter().take(top).map(|t| {
                [
                    t.name.clone(),
                    t.runs.to_string(),
                    si(t.bytes as f64, "B"),
                    seconds(t.time_s),
                    seconds(t.exposed_s),
                    t.axes.clone(),
                ]
            });
            out.push_str(&table(["transfer", "runs", "result", "time", "exposed", "axes"], rows));
        }
        out.push_str(&held::text(&self.hbm_at_peak, self.hbm_peak_bytes, self.hbm_capacity_bytes));
        out.push('\n');
        out.push_str(&self.advice());
        out
    }

    /// Where most of the time goes, in a sentence.
    fn advice(&self) -> String {
        let share = |s: f64| percent(if self.time_s > 0.0 { s / self.time_s } else { 0.0 });
        let longest = |mxu: bool| self.ops.iter().find(|o| (o.flops > 0.0) == mxu).map_or("", |o| o.name.as_str());
        if self.time_s <= 0.0 {
            return "Nothing ran.\n".to_owned();
        }
        if self.exposed_s >= self.mxu_s.max(self.vector_s) {
            let (name, axes) = self.transfers.first().map_or(("", ""), |t| (t.name.as_str(), t.axes.as_str()));
            return format!(
                "- {} of the time waits for transfers, longest for `{name}` ({axes}): more work per device or\n  another mesh hides them.\n",
                share(self.exposed_s)
            );
        }
        if self.vector_s >= self.mxu_s {
            let o = longest(false);
            return format!("- {} of the time is work without products, longest `{o}`.\n", share(self.vector_s));
        }
        if let Some(s) = self.serving.as_ref().filter(|s| s.mbu > s.mfu) {
            let rate = percent(s.hbm_bound_s / self.mxu_s.max(f64::MIN_POSITIVE));
            let (share, o) = (share(self.mxu_s), longest(true));
            return format!(
                "- {share} of the time is products, which would read weights and cache in {rate} of it at the peak of HBM,\n  longest `{o}`.\n"
            );
        }
        let reached = percent(self.mfu * self.time_s / self.mxu_s.max(f64::MIN_POSITIVE));
        let o = longest(true);
        format!("- {} of the time is products at {reached} of the MXUs' peak, longest `{o}`.\n", share(self.mxu_s))
    }
}

/// The device that ends last, of several the first.
pub(crate) fn slowest(p: &PodProfile) -> Option<&DeviceProfile> {
    p.devices.iter().reduce(|a, b| if b.end > a.end { b } else { a })
}

/// Bytes of the arrays that stay, parameters and results where they share memory once, and of constants.
fn lasting(program: &Program) -> (u64, u64) {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut constants = 0;
    for b in &program.buffers {
        match b.kind {
            BufferKind::Param(_) | BufferKind::Output(_) => ranges.push((b.offset, b.offset + b.bytes)),
            BufferKind::Constant(_) => constants += b.bytes,
            _ => {}
        }
    }
    ranges.sort_unstable();
    let (mut bytes, mut top) = (0, 0);
    for (from, to) in ranges {
        bytes += to.saturating_sub(from.max(top));
        top = top.max(to);
    }
    (bytes, constants)
}

pub(crate) fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut t = Table::new();
    t.load_style(NOTHING.header_separator(LineStyle::none().fill('-')));
    t.set_header(head);
    for r in rows {
        let numbers = 1..N - 1;
        t.add_row(r.into_iter().enumerate().map(|(i, text)| {
            let align = if numbers.contains(&i) { CellAlignment::Right } else { CellAlignment::Left };
            Cell::new(text).set_alignment(align)
        }));
    }
    let mut out = String::new();
    for l in t.lines() {
        out.push_str(l.trim_end());
        out.push('\n');
    }
    out
}

fn links(p: &PodProfile, time_s: f64) -> Vec<PodLink> {
    let mut out = Vec::new();
    for port in Port::ALL {
        let used = || p.ports.iter().map(|c| c[port.index()]);
        let bytes: u64 = used().map(|u| u.bytes).sum();
        if bytes == 0 {
            continue;
        }
        let share = |s: f64| if time_s > 0.0 { s / time_s } else { 0.0 };
        let max = used().map(|u| share(u.busy.seconds())).fold(0.0, f64::max);
        let mean = used().map(|u| share(u.busy.seconds())).sum::<f64>() / p.ports.len().max(1) as f64;
        out.push(PodLink { port: port.to_string(), max, mean, bytes });
    }
    out
}
