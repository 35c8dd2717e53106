//! Blocks of a sort on their way between HBM and VMEM.

use tpusim_isa::op::Op;
use tpusim_isa::program::{Addr, DmaDesc, DmaDim, DmaDir, OnChip, SReg};

use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::vcode;
use super::kernel::SortKernel;
use super::network::Net;
use super::plan::Layout;

/// A strided block: rows of 128 words in HBM and VMEM.
pub(super) struct Block {
    outer: Vec<DmaDim>,
    rows: u64,
    row_stride: i64,
    cols: u64,
    col_stride: i64,
    lane_tiles: u64,
    /// Bytes and rows from the start of the array's block.
    hbm: u64,
    vmem: u64,
}

/// What goes in and out.
pub(super) struct Io<'a> {
    /// HBM addresses of the words, and of the wanted results.
    pub loads: &'a [i64],
    pub stores: &'a [Option<i64>],
    /// First row of VMEM that each word is loaded to, and that each result is stored from.
    pub from: Vec<u32>,
    pub out: Vec<u32>,
    /// Whether these are other rows than those of the network.
    pub staged: bool,
}

impl Io<'_> {
    pub fn stored(&self) -> usize {
        self.stores.iter().flatten().count()
    }
}

impl SortKernel {
    /// Starts the loads of a block; how many.
    pub(super) fn load(&self, e: &mut Emitter<'_>, io: &Io<'_>, start: [SReg; 2], flag: i32) -> i32 {
        let mut count = 0;
        for (&base, &at) in io.loads.iter().zip(&io.from) {
            for b in self.load_blocks() {
                e.dma(desc(DmaDir::Load, &b, base, at, start, self.strides(self.spec.dims[1])), flag);
                count += 1;
            }
        }
        count
    }

    /// Starts the stores of a block; how many.
    pub(super) fn store(
        &self,
        e: &mut Emitter<'_>,
        net: &mut Net<'_>,
        io: &Io<'_>,
        start: [SReg; 2],
        flag: i32,
    ) -> Result<i32, EmitError> {
        let mut count = 0;
        for (k, base) in io.stores.iter().enumerate() {
            let Some(base) = *base else { continue };
            let word = self.spec.results[k];
            let mut from = io.out[k];
            if self.turned() {
                self.transpose(e, net, word, from)?;
            } else if io.staged {
                self.copy(e, net, word, from)?;
            } else {
                from = net.at[word];
            }
            for b in self.store_blocks() {
                e.dma(desc(DmaDir::Store, &b, base, from, start, self.strides(self.spec.keep)), flag);
                count += 1;
            }
        }
        Ok(count)
    }

    /// Copies a sorted word.
    pub(super) fn copy(&self, e: &mut Emitter<'_>, net: &Net<'_>, word: usize, out: u32) -> Result<(), EmitError> {
        let object = e.object();
        let registers = self.out_rows() / 8;
        let unroll = 1u32 << registers.trailing_zeros().min(3);
        e.repeat(registers / unroll, |e, c| {
            let base = e.affine(c, 8 * unroll as i32, 0)?;
            for u in 0..unroll as i32 {
                let v = e.code.load(net.place(word, base, 8 * u));
                e.code.store(v, vcode::Place { object, base, offset: out as i32 + 8 * u });
            }
            e.flush()?;
            e.free(base);
            Ok(())
        })
    }

    /// Bytes in HBM per step along both dimensions of the grid, for arrays whose sorted dimension has `n` elements.
    pub(super) fn strides(&self, n: u64) -> [i64; 2] {
        [(4 * n * self.spec.dims[2]) as i64, 4]
    }

    pub(super) fn load_blocks(&self) -> Vec<Block> {
        self.rows_of(self.spec.dims[1])
    }

    pub(super) fn store_blocks(&self) -> Vec<Block> {
        let keep = self.spec.keep;
        if self.plan.layout == Layout::Spread && self.plan.run.is_some() {
            // Every lane has the result.
            return vec![Block { row_stride: 4, cols: 1, rows: keep, ..plain() }];
        }
        self.rows_of(keep)
    }

    /// How `n` elements of each array of a block lie.
    pub(super) fn rows_of(&self, n: u64) -> Vec<Block> {
        let array = self.plan.array_rows(self.spec.dims[1]);
        let row = (4 * n) as i64;
        match self.plan.layout {
            Layout::Columns => {
                let row_stride = (4 * self.spec.dims[2]) as i64;
                vec![Block { rows: n, row_stride, cols: self.plan.block, ..plain() }]
            }
            Layout::Tiles => {
                vec![Block { rows: self.plan.block, row_stride: row, cols: n, lane_tiles: array, ..plain() }]
            }
            Layout::Rows | Layout::Spread => {
                let outer = match self.plan.block {
                    1 => vec![],
                    b => vec![DmaDim { count: b as u32, hbm_stride: row, local_stride: array as i64 }],
                };
                let (whole, rest) = (n / 128, n % 128);
                let main = Block { outer: outer.clone(), rows: whole, row_stride: 512, cols: 128, ..plain() };
                let tail = Block { outer, rows: 1, cols: rest, hbm: whole * 512, vmem: whole, ..plain() };
                [main, tail].into_iter().filter(|b| b.rows > 0 && b.cols > 0).collect()
            }
        }
    }

    /// Turns rows of every 128th part of a word into rows of 128 neighbours.
    pub(super) fn transpose(
        &self,
        e: &mut Emitter<'_>,
        net: &mut Net<'_>,
        word: usize,
        out: u32,
    ) -> Result<(), EmitError> {
        let rows = self.plan.rows;
        let object = e.object();
        let apart = (rows / 128) as i32;
        let xlus = (*e.chip.xlus).max(1).min(rows / 128);
        let unroll = 1 << xlus.ilog2();
        e.repeat(rows / 128 / unroll, |e, c| {
            let (from, to) = (e.affine(c, 128 * unroll as i32, 0)?, e.affine(c, unroll as i32, out as i32)?);
            for u in 0..unroll {
                for k in 0..16 {
                    let v = e.code.load(net.place(word, from, (u * 128 + k * 8) as i32));
                    e.code.xlu_push(Op::XPose, u, v, 0);
                }
            }
            for k in 0..16 {
                for u in 0..unroll {
                    let v = e.code.xlu_pop(u);
                    let at = vcode::Place { object, base: to, offset: u as i32 + 8 * k * apart };
                    e.code.store_strided(v, at, apart);
                }
            }
            e.flush()?;
            e.free(from);
            e.free(to);
            Ok(())
        })
    }
}

fn plain() -> Block {
    Block { outer: vec![], rows: 0, row_stride: 0, cols: 0, col_stride: 4, lane_tiles: 1, hbm: 0, vmem: 0 }
}

fn desc(dir: DmaDir, b: &Block, base: i64, at: u32, start: [SReg; 2], strides: [i64; 2]) -> DmaDesc {
    let terms = start.into_iter().zip(strides).filter(|(r, _)| *r != ZERO).collect();
    DmaDesc {
        dir,
        mem: OnChip::Vmem,
        elem_bytes: 4,
        outer: b.outer.clone(),
        rows: b.rows as u32,
        row_stride: b.row_stride,
        cols: b.cols as u32,
        col_stride: b.col_stride,
        lane_tiles: b.lane_tiles as u32,
        hbm: Addr { base: base + b.hbm as i64, terms },
        local: Addr { base: i64::from(at) + b.vmem as i64, terms: vec![] },
    }
}
