//! Programs: structured lists of bundles, the DMA descriptors they start, the operations they came from and the memory they use.
//!
//! # Control flow
//!
//! A [`Node::Loop`] repeats as often as the program says; that is what kernels are made of. [`Node::While`] and [`Node::Case`] ask a
//! scalar register, so that data decides which code runs: the loops and branches of the source. They stand outside operations and
//! hold operations. Every core of a device goes the same way: core 0's register decides, and the others must hold the same. Whoever
//! looks at the register waits until it is ready and then takes the chip's branch delay: once for each time a `While` tests, once
//! for a `Case`.
//!
//! What data decides cannot be known without data: a run that only takes the time needs to be told how often a `While` repeats.

use crate::num::DType;
use crate::op::Instr;
use crate::pod::{Groups, Peer, SendDesc, Table, TransferInfo};

/// Deepest nesting of loops, branches and operations in text and binary programs: bodies inside bodies, the program's own counted as one.
pub const MAX_DEPTH: usize = 64;

/// A scalar register that loops count in and DMA addresses add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SReg(pub u8);

/// One VLIW bundle: instructions that issue in the same cycle. All read their operands before any writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bundle {
    /// At most as many of each slot class as the chip has, in slot order.
    pub instrs: Vec<Instr>,
}

/// A piece of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// One bundle.
    Bundle(Bundle),
    /// `counter` runs from 0 to `trip - 1`. A trip count of 0 skips the body.
    Loop {
        /// Register that holds the iteration number in the body; after the loop it holds `trip`.
        counter: SReg,
        /// Number of iterations.
        trip: u32,
        /// What is repeated.
        body: Vec<Node>,
    },
    /// The code of one lowered fusion: everything in it is accounted to `ops[op]`. Not nested. What VMEM and SMEM hold when it
    /// starts is not defined.
    Op {
        /// Index into [`Program::ops`].
        op: u32,
        /// The code.
        body: Vec<Node>,
    },
    /// Runs `cond`, and while `test` is not 0 then, runs `body` and `cond` again. Not inside an operation.
    While {
        /// Index into [`Program::flows`].
        info: u32,
        /// Code that sets `test`; runs once more than `body`.
        cond: Vec<Node>,
        /// Register that is looked at after `cond`.
        test: SReg,
        /// What is repeated.
        body: Vec<Node>,
    },
    /// Runs branch number `selector`, or the last one if there is none of that number. Not inside an operation.
    Case {
        /// Index into [`Program::flows`].
        info: u32,
        /// Register that holds the number.
        selector: SReg,
        /// The branches, at least one.
        branches: Vec<Vec<Node>>,
    },
    /// Hands a transfer's code to its queue and goes on. Not inside an operation, nor inside a transfer whose queue is not before.
    Start {
        /// Index into [`Program::transfers`].
        transfer: u32,
        /// The code.
        body: Vec<Node>,
    },
    /// Waits for the end of the earliest run of a transfer that has not been waited for.
    Done {
        /// Index into [`Program::transfers`].
        transfer: u32,
    },
}

impl Node {
    /// The lists of nodes that this one holds: body; condition and body; branches.
    pub fn bodies(&self) -> impl Iterator<Item = &[Node]> {
        let none: &[Node] = &[];
        let (count, alone, branches): (usize, [&[Node]; 2], &[Vec<Node>]) = match self {
            Node::Bundle(_) | Node::Done { .. } => (0, [none; 2], &[]),
            Node::Loop { body, .. } | Node::Op { body, .. } | Node::Start { body, .. } => (1, [body, none], &[]),
            Node::While { cond, body, .. } => (2, [cond, body], &[]),
            Node::Case { branches, .. } => (0, [none; 2], branches),
        };
        alone.into_iter().take(count).chain(branches.iter().map(Vec::as_slice))
    }
}

/// Direction of a DMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DmaDir {
    /// HBM to VMEM or SMEM.
    Load,
    /// VMEM or SMEM to HBM.
    Store,
}

/// The memory of a core at the near end of a DMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnChip {
    /// Vector memory: blocks are tiled and packed.
    #[default]
    Vmem,
    /// Scalar memory: blocks are dense, one element a 32-bit word.
    Smem,
}

/// An address that depends on scalar registers, which are signed: `base + sum(register * scale)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Addr {
    /// Fixed part: bytes in HBM, rows of 512 bytes in VMEM, words of 4 bytes in SMEM.
    pub base: i64,
    /// Registers and what one unit of each adds, same unit as `base`.
    pub terms: Vec<(SReg, i64)>,
}

/// An outer dimension of a DMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DmaDim {
    /// Number of steps.
    pub count: u32,
    /// Bytes between steps in HBM (0 repeats, negative reverses).
    pub hbm_stride: i64,
    /// Rows between steps in VMEM, words in SMEM.
    pub local_stride: i64,
}

/// A strided block transfer between HBM, where arrays are linear, and VMEM, where a block is tiled, or SMEM, where it is dense.
///
/// The block is `outer x rows x cols` elements of `elem_bytes` (1, 2 or 4). In HBM element `(o, r, c)` is at byte
/// `hbm + o * outer.hbm_stride + r * row_stride + c * col_stride`.
///
/// In VMEM each outer step is a plane of (8 * packing, 128) tiles in row-major order, `lane_tiles` tiles per tile row: element
/// `(r, c)` is in row `local + o * outer.local_stride + ((r / T) * lane_tiles + c / 128) * 8 + (r % T) / packing`, lane `c % 128`,
/// part `r % packing` where packing is `4 / elem_bytes` and `T = 8 * packing`. A load leaves the padding of tiles as it was.
///
/// In SMEM element `(o, r, c)` is word `local + o * outer.local_stride + r * cols + c`. A load widens elements of 1 and 2 bytes with
/// zeros, a store takes the low bytes of each word. What a transfer costs does not depend on the memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DmaDesc {
    /// Direction.
    pub dir: DmaDir,
    /// Memory of the core that it reads or writes.
    pub mem: OnChip,
    /// Bytes per element.
    pub elem_bytes: u8,
    /// Outer dimensions, outermost first.
    pub outer: Vec<DmaDim>,
    /// Rows of the block.
    pub rows: u32,
    /// Bytes between rows in HBM.
    pub row_stride: i64,
    /// Columns of the block.
    pub cols: u32,
    /// Bytes between columns in HBM.
    pub col_stride: i64,
    /// Tiles per tile row in VMEM; means nothing in SMEM.
    pub lane_tiles: u32,
    /// Where the block starts in HBM, in bytes.
    pub hbm: Addr,
    /// Where the block starts in the core's memory: rows of VMEM, words of SMEM.
    pub local: Addr,
}

/// What a lowered fusion is and does, for reports.
#[derive(Clone, Debug, PartialEq)]
pub struct OpInfo {
    /// Short name, e.g. `dot_general.3` or `fusion.7`.
    pub name: String,
    /// Names of the source's operations in it, e.g. `jit(f)/dot_general`.
    pub source: String,
    /// `file:line`, empty if unknown.
    pub location: String,
    /// Useful floating-point (or integer multiply-add) operations: 2 x multiply-adds of dots and convolutions, padding not counted.
    pub mxu_flops: u64,
    /// Useful elementwise operations.
    pub vector_flops: u64,
    /// Type whose peak rate the MXU work is held against.
    pub dtype: DType,
    /// TensorCores of the device that take part; the others idle until the operation ends.
    pub cores: u32,
    /// Cycles of a modelled routine; 0 for generated code. The engine adds them to the operation's time.
    pub modelled_cycles: u64,
}

/// Which kind of control flow a [`FlowInfo`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowKind {
    /// A [`Node::While`].
    While,
    /// A [`Node::Case`].
    Case,
    /// A [`Node::Case`] that no data decides: its register follows the counters of loops around it.
    Counted,
}

impl FlowKind {
    /// Whether a flow of this kind may be that of a node of kind `node`.
    pub fn fits(self, node: FlowKind) -> bool {
        self == node || (self, node) == (FlowKind::Counted, FlowKind::Case)
    }

    /// `while`, `case` or `counted`.
    pub const fn name(self) -> &'static str {
        match self {
            FlowKind::While => "while",
            FlowKind::Case => "case",
            FlowKind::Counted => "counted",
        }
    }
}

/// Where a loop or branch that data decides comes from, for messages. By its kind and its index in [`Program::flows`] it is called
/// `while.0`, `case.1` and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowInfo {
    /// Name in the source, e.g. `stablehlo.while`.
    pub name: String,
    /// `file:line`, empty if unknown.
    pub location: String,
    /// What it is.
    pub kind: FlowKind,
}

/// What a region of HBM holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BufferKind {
    /// Parameter of the entry function.
    Param(u32),
    /// Result of the entry function.
    Output(u32),
    /// Constant data.
    Constant(std::sync::Arc<[u8]>),
    /// Temporary.
    Temp,
}

/// A region of HBM. Arrays are dense and row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// First byte.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
    /// Contents.
    pub kind: BufferKind,
    /// First and last operation (index into [`Program::ops`]) that need it.
    pub live: (u32, u32),
}

/// An array that lies in HBM at the worst moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Length.
    pub bytes: u64,
    /// Type and sizes, e.g. `f32[8,2048]`; empty for memory that a transfer works in.
    pub array: String,
    /// What it is: `parameter 3`, `result 0`, or the operation that makes it, e.g. `while/dot_general`.
    pub name: String,
    /// Name of the source's operation, empty if unknown.
    pub source: String,
    /// `file:line`, empty if unknown.
    pub location: String,
}

/// A program for one device: every TensorCore of it runs the same code, told apart by `s1`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Name of the program.
    pub name: String,
    /// Chip it was compiled for.
    pub chip: String,
    /// The code.
    pub body: Vec<Node>,
    /// DMA descriptors.
    pub descs: Vec<DmaDesc>,
    /// Lowered fusions.
    pub ops: Vec<OpInfo>,
    /// Loops and branches that data decides.
    pub flows: Vec<FlowInfo>,
    /// Groups of devices that peers and tables are about.
    pub groups: Vec<Groups>,
    /// Other devices that messages go to.
    pub peers: Vec<Peer>,
    /// Scalars that differ between devices.
    pub tables: Vec<Table>,
    /// Messages to other devices.
    pub sends: Vec<SendDesc>,
    /// Communication.
    pub transfers: Vec<TransferInfo>,
    /// HBM plan.
    pub buffers: Vec<Buffer>,
    /// The largest of what lies in HBM at the worst moment, largest first.
    pub residents: Vec<Resident>,
    /// Bytes of HBM in use at the worst moment.
    pub hbm_peak_bytes: u64,
    /// Bytes of VMEM in use at the worst moment, per core.
    pub vmem_peak_bytes: u64,
}
