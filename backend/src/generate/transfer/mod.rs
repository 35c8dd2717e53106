//! Collectives as DMA programs.
//!
//! A collective becomes a transfer: control code that sends pieces of arrays to other devices, waits for what they send, and runs small
//! kernels that combine what has arrived. Nobody sends before the receiver has said that it is ready, since the same memory may be
//! in use there for something else.
//!
//! - All-gather and reduce-scatter go along the axes of the network that a group extends along, one after the other (`gather`,
//!   `scatter`), both ways round each. The data is shared out between *strands* (`share`) that take the axes in different orders, so
//!   that the links of all axes are in use at once, and that work is done for one while another's messages are on their way.
//! - All-reduce is a reduce-scatter and an all-gather. What is too small to be cut, or left over, is sent to everybody on a line and
//!   combined there (`direct`), which takes one step instead of many.
//! - All-to-all and permutations are sent straight; the network finds the way.

mod code;
mod direct;
mod gather;
mod scatter;
mod share;

use tpusim_isa::num::DType;
use tpusim_isa::pod::{Groups, Peer, SendDesc, Table, TransferInfo};
use tpusim_isa::program::{Node as Code, OpInfo};

use super::{Generator, Scope};
use crate::compile::CompileError;
use crate::graph::{Collective, Exchange, Graph, Node, NodeId};
use crate::lower::math::Combine;
use crate::tile::fuse::{SpecialStep, Step};
use crate::tile::overlap::BEHIND;

use code::Control;
use gather::Own;
use scatter::room;
use share::{Strand, strands};

/// All-reduces of at most this many bytes are sent to everybody: two steps of latency cost more than a few small messages.
const SMALL: u64 = 16 << 10;
/// Most devices that are sent to one by one for it.
const FEW: u64 = 32;

/// An array cut along one dimension: `rows` times `parts` runs of `run` bytes each.
#[derive(Clone, Copy, Debug)]
struct Cut {
    rows: u64,
    parts: u64,
    run: u64,
}

impl Cut {
    /// `dims` cut into `parts` along dimension `d`.
    fn new(dims: &[u64], d: usize, parts: u64, bytes: u64) -> Cut {
        let rows = dims[..d].iter().product();
        Cut { rows, parts, run: dims[d..].iter().product::<u64>() / parts.max(1) * bytes }
    }

    /// Bytes of one part.
    fn part(self) -> u64 {
        self.rows * self.run
    }
}

/// How the elements of an all-reduce are shared out: those that go round the rings, and those that everybody sends to everybody.
fn halves(c: &Collective, elements: u64, bytes: u64) -> (u64, u64) {
    let n = c.size();
    if elements * bytes <= SMALL && c.rings.iter().all(|r| r.size <= FEW) {
        return (0, elements);
    }
    (elements / n * n, elements % n)
}

/// Bytes of HBM that a collective works in.
pub(crate) fn work(g: &Graph, node: NodeId, c: &Collective) -> u64 {
    let Some(x) = g.node(node).args.first().map(|a| g.node(*a)) else { return 0 };
    let (bytes, n) = (x.dtype.bytes() as u64, c.size());
    match &c.exchange {
        Exchange::ReduceScatter { dim, .. } => {
            let cut = Cut::new(&x.dims, *dim, n, bytes);
            strands(cut, bytes, &c.rings).iter().map(|s| room(cut, s, &c.rings)).sum()
        }
        Exchange::AllReduce { .. } => {
            let (whole, rest) = halves(c, x.elements(), bytes);
            let longest = c.rings.iter().map(|r| r.size).max().unwrap_or(n);
            let cut = Cut { rows: 1, parts: n, run: whole / n * bytes };
            let rooms = |s: &Strand| room(cut, s, &c.rings);
            let rings = if whole > 0 { strands(cut, bytes, &c.rings).iter().map(rooms).sum() } else { 0 };
            rings + (longest + 1) * rest * bytes
        }
        _ => 0,
    }
}

/// A transfer that has not been waited for.
pub(crate) struct Open {
    transfer: u32,
    result: NodeId,
    /// Operand, result and scratch memory, as first bytes and ends.
    used: [(u64, u64); 3],
    /// The step that waits for it at the latest.
    until: usize,
}

/// The operand and the result of a collective.
struct Ends<'n> {
    x: &'n Node,
    from: i64,
    to: i64,
    dims: &'n [u64],
    work: i64,
}

impl Generator<'_> {
    /// Waits for the transfers that have to be over before `step`, or for all.
    pub(super) fn wait_for(&mut self, scope: &Scope<'_>, step: Option<&Step>, body: &mut Vec<Code>) {
        let (mut reads, mut spans, mut all) = (Vec::new(), Vec::new(), true);
        if let Some(s) = step {
            reads = s.reads(scope.g);
            let written = |w: NodeId| (scope.base(w) as u64, scope.base(w) as u64 + scope.g.node(w).bytes());
            spans = s.writes().into_iter().map(written).collect();
            all = false;
            if let Step::Special(s) = s {
                let at = scope.scratch.get(&s.node).copied().unwrap_or(0);
                spans.push((at, at + s.scratch()));
                // What happens inside is not looked into.
                all = !s.regions.is_empty();
            }
        }
        let open = std::mem::take(&mut self.open);
        for o in open {
            let meets = |a: &(u64, u64)| spans.iter().any(|b| a.0 < b.1 && b.0 < a.1);
            if all || self.step >= o.until || reads.contains(&o.result) || o.used.iter().any(meets) {
                body.push(Code::Done { transfer: o.transfer });
            } else {
                self.open.push(o);
            }
        }
    }

    /// Index of equal groups in the program.
    fn groups(&mut self, members: &[Vec<u32>]) -> u32 {
        let all = &mut self.program.groups;
        let at = all.iter().position(|g| g.members == members).unwrap_or_else(|| {
            all.push(Groups { members: members.to_vec() });
            all.len() - 1
        });
        at as u32
    }

    fn peer(&mut self, peer: Peer) -> u32 {
        let all = &mut self.program.peers;
        let at = all.iter().position(|p| *p == peer).unwrap_or_else(|| {
            all.push(peer);
            all.len() - 1
        });
        at as u32
    }

    fn table(&mut self, table: Table) -> i32 {
        let all = &mut self.program.tables;
        let at = all.iter().position(|t| *t == table).unwrap_or_else(|| {
            all.push(table);
            all.len() - 1
        });
        at as i32
    }

    fn send(&mut self, desc: SendDesc) -> i32 {
        self.program.sends.push(desc);
        self.program.sends.len() as i32 - 1
    }

    pub(super) fn collective(
        &mut self,
        scope: &Scope<'_>,
        s: &SpecialStep,
        c: &Collective,
        body: &mut Vec<Code>,
    ) -> Result<(), CompileError> {
        let node = scope.g.node(s.node);
        let (&[arg], Some(Some(result))) = (&node.args[..], s.results.first()) else { return Ok(()) };
        let x = scope.g.node(arg);
        let ends = Ends {
            x,
            from: scope.base(arg),
            to: scope.base(*result),
            dims: &scope.g.node(*result).dims,
            work: scope.scratch.get(&s.node).copied().unwrap_or(0) as i64,
        };
        let count = self.names.entry(node.name.to_owned()).or_default();
        let name = format!("{}.{count}", node.name);
        *count += 1;
        let transfer = self.program.transfers.len() as u32;
        self.program.transfers.push(TransferInfo {
            name,
            source: node.source.clone(),
            location: node.location.clone(),
            axes: c.axes.clone(),
            queue: 0,
            bytes: scope.g.node(*result).bytes(),
            flags: 0,
        });
        // A transfer has registers of its own.
        let outside = std::mem::replace(&mut self.depth, 0);
        let made = self.exchange(node, c, &ends);
        self.depth = outside;
        let (code, flags) = made?;
        self.program.transfers[transfer as usize].flags = flags;
        body.push(Code::Start { transfer, body: code });
        let span = |at: i64, bytes: u64| (at as u64, at as u64 + bytes);
        let used =
            [span(ends.from, x.bytes()), span(ends.to, scope.g.node(*result).bytes()), span(ends.work, s.scratch())];
        self.open.push(Open { transfer, result: *result, used, until: self.step + 1 + BEHIND });
        Ok(())
    }

    fn exchange(&mut self, node: &Node, c: &Collective, ends: &Ends<'_>) -> Result<(Vec<Code>, u32), CompileError> {
        let mut k = Control::new(self, node, c);
        let (bytes, n) = (ends.x.dtype.bytes() as u64, c.size());
        match &c.exchange {
            Exchange::AllGather { dim } => {
                let cut = Cut::new(ends.dims, *dim, n, bytes);
                k.greet();
                k.beside(strands(cut, 1, &c.rings), |k, s| {
                    let own = Own { at: ends.from + (s.share.row * cut.run + s.share.at) as i64, row: cut.run };
                    k.gather(cut, s, own, ends.to);
                    Ok(())
                })?;
            }
            Exchange::ReduceScatter { dim, how } => {
                let cut = Cut::new(&ends.x.dims, *dim, n, bytes);
                let mut work = ends.work;
                k.beside(strands(cut, bytes, &c.rings), |k, s| {
                    let room = room(cut, s, &c.rings) as i64;
                    let place = ends.to + (s.share.row * cut.run + s.share.at) as i64;
                    let dense = s.share.dense(cut);
                    let to = if dense { place } else { work + room - s.share.bytes() as i64 };
                    k.scatter(cut, s, (ends.x.dtype, *how), ends.from, to, work)?;
                    if !dense {
                        k.unpack(s.share, cut.run, to, place);
                    }
                    work += room;
                    Ok(())
                })?;
            }
            Exchange::AllReduce { how } => {
                let (whole, rest) = halves(c, ends.x.elements(), bytes);
                let done = (whole * bytes) as i64;
                let mut work = ends.work;
                if whole > 0 {
                    let cut = Cut { rows: 1, parts: n, run: whole / n * bytes };
                    k.beside(strands(cut, bytes, &c.rings), |k, s| {
                        let room = room(cut, s, &c.rings) as i64;
                        let sum = work + room - s.share.bytes() as i64;
                        k.scatter(cut, s, (ends.x.dtype, *how), ends.from, sum, work)?;
                        k.gather(cut, s, Own { at: sum, row: s.share.run }, ends.to);
                        work += room;
                        Ok(())
                    })?;
                }
                if rest > 0 {
                    k.combine_all(rest, ends.x.dtype, *how, ends.from + done, ends.to + done, work)?;
                }
            }
            Exchange::AllToAll { split, concat } => {
                k.all_to_all(&ends.x.dims, *split, *concat, bytes, ends.from, ends.to);
            }
            Exchange::Permute { pairs } => k.permute(pairs, ends)?,
        }
        Ok(k.finish())
    }

    /// An operation that writes a number of each device to HBM.
    pub(super) fn device_number(
        &mut self,
        scope: &Scope<'_>,
        s: &SpecialStep,
        numbers: &[i32],
        body: &mut Vec<Code>,
    ) -> Result<(), CompileError> {
        let Some(Some(result)) = s.results.first() else { return Ok(()) };
        let table = self.table(Table::Values(numbers.to_vec()));
        code::number(self, scope.g.node(s.node), table, scope.base(*result), body)
    }
}

fn info(node: &Node, name: &str, dtype: DType, vector_flops: u64, cores: u32) -> OpInfo {
    OpInfo {
        name: name.to_owned(),
        source: node.source.clone(),
        location: node.location.clone(),
        mxu_flops: 0,
        vector_flops,
        dtype,
        cores,
        modelled_cycles: 0,
    }
}

/// The elementwise operation that combines two arrays.
fn map_of(how: Combine) -> crate::lower::math::MapOp {
    crate::graph::elementwise(how)
}
