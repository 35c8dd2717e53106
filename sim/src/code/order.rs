//! The order in which the instructions of a bundle execute on the host: readers before writers, so that all of a bundle reads
//! before any of it writes. Where that is a cycle (a swap), the old value is copied aside first.

use tpusim_isa::op::{Field, Instr, Op, Timing};

use super::{File, Files, Lists, Touched};
use crate::fault::FaultKind;

/// Working memory of [`Order::order`].
#[derive(Debug, Default)]
pub(super) struct Order {
    instrs: Vec<Instr>,
    /// Instructions in the order in which they are tried.
    tried: Vec<u8>,
    /// For each instruction, those that have to be before it, as bits.
    before: Vec<u64>,
}

impl Order {
    /// Appends the `instrs` of a bundle (at most 64) in execution order to the lists, and the copies to make before.
    pub fn order(&mut self, instrs: &[Instr], t: &mut Touched, files: Files, out: &mut Lists) -> Result<(), FaultKind> {
        if let [one] = instrs {
            out.instrs.push(*one);
            return Ok(());
        }
        self.instrs.clear();
        self.instrs.extend_from_slice(instrs);
        self.tried.clear();
        let class = |op| match op {
            Op::DmaWait => 0,
            Op::Dma => 2,
            _ => 1,
        };
        for c in 0..3 {
            self.tried.extend((0..instrs.len() as u8).filter(|&i| class(instrs[usize::from(i)].op) == c));
        }
        self.constrain(t);
        let first_copy = out.copies.len();
        let mut left = u64::MAX.checked_shr(64 - instrs.len() as u32).unwrap_or(0);
        while left != 0 {
            let waiting = |i: &&u8| left >> **i & 1 == 1;
            let free = |i: &&u8| waiting(i) && self.before[usize::from(**i)] & left == 0;
            if let Some(&i) = self.tried.iter().find(free) {
                out.instrs.push(self.instrs[usize::from(i)]);
                left &= !(1 << i);
                continue;
            }
            // A cycle: free the first instruction that has a register to be freed of.
            let writes = |i: &&u8| waiting(i) && t.writes.iter().any(|w| w.0 == **i);
            let Some(&i) = self.tried.iter().find(writes) else {
                return Err(FaultKind::Malformed("bundle cannot be ordered".to_owned()));
            };
            for &(_, entry) in t.writes.iter().filter(|w| w.0 == i) {
                let register = files.register(entry);
                let temp = set_aside(register, first_copy, out, files)?;
                for (j, instr) in self.instrs.iter_mut().enumerate() {
                    if left >> j & 1 == 1 && j != usize::from(i) {
                        redirect(instr, register, temp);
                    }
                }
                t.reads.retain(|r| r.1 != entry || r.0 == i || left >> r.0 & 1 == 0);
            }
            self.constrain(t);
        }
        Ok(())
    }

    /// Works out what has to be before what.
    fn constrain(&mut self, t: &Touched) {
        self.before.clear();
        self.before.resize(self.instrs.len(), 0);
        for &(i, w) in &t.writes {
            for &(j, r) in &t.reads {
                if r == w && j != i {
                    self.before[usize::from(i)] |= 1 << j;
                }
            }
        }
        let mut on_mxu_before = 0;
        for i in 0..self.instrs.len() {
            let op = self.instrs[i].op;
            if let Some(earlier) = read_first(op) {
                for (j, other) in self.instrs.iter().enumerate() {
                    self.before[i] |= u64::from(other.op == earlier) << j;
                }
            }
            if on_mxu(op) {
                self.before[i] |= on_mxu_before;
                on_mxu_before |= 1 << i;
            }
        }
    }
}

/// What has to be before `op` because of memory: loads see what was there before the bundle's stores, pops of accumulators what
/// was there before its `vmatmul`s.
fn read_first(op: Op) -> Option<Op> {
    match op {
        Op::VSt | Op::VStM => Some(Op::VLd),
        Op::SSt => Some(Op::SLd),
        Op::MxIni | Op::MxAcc => Some(Op::MxPopAcc),
        _ => None,
    }
}

/// MXU instructions that act in the order the bundle lists them.
fn on_mxu(op: Op) -> bool {
    matches!(op.timing(), Timing::MxuPush | Timing::MxuLatch | Timing::MxuMul | Timing::MxuAcc)
}

fn set_aside((file, r): (File, u8), first: usize, out: &mut Lists, files: Files) -> Result<u8, FaultKind> {
    let base = match file {
        File::Vector => files.vector,
        File::Mask => files.mask,
        File::Scalar => files.scalar,
    };
    let used = out.copies[first..].iter().filter(|c| c.0 == file).count();
    if used >= TEMPS {
        return Err(FaultKind::Malformed("too many register swaps in one bundle".to_owned()));
    }
    let temp = (base + used) as u8;
    out.copies.push((file, r, temp));
    Ok(temp)
}

/// Registers kept behind each file for swaps within a bundle.
pub(crate) const TEMPS: usize = 16;

fn redirect(i: &mut Instr, from: (File, u8), to: u8) {
    for (k, field) in i.op.fields().iter().enumerate() {
        let file = match field {
            Field::Vs => File::Vector,
            Field::Ms => File::Mask,
            Field::Ss => File::Scalar,
            _ => continue,
        };
        if (file, i.args[k]) == (from.0, i32::from(from.1)) {
            i.args[k] = i32::from(to);
        }
    }
}
