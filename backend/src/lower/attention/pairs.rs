//! The table of pairs of tiles, in SMEM.

use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::emit::{EmitError, Emitter, ZERO};

/// Entries before the first pair and after the last, for stages that are ahead or behind.
pub(super) const AROUND: u32 = 12;

/// A list of pairs: words of a tile of queries and one of keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    /// First word of the first pair.
    pub at: u32,
    /// Pairs whose scores are masked; they come first.
    pub masked: u32,
    /// All pairs.
    pub count: u32,
}

/// What the pairs are of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles {
    /// Key heads, and query heads of each.
    pub heads: [u32; 2],
    /// Tiles of queries and of keys of a head.
    pub tiles: [u32; 2],
    /// Whether keys behind their queries are hidden.
    pub causal: bool,
    /// Whether the last tile of keys is not full.
    pub ragged: bool,
}

impl Tiles {
    /// Tiles of queries in the block.
    pub fn queries(&self) -> u32 {
        self.heads[0] * self.heads[1] * self.tiles[0]
    }

    /// Tiles of keys in the block.
    pub fn keys(&self) -> u32 {
        self.heads[0] * self.tiles[1]
    }

    fn masked(&self) -> u32 {
        if self.causal || self.ragged { self.queries() } else { 0 }
    }

    /// Unmasked pairs of one head.
    fn full(&self) -> u32 {
        match (self.causal, self.ragged) {
            (true, _) => self.tiles[0] * (self.tiles[0] - 1) / 2,
            (false, ragged) => self.tiles[0] * (self.tiles[1] - u32::from(ragged)),
        }
    }
}

/// Writes pairs one after the other.
struct Writer {
    at: SReg,
}

impl Writer {
    fn put(&self, e: &mut Emitter<'_>, query: SReg, key: SReg) {
        for (i, r) in [query, key].into_iter().enumerate() {
            e.code.s(Op::SSt, &[i32::from(r.0), i32::from(self.at.0), i as i32]);
        }
        e.si(Op::SAddi, self.at, self.at, 2);
    }
}

impl Table {
    /// Words of SMEM for the list of `t`, and its parts.
    pub fn reserve(e: &mut Emitter<'_>, t: &Tiles) -> Result<Table, EmitError> {
        let masked = t.masked();
        let count = masked + t.heads[0] * t.heads[1] * t.full();
        let at = e.smem((count + 2 * AROUND) * 2)? + 2 * AROUND;
        Ok(Table { at, masked, count })
    }

    /// Writes the list. Entries around it are of the tiles after the last ones.
    pub fn write(&self, e: &mut Emitter<'_>, t: &Tiles) -> Result<(), EmitError> {
        let w = Writer { at: e.sreg()? };
        let (nobody, nothing) = (e.sreg()?, e.sreg()?);
        e.sli(nobody, t.queries() as i32);
        e.sli(nothing, t.keys() as i32);
        let around = |e: &mut Emitter<'_>, first: u32| {
            e.sli(w.at, first as i32);
            (0..AROUND).for_each(|_| w.put(e, nobody, nothing));
        };
        around(e, self.at + 2 * self.count);
        around(e, self.at - 2 * AROUND);
        let [queries, keys] = t.tiles.map(|n| n as i32);
        let (first_query, first_key) = (e.sreg()?, e.sreg()?);
        for masked in [true, false] {
            if masked && self.masked == 0 {
                continue;
            }
            e.sli(first_query, 0);
            e.sli(first_key, 0);
            e.repeat(t.heads[0], |e, _| {
                e.repeat(t.heads[1], |e, _| {
                    if masked {
                        one_each(e, &w, t, [first_query, first_key])?;
                    } else if t.causal {
                        triangle(e, &w, t.full(), [first_query, first_key])?;
                    } else {
                        rectangle(e, &w, [t.tiles[0], t.tiles[1] - u32::from(t.ragged)], [first_query, first_key])?;
                    }
                    e.si(Op::SAddi, first_query, first_query, queries);
                    e.flush()
                })?;
                e.si(Op::SAddi, first_key, first_key, keys);
                e.flush()
            })?;
        }
        [w.at, nobody, nothing, first_query, first_key].into_iter().for_each(|r| e.free(r));
        e.flush()
    }
}

/// The masked pair of each tile of queries of a head.
fn one_each(e: &mut Emitter<'_>, w: &Writer, t: &Tiles, first: [SReg; 2]) -> Result<(), EmitError> {
    e.repeat(t.tiles[0], |e, i| {
        let (q, k) = (e.sreg()?, e.sreg()?);
        e.ss(Op::SAdd, q, first[0], i);
        match t.causal {
            true => e.ss(Op::SAdd, k, first[1], i),
            false => e.si(Op::SAddi, k, first[1], t.tiles[1] as i32 - 1),
        }
        w.put(e, q, k);
        e.free(q);
        e.free(k);
        e.flush()
    })
}

/// Each tile of queries of a head with those of keys before it.
fn triangle(e: &mut Emitter<'_>, w: &Writer, count: u32, first: [SReg; 2]) -> Result<(), EmitError> {
    let [i, j, q, k] = [e.sreg()?, e.sreg()?, e.sreg()?, e.sreg()?];
    e.sli(i, 1);
    e.sli(j, 0);
    e.repeat(count, |e, _| {
        e.ss(Op::SAdd, q, first[0], i);
        e.ss(Op::SAdd, k, first[1], j);
        w.put(e, q, k);
        // The next one, or the first of the next row.
        e.si(Op::SAddi, j, j, 1);
        e.ss(Op::SEq, q, i, j);
        e.ss(Op::SAdd, i, i, q);
        e.ss4(Op::SSel, j, q, ZERO, j);
        e.flush()
    })?;
    [i, j, q, k].into_iter().for_each(|r| e.free(r));
    Ok(())
}

/// Each tile of queries of a head with all of keys.
fn rectangle(e: &mut Emitter<'_>, w: &Writer, sizes: [u32; 2], first: [SReg; 2]) -> Result<(), EmitError> {
    e.repeat(sizes[0], |e, i| {
        e.repeat(sizes[1], |e, j| {
            let (q, k) = (e.sreg()?, e.sreg()?);
            e.ss(Op::SAdd, q, first[0], i);
            e.ss(Op::SAdd, k, first[1], j);
            w.put(e, q, k);
            e.free(q);
            e.free(k);
            e.flush()
        })
    })
}
