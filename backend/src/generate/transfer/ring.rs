//! Rings: every device talks to its neighbours in the group alone.

use std::convert::Infallible;

use tpusim_isa::num::DType;
use tpusim_isa::op::Op;
use tpusim_isa::pod::SendDim;

use super::code::{Control, at, fixed, held};
use super::{Cut, map_of};
use crate::compile::CompileError;
use crate::graph::{Counter, Graph, Node, NodeId, NodeOp};
use crate::lower::math::Combine;

/// Registers of a ring.
const CHUNK: u32 = 0;
const SLOT: u32 = 1;
const BACK: u32 = 2;
const OWN: u32 = 3;

fn dims(cut: Cut, from: u64, to: u64) -> Vec<SendDim> {
    vec![SendDim { count: cut.rows as u32, from_stride: from as i64, to_stride: to as i64 }]
}

fn sure(r: Result<(), Infallible>) {
    match r {
        Ok(()) => {}
        Err(e) => match e {},
    }
}

impl Control<'_, '_> {
    /// Everybody's part at `from` to everybody's array at `to`, which is cut as `cut` says.
    pub(super) fn all_gather(&mut self, cut: Cut, from: i64, to: i64) {
        let (forward, backward) = (self.n / 2, (self.n - 1) / 2);
        let (next, prev, own) = (self.shift(1), self.shift(-1), self.shift(0));
        let (ready, fore, aft, kept) = (self.flag(), self.flag(), self.flag(), self.flag());
        let [position, ahead, back] = [OWN, CHUNK, BACK].map(|k| self.reg(k));
        let row = cut.parts * cut.run;
        self.position(position);
        for peer in [next, prev] {
            self.signal(peer, ready);
        }
        let fresh = dims(cut, cut.run, row);
        self.send(own, kept, fresh.clone(), cut.run, fixed(from), at(to, position, cut.run));
        self.wait(ready, 2);
        self.send(next, fore, fresh.clone(), cut.run, fixed(from), at(to, position, cut.run));
        if backward > 0 {
            self.send(prev, aft, fresh, cut.run, fixed(from), at(to, position, cut.run));
        }
        self.step(ahead, position, 0);
        self.step(back, position, 0);
        let whole = dims(cut, row, row);
        let on = |k: &mut Self| {
            k.wait(fore, 1);
            k.step(ahead, ahead, -1);
            k.send(next, fore, whole.clone(), cut.run, at(to, ahead, cut.run), at(to, ahead, cut.run));
            k.wait(aft, 1);
            k.step(back, back, 1);
            k.send(prev, aft, whole.clone(), cut.run, at(to, back, cut.run), at(to, back, cut.run));
        };
        sure(self.repeat(backward.saturating_sub(1), |k| {
            on(k);
            Ok(())
        }));
        // The part of the device opposite comes half each way.
        if forward > backward && forward > 1 {
            let half = cut.run / 2;
            self.wait(fore, 1);
            self.step(ahead, ahead, -1);
            self.send(next, fore, whole.clone(), half, at(to, ahead, cut.run), at(to, ahead, cut.run));
            self.wait(aft, 1);
            self.step(back, back, 1);
            let rest = at(to + half as i64, back, cut.run);
            self.send(prev, aft, whole.clone(), cut.run - half, rest.clone(), rest);
        }
        self.wait(fore, 1);
        self.wait(aft, u64::from(backward > 0));
        self.wait(kept, 1);
    }

    /// The combination of everybody's own part of the arrays at `from`, to `to`. `work` has room for two parts and, unless `to` is there
    /// already, a third.
    pub(super) fn reduce_scatter(
        &mut self,
        cut: Cut,
        dtype: DType,
        how: Combine,
        from: i64,
        to: i64,
        work: i64,
    ) -> Result<(), CompileError> {
        let n = self.n;
        let (next, prev) = (self.shift(1), self.shift(-1));
        let (credit, data) = (self.flag(), self.flag());
        let [chunk, slot] = [CHUNK, SLOT].map(|k| self.reg(k));
        let part = cut.part();
        let partial = work + 2 * part as i64;
        self.position(chunk);
        // There is room for two messages before the first has been used.
        for _ in 0..(n - 1).min(2) {
            self.signal(prev, credit);
        }
        self.step(chunk, chunk, -1);
        self.wait(credit, 1);
        let strided = dims(cut, cut.parts * cut.run, cut.run);
        self.send(next, data, strided, cut.run, at(from, chunk, cut.run), fixed(work));
        self.instr(Op::SLi, &[i32::from(slot.0), 0]);
        let elem = dtype.bytes() as u64;
        let add = Add { cut, dtype, how, run: cut.run / elem };
        let step = |k: &mut Self, again: bool| -> Result<(), CompileError> {
            k.wait(data, 1);
            k.step(chunk, chunk, -1);
            k.add(&add, work, from, partial)?;
            if again {
                k.signal(prev, credit);
            }
            k.wait(credit, 1);
            k.instr(Op::SXori, &[i32::from(slot.0), i32::from(slot.0), 1]);
            k.send(next, data, Vec::new(), part, fixed(partial), at(work, slot, part));
            Ok(())
        };
        self.repeat((n - 1).saturating_sub(2), |k| step(k, true))?;
        if n > 2 {
            step(self, false)?;
        }
        self.wait(data, 1);
        self.step(chunk, chunk, -1);
        self.add(&add, work, from, to)
    }

    /// Combines the message in the slot with one's own chunk.
    fn add(&mut self, a: &Add, slots: i64, from: i64, to: i64) -> Result<(), CompileError> {
        let node = |op: NodeOp, args: &[u32], dims: &[u64], dtype: DType| Node {
            op,
            args: args.iter().map(|i| NodeId(*i)).collect(),
            dims: dims.to_vec(),
            dtype,
            source: self.node.source.clone(),
            location: self.node.location.clone(),
            name: "combine",
        };
        let (rows, parts, run) = (a.cut.rows, a.cut.parts, a.run);
        let counter = |k: u32| NodeOp::Counter(Counter { level: held(k), start: 0, step: 1 });
        let nodes = vec![
            node(NodeOp::Param(0), &[], &[2, rows, run], a.dtype),
            node(NodeOp::Param(1), &[], &[rows, parts, run], a.dtype),
            node(counter(SLOT), &[], &[], DType::I32),
            node(counter(CHUNK), &[], &[], DType::I32),
            node(NodeOp::DynSlice(vec![0]), &[0, 2], &[1, rows, run], a.dtype),
            node(NodeOp::DynSlice(vec![1]), &[1, 3], &[rows, 1, run], a.dtype),
            node(NodeOp::Reshape, &[4], &[rows, run], a.dtype),
            node(NodeOp::Reshape, &[5], &[rows, run], a.dtype),
            node(NodeOp::Map(map_of(a.how)), &[6, 7], &[rows, run], a.dtype),
        ];
        let mut address = vec![None; nodes.len()];
        (address[0], address[1], address[8]) = (Some(slots as u64), Some(from as u64), Some(to as u64));
        let params = vec![NodeId(0), NodeId(1)];
        let g = Graph { nodes, params, outputs: vec![NodeId(8)], ..Graph::default() };
        self.local(&g, &address)
    }
}

/// How parts combine.
struct Add {
    cut: Cut,
    dtype: DType,
    how: Combine,
    /// Elements of a run.
    run: u64,
}
