//! Instructions of the vector ALU slots.

use tpusim_isa::num::Format;
use tpusim_isa::op::{Instr, Op};

use super::format::{small, to_bf16, widen};
use super::lanes;
use super::regs::{LANES, RegFile, Words};
use crate::memory::vmem::Vmem;
use crate::simd::{Work, widest};

macro_rules! float {
    ($r:ident, $d:expr, $a:expr, $b:expr, $mem:expr, $op:tt) => {
        $r.zip($d, $a, $b, $mem, |x, y| (f32::from_bits(x) $op f32::from_bits(y)).to_bits())
    };
}

/// Executes a vector ALU instruction.
pub(crate) fn execute(i: &Instr, v: &mut RegFile, m: &mut RegFile, scalars: &[u32], mem: &Vmem) {
    widest(Alu { i, v, m, scalars, mem });
}

struct Alu<'a> {
    i: &'a Instr,
    v: &'a mut RegFile,
    m: &'a mut RegFile,
    scalars: &'a [u32],
    mem: &'a Vmem,
}

impl Work for Alu<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const WIDE: bool>(self) {
        let Alu { i, v, m, scalars, mem } = self;
        dispatch(i, v, m, scalars, mem);
    }
}

#[inline(always)]
fn dispatch(i: &Instr, v: &mut RegFile, m: &mut RegFile, scalars: &[u32], mem: &Vmem) {
    let scalar = |r: i32| scalars[r as usize];
    let [d, a, b, c, _] = i.args;
    match i.op {
        Op::VImm => v.get_mut(d).0.fill(a as u32),
        Op::VBcast => v.get_mut(d).0.fill(scalar(a)),
        Op::VLaneId => by_index(v, d, |w| (w % LANES) as u32),
        Op::VSubId => by_index(v, d, |w| (w / LANES) as u32),
        Op::VMov => v.map(d, a, mem, |x| x),
        Op::VSel => v.select(d, m.get(a, mem), b, c, mem),
        Op::VAddF => float!(v, d, a, b, mem, +),
        Op::VSubF => float!(v, d, a, b, mem, -),
        Op::VMulF => float!(v, d, a, b, mem, *),
        Op::VMinF => v.zip(d, a, b, mem, lanes::min_f),
        Op::VMaxF => v.zip(d, a, b, mem, lanes::max_f),
        Op::VFloor => v.map(d, a, mem, |x| lanes::floor(f32::from_bits(x)).to_bits()),
        Op::VCeil => v.map(d, a, mem, |x| lanes::ceil(f32::from_bits(x)).to_bits()),
        Op::VRne => v.map(d, a, mem, |x| lanes::rne(f32::from_bits(x)).to_bits()),
        Op::VF2I => v.map(d, a, mem, |x| f32::from_bits(x) as i32 as u32),
        Op::VF2U => v.map(d, a, mem, |x| f32::from_bits(x) as u32),
        Op::VI2F => v.map(d, a, mem, |x| (x as i32 as f32).to_bits()),
        Op::VU2F => v.map(d, a, mem, |x| (x as f32).to_bits()),
        Op::VRound | Op::VUnpack | Op::VPack => formats(i, v, mem),
        Op::VAddI => v.zip(d, a, b, mem, u32::wrapping_add),
        Op::VSubI => v.zip(d, a, b, mem, u32::wrapping_sub),
        Op::VMulI => v.zip(d, a, b, mem, u32::wrapping_mul),
        Op::VMulHiU => v.zip(d, a, b, mem, |x, y| ((u64::from(x) * u64::from(y)) >> 32) as u32),
        Op::VMinI => v.zip(d, a, b, mem, |x, y| (x as i32).min(y as i32) as u32),
        Op::VMaxI => v.zip(d, a, b, mem, |x, y| (x as i32).max(y as i32) as u32),
        Op::VMinU => v.zip(d, a, b, mem, u32::min),
        Op::VMaxU => v.zip(d, a, b, mem, u32::max),
        Op::VAnd => v.zip(d, a, b, mem, |x, y| x & y),
        Op::VOr => v.zip(d, a, b, mem, |x, y| x | y),
        Op::VXor => v.zip(d, a, b, mem, |x, y| x ^ y),
        Op::VShl => v.zip(d, a, b, mem, lanes::shl),
        Op::VShr => v.zip(d, a, b, mem, lanes::shr),
        Op::VSra => v.zip(d, a, b, mem, lanes::sra),
        Op::VPopcnt => v.map(d, a, mem, u32::count_ones),
        Op::VClz => v.map(d, a, mem, u32::leading_zeros),
        Op::VSubRot => v.sublanes(d, a, mem, |s| (s as i32 - b.rem_euclid(8)).rem_euclid(8) as usize),
        Op::VSubBcast => v.sublanes(d, a, mem, |_| b as usize),
        Op::MAnd => m.zip(d, a, b, mem, |x, y| x & y),
        Op::MOr => m.zip(d, a, b, mem, |x, y| x | y),
        Op::MXor => m.zip(d, a, b, mem, |x, y| x ^ y),
        Op::MNot => m.map(d, a, mem, |x| !x),
        Op::MLaneLt => below(m, d, scalar(a).wrapping_add(b as u32) as i32, |w| w % LANES),
        Op::MSubLt => below(m, d, scalar(a).wrapping_add(b as u32) as i32, |w| w / LANES),
        _ => compare(i, v, m, mem),
    }
}

#[inline(always)]
fn by_index(v: &mut RegFile, d: i32, f: impl Fn(usize) -> u32) {
    v.get_mut(d).0.iter_mut().enumerate().for_each(|(w, x)| *x = f(w));
}

#[inline(always)]
fn below(m: &mut RegFile, d: i32, limit: i32, f: impl Fn(usize) -> usize) {
    by_index(m, d, |w| if (f(w) as i32) < limit { u32::MAX } else { 0 });
}

#[inline(always)]
fn compare(i: &Instr, v: &RegFile, m: &mut RegFile, mem: &Vmem) {
    let (d, a, b) = (i.args[0], v.get(i.args[1], mem), v.get(i.args[2], mem));
    let f = f32::from_bits;
    match i.op {
        Op::VEqF => m.compare(d, a, b, |x, y| f(x) == f(y)),
        Op::VNeF => m.compare(d, a, b, |x, y| f(x) != f(y)),
        Op::VLtF => m.compare(d, a, b, |x, y| f(x) < f(y)),
        Op::VLeF => m.compare(d, a, b, |x, y| f(x) <= f(y)),
        Op::VEqI => m.compare(d, a, b, |x, y| x == y),
        Op::VNeI => m.compare(d, a, b, |x, y| x != y),
        Op::VLtI => m.compare(d, a, b, |x, y| (x as i32) < y as i32),
        Op::VLeI => m.compare(d, a, b, |x, y| x as i32 <= y as i32),
        Op::VLtU => m.compare(d, a, b, |x, y| x < y),
        Op::VLeU => m.compare(d, a, b, |x, y| x <= y),
        _ => {}
    }
}

#[inline(always)]
fn formats(i: &Instr, v: &mut RegFile, mem: &Vmem) {
    let Some(f) = i.format() else { return };
    let [d, a, b, _, _] = i.args;
    match i.op {
        Op::VRound if f == Format::Bf16 => v.map(d, a, mem, |x| to_bf16(x) << 16),
        Op::VRound => match small(f) {
            Some(s) => v.map(d, a, mem, |x| s.decode(s.encode(x))),
            // Integers have no precision to round to.
            None => v.map(d, a, mem, |x| x),
        },
        Op::VUnpack => v.whole(d, a, a, mem, |x, _, out| unpack(x, out, f, i.args[3] as usize)),
        _ => v.whole(d, a, b, mem, |x, y, out| pack(x, y, out, f, i.args[4] as usize)),
    }
}

/// Sublanes of part `part` of a packed register, as `(sublane of the packed register, shift)`.
#[inline(always)]
fn place(packing: usize, part: usize, sublane: usize) -> (usize, u32) {
    let row = part * 8 + sublane;
    (row / packing, (row % packing * (32 / packing)) as u32)
}

#[inline(always)]
fn unpack(source: &Words, out: &mut Words, f: Format, part: usize) {
    let packing = f.packing();
    let (outs, _) = out.as_chunks_mut::<LANES>();
    let (rows, _) = source.as_chunks::<LANES>();
    for (s, out) in outs.iter_mut().enumerate() {
        let (from, shift) = place(packing, part, s);
        let pairs = out.iter_mut().zip(&rows[from]);
        let keep = u32::MAX >> (32 - 32 / packing as u32);
        match (small(f), f) {
            (Some(small), _) => pairs.for_each(|(o, x)| *o = small.decode((x >> shift) & keep)),
            (_, Format::Bf16) => pairs.for_each(|(o, x)| *o = (x >> shift) << 16),
            (_, Format::S8) => pairs.for_each(|(o, x)| *o = widen(Format::S8, x >> shift)),
            (_, Format::S16) => pairs.for_each(|(o, x)| *o = widen(Format::S16, x >> shift)),
            _ => pairs.for_each(|(o, x)| *o = (x >> shift) & keep),
        }
    }
}

#[inline(always)]
fn pack(base: &Words, source: &Words, out: &mut Words, f: Format, part: usize) {
    let packing = f.packing();
    let keep: u32 = if packing == 4 { 0xff } else { 0xffff };
    out.copy_from_slice(base);
    let (outs, _) = out.as_chunks_mut::<LANES>();
    let (rows, _) = source.as_chunks::<LANES>();
    for (s, row) in rows.iter().enumerate() {
        let (to, shift) = place(packing, part, s);
        let pairs = outs[to].iter_mut().zip(row);
        let insert = |o: &mut u32, bits: u32| *o = (*o & !(keep << shift)) | bits << shift;
        match (small(f), f) {
            (Some(small), _) => pairs.for_each(|(o, x)| insert(o, small.encode(*x))),
            (_, Format::Bf16) => pairs.for_each(|(o, x)| insert(o, to_bf16(*x))),
            _ => pairs.for_each(|(o, x)| insert(o, x & keep)),
        }
    }
}
