//! Code of loops and branches: the code of their regions, and the scalar that decides.

use std::collections::BTreeMap;

use tpusim_isa::num::DType;
use tpusim_isa::program::{FlowInfo, FlowKind, Node as Code, OpInfo, SReg};

use super::{Generator, Scope};
use crate::compile::CompileError;
use crate::graph::{Node, NodeId, While};
use crate::lower::emit::{ZERO, counter_register};
use crate::lower::scalar;
use crate::tile::fuse::{Decision, SpecialStep};
use crate::tile::kernel::Scalars;
use crate::tile::memory::Place;
use crate::tile::region::RegionPlan;

/// Addresses of the arrays and of the scratch memory of steps of a region of `s`.
fn inside(scope: &Scope<'_>, s: &SpecialStep, r: &RegionPlan) -> (Vec<Option<u64>>, BTreeMap<NodeId, u64>) {
    let base = scope.scratch.get(&s.node).copied().unwrap_or(0);
    let node = scope.g.node(s.node);
    let at = |p: &Place| match *p {
        Place::Operand(k) => node.args.get(k).and_then(|a| scope.address[a.ix()]),
        Place::Result(k) => s.results.get(k).copied().flatten().and_then(|r| scope.address[r.ix()]),
        Place::Scratch(offset) => Some(base + offset),
    };
    let address = r.layout.place.iter().map(|p| p.as_ref().and_then(at)).collect();
    (address, r.layout.scratch.iter().map(|(n, o)| (*n, base + o)).collect())
}

impl Generator<'_> {
    /// The code of a region of `s`, and the register of what it decides.
    fn region(
        &mut self,
        scope: &Scope<'_>,
        s: &SpecialStep,
        r: &RegionPlan,
    ) -> Result<(Vec<Code>, SReg), CompileError> {
        let node = scope.g.node(s.node);
        let (address, scratch) = inside(scope, s, r);
        let inner = Scope { g: &r.graph, address: &address, scratch: &scratch };
        self.depth += 1;
        let code = self.steps(&inner, &r.plan);
        self.depth -= 1;
        let mut code = code?;
        let register = match &r.decision {
            Some(d) => self.decide(node, "condition", &inner, d, &mut code)?,
            None => ZERO,
        };
        Ok((code, register))
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
        if let Some(pipeline) = &inner.pipeline {
            let (address, scratch) = inside(scope, s, inner);
            let within = Scope { g: &inner.graph, address: &address, scratch: &scratch };
            return self.pipelined_loop((&within, scope.g.node(s.node)), (&inner.plan, pipeline), trip, body);
        }
        let counter = counter_register(self.chip, self.depth);
        let (code, _) = self.region(scope, s, inner)?;
        body.push(Code::Loop { counter, trip, body: code });
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
        let (cond, test) = self.region(scope, s, cond)?;
        let (code, _) = self.region(scope, s, inner)?;
        let info = self.flow(node, FlowKind::While);
        body.push(Code::While { info, cond, test, body: code });
        Ok(())
    }

    pub(super) fn case(
        &mut self,
        scope: &Scope<'_>,
        s: &SpecialStep,
        body: &mut Vec<Code>,
    ) -> Result<(), CompileError> {
        let node = scope.g.node(s.node);
        let Some(decision) = &s.decision else { return Ok(()) };
        let selector = self.decide(node, "selector", scope, decision, body)?;
        let mut branches = Vec::new();
        for r in &s.regions {
            branches.push(self.region(scope, s, r)?.0);
        }
        let info = self.flow(node, FlowKind::Case);
        body.push(Code::Case { info, selector, branches });
        Ok(())
    }

    pub(super) fn flow(&mut self, node: &Node, kind: FlowKind) -> u32 {
        let flows = &mut self.program.flows;
        flows.push(FlowInfo { name: format!("stablehlo.{}", node.name), location: node.location.clone(), kind });
        flows.len() as u32 - 1
    }

    /// An operation that computes a scalar in a register of every core.
    fn decide(
        &mut self,
        node: &Node,
        what: &str,
        scope: &Scope<'_>,
        d: &Decision,
        body: &mut Vec<Code>,
    ) -> Result<SReg, CompileError> {
        let info = OpInfo {
            name: format!("{}_{what}", node.name),
            source: node.source.clone(),
            location: node.location.clone(),
            mxu_flops: 0,
            vector_flops: 0,
            dtype: DType::I32,
            cores: *self.chip.tensorcores_per_device,
            modelled_cycles: 0,
        };
        let text = format!("scalar\n{}", Scalars(&d.scalars));
        let of = |node: usize| scope.base(NodeId(node as u32));
        let mut register = ZERO;
        self.operation(info, text, body, |e| {
            register = scalar::decide(e, &of, &d.scalars)?;
            Ok(())
        })?;
        Ok(register)
    }
}
