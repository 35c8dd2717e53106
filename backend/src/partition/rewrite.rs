//! From the global function to the per-device one, op by op.

use rustc_hash::FxHashMap;

use super::choose::{Around, Choice, finish};
use super::emit::Emit;
use super::mesh::{Axis, Mesh, Meshes, Sharding, bit};
use super::propagate::{Shardings, returned};
use super::reshard;
use super::rule::{Kind, Rule, reducer, rule};
use super::special;
use super::sums::Sums;
use super::{PartitionError, Place};
use crate::hlo::{
    Attr, Block, Func, Op, Opcode, ReduceKind, Region, ReplicaGroups, ResultInfo, TensorType, Type, ValueId,
};

/// The function that each device runs.
pub(super) struct Rewrite<'m> {
    pub from: &'m Func,
    pub e: Emit<'m>,
    mesh: &'m Mesh,
    meshes: &'m Meshes,
    shardings: &'m Shardings,
    place: Place<'m>,
    /// The new value of each old one.
    map: Vec<Option<ValueId>>,
    /// Values that were brought to another sharding, by block, so that it is done once.
    moved: Vec<FxHashMap<ValueId, Vec<(Sharding, ValueId)>>>,
    /// Axes that are cut by hand around here.
    manual: u32,
    /// The number that all elements of each old value are, where it is known.
    constants: Vec<Option<f64>>,
    /// Sums of products that are combined when they are complete.
    sums: Sums,
    /// Partial results that are not combined yet, by old value.
    pending: FxHashMap<ValueId, Pending>,
    shuffle: Option<u64>,
}

/// A partial result.
struct Pending {
    value: ValueId,
    sharding: Sharding,
    partial: Vec<Axis>,
}

/// Writes the per-device function.
pub(super) fn rewrite(
    from: &Func,
    meshes: &Meshes,
    shardings: &Shardings,
    place: Place<'_>,
    channel: i64,
    shuffle: Option<u64>,
) -> Result<Func, PartitionError> {
    let mesh = &meshes.mesh;
    let mut func = from.clone_signature();
    func.attrs = from.attrs.clone();
    let mut map = vec![None; from.values.len()];
    let returned: Vec<Type> = (from.body.ops.last().iter().flat_map(|r| &r.operands))
        .map(|&v| local_type(from.ty(v), shardings.of(v), mesh))
        .collect();
    for p in &from.params {
        let ty = local_type(from.ty(p.value), shardings.of(p.value), mesh);
        let value = func.new_value(ty);
        map[usize::from(p.value)] = Some(value);
        let mut attrs = p.attrs.clone();
        attrs.remove("sdy.sharding");
        attrs.remove("mhlo.sharding");
        // Parts of another shape cannot share memory.
        let alias = attrs.int("tf.aliasing_output").and_then(|i| returned.get(usize::try_from(i).ok()?));
        if alias.is_some_and(|r| r != func.ty(value)) {
            attrs.remove("tf.aliasing_output");
        }
        func.params.push(crate::hlo::Param { value, attrs, loc: p.loc });
    }
    let mut constants = vec![None; from.values.len()];
    special::known(&from.body, &mut constants);
    let e = Emit::new(mesh, func, channel);
    let mut r = Rewrite {
        from,
        e,
        mesh,
        meshes,
        shardings,
        place,
        map,
        moved: vec![FxHashMap::default()],
        manual: 0,
        constants,
        sums: Sums::of(from),
        pending: FxHashMap::default(),
        shuffle,
    };
    let results = r.block(&from.body)?;
    for (info, v) in from.results.iter().zip(&results) {
        let mut attrs = info.attrs.clone();
        attrs.remove("sdy.sharding");
        attrs.remove("mhlo.sharding");
        let ty = r.e.func.ty(*v).clone();
        r.e.func.results.push(ResultInfo { ty, attrs });
    }
    r.e.push(Opcode::Return, &results, Vec::new(), Vec::new(), Vec::new());
    Ok(r.e.finish())
}

fn local_type(ty: &Type, s: &Sharding, mesh: &Mesh) -> Type {
    match ty {
        Type::Tensor(t) => Type::Tensor(TensorType { dims: s.local(&t.dims, mesh), ..t.clone() }),
        other => other.clone(),
    }
}

impl Rewrite<'_> {
    fn error(&self, op: &Op, message: impl std::fmt::Display) -> PartitionError {
        PartitionError::Op { op: op.opcode.name(), place: self.place.of(op.loc), message: message.to_string() }
    }

    pub fn global(&self, v: ValueId) -> TensorType {
        self.from.ty(v).tensor().cloned().unwrap_or_else(|| TensorType::new([], tpusim_isa::num::DType::I1))
    }

    /// The number that all elements of `v` are, if it is known.
    pub fn constant(&self, v: ValueId) -> Option<f64> {
        self.constants[usize::from(v)]
    }

    /// The new value of `v`, if it is defined.
    pub fn value(&self, v: ValueId) -> Option<ValueId> {
        self.map[usize::from(v)]
    }

    fn get(&mut self, op: &Op, v: ValueId) -> Result<ValueId, PartitionError> {
        if let Some(p) = self.pending.remove(&v) {
            let want = self.shardings.of(v);
            let steps = reshard::combine(&p.sharding, &p.partial, want, self.mesh);
            let dims = self.global(v).dims;
            let done = self.e.steps(p.value, &p.sharding, &steps, &dims, ReduceKind::Sum);
            self.map[usize::from(v)] = Some(done);
        }
        self.map[usize::from(v)].ok_or_else(|| self.error(op, "uses a value that is not defined"))
    }

    /// Old value `v`, cut as `want`.
    fn cut(&mut self, op: &Op, v: ValueId, want: &Sharding) -> Result<ValueId, PartitionError> {
        let new = self.get(op, v)?;
        let have = self.shardings.of(v);
        if have == want {
            return Ok(new);
        }
        let known = self.moved.iter().filter_map(|block| block.get(&new)).flatten().find(|(s, _)| s == want);
        if let Some((_, moved)) = known {
            return Ok(*moved);
        }
        let steps = reshard::plan(have, want, self.mesh);
        let dims = self.global(v).dims;
        let moved = self.e.steps(new, have, &steps, &dims, ReduceKind::Sum);
        if let Some(block) = self.moved.last_mut() {
            block.entry(new).or_default().push((want.clone(), moved));
        }
        Ok(moved)
    }

    /// The ops of a block but for its return, whose operands it gives, cut as they are.
    fn block(&mut self, block: &Block) -> Result<Vec<ValueId>, PartitionError> {
        for op in &block.ops {
            self.e.loc = op.loc;
            match op.opcode {
                Opcode::Return => return op.operands.iter().map(|&v| self.get(op, v)).collect(),
                Opcode::While => self.while_loop(op)?,
                Opcode::Case | Opcode::If => self.branch(op)?,
                Opcode::SdyManualComputation => self.manual(op)?,
                _ => self.op(op)?,
            }
        }
        Ok(Vec::new())
    }

    /// A region whose arguments are cut as they are and whose results as `want`.
    fn region(&mut self, block: &Block, want: &[Option<Sharding>]) -> Result<Region, PartitionError> {
        let mut args = Vec::new();
        for &a in &block.args {
            let ty = local_type(self.from.ty(a), self.shardings.of(a), self.mesh);
            let new = self.e.func.new_value(ty);
            self.map[usize::from(a)] = Some(new);
            args.push(new);
        }
        self.e.blocks.push(Vec::new());
        self.moved.push(FxHashMap::default());
        let mut results = self.block(block)?;
        if let Some(ret) = block.ops.last() {
            for ((r, want), &v) in results.iter_mut().zip(want).zip(&ret.operands) {
                if let Some(want) = want {
                    *r = self.cut(ret, v, want)?;
                }
            }
        }
        self.e.push(Opcode::Return, &results, Vec::new(), Vec::new(), Vec::new());
        self.moved.pop();
        Ok(Region { block: Block { args, ops: self.e.blocks.pop().unwrap_or_default() } })
    }

    /// Defines the results of `op`, which have the shardings `have`, as the program wants them.
    fn define(&mut self, op: &Op, results: &[ValueId], have: &[Sharding]) {
        for ((&old, &new), have) in op.results.iter().zip(results).zip(have) {
            let want = self.shardings.of(old);
            let steps = reshard::plan(have, want, self.mesh);
            let dims = self.global(old).dims;
            let v = self.e.steps(new, have, &steps, &dims, ReduceKind::Sum);
            self.map[usize::from(old)] = Some(v);
        }
    }

    fn while_loop(&mut self, op: &Op) -> Result<(), PartitionError> {
        let [cond, body] = op.regions.as_slice() else { return Err(self.error(op, "needs two regions")) };
        let carried: Vec<Sharding> = body.block.args.iter().map(|&a| self.shardings.of(a).clone()).collect();
        let operands: Vec<ValueId> =
            op.operands.iter().zip(&carried).map(|(&v, s)| self.cut(op, v, s)).collect::<Result<_, _>>()?;
        // The condition sees what the body sees.
        let cond = self.condition(&cond.block, &carried)?;
        let want: Vec<Option<Sharding>> = carried.iter().cloned().map(Some).collect();
        let body = self.region(&body.block, &want)?;
        self.e.loc = op.loc;
        let types = operands.iter().map(|&v| self.e.func.ty(v).clone()).collect();
        let attrs = op.attrs.iter().map(|(n, a)| (n, a.clone())).collect();
        let results = self.e.push(op.opcode, &operands, attrs, vec![cond, body], types);
        self.define(op, &results, &carried);
        Ok(())
    }

    fn condition(&mut self, block: &Block, carried: &[Sharding]) -> Result<Region, PartitionError> {
        let mut args = Vec::new();
        let mut adapt = Vec::new();
        for (&a, s) in block.args.iter().zip(carried) {
            let new = self.e.func.new_value(local_type(self.from.ty(a), s, self.mesh));
            args.push(new);
            adapt.push((a, new, s.clone()));
        }
        self.e.blocks.push(Vec::new());
        self.moved.push(FxHashMap::default());
        for (a, new, have) in adapt {
            let steps = reshard::plan(&have, self.shardings.of(a), self.mesh);
            let dims = self.global(a).dims;
            let v = self.e.steps(new, &have, &steps, &dims, ReduceKind::Sum);
            self.map[usize::from(a)] = Some(v);
        }
        let results = self.block(block)?;
        self.e.push(Opcode::Return, &results, Vec::new(), Vec::new(), Vec::new());
        self.moved.pop();
        Ok(Region { block: Block { args, ops: self.e.blocks.pop().unwrap_or_default() } })
    }

    fn branch(&mut self, op: &Op) -> Result<(), PartitionError> {
        let want: Vec<Sharding> = op.results.iter().map(|&v| self.shardings.of(v).clone()).collect();
        let wanted: Vec<Option<Sharding>> = want.iter().cloned().map(Some).collect();
        let operands: Vec<ValueId> = op.operands.iter().map(|&v| self.get(op, v)).collect::<Result<_, _>>()?;
        let regions: Vec<Region> =
            op.regions.iter().map(|r| self.region(&r.block, &wanted)).collect::<Result<_, _>>()?;
        self.e.loc = op.loc;
        let types = op.results.iter().zip(&want).map(|(&v, s)| local_type(self.from.ty(v), s, self.mesh)).collect();
        let attrs = op.attrs.iter().map(|(n, a)| (n, a.clone())).collect();
        let results = self.e.push(op.opcode, &operands, attrs, regions, types);
        self.define(op, &results, &want);
        Ok(())
    }

    /// The body of a manual computation is local code along the manual axes already.
    fn manual(&mut self, op: &Op) -> Result<(), PartitionError> {
        let manual = super::manual_axes(self.meshes, op).map_err(|m| self.error(op, m))?;
        let Some(Attr::Opaque(text)) = op.attrs.get("in_shardings") else {
            return Err(self.error(op, "needs in_shardings"));
        };
        let inputs = self.meshes.per_value(text).map_err(|m| self.error(op, m))?;
        let Some(body) = op.regions.first() else { return Err(self.error(op, "needs a region")) };
        for ((&v, &arg), dims) in op.operands.iter().zip(&body.block.args).zip(&inputs) {
            let inside = self.shardings.of(arg);
            // What is manual, then what the body cuts further.
            let mut want = Sharding::replicated(dims.len());
            for (d, spec) in dims.iter().enumerate() {
                want.dims[d] = spec.axes.iter().copied().filter(|&a| manual & bit(a) != 0).collect();
                want.dims[d].extend(inside.dims.get(d).into_iter().flatten());
            }
            let new = self.cut(op, v, &want)?;
            let (have, expected) = (self.e.ty(new), local_type(self.from.ty(arg), inside, self.mesh));
            if Type::Tensor(have.clone()) != expected {
                return Err(self.error(op, format!("the part of an operand is {have}, the region takes {expected}")));
            }
            self.map[usize::from(arg)] = Some(new);
        }
        let outer = self.manual;
        self.manual |= manual;
        self.block(&body.block)?;
        self.manual = outer;
        for (i, &r) in op.results.iter().enumerate() {
            let Some(v) = returned(&body.block, i) else { return Err(self.error(op, "returns too little")) };
            let mut want = self.shardings.of(r).clone();
            want.dims.iter_mut().for_each(|d| d.retain(|&a| manual & bit(a) == 0));
            let new = self.cut(op, v, &want)?;
            let (have, expected) = (self.e.ty(new), local_type(self.from.ty(r), self.shardings.of(r), self.mesh));
            if Type::Tensor(have.clone()) != expected {
                return Err(
                    self.error(op, format!("the part of result {i} is {have}, out_shardings ask for {expected}"))
                );
            }
            self.map[usize::from(r)] = Some(new);
        }
        Ok(())
    }

    /// How `op` is cut.
    fn choose(&self, op: &Op, rule: &Rule) -> Choice {
        let types: Vec<TensorType> = op.operands.iter().chain(&op.results).map(|&v| self.global(v)).collect();
        let shardings = op.operands.iter().chain(&op.results).map(|&v| self.shardings.of(v)).collect();
        let flops = match op.opcode {
            Opcode::DotGeneral | Opcode::Dot => {
                rule.factors.iter().fold(2u64, |n, f| n.saturating_mul(f.size.unsigned_abs()))
            }
            Opcode::Convolution => {
                let n = |i: usize| types.get(i).and_then(TensorType::elements).unwrap_or(1);
                n(1).saturating_mul(n(2)).saturating_mul(2)
                    / types.get(2).and_then(|t| t.dims.last()).map_or(1, |&d| d.max(1) as u64)
            }
            _ => 0,
        };
        let windows = match (op.attrs.get("dimension_numbers"), op.attrs.get("scatter_dimension_numbers")) {
            (Some(Attr::Gather(d)), _) => Some((1, d.index_vector_dim)),
            // Inputs and updates are as many as results.
            (_, Some(Attr::Scatter(d))) => Some((op.results.len(), d.index_vector_dim)),
            _ => None,
        };
        let each = |(at, dim): (usize, i64)| {
            let dims = types.get(at).map_or(&[][..], |t| &t.dims);
            (at, dims.get(dim as usize).map_or(1, |d| d.unsigned_abs()))
        };
        let windows = windows.map(each);
        // Another one for each op.
        let of = op.results.first().map_or(0, |v| u64::from(v.0));
        let shuffle = self.shuffle.map(|s| s.wrapping_add(of.wrapping_mul(0x2545_f491_4f6c_dd1d)));
        let terms = op.results.first().map_or(1, |&v| self.sums.terms(v));
        let a = Around {
            rule,
            mesh: self.mesh,
            types: &types,
            shardings,
            operands: op.operands.len(),
            flops,
            windows,
            terms,
            shuffle,
        };
        a.choose()
    }

    fn op(&mut self, op: &Op) -> Result<(), PartitionError> {
        if self.manual == 0 && is_communication(op.opcode) && self.mesh.devices() > 1 {
            let message = "is about devices, but outside of a manual computation the program is about whole arrays; \
                           use it inside of sdy.manual_computation (jax.shard_map)";
            return Err(self.error(op, message));
        }
        if op.opcode == Opcode::OptimizationBarrier {
            return self.barrier(op);
        }
        if op.opcode == Opcode::Add && self.add_partial(op) {
            return Ok(());
        }
        let rule = rule(self.from, op);
        let choice = self.choose(op, &rule);
        #[cfg(debug_assertions)]
        debug_assert!(choice.operands.iter().chain(&choice.results).all(super::choose::valid), "{choice:?}");
        if super::is_constraint(op) {
            // One step from what is to what is asked.
            let want = self.shardings.of(op.results[0]).clone();
            let v = self.cut(op, op.operands[0], &want)?;
            self.map[usize::from(op.results[0])] = Some(v);
            return Ok(());
        }
        let operands: Vec<ValueId> =
            op.operands.iter().zip(&choice.operands).map(|(&v, s)| self.cut(op, v, s)).collect::<Result<_, _>>()?;
        let results = special::emit(self, op, &rule, &choice, operands)?;
        if let ([old], [new], false) = (op.results.as_slice(), results.as_slice(), choice.partial.is_empty())
            && self.sums.continues(*old)
        {
            let (sharding, partial) = (choice.results[0].clone(), choice.partial);
            self.pending.insert(*old, Pending { value: *new, sharding, partial });
            return Ok(());
        }
        let kind = self.partial_kind(op, &rule, &choice);
        for (i, (&old, &new)) in op.results.iter().zip(&results).enumerate() {
            let want = self.shardings.of(old).clone();
            let steps = finish(&choice, i, &want, self.mesh);
            let dims = self.global(old).dims;
            let v = self.e.steps(new, &choice.results[i], &steps, &dims, kind);
            let v = special::complete(self, op, &choice, v, &want);
            self.map[usize::from(old)] = Some(v);
        }
        Ok(())
    }

    fn barrier(&mut self, op: &Op) -> Result<(), PartitionError> {
        let mut operands = Vec::new();
        for (&v, &r) in op.operands.iter().zip(&op.results) {
            let want = self.shardings.of(r).clone();
            operands.push(self.cut(op, v, &want)?);
        }
        let types = operands.iter().map(|&v| self.e.func.ty(v).clone()).collect();
        let results = self.e.push(op.opcode, &operands, Vec::new(), Vec::new(), types);
        for (&old, new) in op.results.iter().zip(results) {
            self.map[usize::from(old)] = Some(new);
        }
        Ok(())
    }

    /// Adds two partial results, if the operands are such.
    fn add_partial(&mut self, op: &Op) -> bool {
        let ([a, b], [r]) = (op.operands.as_slice(), op.results.as_slice()) else { return false };
        let (Some(x), Some(y)) = (self.pending.get(a), self.pending.get(b)) else { return false };
        if a == b || x.sharding != y.sharding || x.partial != y.partial {
            return false;
        }
        let (x, y, sharding, partial) = (x.value, y.value, x.sharding.clone(), x.partial.clone());
        self.pending.remove(a);
        self.pending.remove(b);
        let value = self.e.binary(Opcode::Add, x, y);
        self.pending.insert(*r, Pending { value, sharding, partial });
        if !self.sums.continues(*r) {
            // The sum is complete.
            let _ = self.get(op, *r);
        }
        true
    }

    /// How partial results of `op` combine.
    fn partial_kind(&self, op: &Op, rule: &Rule, choice: &Choice) -> ReduceKind {
        let cut =
            rule.factors.iter().zip(&choice.factors).find(|(f, a)| !a.is_empty() && matches!(f.kind, Kind::Reduce(_)));
        match (cut, reducer(self.from, op)) {
            (Some((f, _)), _) => match f.kind {
                Kind::Reduce(k) => k,
                _ => ReduceKind::Sum,
            },
            // Devices that do not serve an index give zero.
            _ if op.results.first().is_some_and(|&v| self.global(v).dtype == tpusim_isa::num::DType::I1) => {
                ReduceKind::Or
            }
            _ => ReduceKind::Sum,
        }
    }

    /// A copy of `op` with these operands, whose results are cut as chosen.
    pub fn copy(
        &mut self,
        op: &Op,
        choice: &Choice,
        operands: &[ValueId],
        attrs: Vec<(&str, Attr)>,
    ) -> Result<Vec<ValueId>, PartitionError> {
        let regions: Vec<Region> =
            op.regions.iter().map(|r| self.copy_region(op, &r.block)).collect::<Result<_, _>>()?;
        let types = op.results.iter().zip(&choice.results);
        let types = types.map(|(&v, s)| local_type(self.from.ty(v), s, self.mesh)).collect();
        let mut all: Vec<(&str, Attr)> = op.attrs.iter().map(|(n, a)| (n, self.attr(a))).collect();
        for (n, a) in attrs {
            all.retain(|(m, _)| *m != n);
            all.push((n, a));
        }
        all.retain(|(n, _)| *n != "sdy.sharding" && *n != "mhlo.sharding");
        if let (Some(Attr::Groups(ReplicaGroups::MeshAxes(_, axes))), None) =
            (op.attrs.get("replica_groups"), op.attrs.get("mesh_axes"))
        {
            let names = axes.iter().filter_map(|a| match a {
                Attr::Opaque(t) => crate::eval::mesh::names(t).into_iter().next(),
                _ => None,
            });
            all.push(("mesh_axes", Attr::Str(names.collect::<Vec<_>>().join(","))));
        }
        self.e.loc = op.loc;
        Ok(self.e.push(op.opcode, operands, all, regions, types))
    }

    /// An attribute; groups over another name of the mesh name the mesh.
    fn attr(&self, a: &Attr) -> Attr {
        let Attr::Groups(ReplicaGroups::MeshAxes(m, axes)) = a else { return a.clone() };
        let named = matches!(m.as_ref(), Attr::Symbol(n) if self.meshes.is_mesh(n));
        let axis = |a: &Attr| match a {
            Attr::Opaque(t) if !t.contains("sub_axis") => {
                crate::eval::mesh::names(t).first().map(|n| self.mesh.parts(n)).filter(|p| !p.is_empty())
            }
            _ => None,
        };
        match axes.iter().map(axis).collect::<Option<Vec<_>>>().map(|a| a.concat()) {
            Some(axes) if named => self.e.groups(&axes),
            _ => a.clone(),
        }
    }

    /// A region on scalars, as it is.
    fn copy_region(&mut self, op: &Op, block: &Block) -> Result<Region, PartitionError> {
        let mut args = Vec::new();
        for &a in &block.args {
            let new = self.e.func.new_value(self.from.ty(a).clone());
            self.map[usize::from(a)] = Some(new);
            args.push(new);
        }
        let mut ops = Vec::new();
        for inner in &block.ops {
            let operands = inner.operands.iter().map(|&v| self.get(op, v)).collect::<Result<_, _>>()?;
            let regions = inner.regions.iter().map(|r| self.copy_region(op, &r.block)).collect::<Result<_, _>>()?;
            let mut results = Vec::new();
            for &r in &inner.results {
                let new = self.e.func.new_value(self.from.ty(r).clone());
                self.map[usize::from(r)] = Some(new);
                results.push(new);
            }
            ops.push(Op { operands, regions, results, ..inner.clone() });
        }
        Ok(Region { block: Block { args, ops } })
    }
}

/// Ops that see other devices.
fn is_communication(opcode: Opcode) -> bool {
    use Opcode::*;
    matches!(
        opcode,
        AllGather
            | AllReduce
            | AllToAll
            | CollectiveBroadcast
            | CollectivePermute
            | CollectiveReduce
            | CrossReplicaSum
            | PartitionId
            | ReduceScatter
            | ReplicaId
            | Send
            | Recv
    )
}
