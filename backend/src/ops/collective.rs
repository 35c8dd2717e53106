//! Communication between devices.

use tpusim_isa::num::DType;
use tpusim_isa::num::convert::{encode_f32, encode_f64, encode_i64};

use super::elementwise::Class;
use super::reduce::reducer_rule;
use super::region::{ScalarFn, decode, encode, single_op};
use super::site::ensure;
use super::{Arity, BinaryFns, Eval, OpDef, Rule, RuleError, Site, lookup, rules};
use crate::eval::mesh::{Mesh, Sharding, names, shardings};
use crate::eval::strided::{read, strides, write};
use crate::eval::{Fault, Frame, Grid, Tensor, Value};
use crate::hlo::{Attr, Module, Op, Opcode, ReplicaGroups, TensorType, Type};

const ANY: Arity = Arity::AtLeast(0);
const ONE: Arity = Arity::Exactly(1);
const SOME: Arity = Arity::AtLeast(1);

/// What leaves the program or the order of its ops.
macro_rules! refused {
    ($op:ident) => {
        OpDef::new(Opcode::$op, ANY, Rule::Check(rules::any), Eval::Values(refuse)).regions(ANY)
    };
}

/// On the global value, Shardy's own collectives change where parts are, not what they are.
macro_rules! resharding {
    ($op:ident) => {
        OpDef::new(Opcode::$op, ONE, Rule::Infer(rules::same), Eval::Values(identity))
    };
}

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::AllGather, SOME, Rule::Check(gather_rule), Eval::Values(all_gather)).quantized(),
    OpDef::new(Opcode::AllReduce, SOME, Rule::Check(reduce_rule), Eval::Values(all_reduce)).regions(ONE).quantized(),
    OpDef::new(Opcode::CrossReplicaSum, ONE, Rule::Infer(rules::same), Eval::Values(cross_replica_sum)),
    OpDef::new(Opcode::ReduceScatter, ONE, Rule::Check(scatter_rule), Eval::Values(reduce_scatter))
        .regions(ONE)
        .quantized(),
    OpDef::new(Opcode::AllToAll, SOME, Rule::Check(all_to_all_rule), Eval::Values(all_to_all)).quantized(),
    OpDef::new(Opcode::CollectiveBroadcast, SOME, Rule::Check(rooted_rule), Eval::Values(broadcast)).quantized(),
    OpDef::new(Opcode::CollectivePermute, ONE, Rule::Infer(rules::same), Eval::Values(permute)).quantized(),
    OpDef::new(Opcode::PartitionId, Arity::Exactly(0), Rule::Infer(id_rule), Eval::Values(partition_id)),
    OpDef::new(Opcode::ReplicaId, Arity::Exactly(0), Rule::Infer(id_rule), Eval::Values(replica_id)),
    OpDef::new(Opcode::SdyManualComputation, ANY, Rule::Check(manual_rule), Eval::Values(manual)).regions(ONE),
    OpDef::new(Opcode::CollectiveReduce, SOME, Rule::Check(rooted_rule), Eval::Values(collective_reduce))
        .regions(ONE)
        .quantized(),
    refused!(AsyncDone),
    refused!(AsyncStart),
    refused!(Infeed),
    refused!(Outfeed),
    refused!(Recv),
    refused!(Send),
    resharding!(SdyAllGather),
    resharding!(SdyAllReduce),
    resharding!(SdyAllSlice),
    resharding!(SdyAllToAll),
    resharding!(SdyCollectivePermute),
    resharding!(SdyReduceScatter),
];

fn refuse<'m>(_: &mut Frame<'m>, site: &Site<'m>, _: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let why = match site.op.opcode {
        Opcode::AsyncStart | Opcode::AsyncDone => {
            ": start and end of an op are the compiler's to part; write the op itself, as the export before any compilation has it"
        }
        Opcode::Send | Opcode::Recv => {
            ": there is no host to talk to; between devices use `collective_permute`, and pass the host's data as inputs and outputs"
        }
        _ => ": there is no host to feed the program; pass the data as inputs and outputs",
    };
    Err(Fault::Unsupported(why.into()))
}

fn identity<'m>(_: &mut Frame<'m>, _: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    Ok(operands)
}

/// Results have the operands' element types and dimensions, but for those in `changed`.
fn shapes_rule(site: &Site<'_>, changed: impl Fn(&TensorType, &TensorType) -> Vec<usize>) -> Result<(), RuleError> {
    ensure(site.op.operands.len() == site.op.results.len(), || "needs as many results as operands".into())?;
    for i in 0..site.op.operands.len() {
        let (x, r) = (site.operand(i)?, site.result(i)?);
        let free = changed(x, r);
        let fits = x.rank() == r.rank() && (0..x.rank()).all(|d| x.dims[d] == r.dims[d] || free.contains(&d));
        ensure(fits && rules::compatible(&TensorType { dims: r.dims.clone(), ..x.clone() }, r), || {
            format!("cannot give {r} for {x}")
        })?;
    }
    Ok(())
}

fn gather_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let d = site.dim("all_gather_dim", site.operand(0)?.rank())?;
    shapes_rule(site, |_, _| vec![d])
}

fn reduce_rule(site: &Site<'_>) -> Result<(), RuleError> {
    for i in 0..site.op.operands.len() {
        reducer_rule(site, site.block(0)?, &[site.operand(i)?.dtype])?;
    }
    shapes_rule(site, |_, _| Vec::new())
}

fn scatter_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let x = site.operand(0)?;
    let d = site.dim("scatter_dimension", x.rank())?;
    reducer_rule(site, site.block(0)?, &[x.dtype])?;
    shapes_rule(site, |_, _| vec![d])
}

fn all_to_all_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let rank = site.operand(0)?.rank();
    let (s, c) = (site.dim("split_dimension", rank)?, site.dim("concat_dimension", rank)?);
    shapes_rule(site, |_, _| vec![s, c])?;
    ensure(site.operand(0)?.elements() == site.result(0)?.elements(), || "operand and result differ in size".into())
}

fn id_rule(_: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    Ok(vec![rules::tensor(&[], DType::U32)])
}

/// What the ids of `replica_groups` and `source_target_pairs` number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ids {
    /// Replicas; each partition works by itself.
    Replicas,
    /// Partitions; each replica works by itself.
    Partitions,
    /// Replicas; their partitions work together.
    ReplicasOfAll,
    /// Devices.
    Devices,
}

/// What the ids of the collective `op` are, as the specification says for its channel.
fn ids(op: &Op) -> Ids {
    use Opcode::*;
    let channel = matches!(op.attrs.get("channel_handle"), Some(Attr::Channel { handle, .. }) if *handle > 0)
        || op.attrs.int("channel_id").is_some_and(|c| c > 0);
    let joint = matches!(op.opcode, AllGather | AllReduce | ReduceScatter);
    match (channel, joint, op.attrs.flag("use_global_device_ids")) {
        (true, true, true) => Ids::Devices,
        (true, true, false) => Ids::ReplicasOfAll,
        (true, false, _) => Ids::Partitions,
        (false, ..) => Ids::Replicas,
    }
}

/// The lists of ids as lists of devices.
fn devices_of(grid: Grid, ids: Ids, lists: &[Vec<i64>]) -> Vec<Vec<usize>> {
    let (replicas, partitions) = (grid.replicas, grid.partitions);
    let limit = match ids {
        Ids::Replicas | Ids::ReplicasOfAll => replicas,
        Ids::Partitions => partitions,
        Ids::Devices => grid.devices(),
    };
    // Programs that are only partitioned are often written with ids of devices whatever the channel says.
    let foreign = lists.iter().flatten().any(|&i| i >= limit as i64);
    let ids = if foreign && (replicas == 1 || partitions == 1) { Ids::Devices } else { ids };
    // Rows are padded with -1.
    let member = |&i: &i64| usize::try_from(i).ok().filter(|&i| i < grid.devices());
    let rows = lists.iter().map(|l| l.iter().filter_map(member).collect::<Vec<usize>>());
    match ids {
        Ids::Devices => rows.collect(),
        Ids::Replicas => {
            rows.flat_map(|l| (0..partitions).map(move |p| l.iter().map(|r| r * partitions + p).collect())).collect()
        }
        Ids::Partitions => {
            rows.flat_map(|l| (0..replicas).map(move |r| l.iter().map(|p| r * partitions + p).collect())).collect()
        }
        Ids::ReplicasOfAll => {
            rows.map(|l| (0..partitions).flat_map(|p| l.iter().map(move |r| r * partitions + p)).collect()).collect()
        }
    }
}

fn groups(frame: &Frame<'_>, site: &Site<'_>) -> Result<Vec<Vec<usize>>, Fault> {
    groups_of(site.module, site.op, frame.grid())
}

/// Which of the devices of `grid` work together in the collective `op`, in order.
pub(crate) fn groups_of(module: &Module, op: &Op, grid: Grid) -> Result<Vec<Vec<usize>>, Fault> {
    let mut listed = match op.attrs.get("replica_groups") {
        Some(Attr::Groups(ReplicaGroups::MeshAxes(mesh, axes))) => {
            let Attr::Symbol(mesh) = mesh.as_ref() else {
                return Err(Fault::Unsupported(" over an unnamed mesh".into()));
            };
            let mut all = Vec::new();
            for a in axes {
                match a {
                    Attr::Opaque(t) if !t.contains("sub_axis") => all.extend(names(t)),
                    _ => return Err(Fault::Unsupported(" over parts of mesh axes".into())),
                }
            }
            return Ok(Mesh::find(module, mesh)?.groups(&all)?);
        }
        Some(Attr::Groups(ReplicaGroups::Listed(g))) => g.clone(),
        _ => Vec::new(),
    };
    if listed.iter().all(Vec::is_empty) {
        // Everybody. Where only one kind exists, that kind, whatever the channel says.
        let all = |n: usize| vec![(0..n as i64).collect()];
        if grid.replicas == 1 || grid.partitions == 1 {
            return Ok(vec![(0..grid.devices()).collect()]);
        }
        listed = match ids(op) {
            Ids::Replicas | Ids::ReplicasOfAll => all(grid.replicas),
            Ids::Partitions => all(grid.partitions),
            Ids::Devices => all(grid.devices()),
        };
    }
    Ok(devices_of(grid, ids(op), &listed))
}

/// From which device of `grid` to which the arrays of a `collective_permute` move.
pub(crate) fn pairs_of(op: &Op, grid: Grid) -> Vec<Vec<usize>> {
    let Some(Attr::Pairs(pairs)) = op.attrs.get("source_target_pairs") else { return Vec::new() };
    let lists: Vec<Vec<i64>> = pairs.iter().map(|p| p.to_vec()).collect();
    devices_of(grid, ids(op), &lists)
}

/// The operands of the devices of this one's group, and this one's place in it.
fn meet(frame: &Frame<'_>, site: &Site<'_>, operands: &[Value]) -> Result<(Vec<Vec<Tensor>>, usize), Fault> {
    let Some(id) = frame.device() else { return Err(Fault::Unsupported(" outside of a device".into())) };
    let all = groups(frame, site)?;
    let group =
        all.iter().find(|g| g.contains(&id)).ok_or_else(|| Fault::invalid(format!("device {id} is in no group")))?;
    let place = group.iter().position(|&g| g == id).unwrap_or(0);
    let own = operands.iter().filter_map(Value::tensor).cloned().collect();
    Ok((frame.exchange(site, group, own)?, place))
}

/// Parts joined along dimension `d`; `ty` is the type of the whole.
fn join(parts: &[Tensor], d: usize, ty: &TensorType) -> Result<Tensor, Fault> {
    let total: i64 = parts.iter().map(|p| p.dims()[d]).sum();
    if total != ty.dims[d] {
        return Err(Fault::invalid(format!(
            "the parts of the group have size {total} along dimension {d}, not {}",
            ty.dims[d]
        )));
    }
    let whole: Vec<usize> = ty.dims.iter().map(|&d| d as usize).collect();
    let (stride, w) = (strides(&whole), ty.dtype.bytes());
    let mut bytes = vec![0; whole.iter().product::<usize>() * w];
    let mut at = 0;
    for p in parts {
        let shape = p.shape();
        write(&mut bytes, p.bytes(), w, &shape, &stride, at);
        at += stride[d] * shape[d] as isize;
    }
    Ok(Tensor::make(ty.clone(), bytes))
}

/// Part `i` of `n` equal ones of `x` along dimension `d`.
fn part(x: &Tensor, d: usize, i: usize, n: usize) -> Result<Tensor, Fault> {
    let mut shape = x.shape();
    if n == 0 || !shape[d].is_multiple_of(n) {
        return Err(Fault::invalid(format!("{} cannot be cut into {n} along dimension {d}", x.ty())));
    }
    let stride = strides(&shape);
    shape[d] /= n;
    let base = stride[d] * (shape[d] * i) as isize;
    let bytes = read(x.bytes(), x.dtype().bytes(), &shape, &stride, base);
    let dims: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
    Ok(Tensor::make(TensorType::new(dims, x.dtype()), bytes))
}

/// Combines tensors element by element, in order, with the region of the op. Accumulators are as wide as those of `reduce`.
fn combine<'m>(frame: &mut Frame<'m>, site: &Site<'m>, parts: &[&Tensor]) -> Result<Tensor, Fault> {
    let (block, ty) = (site.block(0)?, parts[0].ty().clone());
    if let Some(op) = single_op(site, block)
        && let Some(Eval::Binary(f)) = lookup(op.opcode).map(|d| d.eval)
        && let Some(t) = folded(parts, f)
    {
        return Ok(t);
    }
    let mut f = ScalarFn::new(frame, site, block)?;
    let mut acc = decode(parts[0]);
    let mut result = Vec::new();
    for p in &parts[1..] {
        for (a, b) in acc.iter_mut().zip(decode(p)) {
            f.call(frame, &[*a, b], &mut result)?;
            *a = result.first().copied().unwrap_or(*a);
        }
    }
    Ok(encode(&ty, &acc))
}

/// The tensors combined by `f`, in order; `None` where it has no form for their type.
fn folded(parts: &[&Tensor], f: &BinaryFns) -> Option<Tensor> {
    let (ty, d) = (parts.first()?.ty().clone(), parts.first()?.dtype());
    let bytes = match (Class::of(d), f.f32, f.f64, f.int) {
        (Class::F32, Some(f), ..) if d != DType::F32 => encode_f32(d, &fold(parts, Tensor::to_f32, f)),
        (Class::F32 | Class::F64, _, Some(f), _) => encode_f64(d, &fold(parts, Tensor::to_f64, f)),
        (Class::Int, _, _, Some(f)) => encode_i64(d, &fold(parts, Tensor::to_i64, |a, b| f(d, a, b))),
        _ => return None,
    };
    Some(Tensor::make(ty, bytes))
}

fn fold<T: Copy>(parts: &[&Tensor], decode: impl Fn(&Tensor) -> Vec<T>, f: impl Fn(T, T) -> T) -> Vec<T> {
    let mut acc = decode(parts[0]);
    for p in &parts[1..] {
        acc.iter_mut().zip(decode(p)).for_each(|(a, b)| *a = f(*a, b));
    }
    acc
}

fn all_gather<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let (given, _) = meet(frame, site, &operands)?;
    let d = site.dim("all_gather_dim", site.result(0)?.rank())?;
    let joined = |i: usize| {
        let parts: Vec<Tensor> = given.iter().map(|g| g[i].clone()).collect();
        Ok(join(&parts, d, site.result(i)?)?.into())
    };
    (0..operands.len()).map(joined).collect()
}

fn all_reduce<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let (given, _) = meet(frame, site, &operands)?;
    let mut out = Vec::new();
    for i in 0..operands.len() {
        let parts: Vec<&Tensor> = given.iter().map(|g| &g[i]).collect();
        out.push(combine(frame, site, &parts)?.into());
    }
    Ok(out)
}

fn cross_replica_sum<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let (given, _) = meet(frame, site, &operands)?;
    let parts: Vec<&Tensor> = given.iter().map(|g| &g[0]).collect();
    let sum = folded(&parts, &super::binary::ADD).ok_or_else(|| Fault::invalid("cannot add the operands"))?;
    Ok(vec![sum.into()])
}

fn reduce_scatter<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let (given, place) = meet(frame, site, &operands)?;
    let d = site.dim("scatter_dimension", site.result(0)?.rank())?;
    let mine: Vec<Tensor> = given.iter().map(|g| part(&g[0], d, place, given.len())).collect::<Result<_, _>>()?;
    Ok(vec![combine(frame, site, &mine.iter().collect::<Vec<_>>())?.into()])
}

fn all_to_all<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let (given, place) = meet(frame, site, &operands)?;
    let rank = site.result(0)?.rank();
    let (split, concat) = (site.dim("split_dimension", rank)?, site.dim("concat_dimension", rank)?);
    let exchanged = |i: usize| {
        let parts = given.iter().map(|g| part(&g[i], split, place, given.len())).collect::<Result<Vec<_>, _>>()?;
        Ok(join(&parts, concat, site.result(i)?)?.into())
    };
    (0..operands.len()).map(exchanged).collect()
}

/// One result per operand of its type; with `has_dynamic_root` the last operand holds the roots.
fn rooted_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let n = site.op.results.len();
    let roots = usize::from(site.op.attrs.flag("has_dynamic_root"));
    ensure(n > 0 && site.op.operands.len() == n + roots, || "needs as many results as operands".into())?;
    for i in 0..n {
        let (x, r) = (site.operand(i)?, site.result(i)?);
        ensure(rules::compatible(x, r), || format!("cannot give {r} for {x}"))?;
        if let Some(region) = site.op.regions.first() {
            reducer_rule(site, &region.block, &[x.dtype])?;
        }
    }
    let fits = |t: &TensorType| t.dtype == DType::I32 && t.dims == [n as i64];
    ensure(roots == 0 || fits(site.operand(n)?), || format!("the roots should be tensor<{n}xi32>"))
}

/// What the devices of this one's group gave, its place in the group, and the place of the root of each result; `None` for a
/// device in no group.
type Rooted = Option<(Vec<Vec<Tensor>>, usize, Vec<usize>)>;

fn meet_rooted(frame: &Frame<'_>, site: &Site<'_>, operands: &[Value]) -> Result<Rooted, Fault> {
    if let Some(id) = frame.device()
        && !groups(frame, site)?.iter().flatten().any(|&g| g == id)
    {
        return Ok(None);
    }
    let (given, place) = meet(frame, site, operands)?;
    let n = site.op.results.len();
    let roots = match operands.get(n).and_then(Value::tensor) {
        Some(t) => t.to_i64(),
        None => vec![0; n],
    };
    let root = |&r: &i64| usize::try_from(r).ok().filter(|&r| r < given.len());
    let roots: Option<Vec<usize>> = roots.iter().map(root).collect();
    let roots = roots.ok_or_else(|| Fault::invalid("a root is not in the group"))?;
    Ok(Some((given, place, roots)))
}

/// Zeros for each result; of a quantized one, what stands for zero.
fn zero_results(site: &Site<'_>) -> Result<Vec<Tensor>, Fault> {
    (0..site.op.results.len()).map(|i| zeros(site.result(i)?)).collect()
}

/// Everybody gets what the root gave. A device in no group gets zeros.
fn broadcast<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let results = match meet_rooted(frame, site, &operands)? {
        None => zero_results(site)?,
        Some((given, _, roots)) => roots.iter().enumerate().map(|(i, &r)| given[r][i].clone()).collect(),
    };
    Ok(results.into_iter().map(Value::Tensor).collect())
}

/// The root gets what all gave, combined in the order of the group. The others get zeros.
fn collective_reduce<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let mut results = zero_results(site)?;
    if let Some((given, place, roots)) = meet_rooted(frame, site, &operands)? {
        for (i, _) in roots.iter().enumerate().filter(|(_, r)| **r == place) {
            let parts: Vec<&Tensor> = given.iter().map(|g| &g[i]).collect();
            results[i] = combine(frame, site, &parts)?;
        }
    }
    Ok(results.into_iter().map(Value::Tensor).collect())
}

/// A device that nobody sends to gets zeros.
fn permute<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let Some(id) = frame.device() else { return Err(Fault::Unsupported(" outside of a device".into())) };
    if !matches!(site.op.attrs.get("source_target_pairs"), Some(Attr::Pairs(_))) {
        return Err(Fault::invalid("needs `source_target_pairs`"));
    }
    let grid = frame.grid();
    let all: Vec<usize> = (0..grid.devices()).collect();
    let given = frame.exchange(site, &all, operands.iter().filter_map(Value::tensor).cloned().collect())?;
    let pairs = pairs_of(site.op, grid);
    let source = pairs.iter().find(|p| p.get(1) == Some(&id)).and_then(|p| given.get(p[0])?.first());
    let ty = site.result(0)?;
    Ok(vec![source.cloned().map_or_else(|| zeros(ty), Ok)?.into()])
}

fn zeros(ty: &TensorType) -> Result<Tensor, Fault> {
    let n = ty.elements().unwrap_or(0) as usize;
    if ty.quant.is_some() {
        return super::quant::store(ty, vec![0.0; n]);
    }
    Ok(Tensor::make(ty.clone(), vec![0; n * ty.dtype.bytes()]))
}

fn id(site: &Site<'_>, id: usize) -> Result<Vec<Value>, Fault> {
    Ok(vec![Tensor::make(site.result(0)?.clone(), (id as u32).to_le_bytes().to_vec()).into()])
}

fn partition_id<'m>(frame: &mut Frame<'m>, site: &Site<'m>, _: Vec<Value>) -> Result<Vec<Value>, Fault> {
    id(site, frame.device().unwrap_or(0) % frame.grid().partitions.max(1))
}

fn replica_id<'m>(frame: &mut Frame<'m>, site: &Site<'m>, _: Vec<Value>) -> Result<Vec<Value>, Fault> {
    id(site, frame.device().unwrap_or(0) / frame.grid().partitions.max(1))
}

fn manual_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let block = site.block(0)?;
    ensure(block.args.len() == site.op.operands.len(), || "the region should take one argument per operand".into())?;
    let returned = crate::eval::terminator(block).map_or(0, |op| op.operands.len());
    ensure(returned == site.op.results.len(), || "the region should return one value per result".into())
}

/// Every device runs the region on its parts of the operands; the parts of the results are put together.
fn manual<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    if frame.device().is_some() {
        return Err(Fault::Unsupported(" inside of another".into()));
    }
    let inputs = shardings(site.op.attrs.get("in_shardings"))?;
    let outputs = shardings(site.op.attrs.get("out_shardings"))?;
    if inputs.len() != operands.len() || outputs.len() != site.op.results.len() {
        return Err(Fault::invalid("needs one sharding per operand and result"));
    }
    let Some(first) = inputs.first().or(outputs.first()) else { return Ok(Vec::new()) };
    let mesh = Mesh::find(site.module, &first.mesh)?;
    let manual = match site.op.attrs.get("manual_axes") {
        Some(Attr::Opaque(t)) => names(t),
        _ => Vec::new(),
    };
    if mesh.axes.iter().any(|(name, size)| *size > 1 && !manual.contains(name)) {
        return Err(Fault::Unsupported(" over some of the mesh's axes".into()));
    }
    let results = frame.on_devices(mesh.devices(), site.block(0)?, |id| {
        operands.iter().zip(&inputs).map(|(v, s)| cut(v, s, &mesh, id)).collect()
    })?;
    (0..outputs.len()).map(|i| assemble(&results, i, &outputs[i], &mesh, site.result(i)?)).collect()
}

/// The part of a value on device `id`.
fn cut(v: &Value, s: &Sharding, mesh: &Mesh, id: usize) -> Result<Value, Fault> {
    let Value::Tensor(t) = v else { return Ok(v.clone()) };
    let mut t = t.clone();
    for (d, axes) in s.dims.iter().enumerate().take(t.dims().len()) {
        let (at, size) = mesh.position(id, axes)?;
        if size > 1 {
            t = part(&t, d, at, size)?;
        }
    }
    Ok(t.into())
}

/// The whole of result `i`, from the parts on all devices.
fn assemble(parts: &[Vec<Value>], i: usize, s: &Sharding, mesh: &Mesh, ty: &TensorType) -> Result<Value, Fault> {
    let whole: Vec<usize> = ty.dims.iter().map(|&d| d as usize).collect();
    let (stride, w) = (strides(&whole), ty.dtype.bytes());
    let mut bytes = vec![0; whole.iter().product::<usize>() * w];
    // Replicas hold the same; the first device's copy stays.
    for (id, values) in parts.iter().enumerate().rev() {
        let t = values.get(i).and_then(Value::tensor).ok_or_else(|| Fault::invalid("a device returned no tensor"))?;
        let (shape, mut base) = (t.shape(), 0);
        for d in 0..whole.len() {
            let (at, size) = mesh.position(id, s.dims.get(d).map_or(&[], Vec::as_slice))?;
            if shape.get(d).map(|n| n * size) != Some(whole[d]) {
                return Err(Fault::invalid(format!("{size} parts {} do not make {ty}", t.ty())));
            }
            base += stride[d] * (at * shape[d]) as isize;
        }
        write(&mut bytes, t.bytes(), w, &shape, &stride, base);
    }
    Ok(Tensor::make(ty.clone(), bytes).into())
}
