//! Scatters: windows of arrays are loaded, combined with updates and stored, a batch at a time.
//!
//! The places, slots and updates of a batch are loaded while the batch before is worked on. All windows of a batch are on their way at
//! once, so that the latency of memory counts once in a batch. Updates that share a place share the slot of the first of them and are
//! applied to it in order; storing it once for each of them stores the same data. An update outside of the array goes to a slot
//! beyond the others, which is never stored, while its place, moved into the array, is stored as the others left it.

use tpusim_isa::num::DType;
use tpusim_isa::op::Op;
use tpusim_isa::program::{Addr, DmaDir, SReg};

use super::super::cells::{format_of, packing, typed};
use super::super::emit::{EmitError, Emitter};
use super::super::expr::{Parts, splat};
use super::super::math::{Types, Val, as_v, map};
use super::super::vcode::{Code, Object, Place};
use super::Layout;
use super::places::{Feed, Load, each, unroll};
use crate::graph::{Function, Scatter, What};

/// Parts of a batch that are waited for one after the other.
const PARTS: u32 = 4;

/// Registers of a window that are computed together.
const REGISTERS: u32 = 8;

/// An array that is updated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Element type.
    pub dtype: DType,
    /// How a window is moved.
    pub layout: Layout,
    /// Bytes that one step of a place moves.
    pub unit: i64,
    /// Byte of HBM where the array starts.
    pub base: i64,
    /// Where its updates start.
    pub updates: i64,
}

impl Array {
    /// VMEM rows of a slot: whole registers.
    fn rows(&self) -> i64 {
        self.layout.rows().next_multiple_of(8) as i64
    }
}

/// A scatter.
#[derive(Clone, Debug, PartialEq)]
pub struct ScatterKernel {
    /// Number of batches.
    pub batches: u32,
    /// Updates of a batch.
    pub batch: u32,
    /// The arrays.
    pub arrays: Vec<Array>,
    /// Where the places start.
    pub places: i64,
    /// Where the slots start.
    pub slots: i64,
    /// How elements combine.
    pub region: Function,
}

/// Where an array's windows and updates are in VMEM.
struct Room {
    windows: i32,
    updates: i32,
    objects: [Object; 2],
}

impl ScatterKernel {
    /// Generates the code.
    ///
    /// # Errors
    /// [`EmitError`] if a batch does not fit.
    pub fn emit(&self, e: &mut Emitter<'_>) -> Result<(), EmitError> {
        let k = self.batch;
        let (places, slots) = (e.smem(2 * k)?, e.smem(2 * k)?);
        let mut loads = vec![Load::scalars(self.places, k, places), Load::scalars(self.slots, k, slots)];
        let mut rooms = Vec::new();
        for a in &self.arrays {
            let rows = a.rows();
            let windows = e.vmem((rows * i64::from(k + 1)) as u32) as i32;
            let updates = e.vmem((2 * rows * i64::from(k)) as u32) as i32;
            rooms.push(Room { windows, updates, objects: [e.object(), e.object()] });
            loads.push(self.updates(a, updates));
        }
        let feed = Feed::new(e, loads)?;
        let flag = e.flag()?;
        e.sli(feed.parity, 0);
        feed.request(e, feed.parity, feed.parity);
        e.flush()?;
        let ahead = self.batches > 1;
        e.repeat(self.batches, |e, counter| {
            feed.wait(e);
            if ahead {
                let next = e.affine(counter, 1, 1)?;
                e.si(Op::SMini, next, next, self.batches as i32 - 1);
                e.si(Op::SMuli, next, next, k as i32);
                feed.request_next(e, next)?;
                e.free(next);
            }
            let places = e.affine(feed.parity, k as i32, places as i32)?;
            let slots = e.affine(feed.parity, k as i32, slots as i32)?;
            e.flush()?;
            self.load(e, places, &rooms, flag)?;
            self.combine(e, slots, feed.parity, &rooms, flag)?;
            self.store(e, [places, slots], &rooms, flag)?;
            feed.turn(e);
            e.free(places);
            e.free(slots);
            e.flush()
        })?;
        if ahead {
            feed.wait(e);
        }
        e.flush()
    }

    /// The updates of a batch, each in rows of its own.
    fn updates(&self, a: &Array, at: i32) -> Load {
        let hbm = Addr { base: a.updates, terms: Vec::new() };
        let mut desc = a.layout.dma(DmaDir::Load, true, hbm, Addr { base: i64::from(at), terms: Vec::new() });
        let each = tpusim_isa::program::DmaDim {
            count: self.batch,
            hbm_stride: a.layout.dense_bytes(),
            local_stride: a.rows(),
        };
        desc.outer.insert(0, each);
        Load { desc, step: a.layout.dense_bytes(), half: a.rows() * i64::from(self.batch) }
    }

    /// Every window of the batch into the slot of its position.
    fn load(&self, e: &mut Emitter<'_>, places: SReg, rooms: &[Room], flag: i32) -> Result<(), EmitError> {
        each(e, self.batch, unroll(self.batch), [places], |e, first, loaded| {
            for (i, [place]) in loaded.iter().enumerate() {
                for (a, room) in self.arrays.iter().zip(rooms) {
                    let hbm = Addr { base: a.base, terms: vec![(*place, a.unit)] };
                    let base = i64::from(room.windows) + i as i64 * a.rows();
                    let local = Addr { base, terms: vec![(first, a.rows())] };
                    e.dma(a.layout.dma(DmaDir::Load, false, hbm, local), flag);
                }
            }
            Ok(())
        })
    }

    /// Every update, in order, into the slot of its home. Windows arrive in order, and a home is never behind, so that the first
    /// updates are applied while the last windows are on their way.
    fn combine(
        &self,
        e: &mut Emitter<'_>,
        slots: SReg,
        half: SReg,
        rooms: &[Room],
        flag: i32,
    ) -> Result<(), EmitError> {
        let parts = if self.batch.is_multiple_of(PARTS) { PARTS } else { 1 };
        let part = self.batch / parts;
        e.repeat(parts, |e, counter| {
            e.wait(flag, (part as usize * self.arrays.len()) as i32);
            let from = e.affine(counter, part as i32, 0)?;
            let slots_here = e.sreg()?;
            e.ss(Op::SAdd, slots_here, slots, from);
            // Position of the first update among those of both halves.
            let updates = e.affine(half, self.batch as i32, 0)?;
            e.ss(Op::SAdd, updates, updates, from);
            e.flush()?;
            self.combine_part(e, part, slots_here, updates, rooms)?;
            [from, slots_here, updates].into_iter().for_each(|r| e.free(r));
            Ok(())
        })
    }

    /// `count` updates, whose slots start at word `slots`, from update `from` of both halves.
    fn combine_part(
        &self,
        e: &mut Emitter<'_>,
        count: u32,
        slots: SReg,
        from: SReg,
        rooms: &[Room],
    ) -> Result<(), EmitError> {
        // All arrays have windows of as many rows.
        let registers = self.arrays.iter().map(|a| (a.rows() / 8) as u32).max().unwrap_or(0);
        let group = (1..=REGISTERS.min(registers)).rev().find(|g| registers.is_multiple_of(*g)).unwrap_or(1);
        let groups = registers / group;
        let together = if groups > 1 { 1 } else { 8 / self.arrays.len().max(1) as u32 };
        let together = (1..=together).rev().find(|u| count.is_multiple_of(*u)).unwrap_or(1);
        each(e, count, together, [slots], |e, first, loaded| {
            let mut updates = Vec::new();
            for (a, room) in self.arrays.iter().zip(rooms) {
                let r = e.sreg()?;
                e.ss(Op::SAdd, r, from, first);
                e.si(Op::SMuli, r, r, a.rows() as i32);
                e.si(Op::SAddi, r, r, room.updates);
                updates.push(r);
            }
            let mut windows = Vec::new();
            for [slot] in loaded {
                e.si(Op::SMini, *slot, *slot, self.batch as i32);
                for (a, room) in self.arrays.iter().zip(rooms) {
                    windows.push(e.affine(*slot, a.rows() as i32, room.windows)?);
                }
            }
            for (i, windows) in windows.chunks(self.arrays.len()).enumerate() {
                e.repeat(groups, |e, counter| {
                    let shift = e.affine(counter, 8 * group as i32, 0)?;
                    let mut at = Vec::new();
                    for (k, a) in self.arrays.iter().enumerate() {
                        let moved = |e: &mut Emitter<'_>, base: SReg| -> Result<SReg, EmitError> {
                            let r = e.sreg()?;
                            e.ss(Op::SAdd, r, base, shift);
                            Ok(r)
                        };
                        let (w, u) = (windows[k], updates[k]);
                        let (w, u) = if groups > 1 { (moved(e, w)?, moved(e, u)?) } else { (w, u) };
                        let place = |object, base, offset| Place { object, base, offset };
                        let offset = (i as i64 * a.rows()) as i32;
                        at.push([place(rooms[k].objects[0], w, 0), place(rooms[k].objects[1], u, offset)]);
                    }
                    (0..group).for_each(|g| self.cell(e, &at, g));
                    e.free(shift);
                    if groups > 1 {
                        at.iter().flatten().for_each(|p| e.free(p.base));
                    }
                    Ok(())
                })?;
            }
            windows.iter().chain(&updates).for_each(|r| e.free(*r));
            Ok(())
        })?;
        e.flush()
    }

    /// One register of every window and update, `g` registers after those in `at`.
    fn cell(&self, e: &mut Emitter<'_>, at: &[[Place; 2]], g: u32) {
        let mut params: Vec<Parts> = Vec::new();
        for which in [0, 1] {
            for (a, places) in self.arrays.iter().zip(at) {
                let word = e.code.load(places[which].at(8 * g));
                let parts: Vec<_> = match format_of(a.dtype) {
                    Some(f) => (0..packing(a.dtype)).map(|p| e.code.unpack(word, f, p as usize)).collect(),
                    None => vec![word],
                };
                params.push(parts.into_iter().map(|v| typed(e, v, a.dtype)).collect());
            }
        }
        let results = evaluate(&mut e.code, &self.region, &params);
        for ((a, places), parts) in self.arrays.iter().zip(at).zip(results) {
            let q = packing(a.dtype) as usize;
            let vals: Vec<_> = (0..q).map(|i| as_v(&mut e.code, parts[i % parts.len()])).collect();
            let word = match format_of(a.dtype) {
                Some(f) => e.code.pack(&vals, f),
                None => vals[0],
            };
            e.code.store(word, places[0].at(8 * g));
        }
    }

    /// The batch's windows back to their places, from the slots of their homes.
    fn store(&self, e: &mut Emitter<'_>, lists: [SReg; 2], rooms: &[Room], flag: i32) -> Result<(), EmitError> {
        let mask = e.sreg()?;
        e.sli(mask, Scatter::DROPPED - 1);
        each(e, self.batch, unroll(self.batch), lists, |e, _, loaded| {
            for [place, slot] in loaded {
                e.ss(Op::SAnd, *slot, *slot, mask);
                for (a, room) in self.arrays.iter().zip(rooms) {
                    let hbm = Addr { base: a.base, terms: vec![(*place, a.unit)] };
                    let local = Addr { base: i64::from(room.windows), terms: vec![(*slot, a.rows())] };
                    e.dma(a.layout.dma(DmaDir::Store, false, hbm, local), flag);
                }
            }
            Ok(())
        })?;
        e.free(mask);
        e.wait(flag, (self.batch as usize * self.arrays.len()) as i32);
        Ok(())
    }
}

/// The region's results for registers of its parameters.
fn evaluate(c: &mut Code, region: &Function, params: &[Parts]) -> Vec<Parts> {
    let mut values: Vec<Parts> = Vec::new();
    for v in &region.values {
        let value = match v.what {
            What::Param(k) => params[k].clone(),
            What::Splat(bits) => vec![splat(c, bits, v.dtype)],
            What::Map(op, operand) => {
                let len = v.args.iter().map(|&a| values[a].len()).max().unwrap_or(1);
                let row = |i: usize| -> Vec<Val> { v.args.iter().map(|&a| values[a][i % values[a].len()]).collect() };
                (0..len).map(|i| map(c, op, Types { operand, result: v.dtype }, &row(i))).collect()
            }
        };
        values.push(value);
    }
    region.results.iter().map(|&r| values[r].clone()).collect()
}
