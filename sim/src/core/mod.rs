//! The core: walks a program, issues its bundles in order, folds its loops, and drives a [`Datapath`].

mod flow;
mod fold;
mod issue;

use std::ops::Range;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::Program;

use crate::RunOptions;
use crate::code::{Code, Node, Shape};
use crate::datapath::Datapath;
use crate::dma::Cost;
use crate::fault::{Fault, FaultKind};
use crate::probe::Probe;
use crate::profile::{Assumed, Assumption, OpProfile, Profile, Stall, Unit};
use fold::{History, Steady};
use issue::Scoreboard;

/// Runs longer than this are refused, so that no sum of times overflows.
const END: u64 = 1 << 61;

/// One run of a program on one device.
pub(crate) struct Engine<'a, D> {
    program: &'a Program,
    chip: &'a ChipSpec,
    opts: &'a RunOptions,
    code: &'a Code,
    data: D,
    board: Scoreboard,
    probe: Probe,
    /// Periods of the loops that have folded, by their numbers.
    steady: Vec<Option<Steady>>,
    /// Cost of each descriptor by number of cores at work, from 1.
    costs: Vec<Vec<Cost>>,
    /// Cores that run the code at hand.
    cores: u32,
    in_op: bool,
    op: Option<u32>,
    pc: Vec<u32>,
    /// Where code without time faulted, below `pc`, innermost first.
    below: Vec<u32>,
    /// What a run without data assumes, by the numbers of the nodes.
    settled: Vec<Option<Assumed>>,
    assumed: Vec<Assumption>,
    /// Trial runs of branches around the code at hand.
    trials: u32,
}

impl<'a, D: Datapath> Engine<'a, D> {
    pub fn new(program: &'a Program, chip: &'a ChipSpec, opts: &'a RunOptions, code: &'a Code, data: D) -> Self {
        let device = *chip.tensorcores_per_device;
        let costs =
            (1..=device).map(|n| program.descs.iter().map(|d| Cost::new(d, chip, n)).collect()).collect::<Vec<_>>();
        Engine {
            program,
            chip,
            opts,
            code,
            data,
            board: Scoreboard::new(chip),
            probe: Probe::new(opts.trace_spans),
            steady: (0..code.loops).map(|_| None).collect(),
            costs,
            cores: device,
            in_op: false,
            op: None,
            pc: Vec::new(),
            below: Vec::new(),
            settled: vec![None; code.loops as usize],
            assumed: Vec::new(),
            trials: 0,
        }
    }

    /// Runs everything.
    pub fn run(mut self) -> Result<(D, Profile), Fault> {
        let result = self.known_flows().and_then(|()| self.walk(&self.code.body));
        let at = self.board.now();
        if let Err(kind) = result.and_then(|()| self.drain()) {
            let op = self.op.and_then(|i| self.program.ops.get(i as usize)).map(|o| o.name.clone());
            self.pc.extend(self.below.into_iter().rev());
            return Err(Fault { pc: self.pc, op, cycle: at, kind: Box::new(kind) });
        }
        let cycles = self.board.now();
        let profile = self.probe.finish(cycles, instances(self.chip));
        Ok((self.data, Profile { assumed: self.assumed, ..profile }))
    }

    /// The data.
    pub fn data(&self) -> &D {
        &self.data
    }

    /// The data.
    pub fn data_mut(&mut self) -> &mut D {
        &mut self.data
    }

    /// Times one operation that starts on an idle device.
    pub fn time_operation(mut self, node: &Node) -> Result<OpProfile, FaultKind> {
        if let Node::Op { op, body } = node {
            self.operation(*op, body)?;
        }
        let profile = self.probe.finish(self.board.now(), instances(self.chip));
        profile.ops.into_iter().next().ok_or(FaultKind::TimeOverflow)
    }

    /// Runs the data of one operation. `scalars` are the registers of the code around it, before and after; `s0` and `s1` stay.
    pub fn data_operation(&mut self, node: &Node, scalars: &mut [u32]) -> Result<(), FaultKind> {
        for core in 0..self.cores {
            for (r, v) in (0u8..).zip(scalars.iter()).skip(2) {
                self.data.set_counter(core, r, *v);
            }
        }
        let cores = 0..self.cores;
        self.data_node(cores, node)?;
        for (r, v) in (0u8..).zip(scalars.iter_mut()).skip(2) {
            *v = self.data.scalar(0, r);
        }
        Ok(())
    }

    /// Runs code with time; data of core 0 inside operations, of all cores outside.
    fn walk(&mut self, nodes: &[Node]) -> Result<(), FaultKind> {
        let level = self.pc.len();
        self.pc.push(0);
        for (i, n) in nodes.iter().enumerate() {
            self.pc[level] = i as u32;
            match n {
                Node::Bundle(b) => {
                    let b = self.code.bundle(b);
                    self.board.issue(b, &self.costs[self.cores as usize - 1], self.cores, &mut self.probe)?;
                    if D::DATA {
                        for core in self.data_cores() {
                            self.data.bundle(core, b)?;
                        }
                    }
                }
                Node::Loop { shape, counter, trip, body } => self.repeat(*shape, *counter, *trip, body)?,
                Node::Op { op, body } => self.operation(*op, body)?,
                Node::While { shape, test, cond, body } => self.while_loop(*shape, *test, cond, body)?,
                Node::Case { shape, selector, branches } => self.case(shape.id, *selector, branches)?,
                Node::Start { .. } | Node::Done => return Err(FaultKind::Alone),
            }
        }
        self.pc.truncate(level);
        Ok(())
    }

    fn data_cores(&self) -> Range<u32> {
        0..if self.in_op { 1 } else { self.cores }
    }

    fn repeat(&mut self, shape: Shape, counter: u8, trip: u32, body: &[Node]) -> Result<(), FaultKind> {
        let branch = u64::from(*self.chip.latency.branch);
        let mut history = self.history(shape, trip);
        let mut i = 0;
        while i < trip {
            if let Some(skipped) = self.jump(&mut history, shape, (i, trip))? {
                if D::DATA {
                    for k in i..i + skipped {
                        self.data_iteration(self.data_cores(), counter, k, body)?;
                    }
                }
                i += skipped;
                continue;
            }
            self.count(counter, i);
            self.walk(body)?;
            self.board.stall(Stall::Branch, branch, &mut self.probe);
            i += 1;
        }
        self.count(counter, trip);
        Ok(())
    }

    /// For a loop that is about to start. Where data decides what runs inside, equal states do not have equal futures.
    fn history(&self, shape: Shape, trip: u32) -> History {
        History::new(self.opts.fold && trip > 2 && !(D::DATA && shape.flows), shape.syncs)
    }

    /// Moves time over whole periods if iteration `i` of `trip` starts like an earlier one. The number of iterations skipped.
    fn jump(&mut self, history: &mut History, shape: Shape, (i, trip): (u32, u32)) -> Result<Option<u32>, FaultKind> {
        let steady = &mut self.steady[shape.id as usize];
        let Some(jump) = history.visit((i, trip), &self.board, &self.probe, steady) else { return Ok(None) };
        let now = self.board.now();
        let by = jump.period.checked_mul(jump.times).ok_or(FaultKind::TimeOverflow)?;
        now.checked_add(by).filter(|t| *t < END).ok_or(FaultKind::TimeOverflow)?;
        self.probe.repeat(&jump.mark, now, jump.period, jump.times);
        self.board.shift(by, shape.syncs);
        Ok(Some(jump.iterations * jump.times as u32))
    }

    fn count(&mut self, counter: u8, value: u32) {
        if D::DATA {
            for core in self.data_cores() {
                self.data.set_counter(core, counter, value);
            }
        }
    }

    fn operation(&mut self, op: u32, body: &[Node]) -> Result<(), FaultKind> {
        let info = &self.program.ops[op as usize];
        self.drain()?;
        let outside = std::mem::replace(&mut self.cores, info.cores);
        (self.in_op, self.op) = (true, Some(op));
        let (start, before) = (self.board.now(), self.probe.counters);
        self.probe.begin_op(op);
        self.data.begin_op(info.cores);
        let entry = u64::from(*self.chip.overhead.entry_cycles);
        let launch = self.chip.cycles(*self.chip.overhead.op_launch_s).min(END) + entry;
        self.board.stall(Stall::Launch, launch, &mut self.probe);
        self.walk(body)?;
        self.drain()?;
        self.board.stall(Stall::Modelled, info.modelled_cycles, &mut self.probe);
        if self.board.now() >= END {
            return Err(FaultKind::TimeOverflow);
        }
        self.probe.end_op(start, before, self.board.now());
        if D::DATA {
            self.other_cores(body)?;
        }
        (self.in_op, self.op) = (false, None);
        self.cores = outside;
        Ok(())
    }

    /// Waits for every DMA.
    fn drain(&mut self) -> Result<(), FaultKind> {
        self.board.drain(&mut self.probe);
        self.data.drain(self.data_cores())
    }

    /// Data of the other cores of an operation, whose time is that of core 0.
    fn other_cores(&mut self, body: &[Node]) -> Result<(), FaultKind> {
        for core in 1..self.cores {
            self.data_only(core..core + 1, body)?;
            self.data.drain(core..core + 1)?;
        }
        Ok(())
    }

    /// Runs code without time on some cores.
    fn data_only(&mut self, cores: Range<u32>, nodes: &[Node]) -> Result<(), FaultKind> {
        for (i, node) in nodes.iter().enumerate() {
            if let Err(fault) = self.data_node(cores.clone(), node) {
                self.below.push(i as u32);
                return Err(fault);
            }
        }
        Ok(())
    }

    fn data_node(&mut self, cores: Range<u32>, node: &Node) -> Result<(), FaultKind> {
        match node {
            Node::Bundle(b) => {
                let b = self.code.bundle(b);
                cores.clone().try_for_each(|core| self.data.bundle(core, b))?;
            }
            Node::Loop { counter, trip, body, .. } => {
                for i in 0..*trip {
                    self.data_iteration(cores.clone(), *counter, i, body)?;
                }
                cores.clone().for_each(|core| self.data.set_counter(core, *counter, *trip));
            }
            Node::Op { op, body } => {
                let n = self.program.ops[*op as usize].cores;
                self.data.begin_op(n);
                for core in 0..n {
                    self.data_only(core..core + 1, body)?;
                    self.data.drain(core..core + 1)?;
                }
            }
            // Neither inside operations nor in loops that fold with data.
            Node::Start { .. } | Node::Done => return Err(FaultKind::Alone),
            Node::While { .. } | Node::Case { .. } => {
                return Err(FaultKind::Malformed("data decides what runs inside an operation".to_owned()));
            }
        }
        Ok(())
    }

    fn data_iteration(&mut self, cores: Range<u32>, counter: u8, k: u32, body: &[Node]) -> Result<(), FaultKind> {
        cores.clone().for_each(|core| self.data.set_counter(core, counter, k));
        self.data_only(cores, body)
    }
}

fn instances(chip: &ChipSpec) -> [u32; Unit::ALL.len()] {
    Unit::ALL.map(|u| match u {
        Unit::Mxu => *chip.mxu.count,
        Unit::Vpu => *chip.slots.valu,
        Unit::Xlu => *chip.xlus,
        Unit::VLoad => *chip.slots.vload,
        Unit::VStore => *chip.slots.vstore,
        Unit::Scalar => *chip.slots.scalar,
        Unit::Eup | Unit::Hbm => 1,
    })
}
