//! Result queues and sync flags as counters.
//!
//! A body changes each counter by a fixed amount, and a pop or wait is worst off in the first or the last iteration of each loop
//! around it. So loops are not unrolled: a body is walked once, from the lowest value its counters start an iteration with. Where
//! data decides what runs, a counter is followed as a range: a pop or wait is wrong if the most there can be is too little, and
//! results or signals are left over if the least there can be is some.

use std::collections::{BTreeMap, BTreeSet};

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

/// More than any program can count: stands for no bound.
const MANY: i128 = 1 << 120;

/// Least and greatest value.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    low: i128,
    high: i128,
}

impl Range {
    fn exactly(n: i128) -> Range {
        Range { low: n, high: n }
    }

    fn plus(self, other: Range) -> Range {
        let sum = |a: i128, b: i128| a.saturating_add(b).clamp(-MANY, MANY);
        Range { low: sum(self.low, other.low), high: sum(self.high, other.high) }
    }

    fn times(self, n: u32) -> Range {
        let product = |a: i128| a.saturating_mul(i128::from(n)).clamp(-MANY, MANY);
        Range { low: product(self.low), high: product(self.high) }
    }

    /// Any number of times, or never.
    fn any_times(self) -> Range {
        Range { low: if self.low < 0 { -MANY } else { 0 }, high: if self.high > 0 { MANY } else { 0 } }
    }

    fn or(self, other: Range) -> Range {
        Range { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

type Counts = BTreeMap<Counter, Range>;

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
    for (counter, Range { low: count, .. }) in std::mem::take(&mut walk.now) {
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
                    add(&mut sum, counter, Range::exactly(by));
                }
            }
            Node::Loop { trip, body, .. } => add_all(&mut sum, total(chip, body), |by| by.times(*trip)),
            Node::Op { body, .. } => add_all(&mut sum, total(chip, body), |by| by),
            // A transfer has flags of its own.
            Node::Start { .. } | Node::Done { .. } => {}
            Node::While { cond, body, .. } => {
                let once = total(chip, cond);
                let mut round = total(chip, body);
                add_all(&mut round, once.clone(), |by| by);
                add_all(&mut sum, once, |by| by);
                add_all(&mut sum, round, Range::any_times);
            }
            Node::Case { branches, .. } => {
                add_all(&mut sum, either(branches.iter().map(|b| total(chip, b)).collect()), |by| by);
            }
        }
    }
    sum
}

/// What one of several paths does.
fn either(paths: Vec<Counts>) -> Counts {
    let counters: BTreeSet<Counter> = paths.iter().flat_map(|p| p.keys().copied()).collect();
    let range = |c: &Counter| paths.iter().map(|p| p.get(c).copied().unwrap_or_default()).reduce(Range::or);
    counters.iter().filter_map(|c| Some((*c, range(c)?))).collect()
}

fn add(counts: &mut Counts, counter: Counter, by: Range) {
    let count = counts.entry(counter).or_default();
    *count = count.plus(by);
}

fn add_all(counts: &mut Counts, more: Counts, by: impl Fn(Range) -> Range) {
    more.into_iter().for_each(|(counter, range)| add(counts, counter, by(range)));
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
                        let rest = by.times(trip - 1);
                        add(&mut self.now, *counter, Range { low: rest.low.min(0), high: rest.high.min(0) });
                    }
                    self.nodes(body);
                    self.now = before;
                    add_all(&mut self.now, change, |by| by.times(*trip));
                }
                Node::Op { body, .. } => self.nodes(body),
                Node::Start { .. } | Node::Done { .. } => {}
                // Each body is walked as it is first entered.
                Node::While { cond, body, .. } => {
                    let before = self.now.clone();
                    self.section(0, cond);
                    self.section(1, body);
                    self.now = before;
                    add_all(&mut self.now, total(self.chip, std::slice::from_ref(node)), |by| by);
                }
                Node::Case { branches, .. } => {
                    let before = self.now.clone();
                    for (k, branch) in branches.iter().enumerate() {
                        self.now.clone_from(&before);
                        self.section(k, branch);
                    }
                    self.now = before;
                    add_all(&mut self.now, total(self.chip, std::slice::from_ref(node)), |by| by);
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

    fn bundle(&mut self, instrs: &[Instr]) {
        // A bundle issues as a whole: its pops cannot wait for its own pushes.
        let falls = |i: &&(usize, &Instr)| change(self.chip, i.1).is_some_and(|(_, by)| by < 0);
        let all: Vec<(usize, &Instr)> = instrs.iter().enumerate().collect();
        let (down, up): (Vec<_>, Vec<_>) = all.iter().partition(falls);
        for (n, i) in down.into_iter().chain(up) {
            let Some((counter, by)) = change(self.chip, i) else { continue };
            let have = self.now.get(&counter).copied().unwrap_or_default().high;
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
            add(&mut self.now, counter, Range::exactly(by));
        }
    }
}
