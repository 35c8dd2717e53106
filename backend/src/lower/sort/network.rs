//! Passes of the network over words in VMEM.
//!
//! A pass reads every word of its rows, exchanges elements and writes them back. Exchanges over up to three bits of the row happen in
//! one pass: eight registers of each word are one group, between which all distances are exchanges of registers. Where the distance is
//! below eight rows a register takes every `n`-th row, so that sublanes never move.

use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::vcode::{self, Code, M, Object, V};
use super::order::{before, choose};
use super::{Dir, Place, SortSpec};

/// Exchange between two registers of a group.
#[derive(Clone, Copy)]
struct Exchange {
    low: usize,
    high: usize,
    /// `None`: the direction of the pass.
    down: Option<bool>,
}

/// The words in VMEM.
pub(super) struct Net<'a> {
    pub spec: &'a SortSpec,
    /// First row of each word.
    pub at: Vec<u32>,
    pub objects: Vec<Object>,
    /// Number of real elements, if positions beyond them are compared.
    pub pads: Option<i32>,
    pub xlu: u32,
    /// Vector registers that the elements of one group may take.
    pub budget: usize,
}

impl Net<'_> {
    fn words(&self) -> usize {
        self.at.len()
    }

    pub(super) fn place(&self, word: usize, base: SReg, row: i32) -> vcode::Place {
        vcode::Place { object: self.objects[word], base, offset: self.at[word] as i32 + row }
    }

    fn next_xlu(&mut self, e: &Emitter<'_>) -> u32 {
        super::super::cells::next_xlu(e, &mut self.xlu)
    }

    /// Bits of the row that one pass exchanges.
    fn radix(&self) -> u32 {
        match self.budget / self.words() {
            0..=3 => 1,
            4..=7 => 2,
            _ => 3,
        }
    }

    /// Sorts elements whose position's bits lie at `bits`, lowest first.
    pub(super) fn sort(&mut self, e: &mut Emitter<'_>, rows: u32, bits: &[Place], last: Dir) -> Result<(), EmitError> {
        let mut from = 1;
        let whole: Vec<Place> = (0..3).map(Place::Row).collect();
        let dir = |s: usize| bits.get(s).map_or(last, |&b| Dir::Bit(b));
        if bits.starts_with(&whole) && self.radix() == 3 {
            let mut list = exchanges(3, &[0], |k| Some(k & 2 != 0));
            list.extend(exchanges(3, &[1, 0], |k| Some(k & 4 != 0)));
            list.extend(exchanges(3, &[2, 1, 0], |_| None));
            self.row_pass(e, rows, 2, 3, &list, dir(3))?;
            from = 4;
        }
        for s in from..=bits.len() {
            self.merge(e, rows, &bits[..s], dir(s))?;
        }
        Ok(())
    }

    /// Sorts what is bitonic already.
    pub(super) fn merge(&mut self, e: &mut Emitter<'_>, rows: u32, bits: &[Place], dir: Dir) -> Result<(), EmitError> {
        let mut left = bits.iter().rev().copied().peekable();
        while let Some(bit) = left.next() {
            match bit {
                Place::Row(top) => {
                    let mut g = 1;
                    // Groups do not cross from strided registers to whole ones.
                    while g < self.radix()
                        && g <= top
                        && (top - g >= 3) == (top >= 3)
                        && left.next_if_eq(&Place::Row(top - g)).is_some()
                    {
                        g += 1;
                    }
                    let steps: Vec<u32> = (0..g).rev().collect();
                    self.row_pass(e, rows, top, g, &exchanges(g, &steps, |_| None), dir)?;
                }
                Place::Lane(top) => {
                    let mut lanes = vec![top];
                    while let Some(Place::Lane(l)) = left.next_if(|b| matches!(b, Place::Lane(_))) {
                        lanes.push(l);
                    }
                    self.lane_pass(e, rows, &lanes, dir)?;
                }
            }
        }
        Ok(())
    }

    /// Exchanges over the `g` bits of the row from `top` down.
    fn row_pass(
        &mut self,
        e: &mut Emitter<'_>,
        rows: u32,
        top: u32,
        g: u32,
        list: &[Exchange],
        dir: Dir,
    ) -> Result<(), EmitError> {
        let step = 1u32 << (top + 1 - g);
        let span = 2u32 << top;
        // Below eight rows, sublane `i` is the `i`-th span.
        let whole = step >= 8;
        let (rows_of_block, lowest, stride) = if whole { (span, top + 1, 1) } else { (8 * span, top + 4, span as i32) };
        let (parts, apart) = if whole { (step / 8, 8) } else { (step, 1) };
        let sublanes = if whole { None } else { Some(top + 1) };
        let blocks = rows / rows_of_block;
        // Several groups in one iteration hide the latency of each other.
        let most = ((self.budget / self.words()) as u32 >> g).clamp(1, 4);
        let most = 1 << most.ilog2();
        let together = most.min(parts);
        let bits = (most / together).min(1 << blocks.trailing_zeros().min(2)).ilog2();
        e.repeat(blocks >> bits, |e, block| {
            let flag = scalar_flag(e, dir, lowest + bits, block)?;
            e.repeat(parts / together, |e, part| {
                let base = e.affine(block, (rows_of_block << bits) as i32, 0)?;
                add(e, base, part, (together * apart) as i32)?;
                let down = mask(&mut e.code, dir, sublanes, flag);
                let groups: Vec<(i32, bool)> = (0..1u32 << bits)
                    .flat_map(|b| (0..together).map(move |p| (b, p)))
                    .map(|(b, p)| {
                        let fixed = match dir {
                            Dir::Bit(Place::Row(r)) if (lowest..lowest + bits).contains(&r) => {
                                b >> (r - lowest) & 1 == 1
                            }
                            _ => false,
                        };
                        ((b * rows_of_block + p * apart) as i32, fixed)
                    })
                    .collect();
                self.groups(e, base, &groups, (step, stride), list, down);
                e.flush()?;
                e.free(base);
                Ok(())
            })?;
            free(e, flag);
            Ok(())
        })
    }

    /// Exchanges in groups of registers, given each group's first row and whether its direction is down.
    fn groups(
        &mut self,
        e: &mut Emitter<'_>,
        base: SReg,
        groups: &[(i32, bool)],
        (step, stride): (u32, i32),
        list: &[Exchange],
        down: Option<M>,
    ) {
        let count = list.iter().map(|x| x.high + 1).max().unwrap_or(0);
        let words = self.words();
        let at = |row: i32, k: usize| row + (k as u32 * step) as i32;
        let mut all: Vec<Vec<Vec<V>>> = Vec::new();
        for &(row, _) in groups {
            let load = |e: &mut Emitter<'_>, k: usize| -> Vec<V> {
                (0..words).map(|w| e.code.load_strided(self.place(w, base, at(row, k)), stride)).collect()
            };
            all.push((0..count).map(|k| load(e, k)).collect());
        }
        for (regs, &(_, fixed)) in all.iter_mut().zip(groups) {
            for x in list {
                let (a, b) = (regs[x.low].clone(), regs[x.high].clone());
                let c = &mut e.code;
                let swap = if x.down.unwrap_or(fixed) {
                    before(c, self.spec, self.pads, &a, &b)
                } else {
                    let m = before(c, self.spec, self.pads, &b, &a);
                    match down.filter(|_| x.down.is_none()) {
                        Some(d) => c.m2(Op::MXor, m, d),
                        None => m,
                    }
                };
                regs[x.low] = choose(c, swap, &b, &a);
                regs[x.high] = choose(c, swap, &a, &b);
            }
        }
        for (regs, &(row, _)) in all.iter().zip(groups) {
            for (k, element) in regs.iter().enumerate() {
                for (w, &v) in element.iter().enumerate() {
                    e.code.store_strided(v, self.place(w, base, at(row, k)), stride);
                }
            }
        }
    }

    /// Exchanges over bits of the lane, one after the other.
    fn lane_pass(&mut self, e: &mut Emitter<'_>, rows: u32, lanes: &[u32], dir: Dir) -> Result<(), EmitError> {
        let most: u32 = match self.budget / self.words() {
            8.. => 8,
            4.. => 4,
            _ => 2,
        };
        let unroll = most.min(1 << (rows / 8).trailing_zeros());
        let bits = unroll.trailing_zeros();
        e.repeat(rows / 8 / unroll, |e, block| {
            let flag = scalar_flag(e, dir, 3 + bits, block)?;
            let base = e.affine(block, 8 * unroll as i32, 0)?;
            let words = self.words();
            let mut regs: Vec<Vec<V>> = (0..unroll)
                .map(|u| (0..words).map(|w| e.code.load(self.place(w, base, 8 * u as i32))).collect())
                .collect();
            let down = match dir {
                Dir::Bit(Place::Row(b)) if (3..3 + bits).contains(&b) => None,
                _ => mask(&mut e.code, dir, Some(0), flag),
            };
            for &lane in lanes {
                let high = lane_bit(&mut e.code, lane);
                let up = match down {
                    Some(d) => e.code.m2(Op::MXor, high, d),
                    None => high,
                };
                for (u, own) in regs.iter_mut().enumerate() {
                    let other: Vec<V> = own.iter().map(|&v| self.partner(e, v, lane, high)).collect();
                    let m = before(&mut e.code, self.spec, self.pads, &other, own);
                    let mut take = e.code.m2(Op::MXor, m, up);
                    let fixed = match dir {
                        Dir::Bit(Place::Row(b)) if (3..3 + bits).contains(&b) => u >> (b - 3) & 1 == 1,
                        _ => false,
                    };
                    if fixed {
                        take = e.code.mnot(take);
                    }
                    *own = choose(&mut e.code, take, &other, own);
                }
            }
            for (u, element) in regs.iter().enumerate() {
                for (w, &v) in element.iter().enumerate() {
                    e.code.store(v, self.place(w, base, 8 * u as i32));
                }
            }
            e.flush()?;
            e.free(base);
            free(e, flag);
            Ok(())
        })
    }

    /// What the lanes hold that differ in bit `lane`; `high` are those where it is set.
    fn partner(&mut self, e: &mut Emitter<'_>, v: V, lane: u32, high: M) -> V {
        let below = self.rotated(e, v, 1 << lane);
        if lane == 6 {
            return below;
        }
        let above = self.rotated(e, v, 128 - (1 << lane));
        e.code.sel(high, below, above)
    }

    fn rotated(&mut self, e: &mut Emitter<'_>, v: V, by: i32) -> V {
        let x = self.next_xlu(e);
        e.code.xlu_push(Op::XRot, x, v, by);
        e.code.xlu_pop(x)
    }

    /// Keeps the lower half of every two runs of `run` rows, of which the first is sorted up and the second down. A last run without
    /// partner stays. Returns the number of runs left; they are bitonic.
    pub(super) fn halve_runs(&mut self, e: &mut Emitter<'_>, run: u32, runs: u32) -> Result<u32, EmitError> {
        let words = self.words();
        e.repeat(runs / 2, |e, pair| {
            e.repeat(run / 8, |e, part| {
                let (from, to) = (e.affine(pair, 2 * run as i32, 0)?, e.affine(pair, run as i32, 0)?);
                add(e, from, part, 8)?;
                add(e, to, part, 8)?;
                let load = |e: &mut Emitter<'_>, row: u32| -> Vec<V> {
                    (0..words).map(|w| e.code.load(self.place(w, from, row as i32))).collect()
                };
                let (a, b) = (load(e, 0), load(e, run));
                let m = before(&mut e.code, self.spec, self.pads, &b, &a);
                for (w, v) in choose(&mut e.code, m, &b, &a).into_iter().enumerate() {
                    e.code.store(v, self.place(w, to, 0));
                }
                e.flush()?;
                e.free(from);
                e.free(to);
                Ok(())
            })
        })?;
        if runs % 2 == 1 && runs > 1 {
            e.repeat(run / 8, |e, part| {
                let base = e.affine(part, 8, 0)?;
                for w in 0..words {
                    let v = e.code.load(self.place(w, base, ((runs - 1) * run) as i32));
                    e.code.store(v, self.place(w, base, (runs / 2 * run) as i32));
                }
                e.flush()?;
                e.free(base);
                Ok(())
            })?;
        }
        Ok(runs.div_ceil(2))
    }

    /// Keeps the lower half of two runs in lanes that differ in bit `lane`, in both lanes. Lanes that differ in higher bits hold the same.
    pub(super) fn halve_lanes(&mut self, e: &mut Emitter<'_>, run: u32, lane: u32) -> Result<(), EmitError> {
        let unroll = 4.min(run / 8).max(1);
        e.repeat(run / 8 / unroll, |e, part| {
            let base = e.affine(part, 8 * unroll as i32, 0)?;
            for u in 0..unroll as i32 {
                let own: Vec<V> = (0..self.words()).map(|w| e.code.load(self.place(w, base, 8 * u))).collect();
                let other: Vec<V> = own.iter().map(|&v| self.rotated(e, v, 1 << lane)).collect();
                let m = before(&mut e.code, self.spec, self.pads, &other, &own);
                for (w, v) in choose(&mut e.code, m, &other, &own).into_iter().enumerate() {
                    e.code.store(v, self.place(w, base, 8 * u));
                }
            }
            e.flush()?;
            e.free(base);
            Ok(())
        })
    }
}

/// Exchanges between registers whose numbers differ in one of the bits `steps`, in turn.
fn exchanges(g: u32, steps: &[u32], down: impl Fn(usize) -> Option<bool>) -> Vec<Exchange> {
    let mut list = Vec::new();
    for &s in steps {
        for low in (0..1usize << g).filter(|k| k >> s & 1 == 0) {
            list.push(Exchange { low, high: low | 1 << s, down: down(low) });
        }
    }
    list
}

/// `r += counter * scale`.
pub(super) fn add(e: &mut Emitter<'_>, r: SReg, counter: SReg, scale: i32) -> Result<(), EmitError> {
    if counter != ZERO {
        let t = e.affine(counter, scale, 0)?;
        e.ss(Op::SAdd, r, r, t);
        e.free(t);
    }
    Ok(())
}

fn free(e: &mut Emitter<'_>, r: Option<SReg>) {
    if let Some(r) = r {
        e.free(r);
    }
}

/// The bit of the row that gives the direction, if it is one of `counter`'s, whose bit 0 is row bit `lowest`.
fn scalar_flag(e: &mut Emitter<'_>, dir: Dir, lowest: u32, counter: SReg) -> Result<Option<SReg>, EmitError> {
    let Dir::Bit(Place::Row(b)) = dir else { return Ok(None) };
    if b < lowest || counter == ZERO {
        return Ok(None);
    }
    let (flag, one) = (e.sreg()?, e.sreg()?);
    e.sli(flag, (b - lowest) as i32);
    e.ss(Op::SShr, flag, counter, flag);
    e.sli(one, 1);
    e.ss(Op::SAnd, flag, flag, one);
    e.free(one);
    Ok(Some(flag))
}

/// Where the direction is down, if that differs inside a register or from iteration to iteration. `sublanes` is the bit of the row that
/// is bit 0 of the sublane.
fn mask(c: &mut Code, dir: Dir, sublanes: Option<u32>, flag: Option<SReg>) -> Option<M> {
    let Dir::Bit(place) = dir else { return None };
    if let Some(f) = flag {
        let v = c.bcast(f);
        return Some(nonzero(c, v));
    }
    match (place, sublanes) {
        (Place::Lane(l), _) => Some(lane_bit(c, l)),
        (Place::Row(b), Some(s)) if (s..s + 3).contains(&b) => {
            let ids = c.ids(Op::VSubId);
            Some(bit(c, ids, b - s))
        }
        _ => None,
    }
}

fn lane_bit(c: &mut Code, lane: u32) -> M {
    let ids = c.ids(Op::VLaneId);
    bit(c, ids, lane)
}

fn bit(c: &mut Code, v: V, n: u32) -> M {
    let b = c.imm(1 << n);
    let v = c.v(Op::VAnd, &[v, b]);
    nonzero(c, v)
}

fn nonzero(c: &mut Code, v: V) -> M {
    let zero = c.imm(0);
    c.cmp(Op::VNeI, v, zero)
}
