//! What can be seen in one bundle, and the shape of the tree.

use super::{CheckKind, Place, Report};
use crate::asm;
use crate::chip::ChipSpec;
use crate::num::Format;
use crate::op::{Field, Instr, Op, Slot};
use crate::program::{Bundle, FlowKind, MAX_DEPTH, Node, Program, SReg};

/// Immediates up to this need no immediate slot of the bundle.
const FREE_IMM: std::ops::RangeInclusive<i32> = 0..=31;

struct Walk<'a, 'r, 'p> {
    program: &'a Program,
    chip: &'a ChipSpec,
    report: &'r mut Report<'p>,
    place: Place,
    counters: Vec<SReg>,
}

pub(super) fn check(program: &Program, chip: &ChipSpec, report: &mut Report<'_>) {
    let mut walk = Walk { program, chip, report, place: Place::default(), counters: Vec::new() };
    walk.nodes(&program.body, 1);
}

impl Walk<'_, '_, '_> {
    fn add(&mut self, instr: Option<(usize, &Instr)>, kind: CheckKind) {
        self.report.add(&self.place, instr, kind);
    }

    fn nodes(&mut self, nodes: &[Node], depth: usize) {
        if depth > MAX_DEPTH {
            return self.add(None, CheckKind::TooDeep);
        }
        for (i, node) in nodes.iter().enumerate() {
            let inside = self.place.op.is_some();
            let outer = self.place.enter(i, node);
            match node {
                Node::Bundle(b) => self.bundle(b),
                Node::Loop { counter, body, .. } => {
                    self.counter(*counter);
                    self.counters.push(*counter);
                    self.nodes(body, depth + 1);
                    self.counters.pop();
                }
                Node::Op { op, body } => {
                    let has = self.program.ops.len() as u64;
                    if inside {
                        self.add(None, CheckKind::NestedOp);
                    }
                    if u64::from(*op) >= has {
                        self.add(None, CheckKind::NoSuch { what: format!("op {op}"), has });
                    }
                    self.nodes(body, depth + 1);
                }
                // A transfer has registers of its own.
                Node::Start { body, .. } => {
                    let outside = std::mem::take(&mut self.counters);
                    self.nodes(body, depth + 1);
                    self.counters = outside;
                }
                Node::Done { .. } => {}
                Node::While { info, test, .. } => self.flow(node, *info, FlowKind::While, *test, depth),
                Node::Case { info, selector, branches } => {
                    if branches.is_empty() {
                        self.add(None, CheckKind::NoBranches);
                    }
                    self.flow(node, *info, FlowKind::Case, *selector, depth);
                }
            }
            self.place.leave(outer);
        }
    }

    fn flow(&mut self, node: &Node, info: u32, kind: FlowKind, decides: SReg, depth: usize) {
        if self.place.op.is_some() {
            self.add(None, CheckKind::FlowInOp(kind.name()));
        }
        match self.program.flows.get(info as usize) {
            None => {
                let (what, has) = (format!("flow {info}"), self.program.flows.len() as u64);
                self.add(None, CheckKind::NoSuch { what, has });
            }
            Some(f) if !f.kind.fits(kind) => {
                self.add(None, CheckKind::FlowKind { index: info, kind: kind.name() });
            }
            Some(_) => {}
        }
        let has = u64::from(*self.chip.regs.scalar);
        if u64::from(decides.0) >= has {
            self.add(None, CheckKind::NoSuch { what: format!("s{}", decides.0), has });
        }
        for (k, body) in node.bodies().enumerate() {
            self.place.path.push(k);
            self.nodes(body, depth + 1);
            self.place.path.pop();
        }
    }

    fn counter(&mut self, counter: SReg) {
        let what = format!("s{}", counter.0);
        let has = u64::from(*self.chip.regs.scalar);
        if u64::from(counter.0) >= has {
            self.add(None, CheckKind::NoSuch { what, has });
        } else if counter.0 < 2 || self.counters.contains(&counter) {
            self.add(None, CheckKind::ReadOnly(what));
        }
    }

    fn bundle(&mut self, b: &Bundle) {
        for slot in Slot::ALL {
            let used = b.instrs.iter().filter(|i| i.op.slot() == slot).count();
            let has = self.chip.slots(slot);
            if used > has as usize {
                self.add(None, CheckKind::Slots { slot, used, has });
            }
        }
        let operands = b.instrs.iter().flat_map(|i| i.operands());
        let mut long: Vec<i32> =
            operands.filter(|(f, v)| *f == Field::Imm && !FREE_IMM.contains(v)).map(|(_, v)| v).collect();
        long.sort_unstable();
        long.dedup();
        let has = *self.chip.slots.immediates;
        if long.len() > has as usize {
            self.add(None, CheckKind::Immediates { used: long.len(), has });
        }
        let mut written: Vec<(Field, i32)> = Vec::new();
        for (n, i) in b.instrs.iter().enumerate() {
            for (field, arg) in i.operands() {
                self.index(n, i, field, arg);
                if matches!(field, Field::Vd | Field::Md | Field::Sd) {
                    self.write(n, i, field, arg, &mut written);
                }
            }
            self.immediates(n, i);
            self.matrix(n, i);
        }
    }

    /// Whether the thing exists.
    fn index(&mut self, n: usize, i: &Instr, field: Field, arg: i32) {
        let regs = &self.chip.regs;
        let has = match field {
            Field::Vd | Field::Vs => u64::from(*regs.vector),
            Field::Md | Field::Ms => u64::from(*regs.mask),
            Field::Sd | Field::Ss => u64::from(*regs.scalar),
            Field::Mxu => u64::from(*self.chip.mxu.count),
            Field::Xlu => u64::from(*self.chip.xlus),
            Field::Flag => u64::from(*regs.flags),
            Field::Desc => self.program.descs.len() as u64,
            Field::Send => self.program.sends.len() as u64,
            Field::Table => self.program.tables.len() as u64,
            Field::Fmt if Format::from_code(arg).is_none() => {
                return self.add(Some((n, i)), CheckKind::UnknownFormat(arg));
            }
            Field::Fmt | Field::Imm => return,
        };
        if u64::from(arg as u32) >= has {
            self.add(Some((n, i)), CheckKind::NoSuch { what: asm::operand_name(field, arg), has });
        }
    }

    fn write(&mut self, n: usize, i: &Instr, field: Field, arg: i32, written: &mut Vec<(Field, i32)>) {
        let name = || asm::operand_name(field, arg);
        let counted = |c: &SReg| i32::from(c.0) == arg;
        if field == Field::Sd && ((0..2).contains(&arg) || self.counters.iter().any(counted)) {
            self.add(Some((n, i)), CheckKind::ReadOnly(name()));
        }
        if written.contains(&(field, arg)) {
            self.add(Some((n, i)), CheckKind::DoubleWrite(name()));
        } else {
            written.push((field, arg));
        }
    }

    /// Immediates that choose a part, sublane, lane or slot.
    fn immediates(&mut self, n: usize, i: &Instr) {
        let packing = i.format().map_or(u32::MAX, |f| f.packing() as u32);
        let halves = (*self.chip.mxu.dim / 128).max(1);
        let accumulators = *self.chip.mxu.accumulators;
        let (what, limit) = match i.op {
            Op::VUnpack | Op::VPack => ("part", packing),
            Op::VSubRot | Op::VSubBcast => ("sublane", 8),
            Op::XRot | Op::XBcast => ("lane", 128),
            Op::MxPush | Op::MxPushT => ("weight slot", *self.chip.mxu.dim / packing.saturating_mul(8).max(1) * halves),
            Op::MxPopAcc => ("accumulator register", accumulators.saturating_mul(halves)),
            // The last of its results must still fit.
            Op::MxIni | Op::MxAcc => ("accumulator", (accumulators + 1).saturating_sub(packing)),
            _ => return,
        };
        let value = i.operands().filter(|(f, _)| *f == Field::Imm).last().map_or(0, |(_, v)| v);
        // Reported already, and the limit means nothing then.
        let no_format = i.op.fields().contains(&Field::Fmt) && i.format().is_none();
        let no_accumulators = i.op.needs_accumulators() && accumulators == 0;
        if !no_format && !no_accumulators && value as u32 >= limit {
            self.add(Some((n, i)), CheckKind::Immediate { what, value, limit });
        }
    }

    fn matrix(&mut self, n: usize, i: &Instr) {
        let chip = self.chip;
        if i.op.needs_accumulators() && *chip.mxu.accumulators == 0 {
            self.add(Some((n, i)), CheckKind::NoAccumulators(chip.name.clone()));
        }
        if matches!(i.op, Op::MxPush | Op::MxPushT | Op::MxMul | Op::MxIni | Op::MxAcc)
            && let Some(format) = i.format()
            && chip.mxu_rows_per_cycle(format) == 0
        {
            self.add(Some((n, i)), CheckKind::MxuFormat { chip: chip.name.clone(), format: format.name() });
        }
    }
}

impl Op {
    fn needs_accumulators(self) -> bool {
        matches!(self, Op::MxIni | Op::MxAcc | Op::MxPopAcc)
    }
}
