//! Communication between devices.

use super::super::{Collective, Exchange, NodeId, NodeOp, Ring, Special};
use super::contract::reducer;
use super::*;
use crate::eval::Grid;
use crate::hlo::{Attr, Op, Opcode, ReplicaGroups};
use crate::ops::{groups_of, pairs_of};

impl Builder<'_> {
    fn grid(&self) -> Grid {
        let count = |name: &str| usize::try_from(self.module.attrs.int(name).unwrap_or(1)).unwrap_or(1).max(1);
        Grid { replicas: count("mhlo.num_replicas"), partitions: count("mhlo.num_partitions") }
    }

    /// Nodes of an operation that talks to other devices; `None` if it is none.
    pub(super) fn communication(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[NodeId],
        site: &(String, String),
    ) -> Option<Result<Vec<NodeId>, LowerError>> {
        let grid = self.grid();
        let number = |d: usize| -> i32 {
            let n = if op.opcode == Opcode::PartitionId { d % grid.partitions } else { d / grid.partitions };
            n as i32
        };
        match op.opcode {
            Opcode::PartitionId | Opcode::ReplicaId => {
                let t = Shape { dims: vec![], dtype: DType::U32 };
                let numbers: Vec<i32> = (0..grid.devices()).map(number).collect();
                let name = op.opcode.name().rsplit('.').next().unwrap_or("partition_id");
                if numbers.iter().all(|n| *n == 0) {
                    let zero = contract::bits_to_bytes(0, DType::U32);
                    return Some(Ok(vec![self.constant(zero, &t, name, site.clone())]));
                }
                let node = self.special_node(Special::DeviceNumber(numbers), vec![], name, site);
                Some(Ok(vec![self.push(NodeOp::Result(0), vec![node], &t, name, site.clone())]))
            }
            Opcode::AllGather
            | Opcode::AllReduce
            | Opcode::CrossReplicaSum
            | Opcode::ReduceScatter
            | Opcode::AllToAll
            | Opcode::CollectiveBroadcast
            | Opcode::CollectivePermute => {
                if op.attrs.flag("has_dynamic_root") {
                    return Some(Err(self.error(op.opcode.name(), op.loc, "who sends has to be known beforehand")));
                }
                let mut out = Vec::new();
                for (&x, &r) in args.iter().zip(&op.results) {
                    match self.collective(f, op, x, r, grid, site) {
                        Ok(id) => out.push(id),
                        Err(e) => return Some(Err(e)),
                    }
                }
                Some(Ok(out))
            }
            _ => None,
        }
    }

    fn collective(
        &mut self,
        f: &Func,
        op: &Op,
        x: NodeId,
        result: ValueId,
        grid: Grid,
        site: &(String, String),
    ) -> Result<NodeId, LowerError> {
        let name = op.opcode.name().rsplit('.').next().unwrap_or("collective");
        let t = self.tensor(f, result, op.opcode.name(), op.loc)?;
        let fail = |b: &Self, m: &str| b.error(op.opcode.name(), op.loc, m);
        let dim = |n: &str| op.attrs.int(n).and_then(|d| usize::try_from(d).ok()).unwrap_or(0);
        let how = || {
            let add = op.opcode == Opcode::CrossReplicaSum;
            if add { Some(crate::lower::math::Combine::Add) } else { reducer(op, t.dtype) }
        };
        let combined = |b: &Self| {
            how().ok_or_else(|| {
                fail(b, "only add, multiply, maximum, minimum, and, or, xor are combined between devices")
            })
        };
        let exchange = match op.opcode {
            Opcode::AllGather => Exchange::AllGather { dim: dim("all_gather_dim") },
            Opcode::AllReduce | Opcode::CrossReplicaSum => Exchange::AllReduce { how: combined(self)? },
            Opcode::ReduceScatter => Exchange::ReduceScatter { dim: dim("scatter_dimension"), how: combined(self)? },
            Opcode::CollectiveBroadcast => Exchange::Broadcast,
            Opcode::AllToAll => Exchange::AllToAll { split: dim("split_dimension"), concat: dim("concat_dimension") },
            _ => {
                let pair = |p: Vec<usize>| match p[..] {
                    [a, b] => Some((a as u32, b as u32)),
                    _ => None,
                };
                Exchange::Permute { pairs: pairs_of(op, grid).into_iter().filter_map(pair).collect() }
            }
        };
        let groups = match exchange {
            Exchange::Permute { .. } => vec![(0..grid.devices() as u32).collect()],
            _ => {
                let groups = groups_of(self.module, op, grid).map_err(|e| fail(self, &e.message()))?;
                groups.into_iter().map(|g| g.into_iter().map(|d| d as u32).collect()).collect()
            }
        };
        let groups: Vec<Vec<u32>> = groups;
        let n = groups.first().map_or(0, Vec::len);
        let all: usize = groups.iter().map(Vec::len).sum();
        if n == 0 || groups.iter().any(|g| g.len() != n) || all != grid.devices() {
            let m = format!("groups have to be of one size and hold each of the {} devices once", grid.devices());
            return Err(fail(self, &m));
        }
        if t.dims.contains(&0) {
            let zero = self.constant(contract::bits_to_bytes(0, t.dtype), &t, name, site.clone());
            return Ok(zero);
        }
        if n == 1 && !matches!(exchange, Exchange::Permute { .. }) {
            return Ok(x);
        }
        let axes = match op.attrs.get("replica_groups") {
            Some(Attr::Groups(ReplicaGroups::MeshAxes(_, axes))) => {
                let names =
                    axes.iter().filter_map(|a| if let Attr::Opaque(t) = a { t.split('"').nth(1) } else { None });
                names.collect::<Vec<_>>().join(",")
            }
            _ => op.attrs.text("mesh_axes").unwrap_or("").to_owned(),
        };
        let rings = vec![Ring::whole(n as u64)];
        let what = Collective { exchange, groups, devices: grid.devices() as u32, axes, rings };
        // Two collectives that look the same are still two.
        let node = NodeId(self.graph.nodes.len() as u32);
        self.graph.nodes.push(Node {
            op: NodeOp::Special(Special::Collective(Box::new(what))),
            args: vec![x],
            dims: vec![0],
            dtype: DType::U8,
            source: site.0.clone(),
            location: site.1.clone(),
            name,
        });
        Ok(self.push(NodeOp::Result(0), vec![node], &t, name, site.clone()))
    }
}
