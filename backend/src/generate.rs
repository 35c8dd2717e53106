//! Turns planned steps into the code and the operation list of a program.

use std::collections::BTreeMap;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_isa::program::{DmaDesc, Node as Code, OpInfo, Program};

use crate::compile::CompileError;
use crate::graph::{Graph, NodeId, NodeOp};
use crate::lower::emit::{EmitError, Emitter};
use crate::tile::fuse::{Fusion, SpecialStep, Step};
use crate::tile::kernel::Kernel;

/// A program under construction.
pub(crate) struct Generator<'c> {
    /// The chip.
    pub chip: &'c ChipSpec,
    program: Program,
    kernels: Vec<Kernel>,
    /// How many operations of a kind there are, for their names.
    names: BTreeMap<String, u32>,
}

/// Where the steps of one graph find their arrays.
pub(crate) struct Scope<'a> {
    /// The graph.
    pub g: &'a Graph,
    /// First byte of each node's array in HBM; `None` if it has none.
    pub address: &'a [Option<u64>],
}

impl Scope<'_> {
    /// HBM address of a stored node.
    pub fn base(&self, node: NodeId) -> i64 {
        self.address[node.ix()].unwrap_or(0) as i64
    }
}

impl<'c> Generator<'c> {
    pub fn new(chip: &'c ChipSpec, program: Program) -> Self {
        Generator { chip, program, kernels: Vec::new(), names: BTreeMap::new() }
    }

    /// The program, its body still empty, and one kernel for each of its operations.
    pub fn finish(self) -> (Program, Vec<Kernel>) {
        (self.program, self.kernels)
    }

    /// The code of `steps`.
    ///
    /// # Errors
    /// [`CompileError`].
    pub fn steps(&mut self, g: &Graph, steps: &[Step], address: &[Option<u64>]) -> Result<Vec<Code>, CompileError> {
        let scope = Scope { g, address };
        let mut body = Vec::new();
        for s in steps {
            match s {
                Step::Kernel(f) => self.fusion(&scope, f, &mut body)?,
                Step::Special(s) => self.special(&scope, s, &mut body)?,
            }
        }
        Ok(body)
    }

    fn fusion(&mut self, scope: &Scope<'_>, f: &Fusion, body: &mut Vec<Code>) -> Result<(), CompileError> {
        let base_of = |node: usize| scope.base(NodeId(node as u32));
        let (kernel, generated) = generate_kernel(scope.g, self.chip, f, &mut self.program.descs, &base_of)?;
        let info = info(scope.g, f, kernel.cores());
        self.push(info, kernel, generated, body);
        Ok(())
    }

    fn special(&mut self, scope: &Scope<'_>, s: &SpecialStep, body: &mut Vec<Code>) -> Result<(), CompileError> {
        let _ = body;
        match &scope.g.node(s.node).op {
            NodeOp::Special(what) => match *what {},
            _ => Ok(()),
        }
    }

    /// Adds one operation: `info.name` is its kind, which gets a number; `text` is how `--emit tile` shows it.
    ///
    /// # Errors
    /// [`CompileError::Kernel`] if `emit` fails.
    #[allow(dead_code)]
    pub fn operation(
        &mut self,
        info: OpInfo,
        text: String,
        body: &mut Vec<Code>,
        emit: impl FnOnce(&mut Emitter<'_>) -> Result<(), EmitError>,
    ) -> Result<(), CompileError> {
        match attempt(self.chip, &mut self.program.descs, false, emit) {
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
    chip: &ChipSpec,
    f: &Fusion,
    descs: &mut Vec<DmaDesc>,
    base_of: &dyn Fn(usize) -> i64,
) -> Result<(Kernel, Generated), CompileError> {
    let mut reason = EmitError::Vmem { needed: 0, available: *chip.vmem_bytes };
    for in_order in [false, true] {
        for kernel in Kernel::candidates(g, chip, f) {
            match attempt(chip, descs, in_order, |e| kernel.emit(e, base_of)) {
                Ok(generated) => return Ok((kernel, generated)),
                Err(e) => reason = e,
            }
        }
        if !matches!(reason, EmitError::Registers(_)) {
            break;
        }
    }
    let n = g.node(f.root);
    Err(CompileError::Kernel { name: n.name.to_owned(), place: n.location.clone(), reason })
}

fn attempt(
    chip: &ChipSpec,
    descs: &mut Vec<DmaDesc>,
    in_order: bool,
    emit: impl FnOnce(&mut Emitter<'_>) -> Result<(), EmitError>,
) -> Result<(Vec<Code>, u64), EmitError> {
    let before = descs.len();
    let mut e = Emitter::new(chip, descs);
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
    let root = g.node(f.root);
    let maps = f.nodes.iter().filter(|n| matches!(n.kind, crate::lower::expr::Kind::Map(..))).count();
    let name = match &f.product {
        Some(_) if maps <= 1 => "dot_general".to_owned(),
        Some(_) => "dot_general_fusion".to_owned(),
        None if maps > 1 => "fusion".to_owned(),
        None => root.name.to_owned(),
    };
    let (mut mxu_flops, mut dtype) = (0, DType::BF16);
    if let Some(p) = &f.product {
        let dot = g.node(p.node);
        if let NodeOp::Dot(spec) = &dot.op {
            let lhs = g.node(dot.args[0]);
            let k: u64 = spec.contract[0].iter().map(|&d| lhs.dims[d]).product();
            mxu_flops = if spec.useful { 2 * dot.elements() * k } else { 0 };
            // f32 operands at default precision run as bf16.
            dtype = if lhs.dtype.bits() == 32 { DType::BF16 } else { lhs.dtype };
        }
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
