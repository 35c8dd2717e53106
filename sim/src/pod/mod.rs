//! Pods: the devices of one or more slices, all running the same program, talking over the network.
//!
//! # Two levels
//!
//! Between operations a program consists of *control code* (`control`): scalar instructions, loops and branches, transfers that are
//! started and waited for. It runs in steps, because it may have to wait for other devices. An operation never waits for another
//! device, so it is a *segment*: it always takes the same time, is timed once on the core model, and is replayed as one event. A device
//! has one main thread of control and one for each transfer queue.
//!
//! # Time
//!
//! Threads of control run ahead until they wait; what they send enters the network as events in order of time. Chips advance in
//! windows of one link latency (`shards`), in which none can reach another, so any number of host threads may run them. Events
//! of one picosecond go in an order that is the same everywhere on the torus: results depend neither on threads nor on how devices
//! are numbered.
//!
//! # Folding
//!
//! [`classes`] finds devices that provably behave the same; one of each class runs, and its messages stand for those of all others.
//! `period` finds iterations of loops that repeat others, to the picosecond, and skips them. With data, and with `fold` off, every
//! device runs; with data, and with `run.fold` off, every iteration.

pub mod classes;
mod control;
mod data;
mod device;
mod events;
mod period;
mod plan;
pub mod profile;
mod routes;
mod run;
mod shards;
mod site;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::Program;
use tpusim_isa::topology::{ChipId, Direction};

use crate::code::Code;
use crate::fault::Fault;
use crate::network::Cluster;
use crate::{FaultKind, RunOptions};
use data::{Bits, Nothing};
pub use profile::PodProfile;
use shards::Shard;
use world::World;

/// How to run a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodOptions {
    /// Run one device of each class instead of all. Means nothing with data, as `run.fold`, which skips iterations that repeat others.
    pub fold: bool,
    /// Links that are out of service.
    pub failed: Vec<(ChipId, Direction)>,
    /// Chips that run at a share of their clock.
    pub slow: Vec<(ChipId, f64)>,
    /// Told how much of the program has run.
    pub watch: Option<Watch>,
    /// How each device runs.
    pub run: RunOptions,
}

/// How much of a program has run, for those who wait for it. Clones watch the same run.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<AtomicU64>);

impl Watch {
    const WHOLE: u64 = 1 << 20;

    /// The share that has run, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64 / Watch::WHOLE as f64
    }

    fn set(&self, done: u64, all: u64) {
        let share = u128::from(done) * u128::from(Watch::WHOLE) / u128::from(all.max(1));
        self.0.store((share as u64).min(Watch::WHOLE), Ordering::Relaxed);
    }
}

impl PartialEq for Watch {
    fn eq(&self, other: &Watch) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Default for PodOptions {
    fn default() -> Self {
        PodOptions { fold: true, failed: Vec::new(), slow: Vec::new(), watch: None, run: RunOptions::default() }
    }
}

/// A run of a pod with data.
#[derive(Clone, Debug, PartialEq)]
pub struct PodExecuted {
    /// Outputs by device and number.
    pub outputs: Vec<Vec<Vec<u8>>>,
    /// How the run went.
    pub profile: PodProfile,
}

fn early(kind: FaultKind) -> Fault {
    Fault { pc: Vec::new(), op: None, cycle: 0, kind: Box::new(kind) }
}

/// Times a program on a pod without data.
///
/// # Errors
/// [`Fault`]: what a chip cannot do, links or chips that do not exist, devices that wait for each other for ever.
pub fn time(program: &Program, chip: &ChipSpec, cluster: &Cluster, opts: &PodOptions) -> Result<PodProfile, Fault> {
    let code = Code::new(program, chip)?;
    let world = World::new(program, chip, cluster, opts, &code, opts.fold).map_err(early)?;
    let mut shards = Shard::split(run::sites(&world), opts.run.threads, || Nothing);
    run::complete(&world, &mut shards, opts.run.fold)?;
    Ok(run::profile(world, shards).1)
}

/// Runs a program on a pod with data. `inputs` are the arguments by device and parameter number.
///
/// # Errors
/// As [`time`], and inputs that are missing or of the wrong size.
pub fn execute(
    program: &Program,
    chip: &ChipSpec,
    cluster: &Cluster,
    inputs: &[Vec<Vec<u8>>],
    opts: &PodOptions,
) -> Result<PodExecuted, Fault> {
    let code = Code::new(program, chip)?;
    let data = Bits::new(program, chip, inputs, &opts.run, &code).map_err(early)?;
    let world = World::new(program, chip, cluster, opts, &code, false).map_err(early)?;
    let mut shards = vec![Shard::new(run::sites(&world), data)];
    run::complete(&world, &mut shards, false)?;
    let (data, profile) = run::profile(world, shards);
    Ok(PodExecuted { outputs: data.iter().flat_map(|d| d.outputs(program)).collect(), profile })
}
