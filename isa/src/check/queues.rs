//! Result queues and sync flags as counters.
//!
//! Without branches a body changes each counter by a fixed amount, and a pop or wait is worst off in the first or the last iteration of
//! each loop around it. So loops are not unrolled: a body is walked once, from the lowest value its counters start an iteration with.

use std::collections::BTreeMap;

use super::{CheckKind, Place, Report};
use crate::chip::ChipSpec;
use crate::op::{Field, Instr, Op, Slot, Timing};
use crate::program::{Node, Program};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Counter {
    Eup,
    Xlu(i32),
    Mxu(i32),
    Flag(i32),
}

impl Counter {
    fn unit(self) -> String {
        match self {
            Counter::Eup => "the EUP".to_owned(),
            Counter::Xlu(n) => format!("xlu{n}"),
            Counter::Mxu(n) => format!("mxu{n}"),
            Counter::Flag(n) => format!("flag{n}"),
        }
    }
}

type Counts = BTreeMap<Counter, i128>;

struct Walk<'a, 'r, 'p> {
    chip: &'a ChipSpec,
    report: &'r mut Report<'p>,
    place: Place,
    now: Counts,
}

pub(super) fn check(program: &Program, chip: &ChipSpec, report: &mut Report<'_>) {
    let mut walk = Walk { chip, report, place: Place::default(), now: Counts::new() };
    walk.nodes(&program.body);
    // What earlier errors have upset says nothing new.
    for (counter, count) in std::mem::take(&mut walk.now) {
        let kind = match counter {
            Counter::Flag(flag) if count > 0 => CheckKind::NotWaited { flag, left: count },
            Counter::Flag(_) => continue,
            _ if count > 0 => CheckKind::NotPopped { unit: counter.unit(), count },
            _ => continue,
        };
        walk.report.add(&Place::default(), None, kind);
    }
}

/// What an instruction adds to which counter.
fn change(chip: &ChipSpec, i: &Instr) -> Option<(Counter, i128)> {
    let unit = i.args[0];
    Some(match i.op {
        Op::EPop => (Counter::Eup, -1),
        Op::XPop => (Counter::Xlu(unit), -1),
        Op::MxPop => (Counter::Mxu(unit), -1),
        Op::MxMul => {
            let halves = (*chip.mxu.dim / 128).max(1) as usize;
            (Counter::Mxu(unit), (i.format()?.packing() * halves) as i128)
        }
        Op::Dma => (Counter::Flag(i.args[1]), 1),
        Op::DmaWait => (Counter::Flag(unit), -i128::from(i.args[1])),
        Op::FlagAdd => (Counter::Flag(unit), i128::from(i.args[1])),
        _ if i.op.timing() == Timing::Eup => (Counter::Eup, 1),
        // Sixteen pushes of a transpose give sixteen results, every other push one.
        _ if i.op.slot() == Slot::Extended && i.op.fields().first() == Some(&Field::Xlu) => (Counter::Xlu(unit), 1),
        _ => return None,
    })
}

/// What `nodes` add to each counter when run once.
fn total(chip: &ChipSpec, nodes: &[Node]) -> Counts {
    let mut sum = Counts::new();
    for node in nodes {
        match node {
            Node::Bundle(b) => {
                for (counter, by) in b.instrs.iter().filter_map(|i| change(chip, i)) {
                    add(&mut sum, counter, by);
                }
            }
            Node::Loop { trip, body, .. } => {
                for (counter, by) in total(chip, body) {
                    add(&mut sum, counter, by.saturating_mul(i128::from(*trip)));
                }
            }
            Node::Op { body, .. } => total(chip, body).into_iter().for_each(|(c, by)| add(&mut sum, c, by)),
        }
    }
    sum
}

fn add(counts: &mut Counts, counter: Counter, by: i128) {
    let count = counts.entry(counter).or_default();
    *count = count.saturating_add(by);
}

impl Walk<'_, '_, '_> {
    fn nodes(&mut self, nodes: &[Node]) {
        for (i, node) in nodes.iter().enumerate() {
            let outer = self.place.enter(i, node);
            match node {
                Node::Bundle(b) => self.bundle(&b.instrs),
                Node::Loop { trip: 0, .. } => {}
                Node::Loop { trip, body, .. } => {
                    // Start of the worst iteration: the last one for counters that fall.
                    let change = total(self.chip, body);
                    let before = self.now.clone();
                    for (counter, by) in &change {
                        let rest = by.saturating_mul(i128::from(trip - 1));
                        add(&mut self.now, *counter, rest.min(0));
                    }
                    self.nodes(body);
                    self.now = before;
                    for (counter, by) in change {
                        add(&mut self.now, counter, by.saturating_mul(i128::from(*trip)));
                    }
                }
                Node::Op { body, .. } => self.nodes(body),
            }
            self.place.leave(outer);
        }
    }

    fn bundle(&mut self, instrs: &[Instr]) {
        // A bundle issues as a whole: its pops cannot wait for its own pushes.
        let falls = |i: &&(usize, &Instr)| change(self.chip, i.1).is_some_and(|(_, by)| by < 0);
        let all: Vec<(usize, &Instr)> = instrs.iter().enumerate().collect();
        let (down, up): (Vec<_>, Vec<_>) = all.iter().partition(falls);
        for (n, i) in down.into_iter().chain(up) {
            let Some((counter, by)) = change(self.chip, i) else { continue };
            let have = self.now.get(&counter).copied().unwrap_or_default();
            if by < 0 && have.saturating_add(by) < 0 {
                let kind = match counter {
                    Counter::Flag(flag) if i.op == Op::DmaWait => {
                        CheckKind::Wait { flag, reached: have, wanted: i.args[1] }
                    }
                    Counter::Flag(_) => continue,
                    _ => CheckKind::EmptyPop(counter.unit()),
                };
                self.report.add(&self.place, Some((n, i)), kind);
            }
            add(&mut self.now, counter, by);
        }
    }
}
