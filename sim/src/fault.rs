//! What can go wrong while a program runs, and where.

use tpusim_isa::num::Format;

/// A program did something the machine cannot do. The run stops.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{kind} (at {}{}, cycle {cycle})", PcDisplay(.pc), OpDisplay(.op))]
pub struct Fault {
    /// Index of the node at each nesting level, outermost first; empty before the first bundle. Before a node in a `while` stands 0 for
    /// its condition or 1 for its body, before one in a `case` the number of the branch.
    pub pc: Vec<u32>,
    /// Name of the operation that ran, if any.
    pub op: Option<String>,
    /// Cycle at which it was found. Within a folded loop this is the cycle at which the loop was folded.
    pub cycle: u64,
    /// What happened.
    pub kind: Box<FaultKind>,
}

struct PcDisplay<'a>(&'a [u32]);

impl std::fmt::Display for PcDisplay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("start");
        }
        f.write_str("pc ")?;
        for (i, n) in self.0.iter().enumerate() {
            write!(f, "{}{n}", if i == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}

struct OpDisplay<'a>(&'a Option<String>);

impl std::fmt::Display for OpDisplay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(name) => write!(f, " in `{name}`"),
            None => Ok(()),
        }
    }
}

struct Flows<'a>(&'a [String]);

impl std::fmt::Display for Flows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => f.write_str("the program has none"),
            names => write!(f, "the program has {}", names.join(", ")),
        }
    }
}

/// Kinds of faults.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FaultKind {
    /// An operand names something the chip does not have.
    #[error("`{op}`: {what} {index} is out of range, the chip has {limit}")]
    Operand {
        /// Mnemonic.
        op: &'static str,
        /// Kind of operand.
        what: &'static str,
        /// Number given.
        index: i64,
        /// How many there are.
        limit: u64,
    },
    /// A format code has no meaning.
    #[error("`{op}`: unknown format code {code}")]
    UnknownFormat {
        /// Mnemonic.
        op: &'static str,
        /// Code given.
        code: i32,
    },
    /// The MXU of this chip does not take the format.
    #[error("`{op}`: the MXU does not take {}", format.name())]
    MxuFormat {
        /// Mnemonic.
        op: &'static str,
        /// Format given.
        format: Format,
    },
    /// Weights and rows are of different families (float, integer).
    #[error("`vmatmul` of {} against weights of the other family (float or integer)", format.name())]
    WeightFamily {
        /// Format of the rows.
        format: Format,
    },
    /// A bundle has more instructions of a slot class than the chip has slots.
    #[error("bundle has {used} {slot} instructions, the chip has {limit} slots")]
    Slots {
        /// Slot class.
        slot: &'static str,
        /// Instructions.
        used: u32,
        /// Slots.
        limit: u32,
    },
    /// Two instructions of a bundle need the same unit in the same cycle.
    #[error("two instructions of one bundle use {unit}")]
    UnitConflict {
        /// The unit.
        unit: String,
    },
    /// A pop finds nothing and nothing can come.
    #[error("pop of an empty {unit} queue")]
    EmptyQueue {
        /// The unit.
        unit: &'static str,
    },
    /// A push finds no room in the result queue and nothing can be popped.
    #[error("{unit} result queue overflows: {queued} registers wait, {added} more do not fit in {limit}")]
    QueueFull {
        /// The unit.
        unit: &'static str,
        /// Registers in the queue.
        queued: usize,
        /// Registers to add.
        added: usize,
        /// Capacity.
        limit: usize,
    },
    /// Another XLU instruction came before the 16th push of a transpose.
    #[error("xlu {xlu}: another instruction after {pushes} of the 16 pushes of a transpose")]
    BrokenTranspose {
        /// The XLU.
        xlu: u32,
        /// Pushes so far.
        pushes: u32,
    },
    /// A wait that no transfer in flight can satisfy.
    #[error("`dma.wait` for {wanted} on flag {flag} can never end: {coming} are there or on their way")]
    Deadlock {
        /// Flag.
        flag: u32,
        /// Count waited for.
        wanted: u64,
        /// Count that will come.
        coming: u64,
    },
    /// VMEM address out of range.
    #[error("VMEM rows {first} to {last} are out of range, the core has {rows}")]
    Vmem {
        /// Lowest row.
        first: i128,
        /// Highest row.
        last: i128,
        /// Rows there are.
        rows: u64,
    },
    /// SMEM address out of range.
    #[error("SMEM words {first} to {last} are out of range, the core has {words}")]
    Smem {
        /// Lowest word.
        first: i128,
        /// Highest word.
        last: i128,
        /// Words there are.
        words: u64,
    },
    /// HBM address out of range.
    #[error("HBM bytes {first} to {last} are out of range, the program has {bytes}")]
    Hbm {
        /// First byte.
        first: i128,
        /// Last byte.
        last: i128,
        /// Bytes of the program's plan.
        bytes: u64,
    },
    /// Time alone does not say how often a loop runs, and nobody else did.
    #[error("{flow} runs as often as its data says, and timing has none: give --trip-count N or --trip-count {key}=N")]
    TripCount {
        /// The loop, with its source.
        flow: String,
        /// What it is called in options.
        key: String,
    },
    /// A link that does not exist, or a network cut in two.
    #[error(transparent)]
    Network(#[from] crate::network::NetworkError),
    /// A program for several devices on one.
    #[error("the program talks to other devices; run it on a pod")]
    Alone,
    /// A loop goes on and on.
    #[error("{flow} has run {limit} times and does not end; if it should run on, raise --max-iterations")]
    Endless {
        /// The loop, with its source.
        flow: String,
        /// Most iterations allowed.
        limit: u64,
    },
    /// An assumption about a branch that the `case` does not have.
    #[error("{flow} has {branches} branches, numbered from 0: there is no branch {branch}")]
    NoBranch {
        /// The `case`, with its source.
        flow: String,
        /// Branch asked for.
        branch: u32,
        /// How many there are.
        branches: usize,
    },
    /// An assumption about a loop or branch that the program does not have.
    #[error("{option} {key}: {}", Flows(.has))]
    NoFlow {
        /// Option that names it.
        option: &'static str,
        /// Its name.
        key: String,
        /// What the program has.
        has: Vec<String>,
    },
    /// The cores of a device do not go the same way.
    #[error("{flow}: the cores go different ways, core {core} holds {value} where core 0 holds {first}")]
    Diverged {
        /// The loop or branch, with its source.
        flow: String,
        /// Core.
        core: u32,
        /// What its register holds.
        value: i32,
        /// What the register of core 0 holds.
        first: i32,
    },
    /// An argument of the run has the wrong size.
    #[error("input {index} has {got} bytes, the program wants {want}")]
    InputSize {
        /// Parameter number.
        index: u32,
        /// Bytes given.
        got: u64,
        /// Bytes wanted.
        want: u64,
    },
    /// An argument of the run is missing.
    #[error("input {index} is missing, {given} were given")]
    InputMissing {
        /// Parameter number.
        index: u32,
        /// Inputs given.
        given: usize,
    },
    /// The program was compiled for another chip.
    #[error("the program is for `{program}`, the chip is `{chip}`")]
    WrongChip {
        /// Chip of the program.
        program: String,
        /// Chip of the run.
        chip: String,
    },
    /// Host memory for the simulated HBM cannot be had.
    #[error("no host memory for {bytes} bytes of simulated HBM")]
    OutOfMemory {
        /// Bytes wanted.
        bytes: u64,
    },
    /// The program's structure is broken.
    #[error("malformed program: {0}")]
    Malformed(String),
    /// Simulated time exceeds 64 bits.
    #[error("simulated time exceeds 2^64 cycles")]
    TimeOverflow,
}
