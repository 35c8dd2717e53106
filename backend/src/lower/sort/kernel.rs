//! The whole kernel of a sort: blocks in, network, blocks out.

use std::fmt;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::Op;
use tpusim_isa::program::{Addr, DmaDesc, DmaDim, DmaDir, OnChip, SReg};

use super::super::emit::{CORE, EmitError, Emitter, ZERO};
use super::super::vcode::V;
use super::network::{Net, add};
use super::plan::{Layout, Plan, needed, plans};
use super::{Dir, Order, Place, SortSpec};

/// A sort in a chosen layout.
#[derive(Clone, Debug, PartialEq)]
pub struct SortKernel {
    spec: SortSpec,
    plan: Plan,
    cores: u32,
}

/// A strided block: rows of 128 words in HBM and VMEM.
struct Block {
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

impl SortKernel {
    /// Kernels for `spec`, best first.
    pub fn candidates(spec: &SortSpec, chip: &ChipSpec) -> Vec<SortKernel> {
        let make = |plan: Plan| {
            let k = SortKernel { spec: spec.clone(), plan, cores: 1 };
            let [a, b] = k.blocks();
            let cores = u64::from(*chip.tensorcores_per_device).min(a.max(b)).max(1);
            SortKernel { cores: cores as u32, ..k }
        };
        plans(spec, chip).into_iter().map(make).collect()
    }

    /// TensorCores that take part.
    pub fn cores(&self) -> u32 {
        self.cores
    }

    /// Bytes of VMEM the words take.
    pub fn vmem(&self) -> u64 {
        needed(&self.spec, &self.plan)
    }

    /// Blocks along the dimensions before and after the sorted one.
    fn blocks(&self) -> [u64; 2] {
        let [o, _, i] = self.spec.dims;
        match self.plan.layout {
            Layout::Columns => [o, i.div_ceil(self.plan.block)],
            _ => [o.div_ceil(self.plan.block), 1],
        }
    }

    /// Emits the kernel. `loads` and `stores` are the HBM addresses of the loaded words and of the results; `None` is not wanted.
    ///
    /// # Errors
    /// [`EmitError`].
    pub fn emit(&self, e: &mut Emitter<'_>, loads: &[i64], stores: &[Option<i64>]) -> Result<(), EmitError> {
        let spec = &self.spec;
        let n = spec.dims[1];
        let padded = match self.plan.run {
            Some(_) => true,
            None => self.plan.bits(n).len() as u32 != n.trailing_zeros() || !n.is_power_of_two(),
        };
        let by_key = spec.order == Order::Key;
        let words = spec.words();
        let at: Vec<u32> = (0..words).map(|_| e.vmem(self.plan.rows)).collect();
        let objects = (0..words).map(|_| e.object()).collect();
        let pads = (padded && !by_key).then_some(n as i32);
        let mut net = Net { spec, at, objects, pads, xlu: 0, budget: (*e.chip.regs.vector * 5 / 8) as usize };
        let out: Vec<u32> = stores.iter().map(|_| e.vmem(self.plan.out_rows)).collect();
        let flag = e.flag()?;
        self.grid(e, |e, start| {
            let mut count = 0;
            for (w, &base) in loads.iter().enumerate() {
                for b in self.load_blocks() {
                    let strides = self.strides(n);
                    e.dma(desc(DmaDir::Load, &b, base, net.at[w], start, strides), flag);
                    count += 1;
                }
            }
            e.wait(flag, count);
            e.flush()?;
            self.number(e, &net, padded && by_key)?;
            self.run(e, &mut net)?;
            let mut count = 0;
            for (k, base) in stores.iter().enumerate() {
                let Some(base) = *base else { continue };
                let word = spec.results[k];
                let mut from = net.at[word];
                if self.plan.out_rows > 0 {
                    self.transpose(e, &mut net, word, out[k])?;
                    from = out[k];
                }
                for b in self.store_blocks() {
                    e.dma(desc(DmaDir::Store, &b, base, from, start, self.strides(spec.keep)), flag);
                    count += 1;
                }
            }
            e.wait(flag, count);
            e.flush()
        })
    }

    /// Runs `f` on every block, given where it starts along both dimensions.
    fn grid(
        &self,
        e: &mut Emitter<'_>,
        mut f: impl FnMut(&mut Emitter<'_>, [SReg; 2]) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        let [o, _, i] = self.spec.dims;
        let sizes = match self.plan.layout {
            Layout::Columns => [(o, 1), (i, self.plan.block)],
            _ => [(o, self.plan.block), (1, 1)],
        };
        let blocks = self.blocks();
        let split = usize::from(blocks[1] > blocks[0]);
        let trip = |l: usize| if l == split { blocks[l].div_ceil(u64::from(self.cores)) } else { blocks[l] } as u32;
        let start = |e: &mut Emitter<'_>, l: usize, counter: SReg| -> Result<SReg, EmitError> {
            let (extent, block) = sizes[l];
            let r = e.affine(counter, block as i32, 0)?;
            if l == split && self.cores > 1 {
                add(e, r, CORE, (u64::from(trip(l)) * block) as i32)?;
            }
            e.si(Op::SMini, r, r, (extent - block) as i32);
            Ok(r)
        };
        e.repeat(trip(0), |e, c| {
            let first = start(e, 0, c)?;
            e.repeat(trip(1), |e, c| {
                let second = start(e, 1, c)?;
                f(e, [first, second])?;
                e.free(second);
                Ok(())
            })?;
            e.flush()?;
            e.free(first);
            Ok(())
        })
    }

    /// Bytes in HBM per step along both dimensions of the grid, for arrays whose sorted dimension has `n` elements.
    fn strides(&self, n: u64) -> [i64; 2] {
        [(4 * n * self.spec.dims[2]) as i64, 4]
    }

    fn load_blocks(&self) -> Vec<Block> {
        self.rows_of(self.spec.dims[1])
    }

    fn store_blocks(&self) -> Vec<Block> {
        let keep = self.spec.keep;
        if self.plan.layout == Layout::Spread && self.plan.run.is_some() {
            // Every lane has the result.
            return vec![Block { row_stride: 4, cols: 1, rows: keep, ..plain() }];
        }
        self.rows_of(keep)
    }

    /// How `n` elements of each array of a block lie.
    fn rows_of(&self, n: u64) -> Vec<Block> {
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

    /// Writes the index word, and the last key to positions past the end.
    fn number(&self, e: &mut Emitter<'_>, net: &Net<'_>, keys: bool) -> Result<(), EmitError> {
        let spec = &self.spec;
        if !spec.index && !keys {
            return Ok(());
        }
        let array = self.plan.array_rows(spec.dims[1]);
        let unroll = 4.min(self.plan.rows / 8);
        e.repeat(self.plan.rows / 8 / unroll, |e, c| {
            let base = e.affine(c, 8 * unroll as i32, 0)?;
            for u in 0..unroll as i32 {
                let index = self.index(e, base, 8 * u, array);
                if spec.index {
                    e.code.store(index, net.place(spec.loads, base, 8 * u));
                }
                if keys {
                    let n = e.code.imm(spec.dims[1] as i32);
                    let real = e.code.cmp(Op::VLtI, index, n);
                    let (key, last) = (e.code.load(net.place(0, base, 8 * u)), e.code.imm(i32::MAX));
                    let key = e.code.sel(real, key, last);
                    e.code.store(key, net.place(0, base, 8 * u));
                }
            }
            e.flush()?;
            e.free(base);
            Ok(())
        })
    }

    /// Positions of the elements in rows `base + offset ..`.
    fn index(&self, e: &mut Emitter<'_>, base: SReg, offset: i32, array: u64) -> V {
        let c = &mut e.code;
        let (base, offset, lane) = (c.bcast(base), c.imm(offset), c.ids(Op::VLaneId));
        let mut row = c.v(Op::VAddI, &[base, offset]);
        if self.plan.layout == Layout::Tiles {
            let three = c.imm(3);
            row = c.v(Op::VShr, &[row, three]);
        } else {
            let sub = c.ids(Op::VSubId);
            row = c.v(Op::VAddI, &[row, sub]);
        }
        match self.plan.layout {
            Layout::Columns => return row,
            // One array at a time.
            Layout::Spread => {}
            Layout::Tiles | Layout::Rows => {
                let m = c.imm(array as i32 - 1);
                row = c.v(Op::VAnd, &[row, m]);
            }
        }
        let seven = c.imm(7);
        let row = c.v(Op::VShl, &[row, seven]);
        c.v(Op::VAddI, &[row, lane])
    }

    fn run(&self, e: &mut Emitter<'_>, net: &mut Net<'_>) -> Result<(), EmitError> {
        let n = self.spec.dims[1];
        let bits = self.plan.bits(n);
        let Some(log) = self.plan.run else { return net.sort(e, self.plan.rows, &bits, Dir::Up) };
        let run = 1u32 << log;
        let mut runs = (self.plan.array_rows(n) >> log) as u32;
        let rows = |runs: u32| (runs * run).next_multiple_of(64);
        let lanes = self.plan.layout == Layout::Spread;
        let dir = |runs: u32| match (runs, lanes) {
            (1, true) => Dir::Bit(Place::Lane(6)),
            (1, false) => Dir::Up,
            _ => Dir::Bit(Place::Row(log)),
        };
        net.sort(e, rows(runs), &bits, dir(runs))?;
        while runs > 1 {
            runs = net.halve_runs(e, run, runs)?;
            net.merge(e, rows(runs), &bits, dir(runs))?;
        }
        for lane in (0..7u32).rev().filter(|_| lanes) {
            net.halve_lanes(e, run, lane)?;
            let dir = lane.checked_sub(1).map_or(Dir::Up, |l| Dir::Bit(Place::Lane(l)));
            net.merge(e, rows(1), &bits, dir)?;
        }
        Ok(())
    }

    /// Turns rows of every 128th part of a word into rows of 128 neighbours.
    fn transpose(&self, e: &mut Emitter<'_>, net: &mut Net<'_>, word: usize, out: u32) -> Result<(), EmitError> {
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
                    let at = super::super::vcode::Place { object, base: to, offset: u as i32 + 8 * k * apart };
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

impl fmt::Display for SortKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([o, n, i], p) = (self.spec.dims, &self.plan);
        write!(f, "sort {o} x {n} x {i}, keep {}, {} words, {:?}", self.spec.keep, self.spec.words(), p.layout)?;
        if let Some(run) = p.run {
            write!(f, ", runs of {}", 1u64 << run)?;
        }
        write!(f, ", block {}, {} rows of VMEM, {} cores", p.block, p.rows, self.cores)
    }
}
