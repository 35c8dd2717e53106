//! What the kernels share: blocks of inputs that are loaded ahead, and loops that start one DMA for each window.

use tpusim_isa::op::Op;
use tpusim_isa::program::{Addr, DmaDesc, DmaDir, OnChip, SReg};

use super::super::emit::{EmitError, Emitter};

/// Scalars that are loaded together, so that their latency overlaps.
const TOGETHER: u32 = 8;

/// One input of a [`Feed`].
pub(super) struct Load {
    /// The load of the first block into the first half.
    pub desc: DmaDesc,
    /// Bytes per step of the block's start.
    pub step: i64,
    /// From the first half to the second, in rows or words.
    pub half: i64,
}

impl Load {
    /// `words` scalars of a block of the i32 array at byte `hbm`, into SMEM from word `at`.
    pub fn scalars(hbm: i64, words: u32, at: u32) -> Load {
        let desc = DmaDesc {
            dir: DmaDir::Load,
            mem: OnChip::Smem,
            elem_bytes: 4,
            outer: Vec::new(),
            rows: 1,
            row_stride: 0,
            cols: words,
            col_stride: 4,
            lane_tiles: 0,
            hbm: Addr { base: hbm, terms: Vec::new() },
            local: Addr { base: i64::from(at), terms: Vec::new() },
        };
        Load { desc, step: 4, half: i64::from(words) }
    }
}

/// Inputs that are loaded a block ahead, into two halves by turns.
pub(super) struct Feed {
    pub loads: Vec<Load>,
    /// Which half the current block is in.
    pub parity: SReg,
    flag: i32,
}

impl Feed {
    /// # Errors
    /// [`EmitError`] when registers or flags run out.
    pub fn new(e: &mut Emitter<'_>, loads: Vec<Load>) -> Result<Feed, EmitError> {
        Ok(Feed { loads, parity: e.sreg()?, flag: e.flag()? })
    }

    /// Loads the block that starts at element `start` into half `half`.
    pub fn request(&self, e: &mut Emitter<'_>, start: SReg, half: SReg) {
        for l in &self.loads {
            let mut desc = l.desc.clone();
            desc.hbm.terms.push((start, l.step));
            desc.local.terms.push((half, l.half));
            e.dma(desc, self.flag);
        }
    }

    /// As [`Self::request`], into the half that the current block is not in.
    ///
    /// # Errors
    /// [`EmitError::Scalars`].
    pub fn request_next(&self, e: &mut Emitter<'_>, start: SReg) -> Result<(), EmitError> {
        let half = e.sreg()?;
        e.si(Op::SXori, half, self.parity, 1);
        self.request(e, start, half);
        e.free(half);
        Ok(())
    }

    /// Waits for a requested block.
    pub fn wait(&self, e: &mut Emitter<'_>) {
        e.wait(self.flag, self.loads.len() as i32);
    }

    /// Makes the next block the current one.
    pub fn turn(&self, e: &mut Emitter<'_>) {
        e.si(Op::SXori, self.parity, self.parity, 1);
    }
}

/// How many of `count` iterations one pass of a loop takes.
pub(super) fn unroll(count: u32) -> u32 {
    (1..=TOGETHER.min(count)).rev().find(|u| count.is_multiple_of(*u)).unwrap_or(1)
}

/// Emits a loop over `count` scalars from word `at + base`: `f` gets a block's first position (in a register, or zero), and for each of
/// the scalars in `lists` the registers they are in and their positions after the first.
///
/// # Errors
/// [`EmitError`] when registers run out, and what `f` gives.
pub(super) fn each<const N: usize>(
    e: &mut Emitter<'_>,
    count: u32,
    together: u32,
    lists: [SReg; N],
    mut f: impl FnMut(&mut Emitter<'_>, SReg, &[[SReg; N]]) -> Result<(), EmitError>,
) -> Result<(), EmitError> {
    let u = together.min(count).max(1);
    e.repeat(count / u, |e, counter| {
        let first = e.affine(counter, u as i32, 0)?;
        let mut bases = lists;
        for b in &mut bases {
            let r = e.sreg()?;
            e.ss(Op::SAdd, r, *b, first);
            *b = r;
        }
        let mut loaded = Vec::new();
        for k in 0..u {
            let mut row = lists;
            for (slot, base) in row.iter_mut().zip(bases) {
                *slot = e.sreg()?;
                e.code.s(Op::SLd, &[i32::from(slot.0), i32::from(base.0), k as i32]);
            }
            loaded.push(row);
        }
        f(e, first, &loaded)?;
        loaded.iter().flatten().chain(&bases).chain([&first]).for_each(|r| e.free(*r));
        Ok(())
    })
}
