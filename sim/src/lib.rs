//! Cycle-approximate, bit-exact simulator of TPU chips: runs an [`isa::Program`](tpusim_isa::program::Program) on one device.
//!
//! [`execute`] runs a program with data and gives its outputs and a [`Profile`]; [`time`] gives the profile alone, at a cost that
//! does not depend on how often loops run.
//!
//! # One engine, two datapaths
//!
//! A program is checked against the chip and decoded once (`code`). The engine (`core`) walks it and issues bundles in order; a
//! datapath says what happens to the bits: `exact` computes them, `datapath::Shapes` does nothing and compiles away. Data never
//! changes time: there is no data-dependent latency in the machine, and addresses do not enter into costs. It only decides which code
//! runs, where a program says `while` or `case`; without data a run is told, and told the same it takes the same cycles.
//!
//! # When a bundle issues
//!
//! Time is counted in whole core cycles. A bundle issues in the first cycle after its predecessor in which
//! - every register it reads is ready (a scoreboard holds when; a result is ready one latency after issue);
//! - every unit it pushes to accepts: EUP, XLU, the weight and row ports of an MXU each have an interval;
//! - every result it pops has left its unit, and every flag it waits for has its count.
//!
//! All its instructions then issue together, and all read before any writes. The last condition to hold names the stall. So every
//! cycle of an operation is either a bundle or a stall with a reason, and the sums in a profile add up.
//!
//! - **MXU** (`mxu`): weights go to a shadow buffer while rows stream; a latch costs nothing once pushes are done. Results leave in
//!   groups of 8 rows. A result queue that overflows is a fault, since in an in-order machine nothing could ever drain it.
//! - **XLU** (`xlu`): a transpose takes 16 pushes and keeps its unit until the 16th result is out.
//! - **HBM** (`dma`): a first-come, first-served server at this core's share of the bandwidth; bytes over rate or a cycle per
//!   contiguous run, whichever is longer, then a fixed latency. Short runs pay whole granules.
//! - **Operations** start when all DMAs of the one before have landed, after the launch overhead.
//!
//! A megacore's cores run the same code in the same time, so one of them is timed, with its share of HBM; the data of each is
//! computed in turn.
//!
//! # Folding
//!
//! At the start of each iteration of a loop the engine compares its whole timing state, relative to now, with those of the last
//! few iterations. When one is equal, everything in between will repeat, and the engine jumps over all whole periods that are
//! left: it moves every time forward, multiplies the counters, and lets only the data run. Times are integers, so equal means
//! equal, and the unfolded run ([`RunOptions::fold`]) agrees in every cycle and count. A loop that neither starts DMAs nor waits for
//! any folds without regard to those on their way, and a loop that runs again starts from the period it had before. Where data decides
//! what runs inside a loop, equal states need not have equal futures, and a run with data does not fold it; without data a `while` folds as
//! any loop.
//!
//! # Data
//!
//! A loaded vector register is a view of VMEM until VMEM changes there (`vpu::regs`), and a `vmatmul` is computed when its result
//! is popped (`mxu::exact`), so that the host copies little and its threads ([`RunOptions::threads`]) find much to share.
//!
//! # Bits
//!
//! Results depend neither on the host nor on the number of its threads: `simd` picks its widest vectors, but rounding is spelled out by the source. The MXU sums in
//! ascending order with one rounding per addition, as the array does that [`mxu::systolic`] models element by element.
#![deny(missing_docs)]

mod code;
mod core;
mod datapath;
mod dma;
mod exact;
mod fault;
mod memory;
pub mod mxu;
pub mod network;
pub mod pod;
mod probe;
pub mod profile;
mod scalar;
mod simd;
mod sync;
mod vpu;
mod xlu;

use std::collections::BTreeMap;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::Program;

use crate::code::Code;
use crate::core::Engine;
use crate::datapath::Shapes;
use crate::exact::Exact;
pub use crate::fault::{Fault, FaultKind};
use crate::profile::Profile;

/// How often the loops run that only data could end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TripCounts {
    /// For all that `by_name` does not mention.
    pub all: Option<u32>,
    /// By what a loop is called, `while.` and its index in the program's flows, or by its name in the source.
    pub by_name: BTreeMap<String, u32>,
}

/// How to run a program. But for `trip_counts` and `branches`, which stand for data where there is none, none of these change its
/// cycles or, in a correct program, its results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// Jump over the iterations of a loop that repeat an earlier state.
    pub fold: bool,
    /// Fill VMEM and SMEM (again at the start of each operation), vector registers and uninitialised HBM with a NaN.
    pub poison: bool,
    /// Move the data of a DMA as late as allowed: when a wait consumes its signal or its operation ends. Else it moves at issue.
    pub dma_late: bool,
    /// Most spans to record for traces.
    pub trace_spans: usize,
    /// Host threads that may be used. They share the products of a core's MXUs; everything else runs in one. The cores of a
    /// megacore do not run side by side: nothing says that what one writes to HBM the other does not read.
    pub threads: usize,
    /// Without data: how often loops run that data decides.
    pub trip_counts: TripCounts,
    /// Without data: the branch that a `case` takes, by what it is called (`case.` and its index in the program's flows, or its name in
    /// the source). One that is not mentioned takes the branch that takes longest.
    pub branches: BTreeMap<String, u32>,
    /// With data: most iterations of one run of a `while`, so that one that never ends is an error.
    pub max_iterations: u64,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            fold: true,
            poison: false,
            dma_late: false,
            trace_spans: 0,
            threads: 1,
            trip_counts: TripCounts::default(),
            branches: BTreeMap::new(),
            max_iterations: 100_000_000,
        }
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

/// Times a program without data. What only data could decide is assumed, as the options say, and listed in the profile.
///
/// # Errors
/// What the chip cannot do ([`Fault`]). Addresses are only checked by [`execute`].
pub fn time(program: &Program, chip: &ChipSpec, opts: &RunOptions) -> Result<Profile, Fault> {
    let code = Code::new(program, chip)?;
    let (_, profile) = Engine::new(program, chip, opts, &code, Shapes).run()?;
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
    let (data, profile) = Engine::new(program, chip, opts, &code, data).run()?;
    Ok(Executed { outputs: data.outputs(program), profile })
}
