//! `run` on a pod: which slice, what is broken, and what to make of it.

use std::path::{Path, PathBuf};

use clap::Args;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tpusim_driver::PodExecutable;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::Program;
use tpusim_isa::topology::{ChipId, DeviceId, Direction, Topology};
use tpusim_sim::network::Cluster;
use tpusim_sim::pod::{PodOptions, PodProfile, Watch};
use tpusim_traces::pod::PodReport;
use tpusim_traces::{figure, perfetto};

use crate::compare::against_reference;
use crate::failure::Failure;
use crate::files::{self, Targets};
use crate::inputs::InputArgs;
use crate::model::Step;
use crate::out;
use crate::program::Loaded;
use crate::progress::Progress;
use crate::run::{EngineArgs, ModeArg, ReportArgs, drawn};

/// Flags of the pod.
#[derive(Args, Clone, Debug)]
pub struct PodArgs {
    /// Run on a slice of this shape, e.g. 4x4x8, 16x16, v5p:8x8x8 or 4x4x8_twisted; the program's mesh has to have as many devices
    #[arg(long, value_name = "SHAPE", help_heading = "Pod")]
    topology: Option<String>,
    /// Run on a slice with this many chips, as cubic as can be
    #[arg(long, value_name = "N", conflicts_with = "topology", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Pod")]
    chips: Option<u32>,
    /// Slices of that shape, joined by the data center network
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Pod")]
    slices: u32,
    /// A link that is out of service, as link:CHIP:DIRECTION, e.g. link:0:x+ (repeatable)
    #[arg(long, value_name = "LINK", value_parser = link, help_heading = "Pod")]
    fail: Vec<(u32, Direction)>,
    /// A chip that runs at a share of its clock, as chip:CHIP=SHARE, e.g. chip:5=0.9 (repeatable)
    #[arg(long, value_name = "CHIP", value_parser = slow, help_heading = "Pod")]
    slow: Vec<(u32, f64)>,
    /// Slow every chip by a random part of this share of its clock, e.g. 0.02; --seed gives other ones
    #[arg(long, value_name = "SHARE", value_parser = jitter, help_heading = "Pod")]
    jitter: Option<f64>,
    /// Draw how busy each link was (.svg or .png, with a .csv beside it)
    #[arg(long, value_name = "FILE", help_heading = "Pod")]
    links: Option<PathBuf>,
    /// Chips in the trace of --trace
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "0", help_heading = "Pod")]
    trace_chips: Vec<u32>,
}

fn link(text: &str) -> Result<(u32, Direction), String> {
    let parse = || {
        let (chip, direction) = text.strip_prefix("link:")?.split_once(':')?;
        let direction = Direction::ALL.into_iter().find(|d| d.to_string() == direction)?;
        Some((chip.parse().ok()?, direction))
    };
    parse().ok_or_else(|| "expected link:CHIP:DIRECTION with a direction x+, x-, y+, y-, z+ or z-".to_owned())
}

fn jitter(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|s| (0.0..1.0).contains(s));
    share.ok_or_else(|| "expected a share of the clock, from 0 to below 1, e.g. 0.02".to_owned())
}

fn slow(text: &str) -> Result<(u32, f64), String> {
    let parse = || {
        let (chip, share) = text.strip_prefix("chip:")?.split_once('=')?;
        Some((chip.parse().ok()?, share.parse().ok()?))
    };
    parse().ok_or_else(|| "expected chip:CHIP=SHARE, e.g. chip:5=0.9".to_owned())
}

impl PodArgs {
    /// Whether the run is on a pod.
    pub fn asked(&self) -> bool {
        self.topology.is_some() || self.chips.is_some()
    }

    /// The devices of one chip.
    pub fn one_chip(chip: &ChipSpec) -> Result<Cluster, Failure> {
        Ok(Cluster { slice: Topology::of_size(chip, 1).map_err(Failure::usage)?, slices: 1 })
    }

    /// The slices to run on, if the run is on a pod.
    pub fn cluster(&self, chip: &ChipSpec) -> Result<Option<Cluster>, Failure> {
        let slice = match (&self.topology, self.chips) {
            (Some(shape), _) => Topology::parse(chip, shape),
            (None, Some(n)) => Topology::of_size(chip, n),
            (None, None) => {
                return match (self.slices, self.fail.is_empty() && self.slow.is_empty()) {
                    (1, true) => Ok(None),
                    _ => Err(Failure::usage("--slices, --fail and --slow need --topology or --chips")),
                };
            }
        };
        Ok(Some(Cluster { slice: slice.map_err(Failure::usage)?, slices: self.slices }))
    }

    /// The chip that `--topology v5p:8x8x8` names.
    pub fn chip_name(&self) -> Option<&str> {
        self.topology.as_deref()?.split_once(':').map(|(chip, _)| chip)
    }

    fn options(&self, engine: &EngineArgs, report: &ReportArgs, (cluster, seed): (&Cluster, u64)) -> PodOptions {
        let run = engine.options(report);
        PodOptions {
            fold: engine.folds_chips(),
            failed: self.fail.iter().map(|(c, d)| (ChipId(*c), *d)).collect(),
            slow: self.slowed(cluster, seed),
            watch: Some(Watch::default()),
            run,
        }
    }

    /// Chips that run at a share of their clock: those that are named at theirs, the others at random ones if there is jitter.
    fn slowed(&self, cluster: &Cluster, seed: u64) -> Vec<(ChipId, f64)> {
        let named = self.slow.iter().map(|(c, s)| (ChipId(*c), *s));
        let Some(most) = self.jitter else { return named.collect() };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let any = (0..cluster.chips()).map(|c| (ChipId(c), 1.0 - most * rng.random::<f64>()));
        any.collect::<Vec<_>>().into_iter().chain(named).collect()
    }

    /// Checks that everything asked for can be written and is there.
    pub fn check(&self, cluster: &Cluster) -> Result<(), Failure> {
        if let Some(path) = &self.links {
            Targets::default().figure("--links", path)?;
        }
        match self.trace_chips.iter().find(|c| **c >= cluster.chips()) {
            Some(c) => {
                Err(Failure::usage(format!("--trace-chips: there is no chip {c}, only 0 to {}", cluster.chips() - 1)))
            }
            None => Ok(()),
        }
    }

    /// Writes the figures and the trace that are asked for.
    fn draw(
        &self,
        report: &ReportArgs,
        made: &PodReport,
        (program, cluster, profile): (&Program, &Cluster, &PodProfile),
    ) -> Result<(), Failure> {
        if let Some(path) = &report.plot {
            drawn("--plot", figure::pod(path, made, program, profile))?;
        }
        if let Some(path) = &self.links {
            drawn("--links", figure::links(path, cluster, profile))?;
        }
        if let Some(path) = &report.trace {
            let per_chip = cluster.slice.devices_per_chip();
            let mut devices = Vec::new();
            for (chip, d) in self.trace_chips.iter().flat_map(|c| (0..per_chip).map(move |d| (*c, d))) {
                let id = chip * per_chip + d;
                let class = profile.class.get(id as usize).copied().unwrap_or(DeviceId(id));
                let Some(of) = profile.devices.iter().find(|p| p.device == class) else { continue };
                let stands = if class.0 == id { String::new() } else { format!(", as device {}", class.0) };
                devices.push(perfetto::Device { name: format!("chip {chip} device {id}{stands}"), profile: of });
            }
            perfetto::write_pod(path, program, &devices).map_err(Failure::usage)?;
        }
        Ok(())
    }

    /// Compiles, runs and reports.
    pub fn run(
        &self,
        loaded: &Loaded,
        chip: &ChipSpec,
        cluster: &Cluster,
        (engine, report, inputs): (&EngineArgs, &ReportArgs, &InputArgs),
        (check, step): (bool, Option<&Step>),
    ) -> Result<(), Failure> {
        let progress = Progress::new("partitioning and compiling");
        let arrays = match engine.mode() {
            ModeArg::Time => Vec::new(),
            ModeArg::Execute => inputs.load(loaded)?,
        };
        let pod = match step {
            Some(step) => step.compile(loaded, chip, cluster)?,
            None => PodExecutable::new(&loaded.module, chip, cluster)?,
        };
        if let Some(step) = step {
            step.check_memory(&pod, chip, cluster, &progress)?;
        }
        let options = self.options(engine, report, (cluster, inputs.seed()));
        match &options.watch {
            Some(watch) => progress.next_watched("simulating", watch),
            None => progress.next("simulating"),
        }
        let run = pod.run(engine.driver_mode(), &arrays, &options)?;
        let mut notes = String::new();
        if check {
            progress.next("evaluating the reference");
            notes = against_reference(loaded, &arrays, pod.outputs(), &run.outputs)?;
        }
        drop(progress);
        let mode = if engine.mode() == ModeArg::Time { "time" } else { "execute" };
        let mut made = PodReport::new(&pod.program, chip, cluster, &run.profile, mode);
        if let Some(step) = step {
            made = step.reported(made, chip);
        }
        self.draw(report, &made, (&pod.program, cluster, &run.profile))?;
        if let Some(dir) = &report.output_dir {
            let arrays: Vec<_> = pod.outputs().iter().cloned().zip(run.outputs).collect();
            files::write_outputs(dir, &arrays)?;
        }
        if let Some(path) = &report.json {
            let text = made.to_json().map_err(Failure::usage)?;
            if path == Path::new("-") {
                return out::print(&text);
            }
            files::write(path, text.as_bytes())?;
        }
        pod.partitioned.notes.iter().for_each(|n| out::note(n));
        out::print(&(made.text(report.top) + &notes))
    }
}
