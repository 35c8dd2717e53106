//! The tree of a checked program.

use tpusim_isa::program::{self, FlowKind, MAX_DEPTH, SReg};

use super::{Decoder, File, Packed};
use crate::fault::FaultKind;

/// What loops and branches have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Number of the loop or branch.
    pub id: u32,
    /// Whether anything inside starts a DMA, waits for one, or is an operation.
    pub syncs: bool,
    /// Whether data decides what runs inside.
    pub flows: bool,
}

/// A loop or branch that data decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision {
    /// Index into the program's flows.
    pub info: u32,
    /// Register that decides.
    pub register: u8,
    /// Its scoreboard entry.
    pub entry: u16,
}

/// A checked piece of code.
#[derive(Debug)]
pub(crate) enum Node {
    Bundle(Packed),
    Loop {
        shape: Shape,
        counter: u8,
        trip: u32,
        body: Vec<Node>,
    },
    Op {
        op: u32,
        body: Vec<Node>,
    },
    While {
        shape: Shape,
        test: Decision,
        cond: Vec<Node>,
        body: Vec<Node>,
    },
    Case {
        shape: Shape,
        selector: Decision,
        branches: Vec<Vec<Node>>,
    },
    /// Only pods run transfers; what matters of one here is its operations.
    Start {
        body: Vec<Node>,
    },
    Done,
}

impl Decoder<'_> {
    /// Checks a body. `self.pc` gets the place of each node while it is looked at.
    pub(super) fn nodes(&mut self, nodes: &[program::Node]) -> Result<Vec<Node>, FaultKind> {
        if self.depth >= MAX_DEPTH {
            return Err(FaultKind::Malformed(format!("loops nest deeper than {MAX_DEPTH}")));
        }
        self.depth += 1;
        let mut out = Vec::with_capacity(nodes.len());
        self.pc.push(0);
        for (i, n) in nodes.iter().enumerate() {
            if let Some(last) = self.pc.last_mut() {
                *last = i as u32;
            }
            out.push(self.node(n)?);
        }
        self.pc.pop();
        self.depth -= 1;
        Ok(out)
    }

    fn node(&mut self, n: &program::Node) -> Result<Node, FaultKind> {
        Ok(match n {
            // Control code of transfers is run from the program itself.
            program::Node::Bundle(_) if self.transfer && self.op.is_none() => Node::Done,
            program::Node::Bundle(b) => Node::Bundle(self.bundle(b)?),
            program::Node::Loop { counter, trip, body } => {
                let c = self.index("loop", "scalar register", i32::from(counter.0), self.files.scalar as u64)?;
                if c < 2 {
                    return Err(FaultKind::Malformed(format!("loop counter s{c} cannot be written")));
                }
                let (shape, body) = self.shaped(|d| d.nodes(body))?;
                Node::Loop { shape, counter: counter.0, trip: *trip, body }
            }
            program::Node::Op { op, body } => {
                if self.op.is_some() {
                    return Err(FaultKind::Malformed("operations do not nest".to_owned()));
                }
                let Some(info) = self.program.ops.get(*op as usize) else {
                    return Err(FaultKind::Malformed(format!("operation {op} of {}", self.program.ops.len())));
                };
                if info.cores == 0 || info.cores > *self.chip.tensorcores_per_device {
                    return Err(FaultKind::Malformed(format!("`{}` runs on {} cores", info.name, info.cores)));
                }
                self.op = Some(*op);
                self.syncs += 1;
                let body = self.nodes(body)?;
                self.op = None;
                Node::Op { op: *op, body }
            }
            program::Node::Start { body, .. } => {
                let outside = std::mem::replace(&mut self.transfer, true);
                let body = self.nodes(body)?;
                self.transfer = outside;
                Node::Start { body }
            }
            program::Node::Done { .. } => Node::Done,
            program::Node::While { info, cond, test, body } => {
                let test = self.decision(FlowKind::While, *info, *test)?;
                let (shape, (cond, body)) = self.shaped(|d| Ok((d.section(0, cond)?, d.section(1, body)?)))?;
                Node::While { shape, test, cond, body }
            }
            program::Node::Case { info, selector, branches } => {
                let selector = self.decision(FlowKind::Case, *info, *selector)?;
                if branches.is_empty() {
                    return Err(FaultKind::Malformed("`case` without branches".to_owned()));
                }
                let numbered = || (0u32..).zip(branches);
                let (shape, branches) = self.shaped(|d| numbered().map(|(k, b)| d.section(k, b)).collect())?;
                Node::Case { shape, selector, branches }
            }
        })
    }

    /// What `f` decodes, and what there is inside.
    fn shaped<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T, FaultKind>) -> Result<(Shape, T), FaultKind> {
        let id = self.loops;
        self.loops = id.saturating_add(1);
        let (syncs, flows) = (self.syncs, self.flows);
        let inside = f(self)?;
        Ok((Shape { id, syncs: self.syncs != syncs, flows: self.flows != flows }, inside))
    }

    /// The condition or body of a `while`, or a branch of a `case`.
    fn section(&mut self, k: u32, nodes: &[program::Node]) -> Result<Vec<Node>, FaultKind> {
        self.pc.push(k);
        let nodes = self.nodes(nodes)?;
        self.pc.pop();
        Ok(nodes)
    }

    fn decision(&mut self, kind: FlowKind, info: u32, register: SReg) -> Result<Decision, FaultKind> {
        let malformed = |text: String| Err(FaultKind::Malformed(text));
        if self.op.is_some() {
            return malformed(format!("`{}` inside an operation", kind.name()));
        }
        match self.program.flows.get(info as usize) {
            None => return malformed(format!("flow {info} of {}", self.program.flows.len())),
            Some(f) if !f.kind.fits(kind) => return malformed(format!("flow {info} is no `{}`", kind.name())),
            Some(_) => {}
        }
        let reg = i32::from(register.0);
        self.index(kind.name(), "scalar register", reg, self.files.scalar as u64)?;
        self.flows = self.flows.saturating_add(1);
        Ok(Decision { info, register: register.0, entry: self.files.entry(File::Scalar, reg) })
    }
}
