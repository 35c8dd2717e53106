//! Messages straight to where they belong.

use tpusim_isa::num::DType;
use tpusim_isa::pod::SendDim;

use super::code::{Control, at, fixed};
use super::{Ends, FEW, map_of};
use crate::compile::CompileError;
use crate::graph::{Graph, Node, NodeId, NodeOp};
use crate::hlo::{Literal, TensorType};
use crate::lower::math::Combine;

const OWN: u32 = 0;
const OTHER: u32 = 1;

impl Control<'_, '_> {
    /// Tells everybody else in the group to go ahead, and waits until they have said so.
    fn meet(&mut self) {
        let ready = self.flag();
        for k in 1..self.n as i32 {
            let peer = self.shift(k);
            self.signal(peer, ready);
        }
        self.wait(ready, self.n - 1);
    }

    /// Everybody's `elements` elements at `from`, combined, to `to`: along each ring, everybody sends to everybody and combines in the
    /// order of the line. `work` has room for everybody's on the longest line, and one more.
    pub(super) fn combine_all(
        &mut self,
        elements: u64,
        dtype: DType,
        how: Combine,
        from: i64,
        to: i64,
        work: i64,
    ) -> Result<(), CompileError> {
        let bytes = elements * dtype.bytes() as u64;
        let rings = self.what.rings.len();
        let flags: Vec<(u32, u32)> = (0..rings).map(|_| (self.flag(), self.flag())).collect();
        let mut from = from;
        for (i, (ready, data)) in flags.into_iter().enumerate() {
            let n = self.ring(i).size;
            let own = self.reg(OWN);
            self.along(i, own);
            for k in 1..n as i32 {
                let peer = self.on_line(i, k);
                self.signal(peer, ready);
            }
            self.wait(ready, n - 1);
            for k in 0..n as i32 {
                let peer = self.on_line(i, k);
                self.send(peer, data, Vec::new(), bytes, fixed(from), at(work, own, bytes));
            }
            self.wait(data, n);
            let between = work + (self.what.rings.iter().map(|r| r.size).max().unwrap_or(n) * bytes) as i64;
            let result = if i + 1 == rings { to } else { between };
            self.combine_line(n, elements, (dtype, how), work, result)?;
            from = result;
        }
        Ok(())
    }

    /// `n` arrays of `elements` elements at `from`, combined in their order, to `to`.
    fn combine_line(
        &mut self,
        n: u64,
        elements: u64,
        (dtype, how): (DType, Combine),
        from: i64,
        to: i64,
    ) -> Result<(), CompileError> {
        let node = |op: NodeOp, args: &[u32], dims: &[u64]| Node {
            op,
            args: args.iter().map(|i| NodeId(*i)).collect(),
            dims: dims.to_vec(),
            dtype,
            source: self.node.source.clone(),
            location: self.node.location.clone(),
            name: "combine",
        };
        let mut nodes = Vec::new();
        if n > FEW {
            // A reduction to one element is one over columns.
            let (all, one) = match elements {
                1 => (vec![n], vec![]),
                _ => (vec![n, elements], vec![elements]),
            };
            nodes.push(node(NodeOp::Param(0), &[], &all));
            nodes.push(node(NodeOp::Reduce(how, vec![0]), &[0], &one));
        } else {
            // One after the other, without a neutral element: that of a sum would turn negative zeros positive.
            nodes.push(node(NodeOp::Param(0), &[], &[n, elements]));
            let mut sum = None;
            for i in 0..n {
                nodes.push(node(NodeOp::Slice { start: vec![i, 0], step: vec![1, 1] }, &[0], &[1, elements]));
                nodes.push(node(NodeOp::Reshape, &[nodes.len() as u32 - 1], &[elements]));
                let own = nodes.len() as u32 - 1;
                if let Some(before) = sum {
                    nodes.push(node(NodeOp::Map(map_of(how)), &[before, own], &[elements]));
                }
                sum = Some(nodes.len() as u32 - 1);
            }
        }
        let last = nodes.len() - 1;
        let mut address = vec![None; nodes.len()];
        (address[0], address[last]) = (Some(from as u64), Some(to as u64));
        let g = Graph { nodes, params: vec![NodeId(0)], outputs: vec![NodeId(last as u32)], ..Graph::default() };
        self.local(&g, &address)
    }

    /// Part `j` of the array at `from` along `split` to member `j`, which joins what it gets along `concat` at `to`.
    pub(super) fn all_to_all(&mut self, dims: &[u64], split: usize, concat: usize, bytes: u64, from: i64, to: i64) {
        let n = self.n;
        let mut part = dims.to_vec();
        part[split] /= n;
        let mut whole = part.clone();
        whole[concat] *= n;
        let strides =
            |d: &[u64]| -> Vec<u64> { (0..d.len()).map(|i| d[i + 1..].iter().product::<u64>() * bytes).collect() };
        let (give, take) = (strides(dims), strides(&whole));
        let (own, other) = (self.reg(OWN), self.reg(OTHER));
        self.position(own);
        self.meet();
        let data = self.flag();
        let (outer, run) = runs(&part, &give, &take, bytes);
        for k in 0..n {
            let peer = self.shift(k as i32);
            self.step(other, own, k as i64, n);
            let there = at(to, own, part[concat] * take[concat]);
            self.send(peer, data, outer.clone(), run, at(from, other, part[split] * give[split]), there);
        }
        self.wait(data, n);
    }

    /// Arrays move along pairs; zeros where none arrives.
    pub(super) fn permute(&mut self, pairs: &[(u32, u32)], ends: &Ends<'_>) -> Result<(), CompileError> {
        let devices = self.n as u32;
        let apart =
            |taken: &dyn Fn(u32) -> bool| (0..devices).filter(|d| !taken(*d)).map(|d| (d, d)).collect::<Vec<_>>();
        let receives = |d: u32| pairs.iter().any(|p| p.1 == d);
        let sends = |d: u32| pairs.iter().any(|p| p.0 == d);
        let (idle_in, idle_out) = (apart(&receives), apart(&sends));
        if !idle_in.is_empty() {
            let bytes: std::sync::Arc<[u8]> = vec![0; ends.x.dtype.bytes()].into();
            let node = |op: NodeOp, args: Vec<NodeId>, dims: Vec<u64>| Node {
                op,
                args,
                dims,
                source: self.node.source.clone(),
                location: self.node.location.clone(),
                name: "zeros",
                ..ends.x.clone()
            };
            let zero = Literal { ty: TensorType::new(Vec::new(), ends.x.dtype), bytes };
            let nodes = vec![
                node(NodeOp::Const(zero), vec![], vec![]),
                node(NodeOp::Broadcast(vec![]), vec![NodeId(0)], ends.x.dims.clone()),
            ];
            let g = Graph { nodes, outputs: vec![NodeId(1)], ..Graph::default() };
            self.local(&g, &[None, Some(ends.to as u64)])?;
        }
        // Who has nobody to hear from signals to itself, so that everybody waits for the same.
        let (ready, data) = (self.flag(), self.flag());
        let back = self.pairs(pairs.iter().map(|(a, b)| (*b, *a)).collect());
        let there = self.pairs(pairs.to_vec());
        self.signal(back, ready);
        if !idle_out.is_empty() {
            let own = self.pairs(idle_out);
            self.signal(own, ready);
        }
        self.wait(ready, 1);
        self.send(there, data, Vec::new(), ends.x.bytes(), fixed(ends.from), fixed(ends.to));
        if !idle_in.is_empty() {
            let own = self.pairs(idle_in);
            self.signal(own, data);
        }
        self.wait(data, 1);
        Ok(())
    }
}

/// A block of `dims` elements with strides in bytes on both sides, as dimensions around contiguous runs.
fn runs(dims: &[u64], from: &[u64], to: &[u64], bytes: u64) -> (Vec<SendDim>, u64) {
    let mut run = bytes;
    let mut d = dims.len();
    while d > 0 && (dims[d - 1] == 1 || from[d - 1] == run && to[d - 1] == run) {
        d -= 1;
        run *= dims[d];
    }
    let outer = (0..d).map(|i| SendDim { count: dims[i] as u32, from_stride: from[i] as i64, to_stride: to[i] as i64 });
    (outer.collect(), run)
}
