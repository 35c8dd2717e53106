//! The partitioner: from a program on whole arrays to the program that each device runs on its parts.
//!
//! A framework writes what happens to whole arrays, and says of some of them how they are cut over a mesh of devices
//! (`sdy.sharding` of arguments, results and constraints, or the older `mhlo.sharding`). [`partition`] decides how all others are
//! cut and writes local code with explicit collectives, as GSPMD and Shardy do:
//!
//! 1. `inline`: one function, so that each use of a called one can be cut in its own way; `common`: what is computed twice, once;
//! 2. `rule`: for each op the *factors* that tie dimensions of operands and results together;
//! 3. `propagate`: shardings flow along these factors, forwards and backwards, until nothing changes;
//! 4. `choose`: for each op, the cut that moves the fewest bytes given how its operands are and its results should be;
//! 5. `rewrite`, `reshard`, `emit`: the local op, and before and after it the collectives that bring values into place. Axes
//!    that leave a dimension are an `all_gather`, that move to another an `all_to_all`, that join a slice, that change places a
//!    `collective_permute`; a cut contraction leaves sums to an `all_reduce`, or a `reduce_scatter` where the result is cut by
//!    the same axes.
//!
//! None of it depends on the number of devices, but for listed groups and permutations. Collectives carry the names of the mesh
//! axes they run over as the attribute `mesh_axes`.

mod choose;
mod common;
mod emit;
mod gather;
mod gspmd;
mod inline;
mod mesh;
mod parts;
mod prepare;
mod propagate;
mod reshard;
mod rewrite;
mod rule;
mod shards;
mod special;
mod sums;

pub use mesh::{Axis, MAX_AXES, Mesh, Sharding};
pub use shards::{ShardError, assemble, cut};

use crate::hlo::{Attr, AttrList, LocId, LocTable, Module, Op, Opcode, Type, Verified, VerifyError, verify};
use mesh::{DimSpec, Meshes};
use tpusim_isa::num::DType;

/// Most factors of one op that are looked at; further dimensions stay whole.
const MAX_FACTORS: usize = 64;

/// Most devices of a mesh: permutations list them all.
pub const MAX_DEVICES: u64 = 1 << 17;

/// Bytes of a value that is not worth cutting an axis into parts.
const SMALL: u64 = 1 << 16;

/// A program for one device of many.
#[derive(Clone, Debug)]
pub struct Partitioned {
    /// What each device runs.
    pub module: Verified<Module>,
    /// The devices. An axis that is used in parts has one axis for each, `x:(2)4` for 4 devices within 2.
    pub mesh: Mesh,
    /// Number of devices.
    pub devices: u64,
    /// How each parameter of the whole program is cut.
    pub params: Vec<Sharding>,
    /// How each result of the whole program is cut.
    pub results: Vec<Sharding>,
    /// What the program asked for and did not get, for people.
    pub notes: Vec<String>,
}

/// The program could not be partitioned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// Something about the program as a whole: its meshes or shardings.
    #[error("cannot partition the program: {0}")]
    Program(String),
    /// An op that has no local form.
    #[error("cannot partition {op} at {place}: {message}")]
    Op {
        /// Name of the op.
        op: &'static str,
        /// Where it comes from.
        place: String,
        /// What is wrong.
        message: String,
    },
    /// The local program is not valid: a mistake of the partitioner.
    #[error("the partitioned program is not valid, which is a mistake of tpusim: {0}")]
    Invalid(VerifyError),
}

impl PartitionError {
    fn program(message: impl Into<String>) -> PartitionError {
        PartitionError::Program(message.into())
    }
}

/// Locations, for messages.
#[derive(Clone, Copy)]
struct Place<'a> {
    locs: &'a LocTable,
}

impl Place<'_> {
    fn of(&self, loc: LocId) -> String {
        match (self.locs.file_line(loc), self.locs.name(loc)) {
            (Some((file, line)), _) => format!("{file}:{line}"),
            (None, Some(name)) => name.to_owned(),
            (None, None) => "an unknown place".to_owned(),
        }
    }

    fn name(&self, loc: LocId) -> String {
        self.locs.name(loc).map(|n| format!(" ({n})")).unwrap_or_default()
    }
}

/// The sharding that the attributes of a parameter ask for.
fn asked(meshes: &Meshes, attrs: &AttrList, rank: usize) -> Result<Option<Vec<DimSpec>>, String> {
    match (attrs.get("sdy.sharding"), attrs.get("mhlo.sharding")) {
        (Some(Attr::Opaque(text)), _) => meshes.sharding(text).map(Some),
        (None, Some(Attr::Str(text))) => gspmd::sharding(text, &meshes.mesh, rank).map(Some),
        _ => Ok(None),
    }
}

/// Whether `op` only says how a value is cut.
fn is_constraint(op: &Op) -> bool {
    use Opcode::*;
    matches!(
        op.opcode,
        SdyShardingConstraint
            | SdyReshard
            | SdyAllGather
            | SdyAllReduce
            | SdyAllSlice
            | SdyAllToAll
            | SdyCollectivePermute
            | SdyReduceScatter
    )
}

/// The sharding that a constraint asks for.
fn constraint(meshes: &Meshes, op: &Op, rank: usize) -> Result<Option<Vec<DimSpec>>, String> {
    if !is_constraint(op) {
        return Ok(None);
    }
    match (op.attrs.get("sharding").or(op.attrs.get("out_sharding")), op.attrs.get("mhlo.sharding")) {
        (Some(Attr::Opaque(text)), _) => meshes.sharding(text).map(Some),
        (None, Some(Attr::Str(text))) => gspmd::sharding(text, &meshes.mesh, rank).map(Some),
        _ => Ok(None),
    }
}

/// The manual axes of a manual computation, as bits.
fn manual_axes(meshes: &Meshes, op: &Op) -> Result<u32, String> {
    match op.attrs.get("manual_axes") {
        Some(Attr::Opaque(text)) => meshes.set(text),
        _ => Ok(0),
    }
}

/// The program that each device runs.
///
/// # Errors
/// When the shardings cannot be read or do not fit, or when an op has no local form.
pub fn partition(module: &Verified<Module>) -> Result<Partitioned, PartitionError> {
    run(module, None)
}

/// As [`partition`], but each op is cut in any way that is right instead of the cheapest: for tests.
///
/// # Errors
/// As [`partition`].
#[doc(hidden)]
pub fn partition_shuffled(module: &Verified<Module>, seed: u64) -> Result<Partitioned, PartitionError> {
    run(module, Some(seed))
}

fn run(module: &Verified<Module>, shuffle: Option<u64>) -> Result<Partitioned, PartitionError> {
    let mut meshes = Meshes::of(module).map_err(PartitionError::program)?;
    let declared = module.attrs.int("mhlo.num_partitions").and_then(|n| u64::try_from(n).ok()).unwrap_or(1).max(1);
    if meshes.mesh.axes.is_empty() {
        meshes.set_mesh(gspmd::mesh(module, declared).map_err(PartitionError::program)?);
    }
    if meshes.mesh.devices() > MAX_DEVICES {
        return Err(PartitionError::program(format!("a mesh of more than {MAX_DEVICES} devices is not supported")));
    }
    let mut func = inline::inline(module)?;
    prepare::prepare(&mut func)?;
    common::merge(&mut func);
    inline::split_free(&mut func);
    let place = Place { locs: &module.locs };
    // Any size is worth a part of an axis when all choices are to be seen.
    let least = if shuffle.is_some() { 0 } else { SMALL };
    let (mut shardings, mut notes, cuts) = propagate::propagate(&meshes, &func, &place, least)?;
    if meshes.refine(cuts) {
        (shardings, notes, _) = propagate::propagate(&meshes, &func, &place, least)?;
    }
    let channel = prepare::last_channel(&func.body);
    let local = rewrite::rewrite(&func, &meshes, &shardings, place, channel, shuffle)?;
    let devices = meshes.mesh.devices();
    let mut out = Module {
        name: module.name.clone(),
        attrs: module.attrs.clone(),
        meshes: module.meshes.clone(),
        funcs: vec![local],
        locs: module.locs.clone(),
    };
    if !out.meshes.iter().any(|(n, _)| *n == meshes.mesh.name) && !meshes.mesh.axes.is_empty() {
        let axes = meshes.whole.axes.iter().map(|(n, s)| format!("\"{n}\"={s}")).collect::<Vec<_>>().join(", ");
        out.meshes.push((meshes.mesh.name.clone(), Attr::Opaque(format!("sdy.mesh<[{axes}]>"))));
    }
    out.attrs.set("mhlo.num_partitions", Attr::Int(devices as i64, Type::Scalar(DType::I32)));
    prepare::remove_unused(&mut out.funcs[0]);
    let others = prepare::named(module, &out.funcs[0]);
    out.funcs.extend(others);
    let of = |v: &crate::hlo::ValueId| shardings.of(*v).clone();
    let params = func.params.iter().map(|p| of(&p.value)).collect();
    let results = func.body.ops.last().map_or_else(Vec::new, |r| r.operands.iter().map(of).collect());
    let module = verify(out).map_err(|mut errors| PartitionError::Invalid(errors.swap_remove(0)))?;
    Ok(Partitioned { module, mesh: meshes.mesh, devices, params, results, notes })
}
