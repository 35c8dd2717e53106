//! Code of loops and branches: the code of their regions, and the scalar that decides.

use std::collections::BTreeMap;

use tpusim_isa::num::DType;
use tpusim_isa::op::Op;
use tpusim_isa::program::{Addr, DmaDesc, DmaDir, Node as Code, OnChip, OpInfo, SReg};

use super::{Generator, Scope};
use crate::compile::CompileError;
use crate::graph::{Node, NodeId, While};
use crate::lower::emit::ZERO;
use crate::tile::fuse::SpecialStep;
use crate::tile::memory::Place;
use crate::tile::region::RegionPlan;

impl Generator<'_> {
    /// The code of a region of `s`, and the address of its first output.
    fn region(&mut self, scope: &Scope<'_>, s: &SpecialStep, r: &RegionPlan) -> Result<(Vec<Code>, i64), CompileError> {
        let base = scope.scratch.get(&s.node).copied().unwrap_or(0);
        let args = &scope.g.node(s.node).args;
        let at = |p: &Place| match *p {
            Place::Operand(k) => args.get(k).and_then(|a| scope.address[a.ix()]),
            Place::Result(k) => s.results.get(k).copied().flatten().and_then(|r| scope.address[r.ix()]),
            Place::Scratch(offset) => Some(base + offset),
        };
        let address: Vec<Option<u64>> = r.layout.place.iter().map(|p| p.as_ref().and_then(at)).collect();
        let scratch: BTreeMap<NodeId, u64> = r.layout.scratch.iter().map(|(n, o)| (*n, base + o)).collect();
        let inner = Scope { g: &r.graph, address: &address, scratch: &scratch };
        let code = self.steps(&inner, &r.plan.steps)?;
        Ok((code, r.graph.outputs.first().map_or(0, |o| inner.base(*o))))
    }

    pub(super) fn while_loop(
        &mut self,
        scope: &Scope<'_>,
        s: &SpecialStep,
        w: &While,
        body: &mut Vec<Code>,
    ) -> Result<(), CompileError> {
        let Some(inner) = s.regions.first() else { return Ok(()) };
        let Some(trip) = w.trip else { return self.tested_loop(scope, s, inner, body) };
        let counter = SReg((*self.chip.regs.scalar).min(255).saturating_sub(1 + self.depth) as u8);
        self.depth += 1;
        let code = self.region(scope, s, inner);
        self.depth -= 1;
        body.push(Code::Loop { counter, trip, body: code?.0 });
        Ok(())
    }

    fn tested_loop(
        &mut self,
        scope: &Scope<'_>,
        s: &SpecialStep,
        inner: &RegionPlan,
        body: &mut Vec<Code>,
    ) -> Result<(), CompileError> {
        let Some(cond) = s.regions.get(1) else { return Ok(()) };
        let node = scope.g.node(s.node);
        let (mut cond, at) = self.region(scope, s, cond)?;
        let test = self.scalar(node, "condition", at, DType::I1, &mut cond)?;
        let (code, _) = self.region(scope, s, inner)?;
        let info = self.flow(node, FlowKind::While);
        let _ = (info, cond, test, code, body);
        Ok(())
    }

    pub(super) fn case(
        &mut self,
        scope: &Scope<'_>,
        s: &SpecialStep,
        body: &mut Vec<Code>,
    ) -> Result<(), CompileError> {
        let node = scope.g.node(s.node);
        let Some(&index) = node.args.first() else { return Ok(()) };
        let selector = self.scalar(node, "selector", scope.base(index), scope.g.node(index).dtype, body)?;
        let mut branches = Vec::new();
        for r in &s.regions {
            branches.push(self.region(scope, s, r)?.0);
        }
        let info = self.flow(node, FlowKind::Case);
        let _ = (info, selector, branches);
        Ok(())
    }

    fn flow(&mut self, node: &Node, kind: FlowKind) -> u32 {
        let _ = (node, kind);
        0
    }

    /// An operation that reads the scalar at `at` of HBM into a register of every core.
    fn scalar(
        &mut self,
        node: &Node,
        what: &str,
        at: i64,
        dtype: DType,
        body: &mut Vec<Code>,
    ) -> Result<SReg, CompileError> {
        let info = OpInfo {
            name: format!("{}_{what}", node.name),
            source: node.source.clone(),
            location: node.location.clone(),
            mxu_flops: 0,
            vector_flops: 0,
            dtype,
            cores: *self.chip.tensorcores_per_device,
            modelled_cycles: 0,
        };
        let text = format!("scalar {dtype} at {at}\n");
        let mut register = ZERO;
        self.operation(info, text, body, |e| {
            register = e.sreg()?;
            let (flag, word) = (e.flag()?, e.smem(1)?);
            let fixed = |base: i64| Addr { base, terms: Vec::new() };
            let desc = DmaDesc {
                dir: DmaDir::Load,
                mem: OnChip::Smem,
                elem_bytes: dtype.bytes() as u8,
                outer: Vec::new(),
                rows: 1,
                row_stride: 0,
                cols: 1,
                col_stride: dtype.bytes() as i64,
                lane_tiles: 1,
                hbm: fixed(at),
                local: fixed(i64::from(word)),
            };
            e.dma(desc, flag);
            e.wait(flag, 1);
            e.flush()?;
            e.si(Op::SLd, register, ZERO, word as i32);
            e.flush()
        })?;
        Ok(register)
    }
}

enum FlowKind {
    While,
    Case,
}
