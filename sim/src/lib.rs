//! Cycle-approximate, bit-exact simulator of TPU chips.
//!
//! [`execute`] runs a program with data, [`time`] without; both go through the same engine, so they agree on every cycle.
#![deny(missing_docs)]

mod code;
mod core;
mod datapath;
mod dma;
mod exact;
mod fault;
mod memory;
pub mod mxu;
mod probe;
pub mod profile;
mod simd;
mod sync;
mod vpu;
mod xlu;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::Program;

use crate::code::Code;
use crate::core::Engine;
use crate::datapath::Shapes;
use crate::exact::Exact;
pub use crate::fault::{Fault, FaultKind};
use crate::profile::Profile;

/// How to run a program. None of these change its cycles or, in a correct program, its results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// Jump over the iterations of a loop that repeat an earlier state.
    pub fold: bool,
    /// Fill VMEM (again at the start of each operation), vector registers and uninitialised HBM with a NaN.
    pub poison: bool,
    /// Move the data of a DMA as late as allowed: when a wait consumes its signal or its operation ends. Else it moves at issue.
    pub dma_late: bool,
    /// Most spans to record for traces.
    pub trace_spans: usize,
    /// Host threads that may be used. One device uses one.
    pub threads: usize,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions { fold: true, poison: false, dma_late: false, trace_spans: 0, threads: 1 }
    }
}

/// A run with data.
#[derive(Clone, Debug, PartialEq)]
pub struct Executed {
    /// Outputs by number: dense, row-major, little-endian.
    pub outputs: Vec<Vec<u8>>,
    /// How the run went.
    pub profile: Profile,
}

/// Times a program without data.
///
/// # Errors
/// What the chip cannot do ([`Fault`]). Addresses are only checked by [`execute`].
pub fn time(program: &Program, chip: &ChipSpec, opts: &RunOptions) -> Result<Profile, Fault> {
    let code = Code::new(program, chip)?;
    let (_, profile) = Engine::new(program, chip, opts, Shapes).run(&code)?;
    Ok(profile)
}

/// Runs a program with data. `inputs` are the arguments by parameter number: dense, row-major, little-endian.
///
/// # Errors
/// What the chip cannot do, addresses out of range, inputs that are missing or of the wrong size ([`Fault`]).
pub fn execute(program: &Program, chip: &ChipSpec, inputs: &[Vec<u8>], opts: &RunOptions) -> Result<Executed, Fault> {
    let code = Code::new(program, chip)?;
    let data = Exact::new(program, chip, inputs, opts).map_err(|kind| Fault {
        pc: Vec::new(),
        op: None,
        cycle: 0,
        kind: Box::new(kind),
    })?;
    let (data, profile) = Engine::new(program, chip, opts, data).run(&code)?;
    Ok(Executed { outputs: data.outputs(program), profile })
}
