//! Builds the code of one kernel: nested loops of scheduled blocks, with pools for scalar registers, sync flags and VMEM.

use rustc_hash::FxHashMap;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::Op;
use tpusim_isa::program::{Bundle, DmaDesc, Node, SReg};

use crate::graph::Counter;

use super::schedule::{Queued, RegFile, RegisterPressure, WINDOW, schedule};
use super::vcode::{Code, CodeInstr, Object, V};

/// Why a kernel could not be generated as planned; the planner tries a smaller one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// Vector or mask registers.
    #[error(transparent)]
    Registers(#[from] RegisterPressure),
    /// Scalar registers.
    #[error("a kernel needs more than the {0} scalar registers")]
    Scalars(u32),
    /// Sync flags.
    #[error("a kernel needs more than the {0} sync flags")]
    Flags(u32),
    /// VMEM.
    #[error("a kernel needs {needed} of {available} bytes of VMEM")]
    Vmem {
        /// Bytes the kernel wants.
        needed: u64,
        /// Bytes there are.
        available: u64,
    },
    /// SMEM.
    #[error("a kernel needs {needed} of {available} words of SMEM")]
    Smem {
        /// Words the kernel wants.
        needed: u64,
        /// Words there are.
        available: u64,
    },
}

/// The always-zero scalar.
pub const ZERO: SReg = SReg(0);
/// The core's index in its device.
pub const CORE: SReg = SReg(1);

/// The register in which a loop with `level` regions around it counts. Kernels inside leave it alone: see [`Emitter::reserve`].
pub fn counter_register(chip: &ChipSpec, level: u32) -> SReg {
    SReg((*chip.regs.scalar).min(255).saturating_sub(1 + level) as u8)
}

/// Code under construction. Finished blocks go to the innermost open node list.
pub struct Emitter<'a> {
    /// The chip.
    pub chip: &'a ChipSpec,
    /// The program's DMA descriptors.
    pub descs: &'a mut Vec<DmaDesc>,
    /// The current block.
    pub code: Code,
    nodes: Vec<Vec<Node>>,
    sregs: Vec<u8>,
    pinned: u32,
    flags: u32,
    vmem_rows: u32,
    smem_words: u64,
    objects: u32,
    queued: Queued,
    window: usize,
    /// Blocks scheduled before: peeled loops emit the same code again.
    scheduled: FxHashMap<Block, Vec<Bundle>>,
}

/// What a schedule depends on.
#[derive(PartialEq, Eq, Hash)]
struct Block {
    instrs: Vec<CodeInstr>,
    pinned: u32,
    queued: Queued,
}

impl<'a> Emitter<'a> {
    /// An emitter for one kernel.
    pub fn new(chip: &'a ChipSpec, descs: &'a mut Vec<DmaDesc>) -> Self {
        let scalars = (*chip.regs.scalar).min(255) as u8;
        Emitter {
            chip,
            descs,
            code: Code::new(),
            nodes: vec![Vec::new()],
            sregs: (2..scalars).rev().collect(),
            pinned: 0,
            flags: 0,
            vmem_rows: 0,
            smem_words: 0,
            objects: 0,
            queued: Queued::default(),
            window: WINDOW,
            scheduled: FxHashMap::default(),
        }
    }

    /// Leaves the last `n` scalar registers to the counters of loops around the kernel.
    pub fn reserve(&mut self, n: u32) {
        self.sregs.drain(..self.sregs.len().min(n as usize));
    }

    /// The value of `c`, into a fresh register.
    ///
    /// # Errors
    /// [`EmitError::Scalars`].
    pub fn counter(&mut self, c: Counter) -> Result<SReg, EmitError> {
        let register = counter_register(self.chip, c.level);
        self.affine(register, c.step, c.start)
    }

    /// Keeps instructions in source order from here on: slower code, in as few registers as can be.
    pub fn in_order(&mut self) {
        self.window = 1;
    }

    /// The finished code and the VMEM rows it uses.
    ///
    /// # Errors
    /// As [`Self::flush`]; [`EmitError::Vmem`] if the kernel's buffers do not fit.
    pub fn finish(mut self) -> Result<(Vec<Node>, u64), EmitError> {
        self.flush()?;
        let needed = u64::from(self.vmem_rows) * 512;
        if needed > *self.chip.vmem_bytes {
            return Err(EmitError::Vmem { needed, available: *self.chip.vmem_bytes });
        }
        Ok((self.nodes.pop().unwrap_or_default(), needed))
    }

    /// Schedules the current block and starts a new one.
    ///
    /// # Errors
    /// [`EmitError::Registers`].
    pub fn flush(&mut self) -> Result<(), EmitError> {
        if self.code.is_empty() {
            return Ok(());
        }
        let code = std::mem::take(&mut self.code);
        let regs = RegFile { vregs: *self.chip.regs.vector - self.pinned, masks: *self.chip.regs.mask };
        let before = self.queued.clone();
        self.queued.after(&code, self.chip);
        let block = Block { instrs: code.instrs, pinned: self.pinned, queued: before };
        let bundles = match self.scheduled.get(&block) {
            Some(b) => b.clone(),
            None => {
                let b = schedule(&block.instrs, self.chip, regs, &block.queued, self.window)?;
                self.scheduled.insert(block, b.clone());
                b
            }
        };
        if let Some(list) = self.nodes.last_mut() {
            list.extend(bundles.into_iter().map(Node::Bundle));
        }
        Ok(())
    }

    /// A free scalar register.
    ///
    /// # Errors
    /// [`EmitError::Scalars`].
    pub fn sreg(&mut self) -> Result<SReg, EmitError> {
        self.sregs.pop().map(SReg).ok_or(EmitError::Scalars(*self.chip.regs.scalar))
    }

    /// Gives a scalar register back.
    pub fn free(&mut self, r: SReg) {
        self.sregs.push(r.0);
    }

    /// A sync flag of this kernel.
    ///
    /// # Errors
    /// [`EmitError::Flags`].
    pub fn flag(&mut self) -> Result<i32, EmitError> {
        self.flags += 1;
        if self.flags > *self.chip.regs.flags {
            return Err(EmitError::Flags(*self.chip.regs.flags));
        }
        Ok(self.flags as i32 - 1)
    }

    /// `rows` rows of VMEM; the address of the first.
    pub fn vmem(&mut self, rows: u32) -> u32 {
        let at = self.vmem_rows;
        self.vmem_rows = at.saturating_add(rows.next_multiple_of(8));
        at
    }

    /// `words` words of SMEM; the address of the first.
    ///
    /// # Errors
    /// [`EmitError::Smem`].
    pub fn smem(&mut self, words: u32) -> Result<u32, EmitError> {
        // Addresses are scalars, and those are signed.
        let available = (*self.chip.smem_bytes / 4).min(i32::MAX as u64);
        let needed = self.smem_words + u64::from(words);
        let at = u32::try_from(self.smem_words).ok().filter(|_| needed <= available);
        let at = at.ok_or(EmitError::Smem { needed, available })?;
        self.smem_words = needed;
        Ok(at)
    }

    /// A name for a piece of VMEM that overlaps no other object.
    pub fn object(&mut self) -> Object {
        self.objects += 1;
        Object(self.objects)
    }

    /// Runs `f` with `n` vector registers pinned, taken from the top of the file.
    pub fn with_pinned<T>(
        &mut self,
        n: u32,
        f: impl FnOnce(&mut Self, &[V]) -> Result<T, EmitError>,
    ) -> Result<T, EmitError> {
        let top = *self.chip.regs.vector - self.pinned;
        if n + 4 > top {
            return Err(RegisterPressure { available: top, masks: *self.chip.regs.mask }.into());
        }
        self.flush()?;
        let regs: Vec<V> = (0..n).map(|k| V::pinned(top - 1 - k)).collect();
        self.pinned += n;
        let out = f(self, &regs);
        self.flush()?;
        self.pinned -= n;
        out
    }

    /// Emits a loop of `trip` iterations; `f` gets the counter. One iteration needs no loop (`f` gets a zero), none emits nothing.
    ///
    /// # Errors
    /// What `f` or a flush gives.
    pub fn repeat(
        &mut self,
        trip: u32,
        f: impl FnOnce(&mut Self, SReg) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        match trip {
            0 => Ok(()),
            1 => f(self, ZERO),
            _ => {
                self.flush()?;
                let counter = self.sreg()?;
                self.nodes.push(Vec::new());
                let result = f(self, counter).and_then(|()| self.flush());
                let body = self.nodes.pop().unwrap_or_default();
                self.free(counter);
                result?;
                if let Some(list) = self.nodes.last_mut() {
                    list.push(Node::Loop { counter, trip, body });
                }
                Ok(())
            }
        }
    }

    /// Scalar op with registers and a trailing immediate.
    pub fn si(&mut self, op: Op, d: SReg, a: SReg, imm: i32) {
        self.code.s(op, &[i32::from(d.0), i32::from(a.0), imm]);
    }

    /// Scalar op on registers.
    pub fn ss(&mut self, op: Op, d: SReg, a: SReg, b: SReg) {
        self.code.s(op, &[i32::from(d.0), i32::from(a.0), i32::from(b.0)]);
    }

    /// Scalar select.
    pub fn ss4(&mut self, op: Op, d: SReg, c: SReg, a: SReg, b: SReg) {
        self.code.s(op, &[i32::from(d.0), i32::from(c.0), i32::from(a.0), i32::from(b.0)]);
    }

    /// `d = imm`.
    pub fn sli(&mut self, d: SReg, imm: i32) {
        self.code.s(Op::SLi, &[i32::from(d.0), imm]);
    }

    /// `d = a * scale + imm`, into a fresh register.
    ///
    /// # Errors
    /// [`EmitError::Scalars`].
    pub fn affine(&mut self, a: SReg, scale: i32, imm: i32) -> Result<SReg, EmitError> {
        let d = self.sreg()?;
        if a == ZERO {
            self.sli(d, imm);
        } else {
            self.si(Op::SMuli, d, a, scale);
            if imm != 0 {
                self.si(Op::SAddi, d, d, imm);
            }
        }
        Ok(d)
    }

    /// Waits until the flag is `n` and takes them.
    pub fn wait(&mut self, flag: i32, n: i32) {
        self.code.raw(Op::DmaWait, &[flag, n]);
    }

    /// Starts a DMA.
    pub fn dma(&mut self, desc: DmaDesc, flag: i32) {
        let terms: Vec<SReg> = desc.hbm.terms.iter().chain(&desc.local.terms).map(|t| t.0).collect();
        let index = self.descs.iter().position(|d| *d == desc).unwrap_or_else(|| {
            self.descs.push(desc);
            self.descs.len() - 1
        });
        self.code.dma(index as i32, flag, terms.into_iter());
    }
}
