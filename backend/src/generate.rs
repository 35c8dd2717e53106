//! Turns planned steps into the code and the operation list of a program.

mod attention;
mod control;
mod gather;
mod pipeline;
mod sort;
pub(crate) mod transfer;

use std::collections::BTreeMap;
use std::ops::Range;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_isa::program::{DmaDesc, Node as Code, OpInfo, Program};

use crate::compile::CompileError;
use crate::graph::{Graph, NodeId, NodeOp, Special};
use crate::lower::emit::{EmitError, Emitter};
use crate::tile::fuse::{Contraction, Fusion, Plan, SpecialStep, Step};
use crate::tile::kernel::Kernel;
use crate::tile::overlap;

/// A program under construction.
pub(crate) struct Generator<'c> {
    /// The chip.
    pub chip: &'c ChipSpec,
    program: Program,
    kernels: Vec<Kernel>,
    /// How many operations of a kind there are, for their names.
    names: BTreeMap<String, u32>,
    /// Regions around the code at hand.
    depth: u32,
    /// Transfers that have not been waited for.
    open: Vec<transfer::Open>,
    /// Number of the step at hand.
    step: usize,
    /// The steps that wait for the transfers of the plan at hand, by the steps that start them.
    ends: BTreeMap<usize, usize>,
    /// Queue of the transfers that start.
    queue: u32,
}

/// What is known of the plan around the one at hand.
struct Outside {
    open: Vec<transfer::Open>,
    step: usize,
    ends: BTreeMap<usize, usize>,
    queue: u32,
}

/// Where the steps of one graph find their arrays.
pub(crate) struct Scope<'a> {
    /// The graph.
    pub g: &'a Graph,
    /// First byte of each node's array in HBM; `None` if it has none.
    pub address: &'a [Option<u64>],
    /// First byte of what steps with regions need inside, by node.
    pub scratch: &'a BTreeMap<NodeId, u64>,
}

impl Scope<'_> {
    /// HBM address of a stored node.
    pub fn base(&self, node: NodeId) -> i64 {
        self.address[node.ix()].unwrap_or(0) as i64
    }
}

impl<'c> Generator<'c> {
    pub fn new(chip: &'c ChipSpec, program: Program) -> Self {
        Generator {
            chip,
            program,
            kernels: Vec::new(),
            names: BTreeMap::new(),
            depth: 0,
            open: Vec::new(),
            step: 0,
            ends: BTreeMap::new(),
            queue: 0,
        }
    }

    /// The program, its body still empty, and one kernel for each of its operations.
    pub fn finish(self) -> (Program, Vec<Kernel>) {
        (self.program, self.kernels)
    }

    /// The code of a plan's steps.
    ///
    /// # Errors
    /// [`CompileError`].
    pub fn steps(&mut self, scope: &Scope<'_>, plan: &Plan) -> Result<Vec<Code>, CompileError> {
        self.program(scope, plan).map(|(body, _)| body)
    }

    /// The code of a plan's steps, and the operations of each.
    ///
    /// # Errors
    /// [`CompileError`].
    pub fn program(&mut self, scope: &Scope<'_>, plan: &Plan) -> Result<(Vec<Code>, Vec<Range<u32>>), CompileError> {
        let (mut body, mut ops) = (Vec::new(), Vec::new());
        let outside = self.enter(scope, plan);
        for (k, s) in plan.steps.iter().enumerate() {
            self.step = k;
            let first = self.program.ops.len() as u32;
            self.wait_for(scope, Some(s), &mut body);
            match s {
                Step::Kernel(f) => self.fusion(scope, f, &mut body)?,
                Step::Special(s) => self.special(scope, s, &mut body)?,
            }
            ops.push(first..self.program.ops.len() as u32);
        }
        self.wait_for(scope, None, &mut body);
        self.leave(outside);
        Ok((body, ops))
    }

    /// Starts another plan. Transfers of the code around are none of its business.
    fn enter(&mut self, scope: &Scope<'_>, plan: &Plan) -> Outside {
        let ends = std::mem::replace(&mut self.ends, overlap::ends(scope.g, plan));
        let queue = std::mem::take(&mut self.queue);
        Outside { open: std::mem::take(&mut self.open), step: self.step, ends, queue }
    }

    fn leave(&mut self, outside: Outside) {
        Outside { open: self.open, step: self.step, ends: self.ends, queue: self.queue } = outside;
    }

    fn fusion(&mut self, scope: &Scope<'_>, f: &Fusion, body: &mut Vec<Code>) -> Result<(), CompileError> {
        let base_of = |node: usize| scope.base(NodeId(node as u32));
        let (kernel, generated) =
            generate_kernel(scope.g, (self.chip, self.depth), f, &mut self.program.descs, &base_of)?;
        let info = info(scope.g, f, kernel.cores());
        self.push(info, kernel, generated, body);
        Ok(())
    }

    fn special(&mut self, scope: &Scope<'_>, s: &SpecialStep, body: &mut Vec<Code>) -> Result<(), CompileError> {
        let NodeOp::Special(what) = &scope.g.node(s.node).op else { return Ok(()) };
        match what {
            Special::While(w) => self.while_loop(scope, s, w, body),
            Special::Case(_) => self.case(scope, s, body),
            Special::Gather(w) => self.gather(scope, s, w, body),
            Special::Scatter(w) => self.scatter(scope, s, w, body),
            Special::Sort(spec) => self.sort(scope, s, spec, body),
            Special::Attention(a) => self.attention(scope, s, a, body),
            Special::Collective(c) => self.collective(scope, s, c, body),
            Special::DeviceNumber(v) => self.device_number(scope, s, v, body),
        }
    }

    /// Adds one operation: `info.name` is its kind, which gets a number; `text` is how `--emit tile` shows it.
    ///
    /// # Errors
    /// [`CompileError::Kernel`] if `emit` fails.
    pub fn operation(
        &mut self,
        info: OpInfo,
        text: String,
        body: &mut Vec<Code>,
        emit: impl FnOnce(&mut Emitter<'_>) -> Result<(), EmitError>,
    ) -> Result<(), CompileError> {
        match attempt((self.chip, self.depth), &mut self.program.descs, false, emit) {
            Ok(generated) => {
                self.push(info, Kernel::Special(text), generated, body);
                Ok(())
            }
            Err(reason) => Err(CompileError::Kernel { name: info.name, place: info.location, reason }),
        }
    }

    fn push(&mut self, mut info: OpInfo, kernel: Kernel, (code, vmem): Generated, body: &mut Vec<Code>) {
        let p = &mut self.program;
        p.vmem_peak_bytes = p.vmem_peak_bytes.max(vmem);
        let op = p.ops.len() as u32;
        let n = self.names.entry(info.name.clone()).or_default();
        info.name = format!("{}.{n}", info.name);
        *n += 1;
        p.ops.push(info);
        self.kernels.push(kernel);
        body.push(Code::Op { op, body: code });
    }
}

/// A kernel's code and the VMEM bytes it takes.
type Generated = (Vec<Code>, u64);

/// The first candidate whose code fits; where registers run short in all of them, the first that fits in source order.
fn generate_kernel(
    g: &Graph,
    (chip, depth): (&ChipSpec, u32),
    f: &Fusion,
    descs: &mut Vec<DmaDesc>,
    base_of: &dyn Fn(usize) -> i64,
) -> Result<(Kernel, Generated), CompileError> {
    let mut reason = EmitError::Vmem { needed: 0, available: *chip.vmem_bytes };
    for in_order in [false, true] {
        for kernel in Kernel::candidates(g, chip, f) {
            match attempt((chip, depth), descs, in_order, |e| kernel.emit(e, base_of)) {
                Ok(generated) => return Ok((kernel, generated)),
                Err(e) => reason = e,
            }
        }
        if !matches!(reason, EmitError::Registers(_)) {
            break;
        }
    }
    let n = g.node(f.root());
    Err(CompileError::Kernel { name: n.name.to_owned(), place: n.location.clone(), reason })
}

fn attempt(
    (chip, depth): (&ChipSpec, u32),
    descs: &mut Vec<DmaDesc>,
    in_order: bool,
    emit: impl FnOnce(&mut Emitter<'_>) -> Result<(), EmitError>,
) -> Result<(Vec<Code>, u64), EmitError> {
    let before = descs.len();
    let mut e = Emitter::new(chip, descs);
    e.reserve(depth);
    if in_order {
        e.in_order();
    }
    let result = emit(&mut e).and_then(|()| e.finish());
    if result.is_err() {
        descs.truncate(before);
    }
    result
}

fn info(g: &Graph, f: &Fusion, cores: u32) -> OpInfo {
    let root = g.node(f.root());
    let maps = f.nodes.iter().filter(|n| matches!(n.kind, crate::lower::expr::Kind::Map(..))).count();
    let name = match &f.product {
        Some(p) => {
            let kind = if let Contraction::Conv(_) = p.spec { "convolution" } else { "dot_general" };
            format!("{kind}{}", if maps <= 1 { "" } else { "_fusion" })
        }
        None if maps > 1 => "fusion".to_owned(),
        None => root.name.to_owned(),
    };
    let (mut mxu_flops, mut dtype) = (0, DType::BF16);
    if let Some(p) = &f.product {
        let product = g.node(p.node);
        let [lhs, rhs] = [0, 1].map(|i| g.node(product.args[i]));
        let (k, useful): (u64, bool) = match &p.spec {
            Contraction::Dot(spec) => (spec.contract[0].iter().map(|&d| lhs.dims[d]).product(), spec.useful),
            // All of the window and the features, whatever zeros it sees.
            Contraction::Conv(spec) => (rhs.dims[1..rhs.dims.len() - 1].iter().product(), spec.useful),
        };
        mxu_flops = if useful { 2 * product.elements() * k } else { 0 };
        // f32 operands at default precision run as bf16.
        dtype = if lhs.dtype.bits() == 32 { DType::BF16 } else { lhs.dtype };
    }
    OpInfo {
        name,
        source: f.sources.join(" "),
        location: root.location.clone(),
        mxu_flops,
        vector_flops: f.vector_flops,
        dtype,
        cores,
        modelled_cycles: 0,
    }
}
