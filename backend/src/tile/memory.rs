//! HBM addresses: every stored array gets a range that no other array needs while it is alive.

use std::sync::Arc;

use tpusim_isa::program::{Buffer, BufferKind};

use super::fuse::{Plan, Step};
use crate::graph::{Graph, NodeId, NodeOp};

/// Arrays start at multiples of this.
const ALIGN: u64 = 512;

/// Addresses of all stored arrays.
#[derive(Clone, Debug, Default)]
pub struct MemoryPlan {
    /// Buffers of the program.
    pub buffers: Vec<Buffer>,
    /// First byte of each node's array; `None` if it is not stored.
    pub address: Vec<Option<u64>>,
    /// Bytes in use at the worst moment.
    pub peak: u64,
}

/// Lays out the arrays of a plan. Parameters, constants and results stay for the whole program; temporaries take the lowest
/// range that is free from their first write to their last read.
pub fn plan(g: &Graph, plan: &Plan) -> MemoryPlan {
    let steps = plan.steps.len() as u32;
    let mut first: Vec<Option<u32>> = vec![None; g.nodes.len()];
    let mut last = vec![0u32; g.nodes.len()];
    // Nodes that share the array of another one.
    let mut shares: Vec<Option<NodeId>> = vec![None; g.nodes.len()];
    for (i, s) in plan.steps.iter().enumerate() {
        let i = i as u32;
        for r in s.reads(g) {
            last[r.ix()] = last[r.ix()].max(i);
        }
        for w in s.writes() {
            first[w.ix()].get_or_insert(i);
            last[w.ix()] = last[w.ix()].max(i);
        }
        if let Step::Kernel(f) = s
            && let Some(operand) = f.updates
        {
            shares[operand.ix()] = Some(f.root);
        }
        if let Step::Special(s) = s
            && let NodeOp::Special(what) = &g.node(s.node).op
        {
            for (result, operand) in what.in_place() {
                if let Some(Some(r)) = s.results.get(result) {
                    shares[g.node(s.node).args[operand].ix()] = Some(*r);
                }
            }
        }
    }
    // The last of a chain of nodes that share an array stands for all of them; results come after their operands. A chain that starts
    // at a parameter lies in the parameter's array.
    let mut donor: Vec<Option<NodeId>> = vec![None; g.nodes.len()];
    for n in (0..g.nodes.len()).rev() {
        if let Some(r) = shares[n] {
            let end = shares[r.ix()].unwrap_or(r);
            shares[n] = Some(end);
            // Of two numbers the lower, of a number and nothing the number.
            first[end.ix()] = first[n].map_or(first[end.ix()], |f| Some(first[end.ix()].map_or(f, |e| e.min(f))));
            if let NodeOp::Param(_) = g.nodes[n].op {
                donor[end.ix()] = Some(NodeId(n as u32));
            }
        }
    }
    let mut out = MemoryPlan { address: vec![None; g.nodes.len()], ..MemoryPlan::default() };
    let mut fixed = 0u64;
    let end = steps.saturating_sub(1);
    let mut place = |out: &mut MemoryPlan, n: NodeId, kind: BufferKind, live: (u32, u32)| {
        let bytes = g.node(n).bytes();
        if let Some(offset) = donor[n.ix()].and_then(|d| out.address[d.ix()]) {
            out.address[n.ix()] = Some(offset);
            out.buffers.push(Buffer { offset, bytes, kind, live });
            return;
        }
        out.address[n.ix()] = Some(fixed);
        out.buffers.push(Buffer { offset: fixed, bytes, kind, live });
        fixed += bytes.next_multiple_of(ALIGN);
    };
    for (i, &p) in g.params.iter().enumerate() {
        place(&mut out, p, BufferKind::Param(i as u32), (0, end));
    }
    for (i, &o) in g.outputs.iter().enumerate() {
        let from = first[o.ix()].unwrap_or(0);
        place(&mut out, o, BufferKind::Output(i as u32), (from, end));
    }
    for (ix, n) in g.nodes.iter().enumerate() {
        if let NodeOp::Const(l) = &n.op
            && !l.is_splat()
        {
            let data: Arc<[u8]> = l.bytes.clone();
            place(&mut out, NodeId(ix as u32), BufferKind::Constant(data), (0, end));
        }
    }
    for (n, d) in donor.iter().enumerate() {
        if let (Some(d), None) = (d, out.address[n]) {
            out.address[n] = out.address[d.ix()];
        }
    }
    let base = fixed;
    // Temporaries in order of their first write, each at the lowest gap between those alive at the same time.
    let mut temps: Vec<usize> =
        (0..g.nodes.len()).filter(|&n| first[n].is_some() && out.address[n].is_none() && shares[n].is_none()).collect();
    temps.sort_by_key(|&n| (first[n], n));
    let mut placed: Vec<(u64, u64, u32, u32)> = Vec::new();
    let mut top = base;
    for n in temps {
        let (from, to) = (first[n].unwrap_or(0), last[n]);
        let bytes = g.nodes[n].bytes();
        let mut busy: Vec<(u64, u64)> =
            placed.iter().filter(|p| p.2 <= to && from <= p.3).map(|p| (p.0, p.1)).collect();
        busy.sort_unstable();
        let mut at = base;
        for (lo, hi) in busy {
            if at + bytes <= lo {
                break;
            }
            at = at.max(hi);
        }
        let end = (at + bytes).next_multiple_of(ALIGN);
        placed.push((at, end, from, to));
        top = top.max(end);
        out.address[n] = Some(at);
        out.buffers.push(Buffer { offset: at, bytes, kind: BufferKind::Temp, live: (from, to) });
    }
    for (n, s) in shares.iter().enumerate() {
        if let Some(s) = s {
            out.address[n] = out.address[s.ix()];
        }
    }
    out.peak = top;
    out
}
