//! The bundle encoding, a stream of bits, lowest first.
//!
//! It opens with the width of each kind of operand: the default of the kind (6 bits for a register, 8 for a sync flag) or more if
//! some operand of the program needs more. Then nodes: a 2-bit tag (0 end of body, 1 bundle, 2 loop, 3 other), for loops the
//! counter (8) and the trip count (32), and their bodies up to the end tag. The others have 2 more bits: 0 operation, with its
//! index (32) and body; 1 while, with its index (32), register (8), condition and body; 2 case, with its index (32), register (8),
//! number of branches (32) and the branches.
//!
//! A bundle opens with 1 and a 7-bit mask of the slot classes present, and for each of those 3 bits of count less one and the
//! instructions: the opcode among those of its class and the operands. Immediates of 0..=31 take 1 + 5 bits in the instruction, others
//! 1 + 32. A bundle that is not in slot order, or holds more than 8 of one class, opens with 0, 16 bits of count, and a 3-bit class
//! before each opcode.

use bitvec::prelude::*;

use super::BinaryError;
use crate::op::{Field, Instr, MAX_FIELDS, Op, Slot};
use crate::program::{Bundle, MAX_DEPTH, Node, SReg};

type Result<T> = std::result::Result<T, BinaryError>;
type Bits = BitSlice<u8, Lsb0>;

/// Kinds of operand that have a width of their own, with the default.
const WIDTHS: [(Field, u32); 10] = [
    (Field::Vs, 6),
    (Field::Ms, 6),
    (Field::Ss, 6),
    (Field::Mxu, 3),
    (Field::Xlu, 3),
    (Field::Fmt, 4),
    (Field::Flag, 8),
    (Field::Desc, 8),
    (Field::Send, 8),
    (Field::Table, 8),
];

/// Bits that say how wide a kind of operand is, less one.
const WIDTH_BITS: u32 = 5;
/// Bits of an immediate that needs no immediate slot.
const SHORT_IMM: u32 = 5;

/// Index into [`WIDTHS`]; `None` for immediates.
fn width_index(field: Field) -> Option<usize> {
    Some(match field {
        Field::Vd | Field::Vs => 0,
        Field::Md | Field::Ms => 1,
        Field::Sd | Field::Ss => 2,
        Field::Mxu => 3,
        Field::Xlu => 4,
        Field::Fmt => 5,
        Field::Flag => 6,
        Field::Desc => 7,
        Field::Send => 8,
        Field::Table => 9,
        Field::Imm => return None,
    })
}

fn ops_of(slot: Slot) -> impl Iterator<Item = Op> + Clone {
    Op::ALL.iter().copied().filter(move |op| op.slot() == slot)
}

fn opcode_bits(slot: Slot) -> u32 {
    usize::BITS - (ops_of(slot).count() - 1).leading_zeros()
}

/// Opcode bits per class, and per operation its code within the class.
struct Opcodes {
    bits: [u32; Slot::ALL.len()],
    by_class: [Vec<Op>; Slot::ALL.len()],
}

impl Opcodes {
    fn new() -> Self {
        Opcodes { bits: Slot::ALL.map(opcode_bits), by_class: Slot::ALL.map(|s| ops_of(s).collect()) }
    }

    fn code(&self, op: Op) -> u32 {
        self.by_class[op.slot() as usize].iter().position(|o| *o == op).unwrap_or_default() as u32
    }
}

pub(super) fn encode(body: &[Node]) -> Vec<u8> {
    let mut widths = WIDTHS.map(|(_, w)| w);
    measure(body, &mut widths);
    let mut e = Encoder { bits: BitVec::new(), widths, opcodes: Opcodes::new() };
    for w in widths {
        e.put(w - 1, WIDTH_BITS);
    }
    e.nodes(body);
    let mut bytes = e.bits;
    bytes.set_uninitialized(false);
    bytes.into_vec()
}

fn measure(nodes: &[Node], widths: &mut [u32]) {
    for node in nodes {
        match node {
            Node::Bundle(b) => {
                for (field, arg) in b.instrs.iter().flat_map(|i| i.operands()) {
                    if let Some(w) = width_index(field).and_then(|i| widths.get_mut(i)) {
                        *w = (*w).max(u32::BITS - (arg as u32).leading_zeros());
                    }
                }
            }
            inner => inner.bodies().for_each(|body| measure(body, widths)),
        }
    }
}

struct Encoder {
    bits: BitVec<u8, Lsb0>,
    widths: [u32; WIDTHS.len()],
    opcodes: Opcodes,
}

impl Encoder {
    fn put(&mut self, value: u32, width: u32) {
        if width == 0 {
            return;
        }
        let at = self.bits.len();
        self.bits.resize(at + width as usize, false);
        if let Some(bits) = self.bits.get_mut(at..) {
            bits.store_le(value);
        }
    }

    fn nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Bundle(b) => {
                    self.put(1, 2);
                    self.bundle(b);
                }
                Node::Loop { counter, trip, body } => {
                    self.put(2, 2);
                    self.put(u32::from(counter.0), 8);
                    self.put(*trip, 32);
                    self.nodes(body);
                }
                Node::Op { op, body } => {
                    self.put(3, 2);
                    self.put(0, 2);
                    self.put(*op, 32);
                    self.nodes(body);
                }
                Node::While { info, cond, test, body } => {
                    self.put(3, 2);
                    self.put(1, 2);
                    self.put(*info, 32);
                    self.put(u32::from(test.0), 8);
                    self.nodes(cond);
                    self.nodes(body);
                }
                Node::Case { info, selector, branches } => {
                    self.put(3, 2);
                    self.put(2, 2);
                    self.put(*info, 32);
                    self.put(u32::from(selector.0), 8);
                    self.put(branches.len() as u32, 32);
                    branches.iter().for_each(|b| self.nodes(b));
                }
                Node::Start { transfer, body } => {
                    self.put(3, 2);
                    self.put(3, 2);
                    self.put(*transfer, 32);
                    self.put(1, 1);
                    self.nodes(body);
                }
                Node::Done { transfer } => {
                    self.put(3, 2);
                    self.put(3, 2);
                    self.put(*transfer, 32);
                    self.put(0, 1);
                }
            }
        }
        self.put(0, 2);
    }

    fn bundle(&mut self, b: &Bundle) {
        let mut counts = [0u32; Slot::ALL.len()];
        for i in &b.instrs {
            counts[i.op.slot() as usize] += 1;
        }
        let regular = b.instrs.is_sorted_by_key(|i| i.op.slot()) && counts.iter().all(|c| *c <= 8);
        self.put(u32::from(regular), 1);
        if !regular {
            // Text and memory hold bundles of any length; a longer one than 65,535 is no bundle of any chip.
            let count = b.instrs.len().min(usize::from(u16::MAX));
            self.put(count as u32, 16);
            for i in b.instrs.iter().take(count) {
                self.put(i.op.slot() as u32, 3);
                self.instr(i);
            }
            return;
        }
        for c in counts {
            self.put(u32::from(c > 0), 1);
        }
        let mut rest = b.instrs.iter();
        for c in counts.into_iter().filter(|c| *c > 0) {
            self.put(c - 1, 3);
            for i in rest.by_ref().take(c as usize) {
                self.instr(i);
            }
        }
    }

    fn instr(&mut self, i: &Instr) {
        self.put(self.opcodes.code(i.op), self.opcodes.bits[i.op.slot() as usize]);
        for (field, arg) in i.operands() {
            match width_index(field) {
                Some(w) => self.put(arg as u32, self.widths[w]),
                None => {
                    let long = arg as u32 >= 1 << SHORT_IMM;
                    self.put(u32::from(long), 1);
                    self.put(arg as u32, if long { 32 } else { SHORT_IMM });
                }
            }
        }
    }
}

pub(super) fn decode(payload: &[u8]) -> Result<Vec<Node>> {
    let mut d = Decoder { bits: payload.view_bits(), at: 0, widths: [0; WIDTHS.len()], opcodes: Opcodes::new() };
    for i in 0..WIDTHS.len() {
        d.widths[i] = d.get(WIDTH_BITS)? + 1;
    }
    let body = d.nodes(1)?;
    let rest = d.bits.get(d.at..).unwrap_or_default();
    if rest.len() >= 8 || rest.any() {
        return d.fail(format!("{} bits after the end of the code", rest.len()));
    }
    Ok(body)
}

struct Decoder<'a> {
    bits: &'a Bits,
    at: usize,
    widths: [u32; WIDTHS.len()],
    opcodes: Opcodes,
}

impl Decoder<'_> {
    fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(BinaryError::Malformed { section: "CODE", place: format!("bit {}", self.at), message: message.into() })
    }

    fn get(&mut self, width: u32) -> Result<u32> {
        // A class with one instruction has opcodes of 0 bits.
        if width == 0 {
            return Ok(0);
        }
        let end = self.at + width as usize;
        match self.bits.get(self.at..end) {
            Some(bits) => {
                self.at = end;
                Ok(bits.load_le())
            }
            None => self.fail("the code ends inside a node"),
        }
    }

    fn nodes(&mut self, depth: usize) -> Result<Vec<Node>> {
        if depth > MAX_DEPTH {
            return self.fail(format!("nesting deeper than {MAX_DEPTH} levels"));
        }
        let mut nodes = Vec::new();
        loop {
            nodes.push(match self.get(2)? {
                0 => return Ok(nodes),
                1 => Node::Bundle(self.bundle()?),
                2 => {
                    let counter = SReg(self.get(8)? as u8);
                    let trip = self.get(32)?;
                    Node::Loop { counter, trip, body: self.nodes(depth + 1)? }
                }
                _ => self.other(depth)?,
            });
        }
    }

    fn other(&mut self, depth: usize) -> Result<Node> {
        let kind = self.get(2)?;
        let index = self.get(32)?;
        Ok(match kind {
            0 => Node::Op { op: index, body: self.nodes(depth + 1)? },
            1 => {
                let test = SReg(self.get(8)? as u8);
                Node::While { info: index, test, cond: self.nodes(depth + 1)?, body: self.nodes(depth + 1)? }
            }
            2 => {
                let selector = SReg(self.get(8)? as u8);
                // Each takes at least an end tag of the file, whatever the count says.
                let branches = (0..self.get(32)?).map(|_| self.nodes(depth + 1)).collect::<Result<_>>()?;
                Node::Case { info: index, selector, branches }
            }
            _ if self.get(1)? == 1 => Node::Start { transfer: index, body: self.nodes(depth + 1)? },
            _ => Node::Done { transfer: index },
        })
    }

    fn bundle(&mut self) -> Result<Bundle> {
        let mut bundle = Bundle::default();
        if self.get(1)? == 0 {
            for _ in 0..self.get(16)? {
                let slot = self.get(3)? as usize;
                bundle.instrs.push(self.instr(slot)?);
            }
            return Ok(bundle);
        }
        let present = self.get(Slot::ALL.len() as u32)?;
        for slot in (0..Slot::ALL.len()).filter(|slot| present >> slot & 1 == 1) {
            for _ in 0..=self.get(3)? {
                bundle.instrs.push(self.instr(slot)?);
            }
        }
        Ok(bundle)
    }

    fn instr(&mut self, slot: usize) -> Result<Instr> {
        let Some(bits) = self.opcodes.bits.get(slot).copied() else {
            return self.fail(format!("unknown slot class {slot}"));
        };
        let code = self.get(bits)?;
        let op = self.opcodes.by_class.get(slot).and_then(|ops| ops.get(code as usize)).copied();
        let Some(op) = op else {
            return self.fail(format!("unknown opcode {code} of slot class {slot}"));
        };
        let mut args = [0; MAX_FIELDS];
        for (field, arg) in op.fields().iter().zip(&mut args) {
            let width = match width_index(*field) {
                Some(w) => self.widths[w],
                None if self.get(1)? == 1 => 32,
                None => SHORT_IMM,
            };
            *arg = self.get(width)? as i32;
        }
        Ok(Instr { op, args })
    }
}
