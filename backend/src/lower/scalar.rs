//! Scalars that a kernel reads before its first block: the indices of dynamic slices, and integer arithmetic on them.
//!
//! A scalar comes from HBM to SMEM by a DMA and from there to a register. What is computed from it runs on the scalar unit, and DMAs
//! add the clamped result to their addresses. Values are held as vector registers hold them: narrow integers extended to 32 bits, `i1`
//! as 0 or 1.

use std::collections::BTreeMap;

use tpusim_isa::num::{DType, DTypeKind};
use tpusim_isa::op::Op;
use tpusim_isa::program::{Addr, DmaDesc, DmaDir, OnChip, SReg};

use crate::graph::Counter;

use super::emit::{EmitError, Emitter, ZERO};
use super::expr::{Access, Shift};
use super::math::{Direction, MapOp};

/// Index of a scalar in its kernel's list.
pub type ScalarIx = usize;

/// What a scalar is.
#[derive(Clone, Debug, PartialEq)]
pub enum ScalarKind {
    /// Read from HBM; the access has no dimensions.
    Load(Access),
    /// These bits.
    Imm(i32),
    /// What follows the iterations of a loop around the kernel.
    Counter(Counter),
    /// An operation that [`computes`] allows; the type is that of its first operand that is not a predicate.
    Map(MapOp, DType),
}

/// A scalar of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalar {
    /// What it is.
    pub kind: ScalarKind,
    /// Operands, earlier in the list.
    pub args: Vec<ScalarIx>,
    /// Type, an integer or `i1`.
    pub dtype: DType,
}

/// Whether the scalar unit has code for `op` on operands of type `operand` and a result of type `result`.
pub fn computes(op: MapOp, operand: DType, result: DType) -> bool {
    let int = |t: DType| matches!(t.kind(), DTypeKind::Signed | DTypeKind::Unsigned) && t.bits() <= 32;
    let holds = |t: DType| int(t) || t == DType::I1;
    let word = |t: DType| int(t) && t.bits() == 32;
    holds(operand)
        && holds(result)
        && match op {
            MapOp::Add | MapOp::Sub | MapOp::Mul | MapOp::Neg | MapOp::Max | MapOp::Min | MapOp::Shl => int(operand),
            MapOp::ShrLogical => word(operand) || operand.kind() == DTypeKind::Unsigned,
            MapOp::ShrArith => operand.is_signed(),
            MapOp::Bitcast => word(operand) && word(result),
            MapOp::Compare(Direction::Eq | Direction::Ne, _) => true,
            MapOp::Compare(..) => int(operand),
            MapOp::And | MapOp::Or | MapOp::Xor | MapOp::Not | MapOp::Select | MapOp::Convert | MapOp::Copy => true,
            _ => false,
        }
}

/// The value of `op`, which [`computes`] allows, on known operands, all extended to 64 bits.
pub fn fold(op: MapOp, result: DType, args: &[i64]) -> Option<i64> {
    let x = *args.first()?;
    let y = args.get(1).copied().unwrap_or(0);
    let v = match op {
        MapOp::Add => x.wrapping_add(y),
        MapOp::Sub => x.wrapping_sub(y),
        MapOp::Mul => x.wrapping_mul(y),
        MapOp::Neg => x.wrapping_neg(),
        MapOp::Max => x.max(y),
        MapOp::Min => x.min(y),
        MapOp::Compare(d, _) => i64::from(match d {
            Direction::Eq => x == y,
            Direction::Ne => x != y,
            Direction::Lt => x < y,
            Direction::Le => x <= y,
            Direction::Gt => x > y,
            Direction::Ge => x >= y,
        }),
        MapOp::And => x & y,
        MapOp::Or => x | y,
        MapOp::Xor => x ^ y,
        MapOp::Not => !x,
        MapOp::Select => *if x != 0 { args.get(1)? } else { args.get(2)? },
        MapOp::Shl if (0..64).contains(&y) => x << y,
        MapOp::ShrArith if (0..64).contains(&y) => x >> y,
        MapOp::ShrLogical if (0..64).contains(&y) => {
            let free = 64 - result.bits().min(64);
            (((x << free) as u64 >> free) >> y) as i64
        }
        MapOp::Shl | MapOp::ShrLogical => 0,
        MapOp::ShrArith => x >> 63,
        MapOp::Convert | MapOp::Copy | MapOp::Bitcast => x,
        _ => return None,
    };
    Some(if result == DType::I1 {
        if op == MapOp::Convert { i64::from(v != 0) } else { v & 1 }
    } else {
        let free = 64 - result.bits();
        if result.is_signed() { v << free >> free } else { ((v << free) as u64 >> free) as i64 }
    })
}

/// Scalars whose weighted sum one register holds: scalar, largest index and weight of each.
type Sum = Vec<(ScalarIx, i32, i64)>;

/// Where a kernel's accesses start: the addresses of buffers, and registers for what moves accesses.
pub struct Bases<'a> {
    of: &'a dyn Fn(usize) -> i64,
    registers: BTreeMap<Sum, SReg>,
}

impl<'a> Bases<'a> {
    /// Emits the code that loads `scalars` and computes what moves `accesses`; `of` gives the HBM address of a buffer. The registers
    /// stay taken.
    ///
    /// # Errors
    /// [`EmitError`] when scalar registers, sync flags or SMEM run out.
    pub fn load<'k>(
        e: &mut Emitter<'_>,
        of: &'a dyn Fn(usize) -> i64,
        scalars: &[Scalar],
        accesses: impl Iterator<Item = &'k Access>,
    ) -> Result<Bases<'a>, EmitError> {
        let mut sums: Vec<Sum> = accesses.flat_map(|a| sums(&a.shifts)).map(|(s, _)| s).collect();
        sums.sort();
        sums.dedup();
        let mut bases = Bases { of, registers: BTreeMap::new() };
        if !sums.is_empty() {
            let mut p = Prologue::new(scalars, &sums, of);
            p.fetch_fixed(e)?;
            for s in sums {
                let r = p.sum(e, &s)?;
                bases.registers.insert(s, r);
            }
            e.flush()?;
        }
        Ok(bases)
    }

    /// The HBM address of an access at index zero.
    pub fn addr(&self, a: &Access) -> Addr {
        let terms = sums(&a.shifts).into_iter().filter_map(|(s, scale)| Some((*self.registers.get(&s)?, scale)));
        Addr { base: (self.of)(a.buffer) + a.offset, terms: terms.collect() }
    }
}

/// Emits the code that computes the last of `scalars`; the register it is in.
///
/// # Errors
/// [`EmitError`] when scalar registers, sync flags or SMEM run out.
pub fn decide(e: &mut Emitter<'_>, of: &dyn Fn(usize) -> i64, scalars: &[Scalar]) -> Result<SReg, EmitError> {
    let Some(last) = scalars.len().checked_sub(1) else { return Ok(ZERO) };
    let mut p = Prologue::new(scalars, &[vec![(last, 0, 1)]], of);
    p.fetch_fixed(e)?;
    let r = p.value(e, last)?;
    e.flush()?;
    Ok(r)
}

/// `shifts` as sums that fit registers, with the bytes that one unit of each stands for: one sum if it fits.
fn sums(shifts: &[Shift]) -> Vec<(Sum, i64)> {
    let Some(first) = shifts.first() else { return Vec::new() };
    let unit = shifts.iter().fold(0, |g, s| gcd(g, s.stride)) * first.stride.signum();
    let sum: Sum = shifts.iter().map(|s| (s.scalar, s.limit, s.stride / unit)).collect();
    let most = sum.iter().map(|(_, limit, weight)| i128::from(*limit) * i128::from(weight.abs())).sum::<i128>();
    if most <= i128::from(i32::MAX) {
        return vec![(sum, unit)];
    }
    shifts.iter().map(|s| (vec![(s.scalar, s.limit, 1)], s.stride)).collect()
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 {
        a.abs().max(1)
    } else if a == 0 {
        b.abs()
    } else {
        gcd(b, a % b)
    }
}

/// Scalars on their way into registers.
struct Prologue<'s> {
    scalars: &'s [Scalar],
    of: &'s dyn Fn(usize) -> i64,
    /// Reads of each scalar that are still to come.
    uses: Vec<u32>,
    regs: Vec<Option<SReg>>,
    /// SMEM word of each scalar that is loaded.
    words: Vec<i32>,
    flag: i32,
}

impl<'s> Prologue<'s> {
    fn new(scalars: &'s [Scalar], wanted: &[Sum], of: &'s dyn Fn(usize) -> i64) -> Self {
        let mut uses = vec![0; scalars.len()];
        wanted.iter().flatten().for_each(|t| uses[t.0] += 1);
        for (ix, s) in scalars.iter().enumerate().rev() {
            if uses[ix] == 0 {
                continue;
            }
            s.args.iter().for_each(|&a| uses[a] += 1);
            if let ScalarKind::Load(a) = &s.kind {
                sums(&a.shifts).iter().flat_map(|(s, _)| s).for_each(|t| uses[t.0] += 1);
            }
        }
        Prologue { scalars, of, uses, regs: vec![None; scalars.len()], words: vec![0; scalars.len()], flag: 0 }
    }

    /// Brings all scalars in fixed places to SMEM at once.
    fn fetch_fixed(&mut self, e: &mut Emitter<'_>) -> Result<(), EmitError> {
        self.flag = e.flag()?;
        let mut count = 0;
        for (ix, s) in self.scalars.iter().enumerate().filter(|(ix, _)| self.uses[*ix] > 0) {
            if let ScalarKind::Load(a) = &s.kind {
                self.words[ix] = e.smem(1)? as i32;
                if a.shifts.is_empty() {
                    let hbm = Addr { base: (self.of)(a.buffer) + a.offset, terms: vec![] };
                    fetch(e, s.dtype, hbm, self.words[ix], self.flag);
                    count += 1;
                }
            }
        }
        if count > 0 {
            e.wait(self.flag, count);
        }
        Ok(())
    }

    /// The register of scalar `ix`, computed when it is first wanted.
    fn value(&mut self, e: &mut Emitter<'_>, ix: ScalarIx) -> Result<SReg, EmitError> {
        if let Some(r) = self.regs[ix] {
            return Ok(r);
        }
        let s = &self.scalars[ix];
        let r = match &s.kind {
            ScalarKind::Imm(0) => ZERO,
            ScalarKind::Imm(v) => e.affine(ZERO, 0, *v)?,
            ScalarKind::Counter(c) => e.counter(*c)?,
            ScalarKind::Load(a) => self.load(e, s.dtype, a, self.words[ix])?,
            ScalarKind::Map(op, operand) => self.map(e, *op, *operand, s)?,
        };
        self.regs[ix] = Some(r);
        Ok(r)
    }

    fn load(&mut self, e: &mut Emitter<'_>, dtype: DType, a: &Access, word: i32) -> Result<SReg, EmitError> {
        let mut hbm = Addr { base: (self.of)(a.buffer) + a.offset, terms: vec![] };
        for (sum, scale) in sums(&a.shifts) {
            hbm.terms.push((self.sum(e, &sum)?, scale));
        }
        if !hbm.terms.is_empty() {
            let moved = hbm.terms.clone();
            fetch(e, dtype, hbm, word, self.flag);
            e.wait(self.flag, 1);
            moved.iter().for_each(|t| e.free(t.0));
        }
        let r = e.sreg()?;
        e.si(Op::SLd, r, ZERO, word);
        if dtype != DType::I1 {
            wrap(e, r, dtype)?;
        }
        Ok(r)
    }

    fn map(&mut self, e: &mut Emitter<'_>, op: MapOp, operand: DType, s: &Scalar) -> Result<SReg, EmitError> {
        let mut args = [ZERO; 3];
        for (r, &a) in args.iter_mut().zip(&s.args) {
            *r = self.value(e, a)?;
        }
        let [mut x, mut y, z] = args;
        let r = e.sreg()?;
        let ordered = matches!(op, MapOp::Compare(d, _) if !matches!(d, Direction::Eq | Direction::Ne));
        // Comparisons and extremes are signed; unsigned words are in order with their first bit flipped.
        let flipped = operand == DType::U32 && (ordered || matches!(op, MapOp::Max | MapOp::Min));
        if flipped {
            for v in [&mut x, &mut y] {
                let f = e.sreg()?;
                e.si(Op::SXori, f, *v, i32::MIN);
                *v = f;
            }
        }
        let mut compare = |op: Op, x: SReg, y: SReg, not: bool| {
            e.ss(op, r, x, y);
            if not {
                e.si(Op::SXori, r, r, 1);
            }
        };
        match op {
            MapOp::Add => e.ss(Op::SAdd, r, x, y),
            MapOp::Sub => e.ss(Op::SSub, r, x, y),
            MapOp::Mul => e.ss(Op::SMul, r, x, y),
            MapOp::Neg => e.ss(Op::SSub, r, ZERO, x),
            MapOp::Max => e.ss(Op::SMax, r, x, y),
            MapOp::Min => e.ss(Op::SMin, r, x, y),
            MapOp::And => e.ss(Op::SAnd, r, x, y),
            MapOp::Or => e.ss(Op::SOr, r, x, y),
            MapOp::Xor => e.ss(Op::SXor, r, x, y),
            MapOp::Not => e.si(Op::SXori, r, x, if operand == DType::I1 { 1 } else { -1 }),
            MapOp::Shl => e.ss(Op::SShl, r, x, y),
            MapOp::ShrLogical => e.ss(Op::SShr, r, x, y),
            MapOp::ShrArith => {
                // All bits flip before and after if the sign is set, so that zeros come in as ones.
                let sign = e.sreg()?;
                e.si(Op::SLti, sign, x, 0);
                e.si(Op::SMuli, sign, sign, -1);
                e.ss(Op::SXor, r, x, sign);
                e.ss(Op::SShr, r, r, y);
                e.ss(Op::SXor, r, r, sign);
                e.free(sign);
            }
            MapOp::Select => e.ss4(Op::SSel, r, x, y, z),
            MapOp::Compare(Direction::Eq, _) => compare(Op::SEq, x, y, false),
            MapOp::Compare(Direction::Ne, _) => compare(Op::SEq, x, y, true),
            MapOp::Compare(Direction::Lt, _) => compare(Op::SLt, x, y, false),
            MapOp::Compare(Direction::Ge, _) => compare(Op::SLt, x, y, true),
            MapOp::Compare(Direction::Gt, _) => compare(Op::SLt, y, x, false),
            MapOp::Compare(Direction::Le, _) => compare(Op::SLt, y, x, true),
            MapOp::Convert if s.dtype == DType::I1 => compare(Op::SEq, x, ZERO, true),
            _ => e.si(Op::SAddi, r, x, 0),
        }
        if flipped {
            if !ordered {
                e.si(Op::SXori, r, r, i32::MIN);
            }
            e.free(x);
            e.free(y);
        }
        if s.dtype != DType::I1 {
            wrap(e, r, s.dtype)?;
        }
        for &a in &s.args {
            self.read(e, a);
        }
        Ok(r)
    }

    /// Counts a read of `ix`; after the last one its register is free.
    fn read(&mut self, e: &mut Emitter<'_>, ix: ScalarIx) {
        self.uses[ix] -= 1;
        if self.uses[ix] == 0
            && let Some(r) = self.regs[ix].filter(|r| *r != ZERO)
        {
            e.free(r);
        }
    }

    /// The weighted sum of clamped scalars, in a fresh register.
    fn sum(&mut self, e: &mut Emitter<'_>, sum: &Sum) -> Result<SReg, EmitError> {
        let mut total: Option<SReg> = None;
        for &(ix, limit, weight) in sum {
            let x = self.value(e, ix)?;
            let r = e.sreg()?;
            e.si(Op::SMini, r, x, limit);
            if self.scalars[ix].dtype == DType::U32 {
                // What looks negative is large.
                let (c, most) = (e.sreg()?, e.affine(ZERO, 0, limit)?);
                e.si(Op::SLti, c, r, 0);
                e.ss4(Op::SSel, r, c, most, r);
                e.free(c);
                e.free(most);
            } else {
                e.si(Op::SMaxi, r, r, 0);
            }
            self.read(e, ix);
            if weight != 1 {
                // A sum fits 32 bits, and so does every weight of an index that is not always 0.
                e.si(Op::SMuli, r, r, weight as i32);
            }
            match total {
                None => total = Some(r),
                Some(t) => {
                    e.ss(Op::SAdd, t, t, r);
                    e.free(r);
                }
            }
        }
        total.map_or_else(|| e.affine(ZERO, 0, 0), Ok)
    }
}

/// Starts the DMA of one element at `hbm` into SMEM.
fn fetch(e: &mut Emitter<'_>, dtype: DType, hbm: Addr, word: i32, flag: i32) {
    let elem_bytes = dtype.bytes() as u8;
    let desc = DmaDesc {
        dir: DmaDir::Load,
        mem: OnChip::Smem,
        elem_bytes,
        outer: Vec::new(),
        rows: 1,
        row_stride: 0,
        cols: 1,
        col_stride: i64::from(elem_bytes),
        lane_tiles: 0,
        hbm,
        local: Addr { base: i64::from(word), terms: Vec::new() },
    };
    e.dma(desc, flag);
}

/// Extends the low bits of `r` as a narrow integer of type `t` is held.
fn wrap(e: &mut Emitter<'_>, r: SReg, t: DType) -> Result<(), EmitError> {
    if t.bits() < 32 {
        let mask = e.affine(ZERO, 0, (1 << t.bits()) - 1)?;
        e.ss(Op::SAnd, r, r, mask);
        e.free(mask);
        if t.is_signed() {
            let sign = 1 << (t.bits() - 1);
            e.si(Op::SXori, r, r, sign);
            e.si(Op::SAddi, r, r, -sign);
        }
    }
    Ok(())
}
