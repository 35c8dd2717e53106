//! Registers read before they are written.
//!
//! Forward, with the set of registers certainly written. The first iteration of a loop has the fewest, so one walk of its body is enough.
//! After a `while` it is what its first condition left, after a `case` what all branches wrote.

use bitvec::prelude::*;

use super::{CheckKind, Place, Report};
use crate::asm;
use crate::op::{Field, Instr, Op};
use crate::program::{Node, Program};

/// Three register files of 256 in one set.
const FILE: usize = 256;

struct Walk<'a, 'r, 'p> {
    program: &'a Program,
    report: &'r mut Report<'p>,
    place: Place,
    written: BitArr!(for 3 * FILE),
}

/// Register read or written by an operand.
fn register(field: Field, arg: i32) -> Option<(usize, bool)> {
    let (file, write) = match field {
        Field::Vd => (0, true),
        Field::Vs => (0, false),
        Field::Md => (1, true),
        Field::Ms => (1, false),
        Field::Sd => (2, true),
        Field::Ss => (2, false),
        _ => return None,
    };
    let n = usize::try_from(arg).ok().filter(|n| *n < FILE)?;
    Some((file * FILE + n, write))
}

/// Whether operand `at` is what `vpack` inserts into. Where that is the destination too, a register is filled part by part, and the
/// first of these instructions has nothing to keep.
fn starts_packing(i: &Instr, at: usize) -> bool {
    i.op == Op::VPack && at == 1 && i.args[0] == i.args[1]
}

pub(super) fn check(program: &Program, report: &mut Report<'_>) {
    let mut walk = Walk { program, report, place: Place::default(), written: BitArray::ZERO };
    walk.written.set(2 * FILE, true);
    walk.written.set(2 * FILE + 1, true);
    walk.nodes(&program.body);
}

impl Walk<'_, '_, '_> {
    fn nodes(&mut self, nodes: &[Node]) {
        for (i, node) in nodes.iter().enumerate() {
            let outer = self.place.enter(i, node);
            match node {
                Node::Bundle(b) => self.bundle(&b.instrs),
                Node::Loop { counter, trip, body } => {
                    self.written.set(2 * FILE + usize::from(counter.0), true);
                    if *trip > 0 {
                        self.nodes(body);
                    }
                }
                Node::Op { body, .. } => self.nodes(body),
                // A transfer has registers of its own.
                Node::Start { body, .. } => {
                    let outside = self.written;
                    self.written[2 * FILE..3 * FILE].fill(true);
                    self.nodes(body);
                    self.written = outside;
                }
                Node::Done { .. } => {}
                Node::While { cond, test, body, .. } => {
                    self.section(0, cond);
                    self.decides(test.0);
                    let after = self.written;
                    self.section(1, body);
                    self.written = after;
                }
                Node::Case { selector, branches, .. } => {
                    self.decides(selector.0);
                    let before = self.written;
                    let mut after = None;
                    for (k, branch) in branches.iter().enumerate() {
                        self.written = before;
                        self.section(k, branch);
                        after = Some(after.map_or(self.written, |a| a & self.written));
                    }
                    self.written = after.unwrap_or(before);
                }
            }
            self.place.leave(outer);
        }
    }

    fn section(&mut self, k: usize, nodes: &[Node]) {
        self.place.path.push(k);
        self.nodes(nodes);
        self.place.path.pop();
    }

    /// A register that control flow looks at.
    fn decides(&mut self, reg: u8) {
        let n = 2 * FILE + usize::from(reg);
        if self.written.get(n).is_some_and(|w| !*w) {
            self.report.add(&self.place, None, CheckKind::Unwritten(format!("s{reg}")));
            self.written.set(n, true);
        }
    }

    fn bundle(&mut self, instrs: &[Instr]) {
        // All read before any writes.
        for (n, i) in instrs.iter().enumerate() {
            for (at, (field, arg)) in i.operands().enumerate() {
                if let Some((reg, false)) = register(field, arg)
                    && !starts_packing(i, at)
                {
                    self.read(n, i, reg, || asm::operand_name(field, arg));
                }
                match field {
                    Field::Desc => self.descriptor(n, i, arg),
                    Field::Send => self.message(n, i, arg),
                    _ => {}
                }
            }
        }
        for (field, arg) in instrs.iter().flat_map(|i| i.operands()) {
            if let Some((reg, true)) = register(field, arg) {
                self.written.set(reg, true);
            }
        }
    }

    fn read(&mut self, n: usize, i: &Instr, reg: usize, name: impl Fn() -> String) {
        if self.written.get(reg).is_some_and(|w| !*w) {
            self.report.add(&self.place, Some((n, i)), CheckKind::Unwritten(name()));
            // Once is enough.
            self.written.set(reg, true);
        }
    }

    fn message(&mut self, n: usize, i: &Instr, send: i32) {
        let program = self.program;
        let Some(d) = usize::try_from(send).ok().and_then(|d| program.sends.get(d)) else { return };
        for (reg, _) in d.from.terms.iter().chain(&d.to.terms) {
            self.read(n, i, 2 * FILE + usize::from(reg.0), || format!("s{}", reg.0));
        }
    }

    fn descriptor(&mut self, n: usize, i: &Instr, desc: i32) {
        let program = self.program;
        let Some(d) = usize::try_from(desc).ok().and_then(|d| program.descs.get(d)) else { return };
        for (reg, _) in d.hbm.terms.iter().chain(&d.local.terms) {
            self.read(n, i, 2 * FILE + usize::from(reg.0), || format!("s{}", reg.0));
        }
    }
}
