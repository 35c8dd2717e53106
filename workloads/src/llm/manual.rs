//! Computations by place of an axis of the mesh, and what its devices say to each other there.

use tpusim_backend::hlo::{Attr, FuncBuilder, Opcode, ReplicaGroups, TensorType, Type, ValueId};
use tpusim_isa::num::DType;

use super::mesh::{Axis, Cut, Mesh};

impl Mesh {
    /// Runs `body` on every place of `axes`, on its parts of `operands`, which are cut as the second of each says, by these axes first; gives
    /// results of these types, put together as they are cut. Along the other axes it is about whole arrays.
    pub(super) fn manual<'m>(
        &self,
        f: &mut FuncBuilder<'m>,
        axes: &[Axis],
        operands: &[(ValueId, Cut)],
        results: &[(TensorType, Cut)],
        body: impl FnOnce(&mut FuncBuilder<'m>, &[ValueId]) -> Vec<ValueId>,
    ) -> Vec<ValueId> {
        let (values, cuts): (Vec<ValueId>, Vec<&Cut>) = operands.iter().map(|(v, cut)| (*v, cut)).unzip();
        let part = |(v, cut): (&ValueId, &&Cut)| {
            let mut ty = f.ty(*v);
            for (n, cut) in ty.dims.iter_mut().zip(cut.iter()) {
                let own: Vec<Axis> = cut.iter().filter(|a| axes.contains(a)).copied().collect();
                *n /= self.parts(&own).max(1);
            }
            ty
        };
        let args: Vec<TensorType> = values.iter().zip(&cuts).map(part).collect();
        let list = |cuts: &mut dyn Iterator<Item = &Cut>| {
            let all: Vec<String> = cuts.map(|cut| self.dims(cut)).collect();
            Attr::Opaque(format!("sdy.sharding_per_value<[{}]>", all.join(", ")))
        };
        let named: Vec<String> = self.larger(axes).map(|a| format!("\"{}\"", a.name())).collect();
        let attrs = [
            ("in_shardings", list(&mut cuts.into_iter())),
            ("out_shardings", list(&mut results.iter().map(|(_, cut)| cut))),
            ("manual_axes", Attr::Opaque(format!("sdy<manual_axes{{{}}}>", named.join(", ")))),
        ];
        let region = f.region(&args, body);
        let types: Vec<TensorType> = results.iter().map(|(ty, _)| ty.clone()).collect();
        f.op_with_regions(Opcode::SdyManualComputation, &values, &attrs, vec![region], &types)
    }

    /// Inside of a computation that is manual along `axis`: the sum of all devices' `x`, of which each has its part of dimension `d`.
    pub(super) fn reduce_scatter(&self, f: &mut FuncBuilder<'_>, axis: Axis, x: ValueId, d: usize) -> ValueId {
        let mut ty = f.ty(x);
        if let Some(n) = ty.dims.get_mut(d) {
            *n /= self.size(axis).max(1);
        }
        let along = ("scatter_dimension", Attr::Int(d as i64, Type::Scalar(DType::I64)));
        reduced(f, Opcode::ReduceScatter, &[axis], x, Some(along), ty)
    }

    /// Inside of a computation that is manual along `axes`: the sum of all devices' `x`.
    pub(super) fn all_reduce(&self, f: &mut FuncBuilder<'_>, axes: &[Axis], x: ValueId) -> ValueId {
        let (ty, axes) = (f.ty(x), self.larger(axes).collect::<Vec<_>>());
        if axes.is_empty() { x } else { reduced(f, Opcode::AllReduce, &axes, x, None, ty) }
    }

    /// Those of `axes` that have more than one place.
    fn larger(&self, axes: &[Axis]) -> impl Iterator<Item = Axis> {
        axes.iter().copied().filter(|a| self.size(*a) > 1)
    }

    /// Inside of a computation that is manual along `axis`: the `x` of the device `by` places before along it; zeros where there is none,
    /// unless the first follows the last.
    pub(super) fn shifted(&self, f: &mut FuncBuilder<'_>, axis: Axis, x: ValueId, by: i64, round: bool) -> ValueId {
        let n = self.size(axis).max(1);
        let inner: i64 = Axis::ALL.iter().skip_while(|a| **a != axis).skip(1).map(|a| self.size(*a)).product();
        let pairs = (0..self.devices()).filter_map(|id| {
            let to = id / inner % n + by;
            let to = if round { to.rem_euclid(n) } else { to };
            (0..n).contains(&to).then(|| [id, id + (to - id / inner % n) * inner])
        });
        let attrs = [
            ("source_target_pairs", Attr::Pairs(pairs.collect())),
            ("channel_handle", channel(x)),
            ("mesh_axes", Attr::Str(axis.name().to_owned())),
        ];
        let ty = f.ty(x);
        f.op(Opcode::CollectivePermute, &[x], &attrs, &[ty]).first().copied().unwrap_or(x)
    }
}

/// A channel for what is done with `x` alone.
fn channel(x: ValueId) -> Attr {
    Attr::Channel { handle: usize::from(x) as i64 + 1, kind: 0 }
}

fn reduced(
    f: &mut FuncBuilder<'_>,
    opcode: Opcode,
    axes: &[Axis],
    x: ValueId,
    more: Option<(&str, Attr)>,
    ty: TensorType,
) -> ValueId {
    let along = axes.iter().map(|a| Attr::Opaque(format!("stablehlo.axis_ref<name = \"{}\">", a.name())));
    let groups = ReplicaGroups::MeshAxes(Box::new(Attr::Symbol("mesh".to_owned())), along.collect());
    let mut attrs = vec![
        ("replica_groups", Attr::Groups(groups)),
        ("channel_handle", channel(x)),
        ("use_global_device_ids", Attr::Unit),
    ];
    attrs.extend(more);
    let scalar = TensorType::new([], ty.dtype);
    let sum = f.region(&[scalar.clone(), scalar], |f, args| match args {
        [a, b] => vec![f.add(*a, *b)],
        _ => Vec::new(),
    });
    f.op_with_regions(opcode, &[x], &attrs, vec![sum], &[ty]).first().copied().unwrap_or(x)
}
