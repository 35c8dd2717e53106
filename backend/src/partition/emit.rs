//! Appending ops to the per-device function.

use tpusim_isa::num::DType;
use tpusim_isa::num::convert::from_f64;

use super::mesh::{Axis, Mesh, Sharding};
use super::reshard::{Step, apply};
use crate::hlo::{
    Attr, Block, Func, Literal, LocId, Op, Opcode, ReduceKind, Region, ReplicaGroups, TensorType, Type, ValueId,
};

/// The function being written.
pub(super) struct Emit<'m> {
    pub mesh: &'m Mesh,
    pub func: Func,
    /// Ops of the blocks being written, innermost last.
    pub blocks: Vec<Vec<Op>>,
    /// What comes before everything else: the device's place in the mesh.
    prologue: Vec<Op>,
    position: Option<ValueId>,
    places: Vec<(Vec<Axis>, ValueId)>,
    channel: i64,
    pub loc: LocId,
}

pub(super) fn i64_attr(v: i64) -> Attr {
    Attr::Int(v, Type::Scalar(DType::I64))
}

impl<'m> Emit<'m> {
    pub fn new(mesh: &'m Mesh, func: Func, channel: i64) -> Emit<'m> {
        let loc = func.loc;
        Emit {
            mesh,
            func,
            blocks: vec![Vec::new()],
            prologue: Vec::new(),
            position: None,
            places: Vec::new(),
            channel,
            loc,
        }
    }

    /// The function, its body complete.
    pub fn finish(mut self) -> Func {
        let mut ops = self.prologue;
        ops.extend(self.blocks.pop().unwrap_or_default());
        self.func.body = Block { args: Vec::new(), ops };
        self.func
    }

    pub fn ty(&self, v: ValueId) -> TensorType {
        self.func.ty(v).tensor().cloned().unwrap_or_else(|| TensorType::new([], DType::I1))
    }

    pub fn push(
        &mut self,
        opcode: Opcode,
        operands: &[ValueId],
        attrs: Vec<(&str, Attr)>,
        regions: Vec<Region>,
        results: Vec<Type>,
    ) -> Vec<ValueId> {
        let results: Vec<ValueId> = results.into_iter().map(|t| self.func.new_value(t)).collect();
        let attrs = attrs.into_iter().map(|(n, a)| (n.to_owned(), a)).collect();
        let op = Op { opcode, operands: operands.to_vec(), results: results.clone(), attrs, regions, loc: self.loc };
        if let Some(block) = self.blocks.last_mut() {
            block.push(op);
        }
        results
    }

    pub fn one(&mut self, opcode: Opcode, operands: &[ValueId], attrs: Vec<(&str, Attr)>, ty: TensorType) -> ValueId {
        self.push(opcode, operands, attrs, Vec::new(), vec![Type::Tensor(ty)])[0]
    }

    pub fn splat(&mut self, ty: TensorType, v: f64) -> ValueId {
        let bytes = from_f64(ty.dtype, v)[..ty.dtype.bytes()].to_vec();
        let literal = Literal { ty: ty.clone(), bytes: bytes.into() };
        self.one(Opcode::Constant, &[], vec![("value", Attr::Dense(literal.into()))], ty)
    }

    pub fn binary(&mut self, opcode: Opcode, a: ValueId, b: ValueId) -> ValueId {
        let ty = self.ty(a);
        self.one(opcode, &[a, b], Vec::new(), ty)
    }

    pub fn compare(&mut self, direction: &str, a: ValueId, b: ValueId) -> ValueId {
        let ty = TensorType::new(self.ty(a).dims, DType::I1);
        self.one(Opcode::Compare, &[a, b], vec![("comparison_direction", Attr::Enum(direction.to_owned()))], ty)
    }

    pub fn select(&mut self, p: ValueId, a: ValueId, b: ValueId) -> ValueId {
        let ty = self.ty(a);
        self.one(Opcode::Select, &[p, a, b], Vec::new(), ty)
    }

    pub fn convert(&mut self, a: ValueId, dtype: DType) -> ValueId {
        let ty = self.ty(a);
        if ty.dtype == dtype { a } else { self.one(Opcode::Convert, &[a], Vec::new(), TensorType::new(ty.dims, dtype)) }
    }

    pub fn broadcast(&mut self, a: ValueId, dims: &[i64], shape: &[i64]) -> ValueId {
        let ty = TensorType { dims: shape.to_vec(), ..self.ty(a) };
        self.one(Opcode::BroadcastInDim, &[a], vec![("broadcast_dimensions", Attr::Ints(dims.to_vec()))], ty)
    }

    /// A region that combines two scalars.
    pub fn reducer(&mut self, kind: ReduceKind, dtype: DType) -> Region {
        let ty = TensorType::new([], dtype);
        let args: Vec<ValueId> = (0..2).map(|_| self.func.new_value(Type::Tensor(ty.clone()))).collect();
        self.blocks.push(Vec::new());
        let r = self.binary(kind.opcode(), args[0], args[1]);
        self.push(Opcode::Return, &[r], Vec::new(), Vec::new(), Vec::new());
        Region { block: Block { args, ops: self.blocks.pop().unwrap_or_default() } }
    }

    /// Runs `f` where the prologue is written.
    fn before(&mut self, f: impl FnOnce(&mut Self) -> ValueId) -> ValueId {
        let prologue = std::mem::take(&mut self.prologue);
        self.blocks.push(prologue);
        let v = f(self);
        self.prologue = self.blocks.pop().unwrap_or_default();
        v
    }

    /// This device's coordinate along `axes` taken as one, an `i32` scalar.
    pub fn place(&mut self, axes: &[Axis]) -> ValueId {
        if let Some((_, v)) = self.places.iter().find(|(a, _)| a == axes) {
            return *v;
        }
        let v = self.before(|e| {
            let scalar = TensorType::new([], DType::I32);
            let at = match e.position {
                Some(v) => v,
                None => e.position_in_mesh(),
            };
            e.position = Some(at);
            let mut sum: Option<ValueId> = None;
            for &a in axes {
                let mut c = at;
                if e.mesh.stride(a) > 1 {
                    let stride = e.splat(scalar.clone(), e.mesh.stride(a) as f64);
                    c = e.binary(Opcode::Divide, c, stride);
                }
                if e.mesh.stride(a) * e.mesh.size(a) < e.mesh.devices() {
                    let size = e.splat(scalar.clone(), e.mesh.size(a) as f64);
                    c = e.binary(Opcode::Remainder, c, size);
                }
                sum = Some(match sum {
                    None => c,
                    Some(s) => {
                        let size = e.splat(scalar.clone(), e.mesh.size(a) as f64);
                        let s = e.binary(Opcode::Multiply, s, size);
                        e.binary(Opcode::Add, s, c)
                    }
                });
            }
            sum.unwrap_or_else(|| e.splat(scalar, 0.0))
        });
        self.places.push((axes.to_vec(), v));
        v
    }

    fn position_in_mesh(&mut self) -> ValueId {
        let id = self.one(Opcode::PartitionId, &[], Vec::new(), TensorType::new([], DType::U32));
        let id = self.convert(id, DType::I32);
        let Some(ids) = &self.mesh.device_ids else { return id };
        let mut table = vec![0u8; ids.len() * 4];
        for (at, &d) in ids.iter().enumerate() {
            if let Some(slot) = usize::try_from(d).ok().and_then(|d| table.get_mut(d * 4..d * 4 + 4)) {
                slot.copy_from_slice(&(at as i32).to_le_bytes());
            }
        }
        let ty = TensorType::new([ids.len() as i64], DType::I32);
        let literal = Literal::new(ty.clone(), table);
        let table = self.one(Opcode::Constant, &[], vec![("value", Attr::Dense(literal.into()))], ty);
        let ty = TensorType::new([1], DType::I32);
        let v = self.one(Opcode::DynamicSlice, &[table, id], vec![("slice_sizes", Attr::Ints(vec![1]))], ty);
        self.one(Opcode::Reshape, &[v], Vec::new(), TensorType::new([], DType::I32))
    }

    /// The first index of this device's part of a dimension, parts of `size` along `axes`.
    pub fn offset(&mut self, axes: &[Axis], size: i64) -> ValueId {
        let at = self.place(axes);
        let size = self.splat(TensorType::new([], DType::I32), size as f64);
        self.binary(Opcode::Multiply, at, size)
    }

    fn channel(&mut self) -> Attr {
        self.channel += 1;
        Attr::Channel { handle: self.channel, kind: 0 }
    }

    /// Groups of the devices that differ along `axes`, in the order of those axes.
    pub fn groups(&self, axes: &[Axis]) -> Attr {
        let joined = self.mesh.joined(axes);
        if self.mesh.device_ids.is_none() && joined.iter().all(|(_, part)| part.is_none()) {
            let axis = |(n, _)| Attr::Opaque(format!("stablehlo.axis_ref<name = \"{n}\">"));
            let axes = joined.into_iter().map(axis).collect();
            return Attr::Groups(ReplicaGroups::MeshAxes(Box::new(Attr::Symbol(self.mesh.name.clone())), axes));
        }
        let rest: Vec<Axis> = (0..self.mesh.axes.len() as Axis).filter(|a| !axes.contains(a)).collect();
        let (size, count) = (self.mesh.count(axes) as usize, self.mesh.count(&rest) as usize);
        let mut groups = vec![vec![0i64; size]; count];
        for at in 0..self.mesh.devices() {
            let (g, i) = (self.mesh.place(at, &rest) as usize, self.mesh.place(at, axes) as usize);
            groups[g][i] = self.mesh.device(at) as i64;
        }
        Attr::Groups(ReplicaGroups::Listed(groups))
    }

    fn names(&self, axes: &[Axis]) -> Attr {
        Attr::Str(self.mesh.names(axes))
    }

    /// Takes one step from sharding `cur` with `v`, a part of a value of shape `whole`.
    pub fn step(&mut self, v: ValueId, cur: &mut Sharding, step: &Step, whole: &[i64], kind: ReduceKind) -> ValueId {
        let from = self.ty(v);
        apply(cur, step);
        let to = TensorType { dims: cur.local(whole, self.mesh), ..from.clone() };
        let joint = |e: &mut Self, axes: &[Axis]| {
            vec![
                ("channel_handle", e.channel()),
                ("replica_groups", e.groups(axes)),
                ("use_global_device_ids", Attr::Unit),
                ("mesh_axes", e.names(axes)),
            ]
        };
        match step {
            Step::Slice { dim, axes } => {
                let index = if whole.iter().any(|&d| d > i64::from(i32::MAX)) { DType::I64 } else { DType::I32 };
                let zero = self.splat(TensorType::new([], index), 0.0);
                let mut operands = vec![zero; from.rank() + 1];
                operands[0] = v;
                let place = self.place(axes);
                let place = self.convert(place, index);
                let size = self.splat(TensorType::new([], index), to.dims[*dim] as f64);
                operands[dim + 1] = self.binary(Opcode::Multiply, place, size);
                self.one(Opcode::DynamicSlice, &operands, vec![("slice_sizes", Attr::Ints(to.dims.clone()))], to)
            }
            Step::AllGather { dim, axes } => {
                let mut attrs = joint(self, axes);
                attrs.push(("all_gather_dim", i64_attr(*dim as i64)));
                self.one(Opcode::AllGather, &[v], attrs, to)
            }
            Step::AllToAll { from: concat, to: split, axes } => {
                let attrs = vec![
                    ("channel_handle", self.channel()),
                    ("replica_groups", self.groups(axes)),
                    ("mesh_axes", self.names(axes)),
                    ("split_dimension", i64_attr(*split as i64)),
                    ("concat_dimension", i64_attr(*concat as i64)),
                    ("split_count", i64_attr(self.mesh.count(axes) as i64)),
                ];
                self.one(Opcode::AllToAll, &[v], attrs, to)
            }
            Step::ReduceScatter { dim, axes } => {
                let region = self.reducer(kind, from.dtype);
                let mut attrs = joint(self, axes);
                attrs.push(("scatter_dimension", i64_attr(*dim as i64)));
                self.push(Opcode::ReduceScatter, &[v], attrs, vec![region], vec![Type::Tensor(to)])[0]
            }
            Step::AllReduce { axes } => {
                let region = self.reducer(kind, from.dtype);
                let attrs = joint(self, axes);
                self.push(Opcode::AllReduce, &[v], attrs, vec![region], vec![Type::Tensor(to)])[0]
            }
            Step::Permute { .. } => v,
        }
    }

    /// Moves parts to the devices that should have them; shapes stay.
    pub fn permute(&mut self, v: ValueId, from: &Sharding, to: &Sharding) -> ValueId {
        let axes: Vec<Axis> = from.dims.iter().flatten().copied().collect();
        let into: Vec<Axis> = to.dims.iter().flatten().copied().collect();
        let released: Vec<Axis> = axes.iter().copied().filter(|a| !into.contains(a)).collect();
        let gained: Vec<Axis> = into.iter().copied().filter(|a| !axes.contains(a)).collect();
        let mut pairs = Vec::new();
        for target in 0..self.mesh.devices() {
            // The source has the part the target should get, and is where the target is along all other axes. Replicas of a
            // part each serve one target: axes that no longer cut take the place of those that do now.
            let mut source = target;
            for &a in axes.iter().chain(&gained) {
                source -= self.mesh.coordinate(source, a) * self.mesh.stride(a);
            }
            let mut put = |mut at: u64, axes: &[Axis]| {
                for &a in axes.iter().rev() {
                    source += at % self.mesh.size(a) * self.mesh.stride(a);
                    at /= self.mesh.size(a);
                }
            };
            from.dims.iter().zip(&to.dims).for_each(|(f, t)| put(self.mesh.place(target, t), f));
            put(self.mesh.place(target, &released), &gained);
            pairs.push([self.mesh.device(source) as i64, self.mesh.device(target) as i64]);
        }
        pairs.sort_unstable();
        let mut moved: Vec<Axis> = axes;
        moved.extend(to.dims.iter().flatten());
        moved.sort_unstable();
        moved.dedup();
        let attrs = vec![
            ("channel_handle", self.channel()),
            ("source_target_pairs", Attr::Pairs(pairs)),
            ("mesh_axes", self.names(&moved)),
        ];
        let ty = self.ty(v);
        self.one(Opcode::CollectivePermute, &[v], attrs, ty)
    }

    /// Takes all `steps`.
    pub fn steps(
        &mut self,
        mut v: ValueId,
        from: &Sharding,
        steps: &[Step],
        whole: &[i64],
        kind: ReduceKind,
    ) -> ValueId {
        let mut cur = from.clone();
        for s in steps {
            v = match s {
                Step::Permute { to } => {
                    let moved = self.permute(v, &cur, to);
                    cur.clone_from(to);
                    moved
                }
                s => self.step(v, &mut cur, s, whole, kind),
            };
        }
        v
    }
}
