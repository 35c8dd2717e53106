//! From a verified module to a program for one device.

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_isa::program::{DmaDesc, Node as Code, OpInfo, Program};

use crate::graph::{Graph, LowerError, NodeOp, from_module_with};
use crate::hlo::{Module, Verified};
use crate::lower::emit::{EmitError, Emitter};
use crate::tile::fuse::{Fusion, MAX_NODES, Plan, plan, plan_with};
use crate::tile::kernel::Kernel;
use crate::tile::memory;

/// Why a program could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// An operation without code.
    #[error(transparent)]
    Unsupported(#[from] LowerError),
    /// A fusion that fits no tiling.
    #[error("{name} ({place}): no tiling of it fits the chip: {reason}")]
    Kernel {
        /// Fusion.
        name: String,
        /// Source position.
        place: String,
        /// What the smallest tiling ran out of.
        reason: EmitError,
    },
    /// More HBM than the device has.
    #[error("the program needs {} of HBM, the device has {}: {}", mib(*needed), mib(*available), largest)]
    Hbm {
        /// Bytes at the worst moment.
        needed: u64,
        /// Usable bytes of the device.
        available: u64,
        /// The largest arrays, for people.
        largest: String,
    },
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

/// A program with what it was made from.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The flat graph.
    pub graph: Graph,
    /// Its kernels, one for each of the program's operations.
    pub plan: Plan,
    /// What each of them became.
    pub kernels: Vec<Kernel>,
    /// The code.
    pub program: Program,
}

/// Compiles `module` for one device of `chip`.
///
/// # Errors
/// [`CompileError`].
pub fn compile(module: &Verified<Module>, chip: &ChipSpec) -> Result<Program, CompileError> {
    compile_parts(module, chip).map(|c| c.program)
}

/// As [`compile`], with the graph and the plan. Where a kernel fits no tiling, long contractions are padded to what blocks divide, then
/// kernels are made smaller.
///
/// # Errors
/// [`CompileError`], of the first attempt.
pub fn compile_parts(module: &Verified<Module>, chip: &ChipSpec) -> Result<Compiled, CompileError> {
    let attempt = |pad_contraction: bool, max_nodes: usize| {
        let graph = from_module_with(module, pad_contraction)?;
        let plan = plan_with(&graph, max_nodes);
        let (program, kernels) = generate(&graph, &plan, chip)?;
        Ok(Compiled { graph, plan, kernels, program })
    };
    let first = attempt(false, MAX_NODES);
    if !matches!(first, Err(CompileError::Kernel { .. })) {
        return first;
    }
    [MAX_NODES, 16, 2].into_iter().find_map(|n| attempt(true, n).ok()).map_or(first, Ok)
}

/// Compiles a flat graph.
///
/// # Errors
/// [`CompileError`].
pub fn compile_graph(g: &Graph, chip: &ChipSpec) -> Result<Program, CompileError> {
    generate(g, &plan(g), chip).map(|(p, _)| p)
}

fn generate(g: &Graph, plan: &Plan, chip: &ChipSpec) -> Result<(Program, Vec<Kernel>), CompileError> {
    let mem = memory::plan(g, plan);
    let available = *chip.hbm.usable_bytes_device;
    if mem.peak > available {
        return Err(CompileError::Hbm { needed: mem.peak, available, largest: largest(g, &mem) });
    }
    let base_of = |node: usize| mem.address[node].unwrap_or(0) as i64;
    let mut p = Program { name: g.name.clone(), chip: chip.name.clone(), ..Program::default() };
    let mut names = std::collections::BTreeMap::new();
    let mut kernels = Vec::new();
    for f in &plan.steps {
        let (kernel, (body, vmem)) = generate_kernel(g, chip, f, &mut p.descs, &base_of)?;
        p.vmem_peak_bytes = p.vmem_peak_bytes.max(vmem);
        let op = p.ops.len() as u32;
        p.ops.push(info(g, f, kernel.cores(), &mut names));
        kernels.push(kernel);
        p.body.push(Code::Op { op, body });
    }
    p.buffers = mem.buffers;
    p.hbm_peak_bytes = mem.peak;
    Ok((p, kernels))
}

fn largest(g: &Graph, mem: &memory::MemoryPlan) -> String {
    let mut all: Vec<(u64, String)> = g
        .nodes
        .iter()
        .zip(&mem.address)
        .filter(|(_, a)| a.is_some())
        .map(|(n, _)| {
            (
                n.bytes(),
                format!(
                    "{}[{}] {}",
                    n.dtype,
                    n.dims.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
                    n.source
                ),
            )
        })
        .collect();
    all.sort_by(|a, b| b.cmp(a));
    let list: Vec<String> = all.iter().take(4).map(|(b, n)| format!("{} {}", mib(*b), n.trim_end())).collect();
    format!("the largest arrays are {}", list.join("; "))
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

fn info(g: &Graph, f: &Fusion, cores: u32, names: &mut std::collections::BTreeMap<String, u32>) -> OpInfo {
    let root = g.node(f.root);
    let maps = f.nodes.iter().filter(|n| matches!(n.kind, crate::lower::expr::Kind::Map(..))).count();
    let kind = match &f.product {
        Some(_) if maps <= 1 => "dot_general".to_owned(),
        Some(_) => "dot_general_fusion".to_owned(),
        None if maps > 1 => "fusion".to_owned(),
        None => root.name.to_owned(),
    };
    let n = names.entry(kind.clone()).or_default();
    let name = format!("{kind}.{n}");
    *n += 1;
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
