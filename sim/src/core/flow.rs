//! Loops and branches that data decides. With data a register does; without, the options of the run, and for a branch that they do
//! not mention a trial of each: the one that takes longest is taken, this time and whenever the run comes back to it.

use std::collections::BTreeMap;

use tpusim_isa::program::FlowKind;

use super::Engine;
use crate::code::{Decision, Node, Shape};
use crate::datapath::Datapath;
use crate::fault::FaultKind;
use crate::probe::Probe;
use crate::profile::{Assumed, Assumption};

impl<D: Datapath> Engine<'_, D> {
    /// Refuses assumptions about loops and branches that the program does not have.
    pub(super) fn known_flows(&self) -> Result<(), FaultKind> {
        let trips = self.opts.trip_counts.by_name.keys().map(|k| (FlowKind::While, "--trip-count", k));
        let branches = self.opts.branches.keys().map(|k| (FlowKind::Case, "--branch", k));
        for (kind, option, key) in trips.chain(branches) {
            let flows = || (0u32..).zip(&self.program.flows).filter(|(_, f)| f.kind == kind);
            if !flows().any(|(i, f)| *key == self.key(i) || *key == f.name) {
                let has = flows().map(|(i, _)| self.flow(i)).collect();
                return Err(FaultKind::NoFlow { option, key: key.clone(), has });
            }
        }
        Ok(())
    }

    pub(super) fn while_loop(
        &mut self,
        shape: Shape,
        test: Decision,
        cond: &[Node],
        body: &[Node],
    ) -> Result<(), FaultKind> {
        if !D::DATA {
            let trip = self.trip_count(shape.id, test.info)?;
            let mut history = self.history(shape, trip);
            let mut i = 0;
            while i < trip {
                if let Some(skipped) = self.jump(&mut history, shape, (i, trip))? {
                    i += skipped;
                    continue;
                }
                self.test(test, cond)?;
                self.section(1, body)?;
                i += 1;
            }
            return self.test(test, cond);
        }
        let limit = self.opts.max_iterations;
        let mut left = limit;
        loop {
            self.test(test, cond)?;
            if self.decide(test)? == 0 {
                return Ok(());
            }
            left = left.checked_sub(1).ok_or_else(|| FaultKind::Endless { flow: self.flow(test.info), limit })?;
            self.section(1, body)?;
        }
    }

    pub(super) fn case(&mut self, id: u32, selector: Decision, branches: &[Vec<Node>]) -> Result<(), FaultKind> {
        self.branch(selector);
        let last = branches.len() - 1;
        let k = if D::DATA {
            (self.decide(selector)? as usize).min(last)
        } else {
            self.choose(id, selector.info, branches)?.min(last)
        };
        self.section(k as u32, &branches[k])
    }

    /// Runs the condition of a `while` and looks at its register.
    fn test(&mut self, test: Decision, cond: &[Node]) -> Result<(), FaultKind> {
        self.section(0, cond)?;
        self.branch(test);
        Ok(())
    }

    fn branch(&mut self, on: Decision) {
        self.board.branch(on.entry, u64::from(*self.chip.latency.branch), &mut self.probe);
    }

    /// Runs the condition or body of a `while`, or a branch of a `case`.
    fn section(&mut self, k: u32, nodes: &[Node]) -> Result<(), FaultKind> {
        self.pc.push(k);
        self.walk(nodes)?;
        self.pc.pop();
        Ok(())
    }

    /// The register of core 0, which the other cores must agree with.
    fn decide(&self, on: Decision) -> Result<u32, FaultKind> {
        let first = self.data.scalar(0, on.register);
        let other = |core: &u32| self.data.scalar(*core, on.register) != first;
        match self.data_cores().find(other) {
            None => Ok(first),
            Some(core) => Err(FaultKind::Diverged {
                flow: self.flow(on.info),
                core,
                value: self.data.scalar(core, on.register) as i32,
                first: first as i32,
            }),
        }
    }

    fn trip_count(&mut self, id: u32, info: u32) -> Result<u32, FaultKind> {
        let n = match self.settled[id as usize] {
            Some(Assumed::Trips(n)) => n,
            _ => {
                let trips = &self.opts.trip_counts;
                let given = self.given(info, &trips.by_name).or(trips.all);
                given.ok_or_else(|| FaultKind::TripCount { flow: self.flow(info), key: self.key(info) })?
            }
        };
        self.settle(id, info, Assumed::Trips(n));
        Ok(n)
    }

    fn choose(&mut self, id: u32, info: u32, branches: &[Vec<Node>]) -> Result<usize, FaultKind> {
        let what = match self.settled[id as usize] {
            Some(what) => what,
            None => match self.given(info, &self.opts.branches) {
                Some(branch) if branch as usize >= branches.len() => {
                    return Err(FaultKind::NoBranch { flow: self.flow(info), branch, branches: branches.len() });
                }
                Some(branch) => Assumed::Branch(branch),
                None => Assumed::Longest(self.longest(branches)?),
            },
        };
        self.settle(id, info, what);
        Ok(match what {
            Assumed::Branch(k) | Assumed::Longest(k) | Assumed::Trips(k) => k as usize,
        })
    }

    /// What the options say about a loop or branch, by what it is called or by its name in the source.
    fn given(&self, info: u32, options: &BTreeMap<String, u32>) -> Option<u32> {
        let name = || self.program.flows.get(info as usize).and_then(|f| options.get(&f.name));
        if options.is_empty() { None } else { options.get(&self.key(info)).or_else(name).copied() }
    }

    /// The branch that ends last if it starts now; of equals the first.
    fn longest(&mut self, branches: &[Vec<Node>]) -> Result<u32, FaultKind> {
        let (mut longest, mut most) = (0, 0);
        self.trials += 1;
        for (k, nodes) in (0u32..).zip(branches) {
            let board = self.board.clone();
            let probe = std::mem::replace(&mut self.probe, Probe::new(0));
            let result = self.section(k, nodes);
            let end = std::mem::replace(&mut self.board, board).now();
            self.probe = probe;
            result?;
            if end > most {
                (longest, most) = (k, end);
            }
        }
        self.trials -= 1;
        Ok(longest)
    }

    /// Keeps to an assumption from now on, and notes it once, if it is more than tried.
    fn settle(&mut self, id: u32, flow: u32, what: Assumed) {
        self.settled[id as usize] = Some(what);
        let known = self.assumed.iter().any(|a| a.flow == flow && a.what == what);
        let Some(info) = self.program.flows.get(flow as usize).filter(|_| self.trials == 0 && !known) else { return };
        let (name, location) = (info.name.clone(), info.location.clone());
        self.assumed.push(Assumption { flow, key: self.key(flow), name, location, what });
    }

    /// What a loop or branch is called in options.
    fn key(&self, flow: u32) -> String {
        let kind = self.program.flows.get(flow as usize).map_or("flow", |f| f.kind.name());
        format!("{kind}.{flow}")
    }

    /// A loop or branch in messages.
    fn flow(&self, flow: u32) -> String {
        let key = self.key(flow);
        match self.program.flows.get(flow as usize) {
            Some(f) if !f.location.is_empty() => format!("{key} (`{}` at {})", f.name, f.location),
            Some(f) if !f.name.is_empty() => format!("{key} (`{}`)", f.name),
            _ => key,
        }
    }
}
