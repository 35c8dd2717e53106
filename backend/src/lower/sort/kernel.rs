//! The whole kernel of a sort: blocks in, network, blocks out.

use std::fmt;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::emit::{CORE, EmitError, Emitter, ZERO};
use super::super::vcode::{self, V};
use super::blocks::Io;
use super::network::{Net, add};
use super::plan::{Layout, Plan, needed, plans};
use super::{Dir, Order, Place, SortSpec};

/// A sort in a chosen layout.
#[derive(Clone, Debug, PartialEq)]
pub struct SortKernel {
    pub(super) spec: SortSpec,
    pub(super) plan: Plan,
    cores: u32,
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
        let staged = self.staged(e.chip);
        let rows = |staged: bool, rows: u32| if staged { rows } else { 0 };
        let stage: Vec<u32> = loads.iter().map(|_| e.vmem(rows(staged, self.plan.rows))).collect();
        let out: Vec<u32> = stores.iter().map(|_| e.vmem(rows(staged || self.turned(), self.out_rows()))).collect();
        let io = Io { loads, stores, from: if staged { stage.clone() } else { net.at.clone() }, out, staged };
        let flags = [e.flag()?, e.flag()?];
        let keys = padded && by_key;
        if !staged {
            return self.grid(e, |e, start| {
                let count = self.load(e, &io, start, flags[0]);
                e.wait(flags[0], count);
                e.flush()?;
                self.number(e, &net, None, keys)?;
                self.run(e, &mut net)?;
                let count = self.store(e, &mut net, &io, start, flags[1])?;
                e.wait(flags[1], count);
                e.flush()
            });
        }
        // The next block is loaded while the network works on this one, and the last one is stored.
        let [load_count, store_count] =
            [self.load_blocks().len() * loads.len(), self.store_blocks().len() * io.stored()];
        let (load_count, store_count) = (load_count as i32, store_count as i32);
        let (level, trip) = self.steps();
        let start = |e: &mut Emitter<'_>, counter: SReg| -> Result<[SReg; 2], EmitError> {
            let mut both = [ZERO; 2];
            both[level] = self.start(e, level, counter)?;
            Ok(both)
        };
        let first = start(e, ZERO)?;
        self.load(e, &io, first, flags[0]);
        e.free(first[level]);
        e.code.raw(Op::FlagAdd, &[flags[1], store_count]);
        e.repeat(trip, |e, counter| {
            e.wait(flags[0], load_count);
            e.flush()?;
            self.number(e, &net, Some(&io.from), keys)?;
            // After the last block it is loaded once more: nobody looks at it.
            let next = e.affine(counter, 1, 1)?;
            e.si(Op::SMini, next, next, trip as i32 - 1);
            let at = start(e, next)?;
            self.load(e, &io, at, flags[0]);
            e.free(at[level]);
            e.free(next);
            e.flush()?;
            self.run(e, &mut net)?;
            e.wait(flags[1], store_count);
            e.flush()?;
            let at = start(e, counter)?;
            self.store(e, &mut net, &io, at, flags[1])?;
            e.free(at[level]);
            e.flush()
        })?;
        e.wait(flags[0], load_count);
        e.wait(flags[1], store_count);
        e.flush()
    }

    /// Whether results are transposed before they are stored.
    pub(super) fn turned(&self) -> bool {
        self.plan.out_rows > 0
    }

    /// Rows of VMEM that hold a result.
    pub(super) fn out_rows(&self) -> u32 {
        let keep = self.spec.keep as u32;
        match (self.plan.layout, self.plan.run) {
            _ if self.turned() => self.plan.out_rows,
            (Layout::Columns, _) | (_, Some(_)) => keep.next_multiple_of(8),
            _ => self.plan.rows,
        }
    }

    /// The level of the grid that steps, and how often.
    fn steps(&self) -> (usize, u32) {
        let [a, b] = self.blocks();
        let level = usize::from(b > a);
        (level, a.max(b).div_ceil(u64::from(self.cores)) as u32)
    }

    /// Whether blocks are loaded and stored while others are worked on.
    fn staged(&self, chip: &ChipSpec) -> bool {
        let [a, b] = self.blocks();
        let out = self.spec.results.len() as u64 * u64::from(self.out_rows());
        let more = 512 * (self.spec.loads as u64 * u64::from(self.plan.rows) + out);
        a.min(b) == 1 && self.steps().1 >= 4 && self.vmem() + more <= *chip.vmem_bytes
    }

    /// Runs `f` on every block, given where it starts along both dimensions.
    fn grid(
        &self,
        e: &mut Emitter<'_>,
        mut f: impl FnMut(&mut Emitter<'_>, [SReg; 2]) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        let blocks = self.blocks();
        let (split, steps) = self.steps();
        let trip = |l: usize| if l == split { steps } else { blocks[l] as u32 };
        e.repeat(trip(0), |e, c| {
            let first = self.start(e, 0, c)?;
            e.repeat(trip(1), |e, c| {
                let second = self.start(e, 1, c)?;
                f(e, [first, second])?;
                e.free(second);
                Ok(())
            })?;
            e.flush()?;
            e.free(first);
            Ok(())
        })
    }

    /// Where block `counter` of level `l` of the grid starts, for the core that asks.
    fn start(&self, e: &mut Emitter<'_>, l: usize, counter: SReg) -> Result<SReg, EmitError> {
        let [o, _, i] = self.spec.dims;
        let (extent, block) = match (self.plan.layout, l) {
            (Layout::Columns, 0) => (o, 1),
            (Layout::Columns, _) => (i, self.plan.block),
            (_, 0) => (o, self.plan.block),
            _ => (1, 1),
        };
        let (split, steps) = self.steps();
        let r = e.affine(counter, block as i32, 0)?;
        if l == split && self.cores > 1 {
            add(e, r, CORE, (u64::from(steps) * block) as i32)?;
        }
        e.si(Op::SMini, r, r, (extent - block) as i32);
        Ok(r)
    }

    /// Writes the index word, and the last key to positions past the end; words come from `stage` if they are not in place yet.
    fn number(&self, e: &mut Emitter<'_>, net: &Net<'_>, stage: Option<&[u32]>, keys: bool) -> Result<(), EmitError> {
        let spec = &self.spec;
        if !spec.index && !keys && stage.is_none() {
            return Ok(());
        }
        let array = self.plan.array_rows(spec.dims[1]);
        let object = e.object();
        let unroll = 4.min(self.plan.rows / 8);
        e.repeat(self.plan.rows / 8 / unroll, |e, c| {
            let base = e.affine(c, 8 * unroll as i32, 0)?;
            for u in 0..unroll as i32 {
                let index = self.index(e, base, 8 * u, array);
                if spec.index {
                    e.code.store(index, net.place(spec.loads, base, 8 * u));
                }
                for w in 0..spec.loads {
                    let key = keys && w == 0;
                    let mut v = match stage {
                        Some(at) => e.code.load(vcode::Place { object, base, offset: at[w] as i32 + 8 * u }),
                        None if key => e.code.load(net.place(w, base, 8 * u)),
                        None => continue,
                    };
                    if key {
                        let n = e.code.imm(spec.dims[1] as i32);
                        let real = e.code.cmp(Op::VLtI, index, n);
                        let last = e.code.imm(i32::MAX);
                        v = e.code.sel(real, v, last);
                    }
                    e.code.store(v, net.place(w, base, 8 * u));
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
}

impl fmt::Display for SortKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([o, n, i], p) = (self.spec.dims, &self.plan);
        write!(f, "sort {o} x {n} x {i}, keep {}, {} words, {:?}", self.spec.keep, self.spec.words(), p.layout)?;
        if let Some(run) = p.run {
            write!(f, ", runs of {}", 1u64 << run)?;
        }
        writeln!(f, ", block {}, {} rows of VMEM, {} cores", p.block, p.rows, self.cores)
    }
}
