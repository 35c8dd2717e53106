//! Register files while a block is scheduled.

use rustc_hash::FxHashMap;
use tpusim_isa::op::{Field, Instr};

use super::super::vcode::{CodeInstr, VIRTUAL};
use super::RegFile;

/// One register file: what is free, where virtual registers live, and how many readers each still has.
struct File {
    free: Vec<i32>,
    map: FxHashMap<i32, i32>,
    uses: FxHashMap<i32, u32>,
}

/// The vector and the mask registers.
pub(super) struct Files {
    files: [File; 2],
    /// Registers of results nobody reads: they stay taken until the bundle is complete.
    dead: Vec<(usize, i32)>,
}

fn read_file(f: Field) -> Option<usize> {
    match f {
        Field::Vs => Some(0),
        Field::Ms => Some(1),
        _ => None,
    }
}

fn written_file(f: Field) -> Option<usize> {
    match f {
        Field::Vd => Some(0),
        Field::Md => Some(1),
        _ => None,
    }
}

impl Files {
    /// Free files, and the readers of every virtual register of `code`.
    pub fn new(code: &[CodeInstr], regs: RegFile) -> Files {
        let file = |n: u32| File {
            free: (0..n as i32).rev().collect(),
            map: FxHashMap::default(),
            uses: FxHashMap::default(),
        };
        let mut files = [file(regs.vregs), file(regs.masks)];
        for ci in code {
            for (f, a) in ci.instr.operands() {
                if let Some(k) = read_file(f).filter(|_| a >= VIRTUAL) {
                    *files[k].uses.entry(a).or_default() += 1;
                }
            }
        }
        Files { files, dead: Vec::new() }
    }

    /// Registers of each file that issuing `i` frees because it is their last reader.
    pub fn frees(&self, i: &Instr) -> [usize; 2] {
        let mut out = [0, 0];
        for (k, (f, a)) in i.operands().enumerate() {
            let Some(file) = read_file(f).filter(|_| a >= VIRTUAL) else { continue };
            // Count a register at its first operand only.
            if i.operands().take(k).any(|x| x == (f, a)) {
                continue;
            }
            let here = i.operands().filter(|x| *x == (f, a)).count() as u32;
            if self.files[file].uses.get(&a) == Some(&here) {
                out[file] += 1;
            }
        }
        out
    }

    /// Free registers of each file.
    pub fn free(&self) -> [usize; 2] {
        [self.files[0].free.len(), self.files[1].free.len()]
    }

    /// Gives physical registers to one instruction; the caller made sure there are enough.
    pub fn assign(&mut self, i: &Instr) -> Instr {
        let mut out = *i;
        for (k, &f) in i.op.fields().iter().enumerate() {
            let a = i.args[k];
            let Some(file) = read_file(f).filter(|_| a >= VIRTUAL) else { continue };
            let regs = &mut self.files[file];
            let phys = regs.map.get(&a).copied().unwrap_or(0);
            out.args[k] = phys;
            if let Some(u) = regs.uses.get_mut(&a) {
                *u -= 1;
                if *u == 0 {
                    regs.map.remove(&a);
                    regs.free.push(phys);
                }
            }
        }
        for (k, &f) in i.op.fields().iter().enumerate() {
            let a = i.args[k];
            let Some(file) = written_file(f).filter(|_| a >= VIRTUAL) else { continue };
            let regs = &mut self.files[file];
            let phys = regs.free.pop().unwrap_or(0);
            out.args[k] = phys;
            if regs.uses.get(&a).copied().unwrap_or(0) == 0 {
                self.dead.push((file, phys));
            } else {
                regs.map.insert(a, phys);
            }
        }
        out
    }

    /// The bundle is complete.
    pub fn end_bundle(&mut self) {
        for (file, phys) in self.dead.drain(..) {
            self.files[file].free.push(phys);
        }
    }
}
