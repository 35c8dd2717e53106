//! How every value is cut: what the program says, carried along its ops until nothing changes.
//!
//! Values only gain axes, at the minor end of a dimension, so this ends. It runs once for each user priority, and in each in
//! three phases: first along ops that move or map elements, then along all, then through contracted dimensions too. So a batch
//! cut over an axis reaches the activations before a weight cut over the same axis can.

use super::mesh::{Axis, DimSpec, Mesh, Meshes, Sharding, bit};
use super::parts::{Cuts, gcd};
use super::rule::{Dims, Kind, Rule, rule, same};
use super::{PartitionError, Place};
use crate::hlo::{Attr, Block, Func, Op, Opcode, TensorType, ValueId};

/// How one value is cut, and may yet be.
#[derive(Clone, Debug, Default)]
pub(super) struct Spec {
    pub sharding: Sharding,
    open: Vec<bool>,
    used: u32,
    banned: u32,
}

/// Values whose dimensions belong together.
struct Link {
    values: Vec<ValueId>,
    rule: Rule,
    dirty: bool,
}

/// The shardings of all values of `func`, by value.
pub(super) struct Shardings {
    specs: Vec<Spec>,
}

impl Shardings {
    /// How `v` is cut.
    pub fn of(&self, v: ValueId) -> &Sharding {
        &self.specs[usize::from(v)].sharding
    }
}

struct Propagation<'m> {
    meshes: &'m Meshes,
    func: &'m Func,
    specs: Vec<Spec>,
    links: Vec<Link>,
    users: Vec<Vec<u32>>,
    /// Explicit shardings of later priorities.
    later: Vec<(u32, ValueId, usize, DimSpec)>,
    notes: Vec<String>,
    /// Where axes would have to be cut so that a part of them divides a dimension, of values of at least `least` bytes.
    cuts: Cuts,
    least: u64,
}

/// Shardings of all values, notes about what was asked but could not be done, and where axes would have to be cut to do more.
pub(super) fn propagate(
    meshes: &Meshes,
    func: &Func,
    place: &Place<'_>,
    least: u64,
) -> Result<(Shardings, Vec<String>, Cuts), PartitionError> {
    let fresh = |v: &crate::hlo::Value| {
        let rank = v.ty.tensor().map_or(0, TensorType::rank);
        Spec { sharding: Sharding::replicated(rank), open: vec![true; rank], used: 0, banned: 0 }
    };
    let specs: Vec<Spec> = func.values.iter().map(|(_, v)| fresh(v)).collect();
    let users = vec![Vec::new(); specs.len()];
    let mut p = Propagation {
        meshes,
        func,
        specs,
        links: Vec::new(),
        users,
        later: Vec::new(),
        notes: Vec::new(),
        cuts: Cuts::new(),
        least,
    };
    for (i, param) in func.params.iter().enumerate() {
        if let Some(dims) =
            super::asked(meshes, &param.attrs, rank(func, param.value)).map_err(PartitionError::program)?
        {
            p.fix(param.value, &dims, true, &|| format!("parameter {i}{}", place.name(param.loc)))?;
        }
    }
    p.collect(&func.body, 0, place)?;
    for (l, link) in p.links.iter().enumerate() {
        for v in &link.values {
            let users = &mut p.users[usize::from(*v)];
            if users.last() != Some(&(l as u32)) {
                users.push(l as u32);
            }
        }
    }
    p.later.sort_by_key(|l| l.0);
    let mut round = 0;
    loop {
        let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut p.later).into_iter().partition(|l| l.0 <= round);
        p.later = later;
        for (_, v, d, spec) in now {
            let s = &mut p.specs[usize::from(v)];
            let free: Vec<Axis> = spec.axes.into_iter().take_while(|&a| (s.used | s.banned) & bit(a) == 0).collect();
            s.used |= free.iter().fold(0, |m, &a| m | bit(a));
            s.sharding.dims[d] = free;
            s.open[d] = spec.open;
        }
        (0..3).for_each(|phase| p.run(phase));
        match p.later.first() {
            Some(l) => round = l.0,
            None => break,
        }
    }
    Ok((Shardings { specs: p.specs }, p.notes, p.cuts))
}

impl Propagation<'_> {
    /// Takes the sharding of `v` from the program.
    fn fix(
        &mut self,
        v: ValueId,
        dims: &[DimSpec],
        strict: bool,
        what: &dyn Fn() -> String,
    ) -> Result<(), PartitionError> {
        let Some(ty) = self.func.ty(v).tensor() else { return Ok(()) };
        if dims.len() != ty.rank() {
            let message = format!("{} is {ty}, but its sharding has {} dimensions", what(), dims.len());
            return Err(PartitionError::program(message));
        }
        let mesh = &self.meshes.mesh;
        for (d, spec) in dims.iter().enumerate() {
            let mut spec = spec.clone();
            let n = mesh.count(&spec.axes) as i64;
            if ty.dims[d] % n.max(1) != 0 {
                let (names, size) = (mesh.names(&spec.axes), ty.dims[d]);
                let message = format!(
                    "{} is {ty}: its dimension {d} of size {size} is cut over {names}, {n} devices, which do not \
                                       divide it; pad the dimension to {} or cut another",
                    what(),
                    size.div_euclid(n) * n + n
                );
                if strict {
                    return Err(PartitionError::program(message));
                }
                self.notes.push(message);
                while ty.dims[d] % mesh.count(&spec.axes).max(1) as i64 != 0 {
                    spec.axes.pop();
                }
            }
            let s = &mut self.specs[usize::from(v)];
            spec.axes.retain(|&a| s.banned & bit(a) == 0);
            s.open[d] = false;
            if spec.priority > 0 {
                self.later.push((spec.priority, v, d, spec));
            } else {
                s.used |= spec.axes.iter().fold(0, |m, &a| m | bit(a));
                s.open[d] = spec.open;
                s.sharding.dims[d] = spec.axes;
            }
        }
        Ok(())
    }

    fn link(&mut self, values: Vec<ValueId>, rule: Rule) {
        if !rule.factors.is_empty() {
            self.links.push(Link { values, rule, dirty: true });
        }
    }

    fn tie(&mut self, values: Vec<ValueId>) {
        let Some(ty) = values.first().and_then(|&v| self.func.ty(v).tensor()) else { return };
        let rule = same(ty, values.len());
        self.link(values, rule);
    }

    fn collect(&mut self, block: &Block, banned: u32, place: &Place<'_>) -> Result<(), PartitionError> {
        for op in &block.ops {
            for &v in &op.results {
                self.specs[usize::from(v)].banned |= banned;
            }
            let at = || format!("{} at {}", op.opcode, place.of(op.loc));
            match op.opcode {
                Opcode::Return => {}
                Opcode::While => self.carried(op, banned, place)?,
                Opcode::Case | Opcode::If => {
                    for (i, &r) in op.results.iter().enumerate() {
                        let mut values = vec![r];
                        values.extend(op.regions.iter().filter_map(|r| returned(&r.block, i)));
                        self.tie(values);
                    }
                    for r in &op.regions {
                        self.collect(&r.block, banned, place)?;
                    }
                }
                // Each value by itself.
                Opcode::OptimizationBarrier => {
                    op.operands.iter().zip(&op.results).for_each(|(&a, &b)| self.tie(vec![a, b]));
                }
                Opcode::SdyManualComputation => self.manual(op, banned, place)?,
                _ => {
                    if let Some(dims) =
                        super::constraint(self.meshes, op, op.results.first().map_or(0, |&v| rank(self.func, v)))
                            .map_err(PartitionError::program)?
                        && let Some(&v) = op.results.first()
                    {
                        self.fix(v, &dims, false, &at)?;
                    }
                    let values: Vec<ValueId> = op.operands.iter().chain(&op.results).copied().collect();
                    self.link(values, rule(self.func, op));
                }
            }
            if let Some(Attr::Opaque(text)) = op.attrs.get("sdy.sharding") {
                let all = self.meshes.per_value(text).map_err(PartitionError::program)?;
                for (&v, dims) in op.results.iter().zip(&all) {
                    self.fix(v, dims, false, &at)?;
                }
            }
        }
        Ok(())
    }

    fn carried(&mut self, op: &Op, banned: u32, place: &Place<'_>) -> Result<(), PartitionError> {
        for r in &op.regions {
            for &a in &r.block.args {
                self.specs[usize::from(a)].banned |= banned;
            }
        }
        for (i, (&init, &result)) in op.operands.iter().zip(&op.results).enumerate() {
            let mut values = vec![init, result];
            values.extend(op.regions.iter().filter_map(|r| r.block.args.get(i)));
            values.extend(op.regions.get(1).and_then(|r| returned(&r.block, i)));
            self.tie(values);
        }
        op.regions.iter().try_for_each(|r| self.collect(&r.block, banned, place))
    }

    fn manual(&mut self, op: &Op, banned: u32, place: &Place<'_>) -> Result<(), PartitionError> {
        let at = || format!("{} at {}", op.opcode, place.of(op.loc));
        let text = |n: &str| match op.attrs.get(n) {
            Some(Attr::Opaque(t)) => t.as_str(),
            _ => "",
        };
        let manual = super::manual_axes(self.meshes, op).map_err(PartitionError::program)?;
        let Some(body) = op.regions.first() else { return Ok(()) };
        let inputs = self.meshes.per_value(text("in_shardings")).map_err(PartitionError::program)?;
        let outputs = self.meshes.per_value(text("out_shardings")).map_err(PartitionError::program)?;
        if inputs.len() != op.operands.len() || outputs.len() != op.results.len() {
            return Err(PartitionError::program(format!("{} needs one sharding per operand and result", at())));
        }
        for (&v, dims) in op.results.iter().zip(&outputs) {
            self.fix(v, dims, true, &at)?;
        }
        for (&v, dims) in body.block.args.iter().zip(&inputs) {
            self.specs[usize::from(v)].banned |= banned | manual;
            let closed = |d: &DimSpec| DimSpec { open: false, priority: 0, ..d.clone() };
            self.fix(v, &dims.iter().map(closed).map(|d| without(d, manual)).collect::<Vec<_>>(), true, &at)?;
        }
        self.collect(&body.block, banned | manual, place)
    }

    /// Sweeps forwards and backwards over what changed until nothing does.
    fn run(&mut self, phase: u32) {
        self.links.iter_mut().for_each(|l| l.dirty = phase > 0 || l.rule.plain);
        let n = self.links.len();
        loop {
            let mut worked = false;
            for i in (0..n).chain((0..n).rev()) {
                if std::mem::take(&mut self.links[i].dirty) {
                    worked = true;
                    self.step(i, phase);
                }
            }
            if !worked {
                return;
            }
        }
    }

    /// Carries axes between the values of one link.
    fn step(&mut self, i: usize, phase: u32) {
        let link = &self.links[i];
        let (mesh, rule) = (&self.meshes.mesh, &link.rule);
        // Per factor: the axes that most speaks for, and the bytes of the value that has them.
        let mut wanted: Vec<(Vec<Axis>, u64)> = vec![(Vec::new(), 0); rule.factors.len()];
        let mut proposals = 0;
        for (v, dims) in link.values.iter().zip(&rule.tensors) {
            let bytes = self.func.ty(*v).tensor().and_then(TensorType::bytes).unwrap_or(0);
            let spec = &self.specs[usize::from(*v)];
            for (axes, factors) in spec.sharding.dims.iter().zip(dims).filter(|(a, _)| !a.is_empty()) {
                if bytes >= self.least
                    && let Some((a, size)) = stuck(axes, factors, rule, mesh)
                    && let Some((name, at)) = mesh.cut(a, size)
                {
                    self.cuts.entry(name).or_default().insert(at);
                }
                for (f, axes) in factors.iter().zip(split(axes, factors, rule, mesh)) {
                    if axes.is_empty() || (phase < 2 && matches!(rule.factors[*f].kind, Kind::Reduce(_) | Kind::Fold)) {
                        continue;
                    }
                    proposals += 1;
                    let best = &mut wanted[*f];
                    let better = if axes.starts_with(&best.0) {
                        true
                    } else if best.0.starts_with(&axes) {
                        best.1 = best.1.max(bytes);
                        false
                    } else {
                        (mesh.count(&axes), bytes) > (mesh.count(&best.0), best.1)
                    };
                    if better {
                        *best = (axes, bytes.max(if best.0.is_empty() { 0 } else { best.1 }));
                    }
                }
            }
        }
        if proposals == 0 {
            return;
        }
        let mut order: Vec<usize> = (0..wanted.len()).filter(|&f| !wanted[f].0.is_empty()).collect();
        // Where one axis is wanted twice: for what cuts most, then for the leading dimension, which is mostly the batch.
        order.sort_by_key(|&f| (std::cmp::Reverse(mesh.count(&wanted[f].0)), f));
        let mut changed = Vec::new();
        for &f in &order {
            for (v, dims) in link.values.iter().zip(&rule.tensors) {
                let Some(ty) = self.func.ty(*v).tensor().filter(|t| t.bytes().is_some_and(|b| b >= self.least)) else {
                    continue;
                };
                let spec = &self.specs[usize::from(*v)];
                if let Some((a, size)) = uneven(spec, ty, dims, f, &wanted[f].0, mesh)
                    && let Some((name, at)) = mesh.cut(a, size)
                {
                    self.cuts.entry(name).or_default().insert(at);
                }
            }
        }
        for f in order {
            for (v, dims) in link.values.iter().zip(&rule.tensors) {
                if extend(
                    &mut self.specs[usize::from(*v)],
                    self.func.ty(*v).tensor(),
                    dims,
                    f,
                    &wanted[f].0,
                    rule,
                    mesh,
                ) {
                    changed.push(*v);
                }
            }
        }
        for v in changed {
            for &u in &self.users[usize::from(v)] {
                let l = &mut self.links[u as usize];
                l.dirty |= phase > 0 || l.rule.plain;
            }
        }
    }
}

fn rank(func: &Func, v: ValueId) -> usize {
    func.ty(v).tensor().map_or(0, TensorType::rank)
}

fn without(mut d: DimSpec, axes: u32) -> DimSpec {
    d.axes.retain(|&a| axes & bit(a) == 0);
    d
}

/// What `block` returns as result `i`.
pub(super) fn returned(block: &Block, i: usize) -> Option<ValueId> {
    block.ops.last().and_then(|op| op.operands.get(i)).copied()
}

/// The axes of each of the factors of a dimension that is cut by `axes`, as far as they fit.
pub(super) fn split(axes: &[Axis], factors: &[usize], rule: &Rule, mesh: &Mesh) -> Vec<Vec<Axis>> {
    let mut out = vec![Vec::new(); factors.len()];
    let mut k = 0;
    let mut left = factors.first().map_or(1, |&f| rule.factors[f].size);
    for &a in axes {
        while left == 1 && k + 1 < factors.len() {
            k += 1;
            left = rule.factors[factors[k]].size;
        }
        let n = mesh.size(a) as i64;
        if k >= factors.len() || n == 0 || left % n != 0 {
            break;
        }
        left /= n;
        out[k].push(a);
    }
    out
}

/// How much of an axis of `n` devices to use where only a part divides `left`: most of it, or nothing.
fn most(n: u64, left: i64) -> Option<u64> {
    let size = gcd(n, u64::try_from(left).ok()?);
    (size > 1 && size < n && size * 4 >= n).then_some(size)
}

/// The first axis that does not fit into its factor, and how much of it would.
fn stuck(axes: &[Axis], factors: &[usize], rule: &Rule, mesh: &Mesh) -> Option<(Axis, u64)> {
    let done = split(axes, factors, rule, mesh);
    let a = *axes.get(done.iter().map(Vec::len).sum::<usize>())?;
    let left = |k: usize| rule.factors[factors[k]].size / (mesh.count(&done[k]) as i64).max(1);
    let k = (0..factors.len()).find(|&k| left(k) > 1)?;
    most(mesh.size(a), left(k)).map(|n| (a, n))
}

/// The axis of factor `f` that does not divide a dimension of a value that could be cut by it, and how much of it does.
fn uneven(spec: &Spec, ty: &TensorType, dims: &Dims, f: usize, wanted: &[Axis], mesh: &Mesh) -> Option<(Axis, u64)> {
    let d = dims.iter().position(|factors| factors.first() == Some(&f)).filter(|&d| spec.open[d])?;
    let have = &spec.sharding.dims[d];
    let a = *wanted.strip_prefix(have.as_slice())?.first()?;
    if (spec.used | spec.banned) & bit(a) != 0 {
        return None;
    }
    most(mesh.size(a), ty.dims[d] / (mesh.count(have) as i64).max(1)).map(|n| (a, n))
}

/// Adds axes of factor `f` to a value; whether it gained any.
fn extend(
    spec: &mut Spec,
    ty: Option<&TensorType>,
    dims: &Dims,
    f: usize,
    wanted: &[Axis],
    rule: &Rule,
    mesh: &Mesh,
) -> bool {
    let Some(ty) = ty else { return false };
    let mut gained = false;
    for (d, factors) in dims.iter().enumerate() {
        let Some(k) = factors.iter().position(|&x| x == f) else { continue };
        if !spec.open[d] {
            continue;
        }
        let have = split(&spec.sharding.dims[d], factors, rule, mesh);
        let complete = have.iter().map(Vec::len).sum::<usize>() == spec.sharding.dims[d].len();
        let full = |i: usize| mesh.count(&have[i]) as i64 == rule.factors[factors[i]].size;
        let last = have[k + 1..].iter().all(Vec::is_empty) && (0..k).all(full);
        if !complete || !last || !wanted.starts_with(&have[k]) {
            continue;
        }
        for &a in &wanted[have[k].len()..] {
            let n = mesh.count(&spec.sharding.dims[d]).saturating_mul(mesh.size(a)) as i64;
            if (spec.used | spec.banned) & bit(a) != 0 || n <= 0 || ty.dims[d] % n != 0 {
                break;
            }
            spec.used |= bit(a);
            spec.sharding.dims[d].push(a);
            gained = true;
        }
    }
    gained
}
