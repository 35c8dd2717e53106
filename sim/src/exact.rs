//! The exact datapath: registers, memories and units of every core, holding real bits.

use std::collections::VecDeque;
use std::ops::Range;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::{Instr, Op, Timing};
use tpusim_isa::program::{Addr, DmaDesc, DmaDir, OnChip, Program};

use crate::RunOptions;
use crate::code::{Bundle, File, Files, TEMPS};
use crate::datapath::Datapath;
use crate::dma;
use crate::fault::FaultKind;
use crate::memory::{hbm, smem::Smem, vmem::Vmem};
use crate::mxu::exact::{MAX_JOBS, MxuData};
use crate::mxu::share::Share;
use crate::scalar;
use crate::vpu::regs::{Reg, RegFile};
use crate::vpu::{alu, eup};
use crate::xlu::{MAX_RESULTS, XluData};

/// What uninitialised memory holds when poisoned: a NaN that is easy to recognise.
pub(crate) const POISON: u32 = 0x7fc0_dead;

/// A signal on a sync flag that a late DMA still owes.
#[derive(Debug)]
enum Signal {
    Plain,
    Dma { desc: u32, hbm: i128, local: i128 },
}

/// Data of one core.
#[derive(Debug)]
struct Core {
    vector: RegFile,
    mask: RegFile,
    scalar: Vec<u32>,
    vmem: Vmem,
    smem: Smem,
    mxus: Vec<MxuData>,
    share: Share,
    xlus: Vec<XluData>,
    eup: VecDeque<Box<Reg>>,
    free: Vec<Box<Reg>>,
    signals: Vec<VecDeque<Signal>>,
}

/// Data of one device.
#[derive(Debug)]
pub(crate) struct Exact<'a> {
    descs: &'a [DmaDesc],
    cores: Vec<Core>,
    hbm: Vec<u8>,
    poison: bool,
    late: bool,
}

impl<'a> Exact<'a> {
    /// Registers and memories at the start of a run.
    pub fn new(
        program: &'a Program,
        chip: &ChipSpec,
        inputs: &[Vec<u8>],
        opts: &RunOptions,
    ) -> Result<Exact<'a>, FaultKind> {
        let fill = if opts.poison { POISON } else { 0 };
        let files = Files::of(chip);
        let dim = *chip.mxu.dim as usize;
        let core = |index: u32| {
            let mut scalar = vec![0; files.scalar + TEMPS];
            scalar[1] = index;
            let accumulators = *chip.mxu.accumulators as usize * (dim / 128);
            Core {
                vector: RegFile::new(files.vector + TEMPS, fill),
                mask: RegFile::new(files.mask + TEMPS, 0),
                scalar,
                vmem: Vmem::new(*chip.vmem_bytes, fill),
                smem: Smem::new(*chip.smem_bytes, fill),
                mxus: (0..*chip.mxu.count).map(|_| MxuData::new(dim, accumulators, fill)).collect(),
                share: Share::new(opts.threads),
                xlus: (0..*chip.xlus).map(|_| XluData::default()).collect(),
                eup: VecDeque::new(),
                free: Vec::new(),
                signals: (0..*chip.regs.flags).map(|_| VecDeque::new()).collect(),
            }
        };
        Ok(Exact {
            descs: &program.descs,
            cores: (0..*chip.tensorcores_per_device).map(core).collect(),
            hbm: hbm::load(program, inputs, opts.poison.then_some(POISON))?,
            poison: opts.poison,
            late: opts.dma_late,
        })
    }

    /// Outputs of the program, by number.
    pub fn outputs(&self, program: &Program) -> Vec<Vec<u8>> {
        hbm::outputs(program, &self.hbm)
    }

    /// Memory of the device.
    pub fn hbm(&self) -> &[u8] {
        &self.hbm
    }

    /// Memory of the device.
    pub fn hbm_mut(&mut self) -> &mut [u8] {
        &mut self.hbm
    }

    fn signal(&mut self, core: u32, s: Signal) -> Result<(), FaultKind> {
        let Signal::Dma { desc, hbm, local } = s else { return Ok(()) };
        let (d, c) = (&self.descs[desc as usize], &mut self.cores[core as usize]);
        if d.mem == OnChip::Smem {
            return dma::transfer_scalars(d, hbm, local, &mut self.hbm, &mut c.smem);
        }
        if d.dir == DmaDir::Load {
            let (first, last) = dma::rows(d, local);
            c.vector.detach(first, last, &c.vmem);
        }
        dma::transfer(d, hbm, local, &mut self.hbm, &mut c.vmem)
    }

    fn dma_op(&mut self, core: u32, i: &Instr) -> Result<(), FaultKind> {
        let c = &mut self.cores[core as usize];
        match i.op {
            Op::Dma => {
                let (desc, flag) = (i.args[0] as u32, i.args[1] as usize);
                let d = &self.descs[desc as usize];
                let s = Signal::Dma { desc, hbm: address(&d.hbm, &c.scalar), local: address(&d.local, &c.scalar) };
                if self.late {
                    c.signals[flag].push_back(s);
                    return Ok(());
                }
                self.signal(core, s)
            }
            Op::DmaWait if self.late => {
                for _ in 0..i.args[1] {
                    let Some(s) = self.cores[core as usize].signals[i.args[0] as usize].pop_front() else { break };
                    self.signal(core, s)?;
                }
                Ok(())
            }
            Op::FlagAdd if self.late => {
                let q = &mut c.signals[i.args[0] as usize];
                let n = i.args[1] as usize;
                // Far more plain signals than any program waits for are worth no memory.
                let room = MAX_RESULTS.saturating_sub(q.len());
                q.extend((0..n.min(room)).map(|_| Signal::Plain));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The value of an address: scalars are signed.
fn address(a: &Addr, scalar: &[u32]) -> i128 {
    a.terms
        .iter()
        .fold(i128::from(a.base), |sum, (r, scale)| sum + i128::from(scalar[r.0 as usize] as i32) * i128::from(*scale))
}

impl Datapath for Exact<'_> {
    const DATA: bool = true;

    fn bundle(&mut self, core: u32, b: Bundle<'_>) -> Result<(), FaultKind> {
        let c = &mut self.cores[core as usize];
        for &(file, from, to) in b.copies {
            c.copy(file, from, to);
        }
        for i in b.instrs {
            match i.op.timing() {
                Timing::DmaStart | Timing::DmaWait | Timing::Flag => self.dma_op(core, i)?,
                _ => self.cores[core as usize].execute(i)?,
            }
        }
        Ok(())
    }

    fn set_counter(&mut self, core: u32, register: u8, value: u32) {
        self.cores[core as usize].scalar[register as usize] = value;
    }

    fn scalar(&self, core: u32, register: u8) -> u32 {
        self.cores[core as usize].scalar[register as usize]
    }

    fn begin_op(&mut self, cores: u32) {
        if self.poison {
            for c in self.cores.iter_mut().take(cores as usize) {
                c.vector.detach(0, i128::MAX, &c.vmem);
                c.vmem.reset();
                c.smem.reset();
            }
        }
    }

    fn drain(&mut self, cores: Range<u32>) -> Result<(), FaultKind> {
        if !self.late {
            return Ok(());
        }
        for core in cores {
            for flag in 0..self.cores[core as usize].signals.len() {
                // What has landed stays counted on its flag.
                for k in 0..self.cores[core as usize].signals[flag].len() {
                    let slot = &mut self.cores[core as usize].signals[flag][k];
                    let s = std::mem::replace(slot, Signal::Plain);
                    self.signal(core, s)?;
                }
            }
        }
        Ok(())
    }
}

impl Core {
    fn copy(&mut self, file: File, from: u8, to: u8) {
        match file {
            File::Vector => self.vector.map(i32::from(to), i32::from(from), &self.vmem, |x| x),
            File::Mask => self.mask.map(i32::from(to), i32::from(from), &self.vmem, |x| x),
            File::Scalar => self.scalar[to as usize] = self.scalar[from as usize],
        }
    }

    fn execute(&mut self, i: &Instr) -> Result<(), FaultKind> {
        match i.op.timing() {
            Timing::Scalar => {
                self.scalar_op(i);
                Ok(())
            }
            Timing::ScalarLoad | Timing::ScalarStore => self.smem_op(i),
            Timing::ValuInt | Timing::ValuFloat => {
                alu::execute(i, &mut self.vector, &mut self.mask, &self.scalar, &self.vmem);
                Ok(())
            }
            Timing::VLoad => {
                let row = self.row(i);
                let (first, last) = Vmem::span(row, i.args[3]);
                self.vmem.rows(first, last)?;
                if i.args[3] == 1 && self.vector.view(i.args[0], row) {
                    return Ok(());
                }
                self.vmem.load(row, i.args[3], self.vector.get_mut(i.args[0]))
            }
            Timing::VStore => {
                let row = self.row(i);
                let (first, last) = Vmem::span(row, i.args[3]);
                self.vector.detach(first, last, &self.vmem);
                let value = self.vector.own(i.args[0], &self.vmem);
                match i.op {
                    Op::VStM => self.vmem.store_masked(row, i.args[3], value, self.mask.owned(i.args[4])),
                    _ => self.vmem.store(row, i.args[3], value),
                }
            }
            _ => self.unit_op(i),
        }
    }

    /// Row address of a vector load or store.
    fn row(&self, i: &Instr) -> i64 {
        i64::from(self.scalar[i.args[1] as usize] as i32) + i64::from(i.args[2])
    }

    fn unit_op(&mut self, i: &Instr) -> Result<(), FaultKind> {
        let [unit, a, b, ..] = i.args;
        match i.op.timing() {
            Timing::Eup => {
                let mut r = self.free.pop().unwrap_or_default();
                let x = self.vector.get(i.args[0], &self.vmem);
                eup::execute(i.op, x, &mut r);
                self.eup.push_back(r);
            }
            Timing::EupPop => {
                let mut r = self.eup.pop_front().ok_or(FaultKind::EmptyQueue { unit: "EUP result" })?;
                std::mem::swap(&mut r, self.vector.slot(i.args[0]));
                self.free.push(r);
            }
            Timing::XluRotate | Timing::XluReduce | Timing::XluTranspose => {
                self.xlus[unit as usize].push(i.op, self.vector.get(a, &self.vmem), b);
            }
            Timing::XluPop => {
                let r = self.xlus[unit as usize].pop()?;
                self.vector.get_mut(a).0.copy_from_slice(&r.0);
            }
            Timing::MxuLatch => {
                self.compute(self.mxus[unit as usize].waiting() > 0);
                self.mxus[unit as usize].latch();
            }
            Timing::MxuPop => {
                self.compute(self.mxus[unit as usize].pops_wait());
                self.mxus[unit as usize].pop(self.vector.slot(a))?;
            }
            Timing::MxuPopAcc => {
                self.compute(self.mxus[unit as usize].waiting() > 0);
                self.mxus[unit as usize].read(b as usize, self.vector.get_mut(a));
            }
            _ => return self.mxu_op(i),
        }
        Ok(())
    }

    /// Does the work that waits for the MXUs, if `now` says that its results are needed.
    #[inline]
    fn compute(&mut self, now: bool) {
        if now {
            self.share.run(&mut self.mxus);
        }
    }

    fn mxu_op(&mut self, i: &Instr) -> Result<(), FaultKind> {
        let Some(f) = i.format() else { return Ok(()) };
        self.compute(self.mxus[i.args[0] as usize].waiting() >= MAX_JOBS);
        let m = &mut self.mxus[i.args[0] as usize];
        let a = self.vector.get(i.args[1], &self.vmem);
        match i.op {
            Op::MxPush | Op::MxPushT => m.push(a, f, i.args[3] as usize, i.op == Op::MxPushT),
            Op::MxMul => m.multiply(a, self.vector.get(second(i, m), &self.vmem), f)?,
            Op::MxIni | Op::MxAcc => {
                m.accumulate(a, self.vector.get(second(i, m), &self.vmem), f, i.args[4] as usize, i.op == Op::MxIni)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn smem_op(&mut self, i: &Instr) -> Result<(), FaultKind> {
        let word = i64::from(self.scalar[i.args[1] as usize] as i32) + i64::from(i.args[2]);
        let at = self.smem.word(word)?;
        if i.op == Op::SLd {
            let value = *at;
            self.put(i.args[0], value);
        } else {
            *at = self.scalar[i.args[0] as usize];
        }
        Ok(())
    }

    fn put(&mut self, d: i32, value: u32) {
        if d >= 2 {
            self.scalar[d as usize] = value;
        }
    }

    fn scalar_op(&mut self, i: &Instr) {
        if let Some(value) = scalar::value(i, &self.scalar) {
            self.put(i.args[0], value);
        }
    }
}

/// The register of columns 128 and up; the first again where there are none.
fn second(i: &Instr, m: &MxuData) -> i32 {
    if m.dim() > 128 { i.args[2] } else { i.args[1] }
}
