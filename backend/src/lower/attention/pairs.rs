//! The table of pairs of tiles, in SMEM.
//!
//! Pairs whose scores are masked come first, those of one mask together, then those that are seen whole. With a causal mask, what is
//! seen of a pair depends on the distance of its tiles alone: on the diagonal keys up to each query's own, at the far end of a window those
//! that are still in it.

use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::emit::{EmitError, Emitter, ZERO};
use super::TILE;
use super::mask::Mask;
use crate::ops::attention::Attention;

/// Entries before the first pair and after the last, for stages that are ahead or behind.
pub(super) const AROUND: u32 = 12;

/// A list of pairs: words of a tile of queries and one of keys.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// First word of the first pair.
    pub at: u32,
    /// Pairs that follow each other with the same mask, and how many they are; the last ones have none.
    pub runs: Vec<(Option<Mask>, u32)>,
}

/// Pairs of tiles of one head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// Tiles of queries from `first` on, each with the tile of keys of its own number plus `ahead`.
    Diagonal { first: u32, count: u32, ahead: i32 },
    /// Each tile of queries with the same tile of keys.
    Column { key: u32, count: u32 },
    /// Each tile of queries with those of keys before its own.
    Triangle { queries: u32 },
    /// Each tile of queries with the first ones of keys.
    Rectangle { queries: u32, keys: u32 },
}

impl Run {
    fn count(self) -> u32 {
        match self {
            Run::Diagonal { count, .. } | Run::Column { count, .. } => count,
            Run::Triangle { queries } => queries * (queries - 1) / 2,
            Run::Rectangle { queries, keys } => queries * keys,
        }
    }
}

/// What the pairs are of.
#[derive(Clone, Debug)]
pub(super) struct Tiles {
    /// Key heads, and query heads of each.
    pub heads: [u32; 2],
    /// Tiles of queries and of keys of a head.
    pub tiles: [u32; 2],
    /// Pairs of a head by what is hidden of them, those with nothing hidden last.
    runs: Vec<(Option<Mask>, Vec<Run>)>,
}

impl Tiles {
    /// Those of a block of `heads`.
    pub fn new(s: &Attention, heads: [u32; 2]) -> Tiles {
        let tiles = [s.queries, s.keys].map(|n| (n as u32).div_ceil(TILE));
        let runs = if s.form.causal { causal(s, tiles) } else { whole(s, tiles) };
        Tiles { heads, tiles, runs }
    }

    /// Tiles of queries in the block.
    pub fn queries(&self) -> u32 {
        self.heads[0] * self.heads[1] * self.tiles[0]
    }

    /// Tiles of keys in the block.
    pub fn keys(&self) -> u32 {
        self.heads[0] * self.tiles[1]
    }
}

/// All pairs; keys that are not there are hidden.
fn whole(s: &Attention, [queries, keys]: [u32; 2]) -> Vec<(Option<Mask>, Vec<Run>)> {
    let ragged = (s.keys % u64::from(TILE)) as u32;
    let mut runs = Vec::new();
    if ragged > 0 {
        runs.push((Some(Mask::Keys(ragged)), vec![Run::Column { key: keys - 1, count: queries }]));
    }
    runs.push((None, vec![Run::Rectangle { queries, keys: keys - u32::from(ragged > 0) }]));
    runs
}

/// Pairs that are not all hidden by a causal mask, by the distance of their tiles.
fn causal(s: &Attention, [queries, keys]: [u32; 2]) -> Vec<(Option<Mask>, Vec<Run>)> {
    let tile = i64::from(TILE);
    let [q, k] = [queries, keys].map(i64::from);
    let (behind, window) = (s.form.offset as i64 / tile, s.form.window.map(|w| w as i64));
    let at = |distance: i64| {
        let ahead = behind - distance;
        let (first, end) = ((-ahead).max(0), q.min(k - ahead));
        (first < end).then(|| Run::Diagonal { first: first as u32, count: (end - first) as u32, ahead: ahead as i32 })
    };
    let (mut masked, mut full) = (Vec::new(), Vec::new());
    for distance in 0..q + behind {
        // A query is this many positions behind a key of the same place in its tile.
        let positions = distance * tile;
        if window.is_some_and(|w| positions - (tile - 1) >= w) {
            break;
        }
        let Some(run) = at(distance) else { continue };
        let end = window.filter(|w| positions + tile > *w).map(|w| (w - positions) as i32);
        let least = (distance == 0).then_some(0);
        match (least, end) {
            (None, None) => full.push(run),
            _ => masked.push((Some(Mask::Band { least, end }), vec![run])),
        }
    }
    if window.is_none() && behind == 0 && q == k {
        full = vec![Run::Triangle { queries }];
    }
    masked.push((None, full));
    masked
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
        let heads = t.heads[0] * t.heads[1];
        let runs: Vec<(Option<Mask>, u32)> =
            t.runs.iter().map(|(m, all)| (*m, heads * all.iter().map(|r| r.count()).sum::<u32>())).collect();
        let count: u32 = runs.iter().map(|r| r.1).sum();
        let at = e.smem((count + 2 * AROUND) * 2)? + 2 * AROUND;
        Ok(Table { at, runs })
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
        let count: u32 = self.runs.iter().map(|r| r.1).sum();
        around(e, self.at + 2 * count);
        around(e, self.at - 2 * AROUND);
        let [queries, keys] = t.tiles.map(|n| n as i32);
        let (first_query, first_key) = (e.sreg()?, e.sreg()?);
        for (_, runs) in &t.runs {
            e.sli(first_query, 0);
            e.sli(first_key, 0);
            e.repeat(t.heads[0], |e, _| {
                e.repeat(t.heads[1], |e, _| {
                    for run in runs {
                        write(e, &w, *run, [first_query, first_key])?;
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

fn write(e: &mut Emitter<'_>, w: &Writer, run: Run, from: [SReg; 2]) -> Result<(), EmitError> {
    match run {
        Run::Diagonal { first, count, ahead } => {
            // Numbers of tiles at the start of the run.
            let starts = (first as i32, first as i32 + ahead);
            one_each(e, w, count, starts, true, from)
        }
        Run::Column { key, count } => one_each(e, w, count, (0, key as i32), false, from),
        Run::Triangle { .. } => triangle(e, w, run.count(), from),
        Run::Rectangle { queries, keys } => rectangle(e, w, [queries, keys], from),
    }
}

/// A pair of each tile of queries from a first one on: with one tile of keys, or with one that goes along.
fn one_each(
    e: &mut Emitter<'_>,
    w: &Writer,
    count: u32,
    (query, key): (i32, i32),
    along: bool,
    from: [SReg; 2],
) -> Result<(), EmitError> {
    e.repeat(count, |e, i| {
        let (q, k) = (e.sreg()?, e.sreg()?);
        e.ss(Op::SAdd, q, from[0], i);
        e.si(Op::SAddi, q, q, query);
        e.si(Op::SAddi, k, from[1], key);
        if along {
            e.ss(Op::SAdd, k, k, i);
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
