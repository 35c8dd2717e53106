//! A program as the engine runs it: checked against the chip once, with the registers, units and slots of each bundle listed, and
//! the instructions of a bundle put in an order in which none reads what an earlier one wrote.

mod order;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::Format;
use tpusim_isa::op::{Field, Instr, Op, Slot, Timing};
use tpusim_isa::program::{self, MAX_DEPTH, Program};

use crate::fault::{Fault, FaultKind};
pub(crate) use order::TEMPS;
use order::order;

/// Most instructions of a bundle, whatever the chip file says.
const MAX_BUNDLE: usize = 64;

/// A checked piece of code.
#[derive(Debug)]
pub(crate) enum Node {
    Bundle(Bundle),
    Loop { counter: u8, trip: u32, body: Vec<Node> },
    Op { op: u32, body: Vec<Node> },
}

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

/// A checked bundle.
#[derive(Debug)]
pub(crate) struct Bundle {
    /// Scoreboard entries read.
    pub reads: Box<[u16]>,
    /// Scoreboard entries written and when they can be used.
    pub writes: Box<[(u16, u32)]>,
    /// Unit uses: waits and pops first.
    pub uses: Box<[Use]>,
    /// Instructions in scalar, VALU, load and store slots.
    pub slots: [u8; 4],
    /// Copies made before execution: `(file, from, to)`.
    pub copies: Box<[(File, u8, u8)]>,
    /// Instructions in execution order.
    pub instrs: Box<[Instr]>,
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
}

/// A checked program.
#[derive(Debug)]
pub(crate) struct Code {
    pub body: Vec<Node>,
}

impl Code {
    /// Checks `program` against `chip`.
    pub fn new(program: &Program, chip: &ChipSpec) -> Result<Code, Fault> {
        let files = Files::of(chip);
        let mut d = Decoder { program, chip, files, pc: Vec::new(), op: None };
        let checked = d.geometry().and_then(|()| d.nodes(&program.body));
        match checked {
            Ok(body) => Ok(Code { body }),
            Err(kind) => {
                let op = d.op.and_then(|i| program.ops.get(i as usize)).map(|o| o.name.clone());
                Err(Fault { pc: d.pc, op, cycle: 0, kind: Box::new(kind) })
            }
        }
    }
}

struct Decoder<'a> {
    program: &'a Program,
    chip: &'a ChipSpec,
    files: Files,
    pc: Vec<u32>,
    op: Option<u32>,
}

/// Registers an instruction touches.
struct Touch {
    reads: Vec<(File, i32)>,
    writes: Vec<(File, i32)>,
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
            if d.lane_tiles == 0 {
                return Err(FaultKind::Malformed(format!("descriptor {i}: no tiles in a row")));
            }
            if d.outer.len() > 16 {
                return Err(FaultKind::Malformed(format!("descriptor {i}: {} outer dimensions", d.outer.len())));
            }
            for (r, _) in d.hbm.terms.iter().chain(&d.vmem.terms) {
                self.index("dma", "scalar register", i32::from(r.0), self.files.scalar as u64)?;
            }
        }
        Ok(())
    }

    fn nodes(&mut self, nodes: &[program::Node]) -> Result<Vec<Node>, FaultKind> {
        if self.pc.len() >= MAX_DEPTH {
            return Err(FaultKind::Malformed(format!("loops nest deeper than {MAX_DEPTH}")));
        }
        let mut out = Vec::with_capacity(nodes.len());
        self.pc.push(0);
        for (i, n) in nodes.iter().enumerate() {
            if let Some(last) = self.pc.last_mut() {
                *last = i as u32;
            }
            out.push(match n {
                program::Node::Bundle(b) => Node::Bundle(self.bundle(b)?),
                program::Node::Loop { counter, trip, body } => {
                    let c = self.index("loop", "scalar register", i32::from(counter.0), self.files.scalar as u64)?;
                    if c < 2 {
                        return Err(FaultKind::Malformed(format!("loop counter s{c} cannot be written")));
                    }
                    Node::Loop { counter: counter.0, trip: *trip, body: self.nodes(body)? }
                }
                program::Node::Op { op, body } => {
                    if self.op.is_some() {
                        return Err(FaultKind::Malformed("operations do not nest".to_owned()));
                    }
                    let Some(info) = self.program.ops.get(*op as usize) else {
                        return Err(FaultKind::Malformed(format!("operation {op} of {}", self.program.ops.len())));
                    };
                    if info.cores == 0 || info.cores > *self.chip.tensorcores_per_device {
                        return Err(FaultKind::Malformed(format!("`{}` runs on {} cores", info.name, info.cores)));
                    }
                    self.op = Some(*op);
                    let body = self.nodes(body)?;
                    self.op = None;
                    Node::Op { op: *op, body }
                }
            });
        }
        self.pc.pop();
        Ok(out)
    }

    fn index(&self, op: &'static str, what: &'static str, i: i32, limit: u64) -> Result<usize, FaultKind> {
        match usize::try_from(i) {
            Ok(u) if (u as u64) < limit => Ok(u),
            _ => Err(FaultKind::Operand { op, what, index: i64::from(i), limit }),
        }
    }

    fn bundle(&self, b: &program::Bundle) -> Result<Bundle, FaultKind> {
        if b.instrs.len() > MAX_BUNDLE {
            return Err(FaultKind::Malformed(format!("bundle of {} instructions", b.instrs.len())));
        }
        for slot in Slot::ALL {
            let used = b.instrs.iter().filter(|i| i.op.slot() == slot).count() as u32;
            let limit = self.chip.slots(slot);
            if used > limit {
                return Err(FaultKind::Slots { slot: slot_name(slot), used, limit });
            }
        }
        let mut touches = Vec::with_capacity(b.instrs.len());
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for i in &b.instrs {
            let t = self.touch(i)?;
            reads.extend(t.reads.iter().map(|&(f, r)| self.files.entry(f, r)));
            let latency = self.chip.latency(i.op.timing());
            writes.extend(t.writes.iter().map(|&(f, r)| (self.files.entry(f, r), latency)));
            touches.push(t);
        }
        let twice = |(i, w): (usize, &(u16, u32))| writes[..i].iter().any(|v| v.0 == w.0);
        if writes.iter().enumerate().any(twice) {
            return Err(FaultKind::Malformed("two instructions of one bundle write the same register".to_owned()));
        }
        reads.sort_unstable();
        reads.dedup();
        let count = |s| b.instrs.iter().filter(|i| i.op.slot() == s).count() as u8;
        let slots = [count(Slot::Scalar), count(Slot::Valu), count(Slot::VLoad), count(Slot::VStore)];
        let (copies, instrs) = order(&b.instrs, &touches, self.files)?;
        Ok(Bundle {
            reads: reads.into(),
            writes: writes.into(),
            uses: self.uses(&b.instrs)?.into(),
            slots,
            copies: copies.into(),
            instrs: instrs.into(),
        })
    }

    /// Checks the operands of an instruction and lists its registers.
    fn touch(&self, i: &Instr) -> Result<Touch, FaultKind> {
        let name = i.op.name();
        let mut t = Touch { reads: Vec::new(), writes: Vec::new() };
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
                    Field::Vs | Field::Ms | Field::Ss => t.reads.push((file, v)),
                    // s0 stays zero and s1 is the core's index: writes to them are lost.
                    Field::Sd if v < 2 => {}
                    _ => t.writes.push((file, v)),
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
                    for (r, _) in desc.hbm.terms.iter().chain(&desc.vmem.terms) {
                        t.reads.push((File::Scalar, i32::from(r.0)));
                    }
                }
                Field::Fmt if Format::from_code(v).is_none() => {
                    return Err(FaultKind::UnknownFormat { op: name, code: v });
                }
                _ => {}
            }
        }
        self.immediates(i)?;
        Ok(t)
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

    fn stream(&self, i: &Instr) -> Result<Stream, FaultKind> {
        let name = i.op.name();
        let format = i.format().ok_or(FaultKind::UnknownFormat { op: name, code: -1 })?;
        let rate = u64::from(self.chip.mxu_rows_per_cycle(format));
        if rate == 0 {
            return Err(FaultKind::MxuFormat { op: name, format });
        }
        Ok(Stream { interval: u64::from(self.chip.mxu_interval(format)), groups: format.packing() as u64, rate })
    }

    fn uses(&self, instrs: &[Instr]) -> Result<Vec<Use>, FaultKind> {
        let mut uses: Vec<Use> = Vec::new();
        let mut taken: Vec<String> = Vec::new();
        let mut once = |unit: String| {
            if taken.contains(&unit) {
                return Err(FaultKind::UnitConflict { unit });
            }
            taken.push(unit);
            Ok(())
        };
        for i in instrs {
            let unit = i.args[0] as usize;
            let flag = i.args[0] as u32;
            let n = i.args[1] as u64;
            uses.push(match i.op.timing() {
                Timing::ScalarLoad => {
                    once("the SMEM port".to_owned())?;
                    Use::ScalarLoad
                }
                Timing::Eup => {
                    once("the EUP".to_owned())?;
                    Use::Eup
                }
                Timing::XluRotate | Timing::XluReduce => {
                    once(format!("xlu {unit}"))?;
                    Use::Xlu { xlu: unit, latency: u64::from(self.chip.latency(i.op.timing())) }
                }
                Timing::XluTranspose => {
                    once(format!("xlu {unit}"))?;
                    Use::Xpose { xlu: unit }
                }
                Timing::MxuPush => {
                    once(format!("the weight port of mxu {unit}"))?;
                    self.stream(i)?;
                    Use::Push { mxu: unit }
                }
                Timing::MxuLatch => {
                    once(format!("the latch of mxu {unit}"))?;
                    let early = |u: &Use| matches!(u, Use::Push { mxu } | Use::Mul { mxu, .. } | Use::Acc { mxu, .. } if *mxu == unit);
                    if uses.iter().any(early) {
                        return Err(FaultKind::UnitConflict { unit: format!("mxu {unit}, which latches after both are done") });
                    }
                    Use::Latch { mxu: unit }
                }
                Timing::MxuMul => {
                    once(format!("mxu {unit}"))?;
                    Use::Mul { mxu: unit, stream: self.stream(i)? }
                }
                Timing::MxuAcc => {
                    once(format!("mxu {unit}"))?;
                    Use::Acc { mxu: unit, stream: self.stream(i)? }
                }
                Timing::EupPop => {
                    Use::EupPop { nth: uses.iter().filter(|u| matches!(u, Use::EupPop { .. })).count() }
                }
                Timing::XluPop => Use::XluPop {
                    xlu: unit,
                    nth: uses.iter().filter(|u| matches!(u, Use::XluPop { xlu, .. } if *xlu == unit)).count(),
                },
                Timing::MxuPop => Use::MxuPop {
                    mxu: unit,
                    nth: uses.iter().filter(|u| matches!(u, Use::MxuPop { mxu, .. } if *mxu == unit)).count(),
                },
                Timing::MxuPopAcc => Use::AccPop { mxu: unit },
                Timing::DmaWait => {
                    once(format!("a wait on flag {flag}"))?;
                    Use::Wait { flag, n }
                }
                Timing::Flag => Use::FlagAdd { flag, n },
                Timing::DmaStart => Use::Dma { desc: i.args[0] as u32, flag: i.args[1] as u32 },
                _ => continue,
            });
        }
        uses.sort_by_key(|u| {
            let first = matches!(
                u,
                Use::Wait { .. } | Use::EupPop { .. } | Use::XluPop { .. } | Use::MxuPop { .. } | Use::AccPop { .. }
            );
            !first
        });
        Ok(uses)
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
