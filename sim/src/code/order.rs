//! The order in which the instructions of a bundle execute on the host: readers before writers, so that all of a bundle reads
//! before any of it writes. Where that is a cycle (a swap), the old value is copied aside first.

use tpusim_isa::op::{Field, Instr, Op, Timing};

use super::{File, Files, Touch};
use crate::fault::FaultKind;

type Ordered = (Vec<(File, u8, u8)>, Vec<Instr>);

/// Copies to make and instructions in execution order.
pub(super) fn order(instrs: &[Instr], touches: &[Touch], files: Files) -> Result<Ordered, FaultKind> {
    let n = instrs.len();
    let mut instrs = instrs.to_vec();
    let mut reads: Vec<Vec<(File, i32)>> = touches.iter().map(|t| t.reads.clone()).collect();
    let mut copies = Vec::new();
    let mut left: Vec<usize> = (0..n).collect();
    left.sort_by_key(|&i| match instrs[i].op {
        Op::DmaWait => 0,
        Op::Dma => 2,
        _ => 1,
    });
    let mut out = Vec::with_capacity(n);
    while !left.is_empty() {
        let blocked = |i: usize, left: &[usize], reads: &[Vec<(File, i32)>]| {
            left.iter().any(|&j| {
                j != i
                    && (reads[j].iter().any(|r| touches[i].writes.contains(r))
                        || memory_before(instrs[j].op, instrs[i].op)
                        || (j < i && on_mxu(instrs[j].op) && on_mxu(instrs[i].op)))
            })
        };
        let at = match left.iter().position(|&i| !blocked(i, &left, &reads)) {
            Some(at) => at,
            None => {
                // Free the first instruction that has a register to be freed of.
                let Some(&i) = left.iter().find(|&&i| !touches[i].writes.is_empty()) else {
                    return Err(FaultKind::Malformed("bundle cannot be ordered".to_owned()));
                };
                for &w in &touches[i].writes {
                    let temp = set_aside(w, &mut copies, files)?;
                    for &j in left.iter().filter(|&&j| j != i) {
                        redirect(&mut instrs[j], w, temp);
                        reads[j].retain(|r| *r != w);
                    }
                }
                continue;
            }
        };
        out.push(instrs[left.remove(at)]);
    }
    Ok((copies, out))
}

/// Whether `a` must be before `b` because of memory: loads see what was there before the bundle's stores, pops of accumulators
/// what was there before its `vmatmul`s.
fn memory_before(a: Op, b: Op) -> bool {
    matches!((a, b), (Op::VLd, Op::VSt | Op::VStM) | (Op::SLd, Op::SSt) | (Op::MxPopAcc, Op::MxIni | Op::MxAcc))
}

/// MXU instructions that act in the order the bundle lists them.
fn on_mxu(op: Op) -> bool {
    matches!(op.timing(), Timing::MxuPush | Timing::MxuLatch | Timing::MxuMul | Timing::MxuAcc)
}

fn set_aside((file, r): (File, i32), copies: &mut Vec<(File, u8, u8)>, files: Files) -> Result<u8, FaultKind> {
    let base = match file {
        File::Vector => files.vector,
        File::Mask => files.mask,
        File::Scalar => files.scalar,
    };
    let used = copies.iter().filter(|c| c.0 == file).count();
    if used >= TEMPS {
        return Err(FaultKind::Malformed("too many register swaps in one bundle".to_owned()));
    }
    let temp = (base + used) as u8;
    copies.push((file, r as u8, temp));
    Ok(temp)
}

/// Registers kept behind each file for swaps within a bundle.
pub(crate) const TEMPS: usize = 16;

fn redirect(i: &mut Instr, from: (File, i32), to: u8) {
    for (k, field) in i.op.fields().iter().enumerate() {
        let file = match field {
            Field::Vs => File::Vector,
            Field::Ms => File::Mask,
            Field::Ss => File::Scalar,
            _ => continue,
        };
        if (file, i.args[k]) == from {
            i.args[k] = i32::from(to);
        }
    }
}
