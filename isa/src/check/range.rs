//! Accesses beyond the end of VMEM, SMEM and HBM.

use super::scalar::{Sum, Unknowns};
use super::{CheckKind, Place, Report};
use crate::chip::ChipSpec;
use crate::op::{Field, Instr, Op};
use crate::program::{Addr, DmaDesc, Node, OnChip, Program, SReg};

struct Walk<'a, 'r, 'p> {
    program: &'a Program,
    chip: &'a ChipSpec,
    report: &'r mut Report<'p>,
    place: Place,
    unknowns: Unknowns,
    /// What each scalar register holds, if that can be said.
    regs: Vec<Option<Sum>>,
    vmem_rows: u64,
    smem_words: u64,
    hbm_bytes: u64,
}

pub(super) fn check(program: &Program, chip: &ChipSpec, report: &mut Report<'_>) {
    // DMAs must stay inside the plan if there is one.
    let plan = program.buffers.iter().map(|b| b.offset.saturating_add(b.bytes)).max();
    let hbm_bytes = plan.map_or(*chip.hbm.usable_bytes_device, |end| end.max(program.hbm_peak_bytes));
    let mut walk = Walk {
        program,
        chip,
        report,
        place: Place::default(),
        unknowns: Unknowns::default(),
        regs: vec![None; 256],
        vmem_rows: *chip.vmem_bytes / 512,
        smem_words: *chip.smem_bytes / 4,
        hbm_bytes,
    };
    walk.set(0, Some(Sum::constant(0)));
    walk.cores(*chip.tensorcores_per_device);
    walk.nodes(&program.body);
}

/// Scalar registers that a body writes.
fn written(nodes: &[Node], out: &mut Vec<u8>) {
    for node in nodes {
        match node {
            Node::Bundle(b) => {
                let operands = b.instrs.iter().flat_map(|i| i.operands());
                out.extend(operands.filter(|(f, _)| *f == Field::Sd).filter_map(|(_, r)| u8::try_from(r).ok()));
            }
            Node::Loop { counter, body, .. } => {
                out.push(counter.0);
                written(body, out);
            }
            inner => inner.bodies().for_each(|body| written(body, out)),
        }
    }
}

impl Walk<'_, '_, '_> {
    fn get(&self, reg: i32) -> Option<Sum> {
        usize::try_from(reg).ok().and_then(|r| self.regs.get(r)).cloned().flatten()
    }

    fn set(&mut self, reg: i32, value: Option<Sum>) {
        if let Some(slot) = usize::try_from(reg).ok().and_then(|r| self.regs.get_mut(r)) {
            *slot = value;
        }
    }

    /// `s1` of the cores that take part.
    fn cores(&mut self, count: u32) {
        let core = self.unknowns.counter(count);
        self.set(1, Some(core));
    }

    fn nodes(&mut self, nodes: &[Node]) {
        for (i, node) in nodes.iter().enumerate() {
            let outer = self.place.enter(i, node);
            match node {
                Node::Bundle(b) => self.bundle(&b.instrs),
                Node::Loop { counter, trip, body } => self.repeat(*counter, *trip, body),
                Node::While { cond, body, .. } => {
                    let mut carried = Vec::new();
                    node.bodies().for_each(|b| written(b, &mut carried));
                    let forget = |w: &mut Self| carried.iter().for_each(|r| w.set(i32::from(*r), None));
                    forget(self);
                    self.section(0, cond);
                    self.section(1, body);
                    forget(self);
                }
                Node::Case { branches, .. } => self.branches(branches),
                Node::Start { body, .. } => {
                    let outside = self.regs.clone();
                    self.regs.iter_mut().skip(2).for_each(|r| *r = Some(Sum::constant(0)));
                    self.nodes(body);
                    self.regs = outside;
                }
                Node::Done { .. } => {}
                Node::Op { op, body } => {
                    let device = *self.chip.tensorcores_per_device;
                    let info = self.program.ops.get(*op as usize);
                    self.cores(info.map_or(device, |i| i.cores.min(device)));
                    self.nodes(body);
                    self.cores(device);
                }
            }
            self.place.leave(outer);
        }
    }

    fn section(&mut self, k: usize, nodes: &[Node]) {
        self.place.path.push(k);
        self.nodes(nodes);
        self.place.path.pop();
    }

    /// What branches leave differently is not known after.
    fn branches(&mut self, branches: &[Vec<Node>]) {
        let before = self.regs.clone();
        let mut after: Option<Vec<Option<Sum>>> = None;
        for (k, branch) in branches.iter().enumerate() {
            self.regs.clone_from(&before);
            self.section(k, branch);
            match &mut after {
                None => after = Some(self.regs.clone()),
                Some(known) => known.iter_mut().zip(&self.regs).filter(|(a, b)| *a != *b).for_each(|(a, _)| *a = None),
            }
        }
        self.regs = after.unwrap_or(before);
    }

    fn repeat(&mut self, counter: SReg, trip: u32, body: &[Node]) {
        let reg = i32::from(counter.0);
        if trip > 0 {
            if trip > 1 {
                let mut carried = Vec::new();
                written(body, &mut carried);
                carried.into_iter().for_each(|r| self.set(i32::from(r), None));
            }
            let count = self.unknowns.counter(trip);
            self.set(reg, (i32::try_from(trip).is_ok()).then(|| count.clone()));
            self.nodes(body);
            for slot in &mut self.regs {
                *slot = slot.take().and_then(|s| self.unknowns.after(&s, &count, i64::from(trip) - 1));
            }
        }
        self.set(reg, i32::try_from(trip).is_ok().then(|| Sum::constant(i64::from(trip))));
    }

    fn bundle(&mut self, instrs: &[Instr]) {
        let mut writes = Vec::new();
        for (n, i) in instrs.iter().enumerate() {
            match (i.op, i.args) {
                (Op::SLd, [_, reg, imm, ..]) | (Op::SSt, [_, reg, imm, ..]) => {
                    self.access(n, i, "SMEM", "words", self.smem_words, self.at(reg, imm), (0, 1));
                }
                (Op::VLd | Op::VSt | Op::VStM, [_, reg, imm, stride, _]) => {
                    let last = 7 * i128::from(stride);
                    let span = (last.min(0), last.max(0) + 1);
                    self.access(n, i, "VMEM", "rows", self.vmem_rows, self.at(reg, imm), span);
                }
                (Op::Dma, [desc, ..]) => self.dma(n, i, desc),
                _ => {}
            }
            if i.op.fields().first() == Some(&Field::Sd) {
                let mut args = i.operands().skip(1).map(|(field, arg)| match field {
                    Field::Imm => Some(Sum::constant(i64::from(arg))),
                    _ => self.get(arg),
                });
                let args: Option<Vec<Sum>> = args.by_ref().collect();
                let value = args.and_then(|args| self.unknowns.eval(i.op, &args));
                writes.push((i.args[0], value));
            }
        }
        writes.into_iter().for_each(|(reg, value)| self.set(reg, value));
    }

    fn at(&self, reg: i32, imm: i32) -> Option<Sum> {
        self.get(reg)?.plus(&Sum::constant(i64::from(imm)), 1)
    }

    /// Reports an access of `span` from an address, if it certainly ends up outside.
    #[allow(clippy::too_many_arguments)]
    fn access(
        &mut self,
        n: usize,
        i: &Instr,
        memory: &'static str,
        unit: &'static str,
        limit: u64,
        at: Option<Sum>,
        span: (i128, i128),
    ) {
        let Some((low, high)) = at.and_then(|at| self.unknowns.bounds(&at)) else { return };
        let (low, high) = (low.saturating_add(span.0), high.saturating_add(span.1));
        if low < 0 || high > i128::from(limit) {
            let kind = CheckKind::OutOfRange { memory, unit, low, high, limit };
            self.report.add(&self.place, Some((n, i)), kind);
        }
    }

    fn address(&self, a: &Addr) -> Option<Sum> {
        a.terms
            .iter()
            .try_fold(Sum::constant(a.base), |sum, (reg, scale)| sum.plus(&self.get(i32::from(reg.0))?, *scale))
    }

    fn dma(&mut self, n: usize, i: &Instr, desc: i32) {
        let program = self.program;
        let Some(d) = usize::try_from(desc).ok().and_then(|d| program.descs.get(d)) else { return };
        let Some((hbm, local)) = spans(d) else { return };
        self.access(n, i, "HBM", "bytes", self.hbm_bytes, self.address(&d.hbm), hbm);
        let (memory, unit, limit) = match d.mem {
            OnChip::Vmem => ("VMEM", "rows", self.vmem_rows),
            OnChip::Smem => ("SMEM", "words", self.smem_words),
        };
        self.access(n, i, memory, unit, limit, self.address(&d.local), local);
    }
}

/// First and one past the last byte of HBM, and row of VMEM or word of SMEM, of a descriptor, from where it starts. `None` if it
/// moves nothing or is not valid.
fn spans(d: &DmaDesc) -> Option<((i128, i128), (i128, i128))> {
    let packing = match d.elem_bytes {
        1 => 4,
        2 => 2,
        4 => 1,
        _ => return None,
    };
    let (last_row, last_col) = (i128::from(d.rows.checked_sub(1)?), i128::from(d.cols.checked_sub(1)?));
    let tile = 8 * packing;
    // The last tile row may be cut short: the one before it may reach further.
    let row = |tile_row: i128, sublane: i128| (tile_row * i128::from(d.lane_tiles) + last_col / 128) * 8 + sublane;
    let whole = last_row / tile;
    let cut = row(whole, (last_row % tile) / packing);
    let tiled = if whole > 0 { cut.max(row(whole - 1, 7)) } else { cut };
    let last = match d.mem {
        OnChip::Vmem => tiled,
        OnChip::Smem => last_row * i128::from(d.cols) + last_col,
    };
    let mut hbm = (0, i128::from(d.elem_bytes));
    let mut local = (0, last + 1);
    let stretch = |span: &mut (i128, i128), count: u32, stride: i64| {
        let last = i128::from(count - 1) * i128::from(stride);
        *span = (span.0.saturating_add(last.min(0)), span.1.saturating_add(last.max(0)));
    };
    stretch(&mut hbm, d.rows, d.row_stride);
    stretch(&mut hbm, d.cols, d.col_stride);
    for o in &d.outer {
        if o.count == 0 {
            return None;
        }
        stretch(&mut hbm, o.count, o.hbm_stride);
        stretch(&mut local, o.count, o.local_stride);
    }
    Some((hbm, local))
}
