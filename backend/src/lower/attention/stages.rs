//! What the stages of a body work on: buffers that they hand on from body to body, and tiles at places that the table of pairs says.

use tpusim_isa::num::Format;
use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::nest::Nest;
use super::super::vcode::{Object, Place};
use super::TILE;
use super::pairs::{AROUND, Table, Tiles};
use super::pipeline::Number;

/// Bodies of a loop that differ in the buffers they use; a power of two.
pub(super) const UNROLL: u32 = 4;
/// Groups of 8 keys of a tile, and of 128 queries.
pub(super) const KEYS: u32 = TILE / 8;
pub(super) const LANES: u32 = TILE / 128;

/// A piece of VMEM, of slots for bodies or tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub at: u32,
    /// Rows of a slot.
    pub rows: u32,
}

impl Piece {
    pub fn reserve(e: &mut Emitter<'_>, slots: u32, rows: u32) -> Piece {
        Piece { at: e.vmem(slots * rows), rows }
    }

    /// One for each body of a loop.
    pub fn buffers(e: &mut Emitter<'_>, rows: u32) -> Piece {
        Piece::reserve(e, UNROLL, rows)
    }
}

/// Which tile of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Query,
    Key,
}

/// Tiles of an array by the numbers in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub side: Side,
    /// How many bodies ago the pair came in.
    pub lag: u32,
    /// VMEM rows from tile to tile.
    pub rows: u32,
    /// What is added.
    pub base: SReg,
    /// Whether there is a tile for the pairs around the list too.
    pub spare: bool,
}

/// Registers and names of the body at hand.
#[derive(Debug)]
pub(super) struct Stages {
    pub table: Table,
    pub tiles: Tiles,
    /// Whether instructions of different stages alternate.
    pub spread: bool,
    /// Number of the body, modulo [`UNROLL`].
    pub number: u32,
    objects: Vec<((u32, u32), Object)>,
    /// Numbers of tiles in the next body.
    raw: Vec<(Side, u32, SReg)>,
    addresses: Vec<(Spot, SReg)>,
}

/// Stands for a lag where all stages share an array.
const SHARED: u32 = u32::MAX;

impl Stages {
    pub fn new(e: &mut Emitter<'_>, tiles: Tiles, spread: bool) -> Result<Stages, EmitError> {
        let table = Table::reserve(e, &tiles)?;
        Ok(Stages { table, tiles, spread, number: 0, objects: Vec::new(), raw: Vec::new(), addresses: Vec::new() })
    }

    fn object(&mut self, e: &mut Emitter<'_>, key: (u32, u32)) -> Object {
        if let Some((_, o)) = self.objects.iter().find(|(k, _)| *k == key) {
            return *o;
        }
        let o = e.object();
        self.objects.push((key, o));
        o
    }

    /// The object that all of `piece` is.
    pub fn whole(&mut self, e: &mut Emitter<'_>, piece: Piece) -> Object {
        self.object(e, (piece.at, SHARED))
    }

    /// The buffer of the pair that came in `lag` bodies ago. Stages that are not equally far behind use different ones.
    pub fn buffer(&mut self, e: &mut Emitter<'_>, piece: Piece, lag: u32) -> Place {
        let slot = (self.number + UNROLL * AROUND - lag) % UNROLL;
        Place { object: self.object(e, (piece.at, lag)), base: ZERO, offset: (piece.at + slot * piece.rows) as i32 }
    }

    /// Takes registers for what `spots` lists.
    pub fn want(&mut self, e: &mut Emitter<'_>, spots: &[Spot]) -> Result<(), EmitError> {
        for s in spots {
            if !self.addresses.iter().any(|(t, _)| t == s) {
                let r = e.sreg()?;
                self.addresses.push((*s, r));
            }
            if !self.raw.iter().any(|(side, lag, _)| (*side, *lag) == (s.side, s.lag)) {
                self.raw.push((s.side, s.lag, e.sreg()?));
            }
        }
        Ok(())
    }

    /// Gives the registers back.
    pub fn release(&mut self, e: &mut Emitter<'_>) {
        self.raw.drain(..).for_each(|(_, _, r)| e.free(r));
        self.addresses.drain(..).for_each(|(_, r)| e.free(r));
    }

    /// Loads the numbers of the pairs of the body `ahead` after the one whose first word in the list is in `word`.
    pub fn load(&self, e: &mut Emitter<'_>, word: SReg, ahead: u32) {
        for (side, lag, raw) in &self.raw {
            let at = i64::from(self.table.at) + 2 * (i64::from(ahead) - i64::from(*lag));
            let at = at + i64::from(*side == Side::Key);
            e.code.s(Op::SLd, &[i32::from(raw.0), i32::from(word.0), at as i32]);
        }
    }

    /// The register with twice the number of the first body of `n`'s loop.
    pub fn word(&self, e: &mut Emitter<'_>, n: Number) -> Result<SReg, EmitError> {
        e.affine(n.counter, 2 * n.unroll as i32, 0)
    }

    /// Computes addresses from numbers, those `first` lags behind first.
    pub fn addresses(&self, e: &mut Emitter<'_>, first: u32) {
        let mut order: Vec<&(Spot, SReg)> = self.addresses.iter().collect();
        order.sort_by_key(|(s, _)| s.lag != first);
        for (s, to) in order {
            let raw = self.raw.iter().find(|(side, lag, _)| (*side, *lag) == (s.side, s.lag));
            let mut from = raw.map_or(ZERO, |r| r.2);
            if !s.spare {
                let tiles = if s.side == Side::Query { self.tiles.queries() } else { self.tiles.keys() };
                e.si(Op::SMini, *to, from, tiles as i32 - 1);
                from = *to;
            }
            e.si(Op::SMuli, *to, from, s.rows as i32);
            if s.base != ZERO {
                e.ss(Op::SAdd, *to, *to, s.base);
            }
        }
    }

    /// The address of a tile.
    pub fn address(&self, spot: Spot) -> SReg {
        self.addresses.iter().find(|(s, _)| *s == spot).map_or(ZERO, |a| a.1)
    }
}

/// Once for the kernel: padding of blocks is zero, buffers and arrays hold numbers everywhere, and the list of pairs is written.
pub(super) fn prepare(
    e: &mut Emitter<'_>,
    nest: &Nest,
    padded: &[usize],
    buffers: &[Piece],
    st: &mut Stages,
) -> Result<(), EmitError> {
    // The pairs before the first compute with what is there, and what they leave in an array meets zeros.
    for &b in buffers {
        fill(e, st, b, UNROLL, 0)?;
    }
    for &s in padded {
        for (at, rows) in nest.buffers(s) {
            let object = e.object();
            e.repeat(rows / 8, |e, c| {
                let base = e.affine(c, 8, at as i32)?;
                let zero = e.code.imm(0);
                e.code.store(zero, Place { object, base, offset: 0 });
                e.flush()?;
                e.free(base);
                Ok(())
            })?;
        }
    }
    // Weights that are never pushed meet zeros; they must be numbers.
    let dim = *e.chip.mxu.dim;
    for mxu in 0..*e.chip.mxu.count {
        let zero = e.code.imm(0);
        (0..dim / 16 * (dim / 128)).for_each(|slot| e.code.mxu_push(mxu, zero, Format::Bf16, slot, false));
        e.code.mxu_latch(mxu);
    }
    st.table.write(e, &st.tiles)
}

/// Fills slots `0 .. count` of `piece` with `bits`.
pub(super) fn fill(e: &mut Emitter<'_>, st: &mut Stages, piece: Piece, count: u32, bits: i32) -> Result<(), EmitError> {
    let object = st.whole(e, piece);
    // Eight registers at a time, or what divides a slot.
    let step = (1..=8).rev().map(|n| 8 * n).find(|n| piece.rows.is_multiple_of(*n)).unwrap_or(8);
    e.repeat(count * piece.rows / step, |e, c| {
        let base = e.affine(c, step as i32, piece.at as i32)?;
        let v = e.code.imm(bits);
        (0..step).step_by(8).for_each(|r| e.code.store(v, Place { object, base, offset: r as i32 }));
        e.flush()?;
        e.free(base);
        Ok(())
    })
}
