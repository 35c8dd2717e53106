//! Straight-line vector code on virtual registers, before scheduling.
//!
//! A [`Code`] is a basic block: instructions in an order that is legal by itself. Vector and mask registers are virtual
//! (each defined once) or *pinned*: physical registers that carry values from one block to another, such as a loop's accumulators.
//! Scalar registers are physical. [`super::schedule`] packs a block into bundles.

use rustc_hash::FxHashMap;
use tpusim_isa::num::Format;
use tpusim_isa::op::{Field, Instr, MAX_FIELDS, Op};
use tpusim_isa::program::SReg;

use super::math::{Registers, WideOp};

/// A vector register: virtual, or pinned to a physical one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct V(pub(super) i32);

/// A mask register, virtual or pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct M(pub(super) i32);

/// Numbers from here on are virtual, below are physical.
pub(super) const VIRTUAL: i32 = 1 << 16;

impl V {
    /// Physical register `r`, alive across blocks.
    pub fn pinned(r: u32) -> V {
        V(r as i32)
    }
}

/// A piece of VMEM that loads and stores of one block can be told apart by: accesses to different objects never overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object(pub u32);

/// An address in VMEM: `base + offset` rows, inside `object`.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// What is accessed.
    pub object: Object,
    /// Scalar base in rows.
    pub base: SReg,
    /// Constant part in rows.
    pub offset: i32,
}

impl Place {
    /// The place `rows` further on.
    pub fn at(self, rows: u32) -> Place {
        Place { offset: self.offset + rows as i32, ..self }
    }
}

/// One instruction of a block and the VMEM object it touches, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CodeInstr {
    pub instr: Instr,
    pub object: Option<Object>,
    /// Scalar registers read besides the operands: those a DMA's addresses add (0 for none).
    pub implicit: [u8; MAX_TERMS],
}

/// Scalar registers that the addresses of one DMA may add.
pub(super) const MAX_TERMS: usize = 8;

/// A basic block under construction.
#[derive(Clone, Debug, Default)]
pub struct Code {
    pub(super) instrs: Vec<CodeInstr>,
    next: i32,
    /// Pairs of registers computed already, by operation and operands.
    pairs: FxHashMap<(WideOp, Vec<V>), Registers>,
}

impl Code {
    /// An empty block.
    pub fn new() -> Code {
        Code::default()
    }

    /// Whether nothing was emitted.
    pub fn is_empty(&self) -> bool {
        self.instrs.is_empty()
    }

    fn fresh(&mut self) -> i32 {
        self.next += 1;
        VIRTUAL + self.next
    }

    fn push(&mut self, op: Op, operands: &[i32], object: Option<Object>) {
        let mut args = [0; MAX_FIELDS];
        args[..operands.len()].copy_from_slice(operands);
        debug_assert_eq!(operands.len(), op.fields().len(), "{}", op.name());
        self.instrs.push(CodeInstr { instr: Instr { op, args }, object, implicit: [0; MAX_TERMS] });
    }

    /// Any instruction without a virtual result, operands in table order.
    pub fn raw(&mut self, op: Op, operands: &[i32]) {
        self.push(op, operands, None);
    }

    /// Starts DMA `desc`, whose addresses add the registers `terms` (at most [`MAX_TERMS`]).
    pub(super) fn dma(&mut self, desc: i32, flag: i32, terms: impl Iterator<Item = SReg>) {
        self.push(Op::Dma, &[desc, flag], None);
        if let Some(ci) = self.instrs.last_mut() {
            for (slot, r) in ci.implicit.iter_mut().zip(terms) {
                *slot = r.0;
            }
        }
    }

    /// A pair of registers that `code` computes from `args`, once for the whole block unless a pinned register, which may change, is
    /// among them.
    pub fn shared(
        &mut self,
        op: WideOp,
        args: &[V],
        code: impl FnOnce(&mut Code, WideOp, &[V]) -> Registers,
    ) -> Registers {
        let lasting = args.iter().all(|a| a.0 >= VIRTUAL);
        let key = (op, args.to_vec());
        if let Some(&pair) = self.pairs.get(&key).filter(|_| lasting) {
            return pair;
        }
        let pair = code(self, op, args);
        if lasting {
            self.pairs.insert(key, pair);
        }
        pair
    }

    /// A vector op whose first operand is its result and whose others are vector registers.
    pub fn v(&mut self, op: Op, args: &[V]) -> V {
        let d = self.fresh();
        self.set(op, V(d), args);
        V(d)
    }

    /// As [`Self::v`], into a pinned register.
    pub fn set(&mut self, op: Op, d: V, args: &[V]) {
        let mut ops = [0; MAX_FIELDS];
        ops[0] = d.0;
        for (o, a) in ops[1..].iter_mut().zip(args) {
            *o = a.0;
        }
        self.push(op, &ops[..=args.len()], None);
    }

    /// A vector op with a trailing immediate.
    pub fn vi(&mut self, op: Op, a: V, imm: i32) -> V {
        let d = self.fresh();
        self.push(op, &[d, a.0, imm], None);
        V(d)
    }

    /// All elements equal to the 32 bits of `imm`.
    pub fn imm(&mut self, imm: i32) -> V {
        let d = self.fresh();
        self.push(Op::VImm, &[d, imm], None);
        V(d)
    }

    /// All elements equal to the f32 `x`.
    pub fn imm_f(&mut self, x: f32) -> V {
        self.imm(x.to_bits() as i32)
    }

    /// All elements equal to scalar `s`.
    pub fn bcast(&mut self, s: SReg) -> V {
        let d = self.fresh();
        self.push(Op::VBcast, &[d, i32::from(s.0)], None);
        V(d)
    }

    /// Lane or sublane numbers.
    pub fn ids(&mut self, op: Op) -> V {
        let d = self.fresh();
        self.push(op, &[d], None);
        V(d)
    }

    /// Comparison of two registers.
    pub fn cmp(&mut self, op: Op, a: V, b: V) -> M {
        let d = self.fresh();
        self.push(op, &[d, a.0, b.0], None);
        M(d)
    }

    /// Binary op on masks.
    pub fn m2(&mut self, op: Op, a: M, b: M) -> M {
        let d = self.fresh();
        self.push(op, &[d, a.0, b.0], None);
        M(d)
    }

    /// Mask complement.
    pub fn mnot(&mut self, a: M) -> M {
        let d = self.fresh();
        self.push(Op::MNot, &[d, a.0], None);
        M(d)
    }

    /// Mask of lanes (or sublanes) below `s + imm`.
    pub fn below(&mut self, op: Op, s: SReg, imm: i32) -> M {
        let d = self.fresh();
        self.push(op, &[d, i32::from(s.0), imm], None);
        M(d)
    }

    /// `m ? a : b`.
    pub fn sel(&mut self, m: M, a: V, b: V) -> V {
        let d = self.fresh();
        self.push(Op::VSel, &[d, m.0, a.0, b.0], None);
        V(d)
    }

    /// Rounds f32 to the precision of `fmt`.
    pub fn round(&mut self, a: V, fmt: Format) -> V {
        let d = self.fresh();
        self.push(Op::VRound, &[d, a.0, fmt.code()], None);
        V(d)
    }

    /// Part `part` of a packed register as 32-bit values.
    pub fn unpack(&mut self, a: V, fmt: Format, part: usize) -> V {
        let d = self.fresh();
        self.push(Op::VUnpack, &[d, a.0, fmt.code(), part as i32], None);
        V(d)
    }

    /// All parts packed into one register.
    pub fn pack(&mut self, parts: &[V], fmt: Format) -> V {
        let mut acc = parts[0];
        for (p, v) in parts.iter().enumerate() {
            let d = self.fresh();
            self.push(Op::VPack, &[d, acc.0, v.0, fmt.code(), p as i32], None);
            acc = V(d);
        }
        acc
    }

    /// Loads 8 consecutive rows.
    pub fn load(&mut self, at: Place) -> V {
        let d = self.fresh();
        self.push(Op::VLd, &[d, i32::from(at.base.0), at.offset, 1], Some(at.object));
        V(d)
    }

    /// Loads one row into all sublanes.
    pub fn load_row(&mut self, at: Place) -> V {
        let d = self.fresh();
        self.push(Op::VLd, &[d, i32::from(at.base.0), at.offset, 0], Some(at.object));
        V(d)
    }

    /// Stores 8 consecutive rows.
    pub fn store(&mut self, v: V, at: Place) {
        self.push(Op::VSt, &[v.0, i32::from(at.base.0), at.offset, 1], Some(at.object));
    }

    /// Loads 8 rows, `stride` rows apart.
    pub fn load_strided(&mut self, at: Place, stride: i32) -> V {
        let d = self.fresh();
        self.push(Op::VLd, &[d, i32::from(at.base.0), at.offset, stride], Some(at.object));
        V(d)
    }

    /// Stores 8 rows, `stride` rows apart.
    pub fn store_strided(&mut self, v: V, at: Place, stride: i32) {
        self.push(Op::VSt, &[v.0, i32::from(at.base.0), at.offset, stride], Some(at.object));
    }

    /// One EUP function of a register.
    pub fn eup(&mut self, op: Op, a: V) -> V {
        self.push(op, &[a.0], None);
        let d = self.fresh();
        self.push(Op::EPop, &[d], None);
        V(d)
    }

    /// Push to an XLU: ops with an immediate take it, others ignore it.
    pub fn xlu_push(&mut self, op: Op, xlu: u32, a: V, imm: i32) {
        if op.fields().contains(&Field::Imm) {
            self.push(op, &[xlu as i32, a.0, imm], None);
        } else {
            self.push(op, &[xlu as i32, a.0], None);
        }
    }

    /// Pop from an XLU.
    pub fn xlu_pop(&mut self, xlu: u32) -> V {
        let d = self.fresh();
        self.push(Op::XPop, &[xlu as i32, d], None);
        V(d)
    }

    /// Pushes weights: registers of `fmt` into slot `slot`.
    pub fn mxu_push(&mut self, mxu: u32, w: V, fmt: Format, slot: u32, transposed: bool) {
        let op = if transposed { Op::MxPushT } else { Op::MxPush };
        self.push(op, &[mxu as i32, w.0, fmt.code(), slot as i32], None);
    }

    /// Makes pushed weights active.
    pub fn mxu_latch(&mut self, mxu: u32) {
        self.push(Op::MxLatch, &[mxu as i32], None);
    }

    /// Streams left-hand rows.
    pub fn mxu_mul(&mut self, mxu: u32, lo: V, hi: V, fmt: Format) {
        self.push(Op::MxMul, &[mxu as i32, lo.0, hi.0, fmt.code()], None);
    }

    /// Next result of an MXU.
    pub fn mxu_pop(&mut self, mxu: u32) -> V {
        let d = self.fresh();
        self.push(Op::MxPop, &[mxu as i32, d], None);
        V(d)
    }

    /// Scalar instruction on physical registers.
    pub fn s(&mut self, op: Op, operands: &[i32]) {
        self.push(op, operands, None);
    }
}
