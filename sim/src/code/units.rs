//! The units that a bundle uses, and which of them it may use but once.

use std::fmt;

use tpusim_isa::op::{Instr, Timing};

use super::{Decoder, Stream, Use};
use crate::fault::FaultKind;

/// What one bundle can use once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Smem,
    Eup,
    Xlu(usize),
    Weights(usize),
    Latch(usize),
    Mxu(usize),
    Wait(u32),
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unit::Smem => f.write_str("the SMEM port"),
            Unit::Eup => f.write_str("the EUP"),
            Unit::Xlu(i) => write!(f, "xlu {i}"),
            Unit::Weights(i) => write!(f, "the weight port of mxu {i}"),
            Unit::Latch(i) => write!(f, "the latch of mxu {i}"),
            Unit::Mxu(i) => write!(f, "mxu {i}"),
            Unit::Wait(i) => write!(f, "a wait on flag {i}"),
        }
    }
}

impl Decoder<'_> {
    fn stream(&self, i: &Instr) -> Result<Stream, FaultKind> {
        let name = i.op.name();
        let format = i.format().ok_or(FaultKind::UnknownFormat { op: name, code: -1 })?;
        let rate = u64::from(self.chip.mxu_rows_per_cycle(format));
        if rate == 0 {
            return Err(FaultKind::MxuFormat { op: name, format });
        }
        Ok(Stream { interval: u64::from(self.chip.mxu_interval(format)), groups: format.packing() as u64, rate })
    }

    /// Lists the units that a bundle uses.
    pub(super) fn uses(&mut self, instrs: &[Instr]) -> Result<(), FaultKind> {
        self.taken.clear();
        let start = self.lists.uses.len();
        for i in instrs {
            let unit = i.args[0] as usize;
            let flag = i.args[0] as u32;
            let n = i.args[1] as u64;
            let uses = &self.lists.uses[start..];
            let new = match i.op.timing() {
                Timing::ScalarLoad => {
                    once(&mut self.taken, Unit::Smem)?;
                    Use::ScalarLoad
                }
                Timing::Eup => {
                    once(&mut self.taken, Unit::Eup)?;
                    Use::Eup
                }
                Timing::XluRotate | Timing::XluReduce => {
                    once(&mut self.taken, Unit::Xlu(unit))?;
                    Use::Xlu { xlu: unit, latency: u64::from(self.chip.latency(i.op.timing())) }
                }
                Timing::XluTranspose => {
                    once(&mut self.taken, Unit::Xlu(unit))?;
                    Use::Xpose { xlu: unit }
                }
                Timing::MxuPush => {
                    once(&mut self.taken, Unit::Weights(unit))?;
                    self.stream(i)?;
                    Use::Push { mxu: unit }
                }
                Timing::MxuLatch => {
                    once(&mut self.taken, Unit::Latch(unit))?;
                    let early = |u: &Use| matches!(u, Use::Push { mxu } | Use::Mul { mxu, .. } | Use::Acc { mxu, .. } if *mxu == unit);
                    if uses.iter().any(early) {
                        return Err(FaultKind::UnitConflict {
                            unit: format!("mxu {unit}, which latches after both are done"),
                        });
                    }
                    Use::Latch { mxu: unit }
                }
                Timing::MxuMul => {
                    once(&mut self.taken, Unit::Mxu(unit))?;
                    Use::Mul { mxu: unit, stream: self.stream(i)? }
                }
                Timing::MxuAcc => {
                    once(&mut self.taken, Unit::Mxu(unit))?;
                    Use::Acc { mxu: unit, stream: self.stream(i)? }
                }
                Timing::EupPop => Use::EupPop { nth: uses.iter().filter(|u| matches!(u, Use::EupPop { .. })).count() },
                Timing::XluPop => Use::XluPop {
                    xlu: unit,
                    nth: uses.iter().filter(|u| matches!(u, Use::XluPop { xlu, .. } if *xlu == unit)).count(),
                },
                Timing::MxuPop => Use::MxuPop {
                    mxu: unit,
                    nth: uses.iter().filter(|u| matches!(u, Use::MxuPop { mxu, .. } if *mxu == unit)).count(),
                },
                Timing::MxuPopAcc => Use::AccPop { mxu: unit },
                Timing::DmaWait => {
                    once(&mut self.taken, Unit::Wait(flag))?;
                    Use::Wait { flag, n }
                }
                Timing::Flag => Use::FlagAdd { flag, n },
                Timing::DmaStart => Use::Dma { desc: i.args[0] as u32, flag: i.args[1] as u32 },
                _ => continue,
            };
            self.lists.uses.push(new);
        }
        self.lists.uses[start..].sort_by_key(|u| {
            let first = matches!(
                u,
                Use::Wait { .. } | Use::EupPop { .. } | Use::XluPop { .. } | Use::MxuPop { .. } | Use::AccPop { .. }
            );
            !first
        });
        Ok(())
    }
}

fn once(taken: &mut Vec<Unit>, unit: Unit) -> Result<(), FaultKind> {
    if taken.contains(&unit) {
        return Err(FaultKind::UnitConflict { unit: unit.to_string() });
    }
    taken.push(unit);
    Ok(())
}
