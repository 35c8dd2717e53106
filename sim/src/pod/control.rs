//! Control code: what a device does between its operations. It runs in steps, since it may have to wait for messages.

use tpusim_isa::op::Op;
use tpusim_isa::program::{Bundle, Node};
use tpusim_isa::time::Picos;

use crate::fault::FaultKind;
use crate::scalar;

/// Why control code stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is at its end.
    End,
    /// It waits for `n` signals on a flag of its transfer.
    Flag { flag: u32, n: u32 },
    /// It waits for the end of a transfer.
    Transfer(u32),
}

/// What control code asks of the machine around it. Times are those of the code that asks.
pub(super) trait Machine<'a> {
    /// Runs an operation that starts at `at`, with these scalar registers. Returns its end.
    fn operation(&mut self, op: u32, node: &'a Node, at: Picos, scalars: &mut [u32]) -> Result<Picos, FaultKind>;

    /// Queues a transfer.
    fn start(&mut self, transfer: u32, body: &'a [Node], at: Picos) -> Result<(), FaultKind>;

    /// The end of the earliest run of a transfer that nobody has waited for yet, for code that asks at `at`.
    fn finished(&mut self, transfer: u32, at: Picos) -> Option<Picos>;

    /// Sends a message.
    fn send(&mut self, desc: u32, at: Picos, scalars: &[u32]) -> Result<(), FaultKind>;

    /// When a flag had `n` signals, which are taken; `None` if they are not there yet.
    fn take(&mut self, flag: u32, n: u32) -> Option<Picos>;

    /// A device's value in a table.
    fn table(&self, table: u32) -> Result<u32, FaultKind>;

    /// Time of `cycles` cycles.
    fn cycles(&self, cycles: u64) -> Picos;

    /// How often a `while` runs, where no data decides.
    fn trip_count(&mut self, info: u32) -> Result<Option<u32>, FaultKind>;

    /// The branch a `case` of so many takes, where no data decides.
    fn branch(&mut self, info: u32, branches: &'a [Vec<Node>]) -> Result<Option<u32>, FaultKind>;
}

/// What to do at the end of a list of nodes.
#[derive(Clone, Copy, Debug)]
enum Then<'a> {
    Return,
    /// Next iteration of a loop.
    Repeat {
        counter: u8,
        i: u32,
        trip: u32,
        body: &'a [Node],
    },
    /// The condition of a `while` has run: look at the register, or at the iterations left.
    Test {
        test: u8,
        cond: &'a [Node],
        body: &'a [Node],
        left: Option<u32>,
    },
    /// The body of a `while` has run: run the condition again.
    Again {
        test: u8,
        cond: &'a [Node],
        body: &'a [Node],
        left: Option<u32>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Frame<'a> {
    nodes: &'a [Node],
    next: usize,
    then: Then<'a>,
}

/// Control code on its way.
#[derive(Clone, Debug)]
pub(super) struct Control<'a> {
    /// How far it has come.
    pub time: Picos,
    frames: Vec<Frame<'a>>,
    scalars: Vec<u32>,
}

impl<'a> Control<'a> {
    /// Code that starts at `time` with `scalars` registers of 0.
    pub fn new(nodes: &'a [Node], time: Picos, scalars: usize) -> Self {
        Control { time, frames: vec![Frame { nodes, next: 0, then: Then::Return }], scalars: vec![0; scalars] }
    }

    /// Runs until it ends or has to wait. `branch` is the branch delay in cycles.
    pub fn run(&mut self, m: &mut impl Machine<'a>, branch: u64) -> Result<Stop, FaultKind> {
        while let Some(&Frame { nodes, next, then }) = self.frames.last() {
            let Some(node) = nodes.get(next) else {
                self.end(then, m, branch);
                continue;
            };
            match node {
                Node::Bundle(b) => {
                    if let Some(stop) = self.bundle(b, m)? {
                        return Ok(stop);
                    }
                }
                Node::Op { op, .. } => self.time = m.operation(*op, node, self.time, &mut self.scalars)?,
                Node::Start { transfer, body } => {
                    self.time += m.cycles(1);
                    m.start(*transfer, body, self.time)?;
                }
                Node::Done { transfer } => match m.finished(*transfer, self.time) {
                    Some(t) => self.time = self.time.max(t),
                    None => return Ok(Stop::Transfer(*transfer)),
                },
                Node::Loop { counter, trip, body } => {
                    self.advance();
                    self.set(counter.0, 0);
                    if *trip > 0 {
                        self.push(body, Then::Repeat { counter: counter.0, i: 0, trip: *trip, body });
                    }
                    continue;
                }
                Node::While { info, cond, test, body } => {
                    let left = m.trip_count(*info)?;
                    self.advance();
                    self.push(cond, Then::Test { test: test.0, cond, body, left });
                    continue;
                }
                Node::Case { info, selector, branches } => {
                    let chosen = match m.branch(*info, branches)? {
                        Some(k) => k,
                        None => self.scalars.get(usize::from(selector.0)).copied().unwrap_or(0),
                    };
                    self.advance();
                    self.time += m.cycles(branch);
                    if let Some(body) = branches.get(chosen as usize).or(branches.last()) {
                        self.push(body, Then::Return);
                    }
                    continue;
                }
            }
            self.advance();
        }
        Ok(Stop::End)
    }

    fn push(&mut self, nodes: &'a [Node], then: Then<'a>) {
        self.frames.push(Frame { nodes, next: 0, then });
    }

    fn advance(&mut self) {
        if let Some(f) = self.frames.last_mut() {
            f.next += 1;
        }
    }

    fn set(&mut self, register: u8, value: u32) {
        if let Some(r) = self.scalars.get_mut(usize::from(register)).filter(|_| register >= 2) {
            *r = value;
        }
    }

    /// A list of nodes has come to its end.
    fn end(&mut self, then: Then<'a>, m: &mut impl Machine<'a>, branch: u64) {
        self.frames.pop();
        match then {
            Then::Return => {}
            Then::Repeat { counter, i, trip, body } => {
                self.time += m.cycles(branch);
                self.set(counter, i + 1);
                if i + 1 < trip {
                    self.push(body, Then::Repeat { counter, i: i + 1, trip, body });
                }
            }
            Then::Test { test, cond, body, left } => {
                self.time += m.cycles(branch);
                let again = match left {
                    Some(n) => n > 0,
                    None => self.scalars.get(usize::from(test)).is_some_and(|&r| r != 0),
                };
                if again {
                    self.push(body, Then::Again { test, cond, body, left: left.map(|n| n - 1) });
                }
            }
            Then::Again { test, cond, body, left } => self.push(cond, Then::Test { test, cond, body, left }),
        }
    }

    /// A bundle of scalar instructions, sends and waits. `Some` if it has to wait.
    fn bundle(&mut self, b: &'a Bundle, m: &mut impl Machine<'a>) -> Result<Option<Stop>, FaultKind> {
        for i in b.instrs.iter().filter(|i| i.op == Op::DmaWait) {
            let (flag, n) = (i.args[0] as u32, i.args[1] as u32);
            match m.take(flag, n) {
                Some(t) => self.time = self.time.max(t),
                None => return Ok(Some(Stop::Flag { flag, n })),
            }
        }
        self.time += m.cycles(1);
        let mut writes = Vec::new();
        for i in &b.instrs {
            match i.op {
                Op::DmaWait => {}
                Op::DmaSend => m.send(i.args[0] as u32, self.time, &self.scalars)?,
                Op::SDev => writes.push((i.args[0], m.table(i.args[1] as u32)?)),
                _ => match scalar::value(i, &self.scalars) {
                    Some(v) => writes.push((i.args[0], v)),
                    None => {
                        return Err(FaultKind::Malformed(format!("`{}` outside an operation of a pod", i.op.name())));
                    }
                },
            }
        }
        writes.into_iter().for_each(|(r, v)| self.set(u8::try_from(r).unwrap_or(0), v));
        Ok(None)
    }
}
