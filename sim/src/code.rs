//! A program as the engine runs it: checked against the chip once, with the registers, units and slots of each bundle listed, and
//! the instructions of a bundle put in an order in which none reads what an earlier one wrote.
//!
//! What all bundles hold lies in a few long lists, and a bundle knows its places in them, so that decoding a long program
//! allocates next to nothing and a run walks memory in order.

mod order;
mod tree;
mod units;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::Format;
use tpusim_isa::op::{Field, Instr, Op, Slot};
use tpusim_isa::program::{self, OnChip, Program};

use crate::fault::{Fault, FaultKind};
use order::Order;
pub(crate) use order::TEMPS;
pub(crate) use tree::{Decision, Node, Shape};

/// Most instructions of a bundle, whatever the chip file says.
const MAX_BUNDLE: usize = 64;

/// Timing of a `vmatmul` of one format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// Cycles the MXU takes rows.
    pub interval: u64,
    /// Groups of 8 result rows.
    pub groups: u64,
    /// Left-hand rows per cycle.
    pub rate: u64,
}

/// A use of a unit with state of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    Wait { flag: u32, n: u64 },
    EupPop { nth: usize },
    XluPop { xlu: usize, nth: usize },
    MxuPop { mxu: usize, nth: usize },
    AccPop { mxu: usize },
    ScalarLoad,
    Eup,
    Xlu { xlu: usize, latency: u64 },
    Xpose { xlu: usize },
    Push { mxu: usize },
    Latch { mxu: usize },
    Mul { mxu: usize, stream: Stream },
    Acc { mxu: usize, stream: Stream },
    Dma { desc: u32, flag: u32 },
    FlagAdd { flag: u32, n: u64 },
}

/// Register files, as copies name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    Vector,
    Mask,
    Scalar,
}

/// A stretch of one of the lists of a [`Code`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn of<T>(self, list: &[T]) -> &[T] {
        &list[self.start as usize..self.end as usize]
    }
}

/// Where the parts of a checked bundle are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    reads: Span,
    writes: Span,
    uses: Span,
    copies: Span,
    instrs: Span,
    slots: [u8; 4],
}

/// A checked bundle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bundle<'a> {
    /// Scoreboard entries read.
    pub reads: &'a [u16],
    /// Scoreboard entries written and when they can be used.
    pub writes: &'a [(u16, u32)],
    /// Unit uses: waits and pops first.
    pub uses: &'a [Use],
    /// Instructions in scalar, VALU, load and store slots.
    pub slots: [u8; 4],
    /// Copies made before execution: `(file, from, to)`.
    pub copies: &'a [(File, u8, u8)],
    /// Instructions in execution order.
    pub instrs: &'a [Instr],
}

/// Sizes of the register files, and where each starts in the scoreboard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files {
    pub vector: usize,
    pub mask: usize,
    pub scalar: usize,
}

impl Files {
    pub fn of(chip: &ChipSpec) -> Files {
        Files { vector: *chip.regs.vector as usize, mask: *chip.regs.mask as usize, scalar: *chip.regs.scalar as usize }
    }

    pub fn entries(self) -> usize {
        self.vector + self.mask + self.scalar
    }

    /// Scoreboard entry of a register.
    pub fn entry(self, file: File, index: i32) -> u16 {
        let base = match file {
            File::Vector => 0,
            File::Mask => self.vector,
            File::Scalar => self.vector + self.mask,
        };
        (base + index as usize) as u16
    }

    /// Register of a scoreboard entry.
    pub fn register(self, entry: u16) -> (File, u8) {
        let i = usize::from(entry);
        match i.checked_sub(self.vector) {
            None => (File::Vector, i as u8),
            Some(i) if i < self.mask => (File::Mask, i as u8),
            Some(i) => (File::Scalar, (i - self.mask) as u8),
        }
    }
}

/// A checked program.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub body: Vec<Node>,
    /// Number of loops and branches.
    pub loops: u32,
    lists: Lists,
}

/// What bundles hold.
#[derive(Debug, Default)]
struct Lists {
    reads: Vec<u16>,
    writes: Vec<(u16, u32)>,
    uses: Vec<Use>,
    copies: Vec<(File, u8, u8)>,
    instrs: Vec<Instr>,
}

impl Code {
    /// Checks `program` against `chip`.
    pub fn new(program: &Program, chip: &ChipSpec) -> Result<Code, Fault> {
        let files = Files::of(chip);
        let limits = Slot::ALL.map(|s| chip.slots(s));
        let mut d = Decoder {
            program,
            chip,
            files,
            limits,
            pc: Vec::new(),
            op: None,
            loops: 0,
            flows: 0,
            depth: 0,
            transfer: false,
            syncs: 0,
            lists: Lists::default(),
            touched: Touched::default(),
            order: Order::default(),
            taken: Vec::new(),
        };
        let checked = d.geometry().and_then(|()| d.nodes(&program.body));
        match checked {
            Ok(body) => Ok(Code { body, loops: d.loops, lists: d.lists }),
            Err(kind) => {
                let op = d.op.and_then(|i| program.ops.get(i as usize)).map(|o| o.name.clone());
                Err(Fault { pc: d.pc, op, cycle: 0, kind: Box::new(kind) })
            }
        }
    }

    /// Every operation with its number.
    pub fn each_op<'c>(&'c self, f: &mut impl FnMut(u32, &'c Node)) {
        fn walk<'c>(nodes: &'c [Node], f: &mut impl FnMut(u32, &'c Node)) {
            for n in nodes {
                match n {
                    Node::Op { op, .. } => f(*op, n),
                    Node::Bundle(_) | Node::Done => {}
                    Node::Loop { body, .. } | Node::Start { body } => walk(body, f),
                    Node::While { cond, body, .. } => {
                        walk(cond, f);
                        walk(body, f);
                    }
                    Node::Case { branches, .. } => branches.iter().for_each(|b| walk(b, f)),
                }
            }
        }
        walk(&self.body, f);
    }

    /// A bundle of this code.
    #[inline]
    pub fn bundle(&self, p: &Packed) -> Bundle<'_> {
        let l = &self.lists;
        Bundle {
            reads: p.reads.of(&l.reads),
            writes: p.writes.of(&l.writes),
            uses: p.uses.of(&l.uses),
            slots: p.slots,
            copies: p.copies.of(&l.copies),
            instrs: p.instrs.of(&l.instrs),
        }
    }
}

struct Decoder<'a> {
    program: &'a Program,
    chip: &'a ChipSpec,
    files: Files,
    /// Instructions a bundle may have in each slot.
    limits: [u32; Slot::ALL.len()],
    pc: Vec<u32>,
    op: Option<u32>,
    /// Loops and branches so far.
    loops: u32,
    /// Those of them that data decides.
    flows: u32,
    /// Bodies around the one at hand.
    depth: usize,
    /// Whether the code at hand is a transfer's.
    transfer: bool,
    /// Bundles and operations so far that have to do with DMAs.
    syncs: u64,
    lists: Lists,
    touched: Touched,
    order: Order,
    /// Units that the bundle at hand uses and that can be used once.
    taken: Vec<units::Unit>,
}

/// Scoreboard entries that the instructions of a bundle touch, with the number of the instruction.
#[derive(Debug, Default)]
struct Touched {
    reads: Vec<(u8, u16)>,
    writes: Vec<(u8, u16)>,
}

fn span(start: usize, end: usize) -> Result<Span, FaultKind> {
    match (u32::try_from(start), u32::try_from(end)) {
        (Ok(start), Ok(end)) => Ok(Span { start, end }),
        _ => Err(FaultKind::Malformed("more than 2^32 instructions or registers".to_owned())),
    }
}

impl Decoder<'_> {
    fn geometry(&self) -> Result<(), FaultKind> {
        let c = self.chip;
        let bad = |what: &str| Err(FaultKind::Malformed(format!("chip file: {what}")));
        if !matches!(*c.mxu.dim, 128 | 256) {
            return bad("mxu.dim must be 128 or 256");
        }
        if self.files.vector > 200 || self.files.mask > 200 || self.files.scalar > 200 {
            return bad("more than 200 registers of a kind");
        }
        if self.files.scalar < 2 {
            return bad("fewer than 2 scalar registers");
        }
        if *c.mxu.count > 255 || *c.xlus > 255 || *c.regs.flags > 65536 || *c.mxu.accumulators > 65536 {
            return bad("more than 255 units or 65536 flags or accumulators");
        }
        if !(1..=16).contains(&*c.tensorcores_per_device) {
            return bad("tensorcores_per_device must be 1 to 16");
        }
        if *c.clock_hz == 0 || *c.hbm.bps_chip == 0 {
            return bad("clock_hz and hbm.bps_chip must not be 0");
        }
        if self.program.chip != c.name && !self.program.chip.is_empty() {
            return Err(FaultKind::WrongChip { program: self.program.chip.clone(), chip: c.name.clone() });
        }
        self.descs()
    }

    fn descs(&self) -> Result<(), FaultKind> {
        for (i, d) in self.program.descs.iter().enumerate() {
            if !matches!(d.elem_bytes, 1 | 2 | 4) {
                return Err(FaultKind::Malformed(format!("descriptor {i}: elements of {} bytes", d.elem_bytes)));
            }
            if d.lane_tiles == 0 && d.mem == OnChip::Vmem {
                return Err(FaultKind::Malformed(format!("descriptor {i}: no tiles in a row")));
            }
            if d.outer.len() > 16 {
                return Err(FaultKind::Malformed(format!("descriptor {i}: {} outer dimensions", d.outer.len())));
            }
            for (r, _) in d.hbm.terms.iter().chain(&d.local.terms) {
                self.index("dma", "scalar register", i32::from(r.0), self.files.scalar as u64)?;
            }
        }
        Ok(())
    }

    fn index(&self, op: &'static str, what: &'static str, i: i32, limit: u64) -> Result<usize, FaultKind> {
        match usize::try_from(i) {
            Ok(u) if (u as u64) < limit => Ok(u),
            _ => Err(FaultKind::Operand { op, what, index: i64::from(i), limit }),
        }
    }

    fn bundle(&mut self, b: &program::Bundle) -> Result<Packed, FaultKind> {
        if b.instrs.len() > MAX_BUNDLE {
            return Err(FaultKind::Malformed(format!("bundle of {} instructions", b.instrs.len())));
        }
        let mut used = [0u32; Slot::ALL.len()];
        b.instrs.iter().for_each(|i| used[i.op.slot() as usize] += 1);
        for slot in Slot::ALL {
            let (used, limit) = (used[slot as usize], self.limits[slot as usize]);
            if used > limit {
                return Err(FaultKind::Slots { slot: slot_name(slot), used, limit });
            }
        }
        self.syncs += u64::from(used[Slot::Dma as usize] > 0);
        self.touched.reads.clear();
        self.touched.writes.clear();
        let l = &self.lists;
        let (reads, writes, uses) = (l.reads.len(), l.writes.len(), l.uses.len());
        let (copies, instrs) = (l.copies.len(), l.instrs.len());
        for (k, i) in b.instrs.iter().enumerate() {
            let from = self.touched.writes.len();
            self.touch(k as u8, i)?;
            let latency = self.chip.latency(i.op.timing());
            for &(_, entry) in &self.touched.writes[from..] {
                if self.lists.writes[writes..].iter().any(|w| w.0 == entry) {
                    let what = "two instructions of one bundle write the same register";
                    return Err(FaultKind::Malformed(what.to_owned()));
                }
                self.lists.writes.push((entry, latency));
            }
        }
        for &(_, entry) in &self.touched.reads {
            if !self.lists.reads[reads..].contains(&entry) {
                self.lists.reads.push(entry);
            }
        }
        self.uses(&b.instrs)?;
        self.order.order(&b.instrs, &mut self.touched, self.files, &mut self.lists)?;
        let l = &self.lists;
        let count = |s: Slot| used[s as usize] as u8;
        Ok(Packed {
            reads: span(reads, l.reads.len())?,
            writes: span(writes, l.writes.len())?,
            uses: span(uses, l.uses.len())?,
            copies: span(copies, l.copies.len())?,
            instrs: span(instrs, l.instrs.len())?,
            slots: [count(Slot::Scalar), count(Slot::Valu), count(Slot::VLoad), count(Slot::VStore)],
        })
    }

    /// Checks the operands of an instruction and lists its registers.
    fn touch(&mut self, k: u8, i: &Instr) -> Result<(), FaultKind> {
        let name = i.op.name();
        for (n, (field, v)) in i.operands().enumerate() {
            let file = match field {
                Field::Vd | Field::Vs => Some((File::Vector, "vector register", self.files.vector)),
                Field::Md | Field::Ms => Some((File::Mask, "mask register", self.files.mask)),
                Field::Sd | Field::Ss => Some((File::Scalar, "scalar register", self.files.scalar)),
                _ => None,
            };
            if let Some((file, what, count)) = file {
                // The second operand of a vmatmul is not there when one register holds all columns.
                if n == 2 && matches!(i.op, Op::MxMul | Op::MxIni | Op::MxAcc) && *self.chip.mxu.dim == 128 {
                    continue;
                }
                self.index(name, what, v, count as u64)?;
                match field {
                    Field::Vs | Field::Ms | Field::Ss => self.touched.reads.push((k, self.files.entry(file, v))),
                    // s0 stays zero and s1 is the core's index: writes to them are lost.
                    Field::Sd if v < 2 => {}
                    _ => self.touched.writes.push((k, self.files.entry(file, v))),
                }
                continue;
            }
            match field {
                Field::Mxu => drop(self.index(name, "MXU", v, u64::from(*self.chip.mxu.count))?),
                Field::Xlu => drop(self.index(name, "XLU", v, u64::from(*self.chip.xlus))?),
                Field::Flag => drop(self.index(name, "sync flag", v, u64::from(*self.chip.regs.flags))?),
                Field::Desc => {
                    let d = self.index(name, "descriptor", v, self.program.descs.len() as u64)?;
                    let desc = &self.program.descs[d];
                    for (r, _) in desc.hbm.terms.iter().chain(&desc.local.terms) {
                        self.touched.reads.push((k, self.files.entry(File::Scalar, i32::from(r.0))));
                    }
                }
                Field::Fmt if Format::from_code(v).is_none() => {
                    return Err(FaultKind::UnknownFormat { op: name, code: v });
                }
                _ => {}
            }
        }
        self.immediates(i)
    }

    /// Immediates that select something.
    fn immediates(&self, i: &Instr) -> Result<(), FaultKind> {
        let name = i.op.name();
        let dim = u64::from(*self.chip.mxu.dim);
        let halves = dim / 128;
        let packing = i.format().map_or(1, Format::packing) as u64;
        let acc = u64::from(*self.chip.mxu.accumulators);
        match i.op {
            Op::VUnpack => drop(self.index(name, "part", i.args[3], packing)?),
            Op::VPack => drop(self.index(name, "part", i.args[4], packing)?),
            Op::VSubBcast => drop(self.index(name, "sublane", i.args[2], 8)?),
            Op::XBcast => drop(self.index(name, "lane", i.args[2], 128)?),
            Op::MxPush | Op::MxPushT => drop(self.index(name, "slot", i.args[3], dim / (8 * packing) * halves)?),
            Op::MxIni | Op::MxAcc => {
                self.index(name, "accumulator", i.args[4], acc)?;
                let end = i.args[4].saturating_add(packing as i32 - 1);
                self.index(name, "accumulator", end, acc)?;
            }
            Op::MxPopAcc => drop(self.index(name, "accumulator register", i.args[2], acc * halves)?),
            Op::DmaWait | Op::FlagAdd => drop(self.index(name, "count", i.args[1], 1 << 31)?),
            _ => {}
        }
        Ok(())
    }
}

fn slot_name(s: Slot) -> &'static str {
    match s {
        Slot::Scalar => "scalar",
        Slot::Valu => "vector ALU",
        Slot::VLoad => "vector load",
        Slot::VStore => "vector store",
        Slot::Extended => "push",
        Slot::Pop => "pop",
        Slot::Dma => "DMA",
    }
}
