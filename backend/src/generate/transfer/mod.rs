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
//! - All-to-all and permutations are sent straight; the network finds the way. A broadcast sends everybody a part, which all then gather.

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

use code::Control;
use gather::Own;
use scatter::room;
use share::{Along, Share, Strand, strands};

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
            let bytes_of = |s: &Strand| room(cut, s, &c.rings) + if s.share.dense(cut) { 0 } else { s.share.bytes() };
            strands(cut, bytes, &c.rings, Along::Scatter).iter().map(bytes_of).sum()
        }
        Exchange::AllReduce { .. } => {
            let (whole, rest) = halves(c, x.elements(), bytes);
            let longest = c.rings.iter().map(|r| r.size).max().unwrap_or(n);
            let cut = Cut { rows: 1, parts: n, run: whole / n * bytes };
            let rooms = |s: &Strand| room(cut, s, &c.rings);
            let along = || strands(cut, bytes, &c.rings, Along::Scatter).iter().map(rooms).sum::<u64>();
            let rings = if whole > 0 { cut.part() + along() } else { 0 };
            rings + (longest + 1) * rest * bytes
        }
        Exchange::Broadcast => x.elements() / n * bytes,
        _ => 0,
    }
}

/// A transfer that has not been waited for.
pub(crate) struct Open {
    /// Its number in the program.
    pub transfer: u32,
    result: NodeId,
    /// Operand, result and scratch memory, as first bytes and ends.
    used: [(u64, u64); 3],
    /// The step that waits for it at the latest.
    pub until: usize,
}

/// The operand and the result of a collective.
struct Ends<'n> {
    x: &'n Node,
    from: i64,
    to: i64,
    dims: &'n [u64],
    work: i64,
}

/// First bytes and ends of the arrays that `step` writes.
fn written(scope: &Scope<'_>, step: &Step) -> Vec<(u64, u64)> {
    let array = |w: NodeId| (scope.base(w) as u64, scope.base(w) as u64 + scope.g.node(w).bytes());
    let mut spans: Vec<(u64, u64)> = step.writes().into_iter().map(array).collect();
    if let Step::Special(s) = step {
        let at = scope.scratch.get(&s.node).copied().unwrap_or(0);
        spans.push((at, at + s.scratch()));
    }
    spans
}

impl Open {
    /// Whether it has to be over before `step`, which reads what it brings or writes over what it works on.
    pub(super) fn before(&self, scope: &Scope<'_>, step: &Step) -> bool {
        let meets = |b: &(u64, u64)| self.used.iter().any(|a| a.0 < b.1 && b.0 < a.1);
        step.reads(scope.g).contains(&self.result) || written(scope, step).iter().any(meets)
    }
}

impl Generator<'_> {
    /// Waits for the transfers that have to be over before `step`, or for all.
    pub(super) fn wait_for(&mut self, scope: &Scope<'_>, step: Option<&Step>, body: &mut Vec<Code>) {
        let now = self.step;
        let (over, open): (Vec<Open>, Vec<Open>) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|o| step.is_none_or(|s| now >= o.until || o.before(scope, s)));
        self.open = open;
        body.extend(over.into_iter().map(|o| Code::Done { transfer: o.transfer }));
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
            queue: self.queue,
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
        let until = self.ends.get(&self.step).copied().unwrap_or(self.step + 1);
        self.open.push(Open { transfer, result: *result, used, until });
        Ok(())
    }

    fn exchange(&mut self, node: &Node, c: &Collective, ends: &Ends<'_>) -> Result<(Vec<Code>, u32), CompileError> {
        let mut k = Control::new(self, node, c);
        let (bytes, n) = (ends.x.dtype.bytes() as u64, c.size());
        match &c.exchange {
            Exchange::AllGather { dim } => {
                let cut = Cut::new(ends.dims, *dim, n, bytes);
                k.greet();
                let all = strands(cut, 1, &c.rings, Along::Gather);
                let own = |k: usize| {
                    let share = all.get(k).map_or(Share::all(cut), |s| s.share);
                    Own { at: ends.from + (share.row * cut.run + share.at) as i64, row: cut.run }
                };
                k.gather(cut, &all, own, ends.to)?;
            }
            Exchange::ReduceScatter { dim, how } => {
                let cut = Cut::new(&ends.x.dims, *dim, n, bytes);
                let mut work = ends.work;
                k.beside(&strands(cut, bytes, &c.rings, Along::Scatter), |k, s| {
                    let place = ends.to + (s.share.row * cut.run + s.share.at) as i64;
                    let dense = s.share.dense(cut);
                    let to = if dense { place } else { work };
                    work += if dense { 0 } else { s.share.bytes() as i64 };
                    k.scatter(cut, s, (ends.x.dtype, *how), ends.from, to, work)?;
                    if !dense {
                        k.unpack(s.share, cut.run, to, place);
                    }
                    work += room(cut, s, &c.rings) as i64;
                    Ok(())
                })?;
            }
            Exchange::AllReduce { how } => {
                let (whole, rest) = halves(c, ends.x.elements(), bytes);
                let done = (whole * bytes) as i64;
                let mut work = ends.work;
                if whole > 0 {
                    let cut = Cut { rows: 1, parts: n, run: whole / n * bytes };
                    let sum = work;
                    work += cut.part() as i64;
                    k.beside(&strands(cut, bytes, &c.rings, Along::Scatter), |k, s| {
                        k.scatter(cut, s, (ends.x.dtype, *how), ends.from, sum + s.share.at as i64, work)?;
                        work += room(cut, s, &c.rings) as i64;
                        Ok(())
                    })?;
                    let all = strands(cut, bytes, &c.rings, Along::Gather);
                    let own = |k: usize| Own { at: sum + all.get(k).map_or(0, |s| s.share.at as i64), row: cut.run };
                    k.gather(cut, &all, own, ends.to)?;
                }
                if rest > 0 {
                    k.combine_all(rest, ends.x.dtype, *how, ends.from + done, ends.to + done, work)?;
                }
            }
            Exchange::AllToAll { split, concat } => {
                k.all_to_all(&ends.x.dims, *split, *concat, bytes, ends.from, ends.to);
            }
            Exchange::Permute { pairs } => k.permute(pairs, ends)?,
            Exchange::Broadcast => k.broadcast(ends)?,
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
