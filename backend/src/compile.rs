//! From a verified module to a program for one device.

use std::collections::BTreeSet;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::placement::Placement;
use tpusim_isa::program::{Program, Resident};

use crate::generate::{Generator, Scope};
use crate::graph::{Fused, Graph, GraphOptions, LowerError, NodeId, NodeOp, Special, from_module_with, place};
use crate::hlo::{Module, Verified};
use crate::lower::emit::EmitError;
use crate::tile::donate::donate;
use crate::tile::fuse::{MAX_NODES, Options, Plan, plan, plan_with};
use crate::tile::kernel::Kernel;
use crate::tile::memory;
use crate::tile::resident::residents;
use crate::tile::reuse::reuse;

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
        /// The largest arrays at that moment, for people.
        largest: String,
    },
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

/// Whether a program has to fit the device's HBM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HbmLimit {
    /// It has to.
    Kept,
    /// One that does not fit is compiled all the same, in as little as it takes: for its time.
    Ignored,
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

/// As [`compile`], for devices of which it is known where they are: collectives use all axes of the network that a group extends along.
///
/// # Errors
/// [`CompileError`].
pub fn compile_placed(
    module: &Verified<Module>,
    chip: &ChipSpec,
    placement: &Placement,
    limit: HbmLimit,
) -> Result<Program, CompileError> {
    attempts(module, chip, Some(placement), limit).map(|c| c.program)
}

/// As [`compile`], with the graph and the plan. Where a kernel fits no tiling, long contractions are padded to what
/// blocks divide, then no kernels are joined, then they write over nothing they read, then they are made smaller.
///
/// # Errors
/// [`CompileError`], of the first attempt.
pub fn compile_parts(module: &Verified<Module>, chip: &ChipSpec) -> Result<Compiled, CompileError> {
    attempts(module, chip, None, HbmLimit::Kept)
}

fn attempts(
    module: &Verified<Module>,
    chip: &ChipSpec,
    placement: Option<&Placement>,
    limit: HbmLimit,
) -> Result<Compiled, CompileError> {
    let build = |pad_contraction: bool, attention: Fused<'_>| {
        from_module_with(module, GraphOptions { pad_contraction, attention })
    };
    // Finding that out by compiling takes as long as compiling.
    let pad = indivisible(&build(false, Fused::On(chip))?);
    let mut available = *chip.hbm.usable_bytes_device;
    let attempt_in = |available: u64, pad_contraction: bool, attention: Fused<'_>, options: Options| {
        let mut graph = build(pad_contraction, attention)?;
        if let Some(p) = placement {
            place(&mut graph, p);
        }
        let mut plan = plan_with(&graph, options);
        donate(&graph, &mut plan);
        if let Some(least) = options.reuse {
            let donors: BTreeSet<NodeId> = plan.donors.keys().copied().collect();
            reuse(&graph, &mut plan, &|n| graph.outputs.contains(&n) || donors.contains(&n), least);
        }
        let (program, kernels) = generate(&graph, &plan, chip, available)?;
        Ok(Compiled { graph, plan, kernels, program })
    };
    // What does not fit is tried again with less on its way between devices.
    let hbm = *chip.hbm.usable_bytes_device;
    let mut options = Options { in_flight: hbm / 64, reuse: Some(hbm / 1024), ..Options::default() };
    let mut attention = Fused::On(chip);
    let mut first = attempt_in(available, pad, attention, options);
    for (pipeline, in_flight) in [(true, hbm / 256), (false, hbm / 256)] {
        if let Err(CompileError::Hbm { .. }) = first {
            options = Options { pipeline, in_flight, ..options };
            first = attempt_in(available, pad, attention, options);
        }
    }
    if let (Err(CompileError::Hbm { .. }), HbmLimit::Ignored) = (&first, limit) {
        available = u64::MAX;
        first = attempt_in(available, pad, attention, options);
    }
    let attempt = |pad, attention, options| attempt_in(available, pad, attention, options);
    if let Err(CompileError::Kernel { .. }) = first {
        options.reuse = None;
        first = attempt_in(available, pad, attention, options);
    }
    let Err(CompileError::Kernel { name, .. }) = &first else { return first };
    if name.starts_with("attention") {
        attention = Fused::Never;
        let plain = attempt(pad, attention, options);
        if !matches!(plain, Err(CompileError::Kernel { .. })) {
            return plain;
        }
    }
    let apart = |max_nodes: usize| Options { max_nodes, in_place: false, join: false, ..options };
    let single = Options { join: false, ..options };
    let others = [
        (true, options),
        (false, single),
        (true, single),
        (false, apart(MAX_NODES)),
        (true, apart(MAX_NODES)),
        (true, apart(16)),
        (true, apart(2)),
    ];
    others.into_iter().find_map(|(pad, how)| attempt(pad, attention, how).ok()).map_or(first, Ok)
}

/// Contractions up to this long are one block.
const WHOLE: u64 = 8192;

/// Whether a long contraction of `g` or of its regions has no block that divides it.
fn indivisible(g: &Graph) -> bool {
    let block = |k: u64| (4..=64).any(|n| k.is_multiple_of(128 * n));
    g.nodes.iter().any(|n| match &n.op {
        NodeOp::Dot(spec) => {
            let k = spec.contract[0].first().map_or(1, |&d| g.node(n.args[0]).dims[d]);
            k > WHOLE && !block(k)
        }
        NodeOp::Special(Special::While(w)) => indivisible(&w.body.graph),
        NodeOp::Special(Special::Case(c)) => c.branches.iter().any(|b| indivisible(&b.graph)),
        _ => false,
    })
}

/// Compiles a flat graph.
///
/// # Errors
/// [`CompileError`].
pub fn compile_graph(g: &Graph, chip: &ChipSpec) -> Result<Program, CompileError> {
    generate(g, &plan(g), chip, *chip.hbm.usable_bytes_device).map(|(p, _)| p)
}

fn generate(g: &Graph, plan: &Plan, chip: &ChipSpec, available: u64) -> Result<(Program, Vec<Kernel>), CompileError> {
    let mem = memory::plan(g, plan);
    let residents = residents(g, plan, &mem);
    if mem.peak > available {
        return Err(CompileError::Hbm { needed: mem.peak, available, largest: largest(&residents) });
    }
    let mut p = Program { name: g.name.clone(), chip: chip.name.clone(), ..Program::default() };
    p.residents = residents;
    p.buffers = mem.buffers;
    p.hbm_peak_bytes = mem.peak;
    let mut generator = Generator::new(chip, p);
    let scope = Scope { g, address: &mem.address, scratch: &mem.scratch };
    let (body, ops) = generator.program(&scope, plan)?;
    let (mut program, kernels) = generator.finish();
    program.body = body;
    // Steps of loops are several operations.
    for b in &mut program.buffers {
        let at = |step: u32| ops.get(step as usize).or(ops.last()).cloned().unwrap_or(0..1);
        b.live = (at(b.live.0).start, at(b.live.1).end.max(1) - 1);
    }
    Ok((program, kernels))
}

fn largest(all: &[Resident]) -> String {
    let one = |r: &Resident| {
        let of = [&r.array, &r.name, &r.source].map(String::as_str).join(" ");
        format!("{} {}", mib(r.bytes), of.trim())
    };
    let list: Vec<String> = all.iter().take(4).map(one).collect();
    format!("the largest arrays at that moment are {}", list.join("; "))
}
