//! Static checks of a program against a chip: what is certainly wrong, without running it.
//!
//! Where data decides nothing, every path is known: bodies of loops with a trip count of 0 never run, all others run from top to
//! bottom as often as their trip count says. That makes register and queue checks exact. Address checks follow scalar registers as
//! sums of loop counters (see below) and report an access only if some iteration certainly makes it. The body of a `while` may run
//! any number of times and any branch of a `case` may be taken: what is wrong in one is reported as if it ran, and what comes after
//! may rely only on what holds on every path, and is wrong only if it is on every path.
//!
//! - per bundle: slots and immediates of the chip, two writes of one register, indices of registers, units, flags and descriptors,
//!   formats the MXU takes, accumulators, parts, lanes and weight slots that exist;
//! - registers read before they are written (`s0` and `s1` always hold something);
//! - pops of empty result queues and results never popped;
//! - waits that can never end, DMAs never waited for;
//! - VMEM rows, SMEM words and HBM bytes beyond the end.
//!
//! **Immediates.** A bundle has a few 32-bit immediates that its slots share. An immediate of 0..=31 fits into its instruction (strides,
//! shifts, parts, sublanes, weight slots) and costs none; equal ones are shared.
//!
//! **Addresses.** A scalar is followed as a constant plus multiples of loop counters and `s1`. Clamps (`s.min`, `s.max`), masks and
//! selections of such a value become a new unknown with exact bounds. What a loop carries from one iteration to the next, what comes
//! from SMEM, and sums of unknowns that depend on one counter are not followed, and accesses through them not checked.

mod bundle;
mod desc;
mod flow;
mod pod;
mod queues;
mod range;
mod scalar;

use std::fmt;

use crate::asm;
use crate::chip::ChipSpec;
use crate::op::{Instr, Slot};
use crate::program::{MAX_DEPTH, Node, Program};

/// Most errors that [`check`] returns.
pub const MAX_ERRORS: usize = 1000;

/// Something that is wrong with a program, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckError {
    /// Operation (index into [`Program::ops`]) whose code it is in.
    pub op: Option<u32>,
    /// Name of that operation.
    pub op_name: String,
    /// Index of the node in the program's body, of its child in its body, and so on. Before the child of a `while` stands 0 for its
    /// condition or 1 for its body, before that of a `case` the number of the branch.
    pub path: Vec<usize>,
    /// Index of the instruction in the bundle, and its text.
    pub instr: Option<(usize, String)>,
    /// What is wrong.
    pub kind: CheckKind,
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(op) = self.op {
            write!(f, "op {op} ({}), ", self.op_name)?;
        }
        if !self.path.is_empty() {
            let path: Vec<String> = self.path.iter().map(|i| i.to_string()).collect();
            write!(f, "node {}, ", path.join("."))?;
        }
        if let Some((n, text)) = &self.instr {
            write!(f, "instruction {n} `{text}`: ")?;
        }
        write!(f, "{}", self.kind)
    }
}

impl std::error::Error for CheckError {}

/// What can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckKind {
    /// More instructions of a class than slots.
    #[error("{used} {slot:?} instructions in a bundle that has {has} such slots")]
    Slots {
        /// Class.
        slot: Slot,
        /// Instructions.
        used: usize,
        /// Slots of the chip.
        has: u32,
    },
    /// More immediates than a bundle has.
    #[error("{used} different immediates beyond 0..=31 in a bundle that has {has}")]
    Immediates {
        /// Needed.
        used: usize,
        /// Of the chip.
        has: u32,
    },
    /// A register is written twice in one bundle.
    #[error("second write of {0} in one bundle")]
    DoubleWrite(String),
    /// A register, unit, flag, descriptor or operation that does not exist.
    #[error("{what}: there are {has}")]
    NoSuch {
        /// Its name.
        what: String,
        /// How many there are.
        has: u64,
    },
    /// Write of `s0`, `s1`, or of the counter of a loop around.
    #[error("{0} must not be written here")]
    ReadOnly(String),
    /// An immediate beyond what the instruction takes.
    #[error("{what} {value} is not below {limit}")]
    Immediate {
        /// What it stands for.
        what: &'static str,
        /// Its value.
        value: i32,
        /// First value that is too large.
        limit: u32,
    },
    /// The code of a format that does not exist.
    #[error("unknown format {0}")]
    UnknownFormat(i32),
    /// The chip's MXU does not take the format.
    #[error("the MXU of {chip} takes no {format}")]
    MxuFormat {
        /// Chip.
        chip: String,
        /// Format.
        format: &'static str,
    },
    /// The chip has no accumulators.
    #[error("{0} has no MXU accumulators")]
    NoAccumulators(String),
    /// Read of a register that nothing wrote.
    #[error("{0} is read before anything writes it")]
    Unwritten(String),
    /// Pop of a queue that nothing was pushed to.
    #[error("{0} holds no result for this pop: it would wait for ever")]
    EmptyPop(String),
    /// Results left in a queue.
    #[error("{count} results of {unit} are never popped")]
    NotPopped {
        /// Unit.
        unit: String,
        /// Registers left.
        count: i128,
    },
    /// Wait on a flag that nothing raises far enough.
    #[error("flag{flag} can be {reached} at most here: waiting for {wanted} never ends")]
    Wait {
        /// Flag.
        flag: i32,
        /// Its highest value.
        reached: i128,
        /// What the wait needs.
        wanted: i32,
    },
    /// A flag is left raised.
    #[error("flag{flag} ends at {left}: DMAs that signal it are never waited for")]
    NotWaited {
        /// Flag.
        flag: i32,
        /// Final value.
        left: i128,
    },
    /// An access beyond a memory.
    #[error("touches {unit} {low}..{high} of {memory}, which has {limit}")]
    OutOfRange {
        /// HBM, VMEM or SMEM.
        memory: &'static str,
        /// What is counted.
        unit: &'static str,
        /// First touched in the worst case.
        low: i128,
        /// One past the last.
        high: i128,
        /// Size.
        limit: u64,
    },
    /// A descriptor that no engine can run.
    #[error("{0}")]
    Descriptor(String),
    /// A `while` or `case` inside an operation.
    #[error("`{0}` inside an operation")]
    FlowInOp(&'static str),
    /// The entry of a `while` or `case` in the program's flows is of the other kind.
    #[error("flow {index} is no `{kind}`")]
    FlowKind {
        /// Index of the entry.
        index: u32,
        /// What the node is.
        kind: &'static str,
    },
    /// A `case` that has nothing to choose from.
    #[error("`case` without branches")]
    NoBranches,
    /// An operation inside another.
    #[error("operation inside an operation")]
    NestedOp,
    /// A transfer inside an operation, or inside one whose queue is not before its own.
    #[error("a transfer inside an operation, or inside a transfer whose queue is not before its own")]
    NestedTransfer,
    /// An instruction that may not stand there.
    #[error(
        "{0} may not stand here: transfers consist of scalar instructions, sends, waits, loops and operations, and only they send"
    )]
    Misplaced(&'static str),
    /// Too many levels.
    #[error("nesting deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// Everything certainly wrong with `program` on `chip`, at most [`MAX_ERRORS`]; in program order within each kind of check.
pub fn check(program: &Program, chip: &ChipSpec) -> Vec<CheckError> {
    let mut report = Report { program, errors: Vec::new() };
    bundle::check(program, chip, &mut report);
    // The other checks recurse as deep as the program does.
    if report.errors.iter().any(|e| e.kind == CheckKind::TooDeep) {
        return report.errors;
    }
    desc::check(program, chip, &mut report);
    flow::check(program, &mut report);
    pod::check(program, &mut report);
    queues::check(program, chip, &mut report);
    range::check(program, chip, &mut report);
    report.errors
}

/// Where the walk is.
#[derive(Clone, Debug, Default)]
struct Place {
    op: Option<u32>,
    path: Vec<usize>,
}

impl Place {
    /// Walks into child `i`, which is in operation `op` if it is one.
    fn enter(&mut self, i: usize, node: &Node) -> Option<u32> {
        self.path.push(i);
        let outer = self.op;
        if let Node::Op { op, .. } = node {
            self.op = Some(*op);
        }
        outer
    }

    /// Back out, with what [`Place::enter`] gave.
    fn leave(&mut self, outer: Option<u32>) {
        self.path.pop();
        self.op = outer;
    }
}

struct Report<'a> {
    program: &'a Program,
    errors: Vec<CheckError>,
}

impl Report<'_> {
    fn add(&mut self, place: &Place, instr: Option<(usize, &Instr)>, kind: CheckKind) {
        if self.errors.len() >= MAX_ERRORS {
            return;
        }
        let info = place.op.and_then(|op| self.program.ops.get(op as usize));
        self.errors.push(CheckError {
            op: place.op,
            op_name: info.map(|i| i.name.clone()).unwrap_or_default(),
            path: place.path.clone(),
            instr: instr.map(|(n, i)| (n, asm::instr(i))),
            kind,
        });
    }
}

#[cfg(test)]
mod tests;
