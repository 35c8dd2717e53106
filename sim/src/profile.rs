//! What a run looked like: time, busy units, stalls and bytes per operation, and utilization over time.

/// A unit whose use is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Unit {
    /// Matrix units. Busy cycles add up over all MXUs of the core.
    Mxu,
    /// Vector ALU slots.
    Vpu,
    /// Cross-lane units.
    Xlu,
    /// Transcendental unit.
    Eup,
    /// Vector load slots.
    VLoad,
    /// Vector store slots.
    VStore,
    /// Scalar slots.
    Scalar,
    /// HBM as this core sees it: cycles its share of the bandwidth is taken.
    Hbm,
}

impl Unit {
    /// Every unit, in order of their numbers.
    pub const ALL: [Unit; 8] =
        [Unit::Mxu, Unit::Vpu, Unit::Xlu, Unit::Eup, Unit::VLoad, Unit::VStore, Unit::Scalar, Unit::Hbm];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Mxu => "MXU",
            Unit::Vpu => "VPU",
            Unit::Xlu => "XLU",
            Unit::Eup => "EUP",
            Unit::VLoad => "VLD",
            Unit::VStore => "VST",
            Unit::Scalar => "scalar",
            Unit::Hbm => "HBM",
        }
    }
}

/// Why a bundle did not issue in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stall {
    /// Waiting for data from or to HBM (`dma.wait`).
    Dma,
    /// An operand register is not ready.
    Register,
    /// The MXU is busy or its result is not ready.
    Mxu,
    /// The XLU is busy or its result is not ready.
    Xlu,
    /// The EUP is busy or its result is not ready.
    Eup,
    /// Branch delay at the end of loop iterations.
    Branch,
    /// Start-up of an operation.
    Launch,
    /// A modelled routine.
    Modelled,
}

impl Stall {
    /// Every reason, in order of their numbers.
    pub const ALL: [Stall; 8] = [
        Stall::Dma,
        Stall::Register,
        Stall::Mxu,
        Stall::Xlu,
        Stall::Eup,
        Stall::Branch,
        Stall::Launch,
        Stall::Modelled,
    ];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Stall::Dma => "dma",
            Stall::Register => "register",
            Stall::Mxu => "mxu",
            Stall::Xlu => "xlu",
            Stall::Eup => "eup",
            Stall::Branch => "branch",
            Stall::Launch => "launch",
            Stall::Modelled => "modelled",
        }
    }
}

/// One operation of the program as it ran.
#[derive(Clone, Debug, PartialEq)]
pub struct OpProfile {
    /// Index into `Program::ops`.
    pub op: u32,
    /// First cycle.
    pub start: u64,
    /// Cycle after the last.
    pub end: u64,
    /// Busy cycles by [`Unit`], added over the unit's instances (slots, MXUs, XLUs). Divide by `(end - start) * instances`.
    pub busy: [u64; Unit::ALL.len()],
    /// Stall cycles by [`Stall`].
    pub stalls: [u64; Stall::ALL.len()],
    /// Bundles issued.
    pub bundles: u64,
    /// Bytes read from HBM by all cores of the device.
    pub hbm_read: u64,
    /// Bytes written to HBM by all cores of the device.
    pub hbm_written: u64,
}

/// One stretch of a unit's activity, for traces. Recorded up to a limit; `Profile::ops` is always complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Unit.
    pub unit: Unit,
    /// Operation it works for.
    pub op: u32,
    /// First cycle.
    pub start: u64,
    /// Cycle after the last.
    pub end: u64,
    /// Bytes moved (HBM spans), else 0.
    pub bytes: u64,
    /// Busy cycles within the span, added over instances.
    pub busy: u64,
}

/// What was assumed about a loop or branch that only data could decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    /// Index into `Program::flows`.
    pub flow: u32,
    /// What it is called: its kind and its index, e.g. `while.0`.
    pub key: String,
    /// Name in the source.
    pub name: String,
    /// `file:line`, empty if unknown.
    pub location: String,
    /// What was assumed.
    pub what: Assumed,
}

/// See [`Assumption`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assumed {
    /// A loop runs this often.
    Trips(u32),
    /// This branch is taken, because it was asked for.
    Branch(u32),
    /// This branch is taken, because it takes longest.
    Longest(u32),
}

/// Utilization of the units over time, in equal windows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Cycles per window.
    pub window: u64,
    /// Busy cycles per window and [`Unit`], added over instances.
    pub busy: Vec<[f64; Unit::ALL.len()]>,
}

/// A whole run of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Cycles from start to end.
    pub cycles: u64,
    /// Instances of each [`Unit`] per core (slots for VPU, VLD, VST, scalar).
    pub instances: [u32; Unit::ALL.len()],
    /// Operations in the order they ran.
    pub ops: Vec<OpProfile>,
    /// Activity for traces.
    pub spans: Vec<Span>,
    /// Whether `spans` hit its limit and later activity is missing.
    pub spans_truncated: bool,
    /// Utilization over time.
    pub series: Series,
    /// What was assumed instead of data, in the order it was needed; empty for runs with data.
    pub assumed: Vec<Assumption>,
}
