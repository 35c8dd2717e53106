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

    /// Takes `n` signals of a flag, if they are there. Code never asks earlier than the pod's time, so they arrived before.
    fn take(&mut self, flag: u32, n: u32) -> bool;

    /// A device's value in a table.
    fn table(&self, table: u32) -> Result<u32, FaultKind>;

    /// Time of `cycles` cycles.
    fn cycles(&self, cycles: u64) -> Picos;

    /// How often a `while` runs, where no data decides.
    fn trip_count(&mut self, info: u32) -> Result<Option<u32>, FaultKind>;

    /// The branch a `case` of so many takes, where no data decides.
    fn branch(&mut self, info: u32, branches: &'a [Vec<Node>]) -> Result<Option<u32>, FaultKind>;

    /// A `case` has taken a branch.
    fn chosen(&mut self, _branch: u32) {}

    /// Iteration `i` of `trip`, not the first one, of the loop with this body begins.
    fn iteration(&mut self, _body: &'a [Node], _i: u32, _trip: u32) {}
}

/// What to do at the end of a list of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, Default)]
pub(super) struct Control<'a> {
    /// How far it has come.
    pub time: Picos,
    frames: Vec<Frame<'a>>,
    scalars: Vec<u32>,
    /// What the instructions of a bundle write, kept for its memory.
    writes: Vec<(i32, u32)>,
}

impl<'a> Control<'a> {
    /// Begins with other code at `time`, with `scalars` registers of 0.
    pub fn begin(&mut self, nodes: &'a [Node], time: Picos, scalars: usize) {
        self.time = time;
        self.frames.clear();
        self.frames.push(Frame { nodes, next: 0, then: Then::Return });
        self.scalars.clear();
        self.scalars.resize(scalars, 0);
    }

    /// Runs until it ends or has to wait. `branch` is the branch delay in cycles.
    pub fn run(&mut self, m: &mut impl Machine<'a>, branch: u64) -> Result<Stop, FaultKind> {
        loop {
            if let Some(stop) = self.step(m, branch)? {
                return Ok(stop);
            }
        }
    }

    /// Runs the next node or the end of a list of nodes. `Some` if it is at its end or has to wait.
    pub fn step(&mut self, m: &mut impl Machine<'a>, branch: u64) -> Result<Option<Stop>, FaultKind> {
        let Some(&Frame { nodes, next, then }) = self.frames.last() else { return Ok(Some(Stop::End)) };
        let Some(node) = nodes.get(next) else {
            self.end(then, m, branch);
            return Ok(None);
        };
        match node {
            Node::Bundle(b) => {
                if let Some(stop) = self.bundle(b, m)? {
                    return Ok(Some(stop));
                }
            }
            Node::Op { op, .. } => self.time = m.operation(*op, node, self.time, &mut self.scalars)?,
            Node::Start { transfer, body } => {
                self.time += m.cycles(1);
                m.start(*transfer, body, self.time)?;
            }
            Node::Done { transfer } => match m.finished(*transfer, self.time) {
                Some(t) => self.time = self.time.max(t),
                None => return Ok(Some(Stop::Transfer(*transfer))),
            },
            Node::Loop { counter, trip, body } => {
                self.advance();
                self.set(counter.0, 0);
                if *trip > 0 {
                    self.push(body, Then::Repeat { counter: counter.0, i: 0, trip: *trip, body });
                }
                return Ok(None);
            }
            Node::While { info, cond, test, body } => {
                let left = m.trip_count(*info)?;
                self.advance();
                self.push(cond, Then::Test { test: test.0, cond, body, left });
                return Ok(None);
            }
            Node::Case { info, selector, branches } => {
                let chosen = match m.branch(*info, branches)? {
                    Some(k) => k,
                    None => self.scalars.get(usize::from(selector.0)).copied().unwrap_or(0),
                };
                m.chosen(chosen);
                self.advance();
                self.time += m.cycles(branch);
                if let Some(body) = branches.get(chosen as usize).or(branches.last()) {
                    self.push(body, Then::Return);
                }
                return Ok(None);
            }
        }
        self.advance();
        Ok(None)
    }

    /// The iteration of the loop with this body, if the code is inside it, and how many there are.
    pub fn iteration_of(&self, body: &[Node]) -> Option<(u32, u32)> {
        self.frames.iter().find_map(|f| match f.then {
            Then::Repeat { i, trip, body: b, .. } if std::ptr::eq(b, body) => Some((i, trip)),
            _ => None,
        })
    }

    /// Where the code is, in words that are equal in different iterations of the loop with body `folded`: iterations of that one
    /// count from `first`.
    pub fn position(&self, folded: &[Node], first: u32, out: &mut Vec<u64>) {
        let at = |nodes: &[Node]| nodes.as_ptr().addr() as u64;
        out.push(self.frames.len() as u64);
        for f in &self.frames {
            out.extend([at(f.nodes), f.next as u64]);
            out.push(match f.then {
                Then::Return => 0,
                Then::Repeat { i, body, .. } if std::ptr::eq(body, folded) => u64::from(i.wrapping_sub(first)),
                Then::Repeat { i, .. } => u64::from(i),
                Then::Test { left, .. } | Then::Again { left, .. } => left.map_or(u64::MAX, u64::from),
            });
        }
    }

    /// The scalar registers.
    pub fn scalars(&self) -> &[u32] {
        &self.scalars
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
                    m.iteration(body, i + 1, trip);
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
            if !m.take(flag, n) {
                return Ok(Some(Stop::Flag { flag, n }));
            }
        }
        self.time += m.cycles(1);
        self.writes.clear();
        for i in &b.instrs {
            match i.op {
                Op::DmaWait => {}
                Op::DmaSend => m.send(i.args[0] as u32, self.time, &self.scalars)?,
                Op::SDev => self.writes.push((i.args[0], m.table(i.args[1] as u32)?)),
                _ => match scalar::value(i, &self.scalars) {
                    Some(v) => self.writes.push((i.args[0], v)),
                    None => {
                        return Err(FaultKind::Malformed(format!("`{}` outside an operation of a pod", i.op.name())));
                    }
                },
            }
        }
        for k in 0..self.writes.len() {
            let (r, v) = self.writes[k];
            self.set(u8::try_from(r).unwrap_or(0), v);
        }
        Ok(None)
    }
}
