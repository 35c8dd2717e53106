//! Kernels that become one: two that read the same arrays, or one that reads what the other stores, in the same way. What both compute is
//! computed once, and what only the other reads is not stored at all.
//!
//! Either the later kernel moves up to the earlier one, or the earlier one down, where nothing between needs or spoils what moves.

use std::collections::BTreeSet;

use super::{Contraction, Fusion, Options, Step};
use crate::graph::{Graph, NodeId, NodeOp};
use crate::lower::expr::{Access, Kind, Node, NodeIx};
use crate::lower::scalar::{Scalar, ScalarIx, ScalarKind};

/// Steps between two kernels that are joined: what moves has to lie in memory meanwhile.
const REACH: usize = 16;
/// Arrays that one kernel reads and writes: each takes buffers in VMEM.
const MAX_STREAMS: usize = 14;
/// Longest row that a kernel without reductions is held to for the sake of one with.
const MAX_ROW: u64 = 1 << 15;

/// Joins kernels among `steps`, of which `wanted` nodes are read afterwards.
pub(super) fn join(g: &Graph, options: Options, steps: &mut Vec<Step>, wanted: &[NodeId]) {
    let mut at = 1;
    while at < steps.len() {
        let found = (at.saturating_sub(REACH)..at).rev().find_map(|i| {
            let (Step::Kernel(a), Step::Kernel(b)) = (&steps[i], &steps[at]) else { return None };
            let joined = pair(g, options, a, b)?;
            let up = free(g, &steps[i + 1..at], b);
            (up || free(g, &steps[i + 1..at], a)).then_some((i, up, joined))
        });
        let Some((i, up, joined)) = found else {
            at += 1;
            continue;
        };
        let place = if up { i } else { at };
        steps[place] = Step::Kernel(Box::new(joined));
        steps.remove(if up { at } else { i });
        unstore(g, steps, if up { i } else { at - 1 }, wanted);
        // The joined kernel may go on to join others.
        at = if up { i } else { at - 1 }.max(1);
    }
}

/// Whether `f` may move past `steps`: none reads what it writes, writes what it reads, or overwrites either.
fn free(g: &Graph, steps: &[Step], f: &Fusion) -> bool {
    steps.iter().all(|s| {
        let touched = |n: &NodeId| f.roots.contains(n) || f.reads.contains(n);
        let reads = s.reads(g).iter().any(|n| f.roots.contains(n));
        !reads && !s.writes().iter().any(touched) && !overwritten(g, s).iter().any(touched)
    })
}

/// Nodes whose arrays a step takes over.
fn overwritten(g: &Graph, s: &Step) -> Vec<NodeId> {
    match s {
        Step::Kernel(f) => f.updates.into_iter().collect(),
        Step::Special(s) => match &g.node(s.node).op {
            NodeOp::Special(what) => what.in_place().into_iter().map(|(_, o)| g.node(s.node).args[o]).collect(),
            _ => Vec::new(),
        },
    }
}

/// Drops what the kernel at `at` stores and nobody reads.
fn unstore(g: &Graph, steps: &mut [Step], at: usize, wanted: &[NodeId]) {
    let read: BTreeSet<NodeId> = steps.iter().flat_map(|s| s.reads(g)).chain(wanted.iter().copied()).collect();
    if let Some(Step::Kernel(f)) = steps.get_mut(at) {
        let kept: Vec<bool> = f.roots.iter().map(|r| read.contains(r)).collect();
        let mut keep = kept.iter();
        f.stores.retain(|_| keep.next() == Some(&true));
        let mut keep = kept.iter();
        f.roots.retain(|_| keep.next() == Some(&true));
    }
}

fn loads(f: &Fusion) -> impl Iterator<Item = &Access> {
    f.nodes.iter().filter_map(|n| if let Kind::Load(a) = &n.kind { Some(a) } else { None })
}

/// The canonical dimension that row reductions remove.
fn reduced_row(f: &Fusion) -> Option<u32> {
    f.nodes.iter().find(|n| matches!(n.kind, Kind::RowReduce(_))).map(|n| f.nodes[n.args[0]].varies & !n.varies)
}

/// Whether a kernel can be part of another one: it writes whole arrays of its own, in their order.
fn simple(g: &Graph, f: &Fusion) -> bool {
    let whole = |(node, access): &(NodeIx, Access)| {
        let made = NodeId(access.buffer as u32);
        let covered: u64 = f.dims.iter().zip(&access.strides).filter(|(_, s)| **s != 0).map(|(d, _)| *d).product();
        let parts = matches!(g.node(made).op, NodeOp::Concat(_) | NodeOp::Pad { .. } | NodeOp::DynUpdate { .. });
        !parts
            && access.offset == 0
            && access.shifts.is_empty()
            && covered == g.node(made).elements()
            && *node < f.nodes.len()
    };
    f.updates.is_none()
        && !f.in_place
        && f.roots.len() == f.stores.len()
        && f.stores.iter().all(whole)
        && !f.nodes.iter().any(|n| matches!(n.kind, Kind::ColReduce(..)))
        && !f.product.as_ref().is_some_and(|p| matches!(p.spec, Contraction::Conv(_)))
}

/// Dimensions along which an access steps by one element of `bytes`.
fn along(a: &Access, dims: &[u64], bytes: usize) -> u32 {
    a.strides
        .iter()
        .zip(dims)
        .enumerate()
        .filter(|(_, (s, d))| **s == bytes as i64 && **d > 1)
        .fold(0, |m, (i, _)| m | 1 << i)
}

/// `a` and `b`, the later one, as one kernel, if that saves reading or writing an array.
fn pair(g: &Graph, options: Options, a: &Fusion, b: &Fusion) -> Option<Fusion> {
    if a.dims != b.dims || b.product.is_some() || a.dims.len() > 31 || !simple(g, a) || !simple(g, b) {
        return None;
    }
    let rows = [reduced_row(a), reduced_row(b)];
    match rows {
        [Some(x), Some(y)] if x != y => return None,
        [Some(x), None] | [None, Some(x)] => {
            let long = a.dims.iter().enumerate().any(|(d, n)| x >> d & 1 == 1 && *n > MAX_ROW);
            if long || a.product.is_some() {
                return None;
            }
        }
        [Some(_), Some(_)] if a.product.is_some() => return None,
        _ => {}
    }
    // A product's results leave it along the dimension its own store runs along.
    if a.product.is_some() {
        let lanes =
            |f: &Fusion| f.stores.iter().fold(u32::MAX, |m, (n, s)| m & along(s, &f.dims, f.nodes[*n].dtype.bytes()));
        let lanes = lanes(a) & lanes(b);
        let crossed = |n: &Node| matches!(&n.kind, Kind::Load(l) if n.varies & lanes != 0 && along(l, &b.dims, n.dtype.bytes()) & lanes == 0);
        if lanes == 0 || b.nodes.iter().any(crossed) {
            return None;
        }
    }
    let all = a.dims.iter().enumerate().filter(|(_, d)| **d > 1).fold(0u32, |m, (d, _)| m | 1 << d);
    let shared =
        b.nodes.iter().any(|n| n.varies == all && matches!(n.kind, Kind::Load(_)) && a.nodes.contains(n) && plain(n));
    let chained = b.reads.iter().any(|r| a.roots.contains(r));
    if !shared && !chained {
        return None;
    }
    let mut f = a.clone();
    let scalars: Vec<ScalarIx> = b.scalars.iter().map(|s| scalar(&mut f.scalars, s, &b.scalars)).collect();
    let mut at: Vec<NodeIx> = Vec::with_capacity(b.nodes.len());
    for n in &b.nodes {
        let mut n = n.clone();
        n.args.iter_mut().for_each(|x| *x = at[*x]);
        if let Kind::Load(l) = &mut n.kind {
            l.shifts.iter_mut().for_each(|s| s.scalar = scalars[s.scalar]);
            if let Some(k) = a.roots.iter().position(|r| r.ix() == l.buffer) {
                // It has to be read just as it is written, and not repeat along what is reduced.
                let (value, store) = &a.stores[k];
                let made = &a.nodes[*value];
                if store != l || (made.dtype, made.varies) != (n.dtype, n.varies) {
                    return None;
                }
                at.push(*value);
                continue;
            }
        }
        let same = f.nodes.iter().position(|o| *o == n);
        at.push(same.unwrap_or(f.nodes.len()));
        if same.is_none() {
            f.nodes.push(n);
        }
    }
    let read =
        b.scalars.iter().any(|s| matches!(&s.kind, ScalarKind::Load(l) if a.roots.iter().any(|r| r.ix() == l.buffer)));
    f.stores.extend(b.stores.iter().map(|(n, s)| (at[*n], s.clone())));
    f.roots.extend(&b.roots);
    f.reads = a.reads.iter().chain(b.reads.iter().filter(|r| !a.roots.contains(r))).copied().collect();
    f.reads.sort_unstable();
    f.reads.dedup();
    f.sources.extend(b.sources.iter().filter(|s| !a.sources.contains(s)).cloned());
    f.vector_flops = flops(&f);
    let streams = loads(&f).count() + f.stores.len();
    (!read && f.nodes.len() <= options.max_nodes && streams <= MAX_STREAMS).then_some(f)
}

/// Whether a load is the same whatever the kernel's scalars are.
fn plain(n: &Node) -> bool {
    matches!(&n.kind, Kind::Load(a) if a.shifts.is_empty())
}

/// Where `s` of another kernel's scalars is among `all`, added if it was not.
fn scalar(all: &mut Vec<Scalar>, s: &Scalar, others: &[Scalar]) -> ScalarIx {
    let args = s.args.iter().map(|x| others.get(*x).map_or(0, |o| scalar(all, o, others))).collect();
    let s = Scalar { args, ..s.clone() };
    all.iter().position(|o| *o == s).unwrap_or_else(|| {
        all.push(s);
        all.len() - 1
    })
}

/// Elementwise operations on elements.
fn flops(f: &Fusion) -> u64 {
    let size =
        |mask: u32| -> u64 { f.dims.iter().enumerate().filter(|(d, _)| mask >> d & 1 == 1).map(|(_, n)| *n).product() };
    let of = |n: &Node| match n.kind {
        Kind::Map(..) => size(n.varies),
        Kind::RowReduce(_) | Kind::ColReduce(..) => size(f.nodes[n.args[0]].varies),
        _ => 0,
    };
    f.nodes.iter().map(of).fold(0, u64::saturating_add)
}
