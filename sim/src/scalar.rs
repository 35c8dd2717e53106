//! The scalar unit: 32-bit integers that wrap.

use tpusim_isa::op::{Instr, Op};

/// What a scalar ALU instruction writes, from registers `regs`; `None` for every other instruction.
pub(crate) fn value(i: &Instr, regs: &[u32]) -> Option<u32> {
    let [_, a, b, c, _] = i.args;
    let s = |r: i32| regs.get(r as usize).copied().unwrap_or(0);
    // Immediate forms keep the immediate where the others keep a register.
    let (x, imm) = (s(a), b as u32);
    let less = |p: u32, q: u32| u32::from((p as i32) < q as i32);
    let least = |p: u32, q: u32| (p as i32).min(q as i32) as u32;
    let most = |p: u32, q: u32| (p as i32).max(q as i32) as u32;
    Some(match i.op {
        Op::SLi => a as u32,
        Op::SAdd => x.wrapping_add(s(b)),
        Op::SAddi => x.wrapping_add(imm),
        Op::SSub => x.wrapping_sub(s(b)),
        Op::SMul => x.wrapping_mul(s(b)),
        Op::SMuli => x.wrapping_mul(imm),
        Op::SMin => least(x, s(b)),
        Op::SMini => least(x, imm),
        Op::SMax => most(x, s(b)),
        Op::SMaxi => most(x, imm),
        Op::SAnd => x & s(b),
        Op::SOr => x | s(b),
        Op::SXor => x ^ s(b),
        Op::SXori => x ^ imm,
        Op::SShl => x.checked_shl(s(b)).unwrap_or(0),
        Op::SShr => x.checked_shr(s(b)).unwrap_or(0),
        Op::SEq => u32::from(x == s(b)),
        Op::SEqi => u32::from(x == imm),
        Op::SLt => less(x, s(b)),
        Op::SLti => less(x, imm),
        Op::SSel if x != 0 => s(b),
        Op::SSel => s(c),
        _ => return None,
    })
}
