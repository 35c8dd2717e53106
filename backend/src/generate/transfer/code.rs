//! Control code under construction.

use tpusim_isa::op::{Instr, Op};
use tpusim_isa::pod::{Peer, SendDesc, SendDim, Table};
use tpusim_isa::program::{Addr, Bundle, DmaDesc, DmaDir, Node as Code, OnChip, SReg};

use super::super::{Generator, Scope};
use super::info;
use crate::compile::CompileError;
use crate::graph::{Collective, Graph, Node};
use crate::lower::emit::{ZERO, counter_register};
use crate::tile::fuse::plan;

/// Registers of a transfer, as loop levels that the kernels inside it keep free.
const HELD: u32 = 8;

/// The code of a transfer.
pub(super) struct Control<'g, 'c> {
    pub gen_: &'g mut Generator<'c>,
    pub node: &'g Node,
    groups: u32,
    /// Devices of a group.
    pub n: u64,
    code: Vec<Vec<Code>>,
    flags: u32,
}

/// The register a kernel inside a transfer reads as loop counter `k`.
pub(super) const fn held(k: u32) -> u32 {
    k
}

impl<'g, 'c> Control<'g, 'c> {
    pub fn new(gen_: &'g mut Generator<'c>, node: &'g Node, c: &Collective) -> Self {
        let groups = gen_.groups(&c.groups);
        Control { gen_, node, groups, n: c.size(), code: vec![Vec::new()], flags: 0 }
    }

    /// The code and the flags it uses.
    pub fn finish(mut self) -> (Vec<Code>, u32) {
        (self.code.pop().unwrap_or_default(), self.flags)
    }

    /// A sync flag of its own.
    pub fn flag(&mut self) -> u32 {
        self.flags += 1;
        self.flags - 1
    }

    /// Register number `k` of the transfer.
    pub fn reg(&self, k: u32) -> SReg {
        counter_register(self.gen_.chip, k)
    }

    fn push(&mut self, node: Code) {
        if let Some(body) = self.code.last_mut() {
            body.push(node);
        }
    }

    pub fn instr(&mut self, op: Op, args: &[i32]) {
        self.push(Code::Bundle(Bundle { instrs: vec![Instr::new(op, args)] }));
    }

    pub fn wait(&mut self, flag: u32, n: u64) {
        if n > 0 {
            self.instr(Op::DmaWait, &[flag as i32, n as i32]);
        }
    }

    /// `r` = this device's place in its group.
    pub fn position(&mut self, r: SReg) {
        let table = self.gen_.table(Table::Position { groups: self.groups });
        self.instr(Op::SDev, &[i32::from(r.0), table]);
    }

    /// `to` = `(from + by) mod n`, `by` from -1 to n, in registers whose value is below n.
    pub fn step(&mut self, to: SReg, from: SReg, by: i64) {
        let n = self.n as i32;
        let by = by.rem_euclid(self.n as i64) as i32;
        let (c, low) = (i32::from(self.reg(HELD - 1).0), i32::from(self.reg(HELD - 2).0));
        let to = i32::from(to.0);
        self.instr(Op::SAddi, &[to, i32::from(from.0), by]);
        self.instr(Op::SLti, &[c, to, n]);
        self.instr(Op::SAddi, &[low, to, -n]);
        self.instr(Op::SSel, &[to, c, to, low]);
    }

    /// The member `shift` places further round.
    pub fn shift(&mut self, shift: i32) -> u32 {
        self.gen_.peer(Peer::Shift { groups: self.groups, shift })
    }

    pub fn pairs(&mut self, pairs: Vec<(u32, u32)>) -> u32 {
        self.gen_.peer(Peer::Pairs(pairs))
    }

    /// A signal without bytes.
    pub fn signal(&mut self, peer: u32, flag: u32) {
        let none = || Addr { base: 0, terms: Vec::new() };
        let d = self.gen_.send(SendDesc { peer, flag, outer: Vec::new(), bytes: 0, from: none(), to: none() });
        self.instr(Op::DmaSend, &[d]);
    }

    /// Sends `outer` times `bytes`.
    pub fn send(&mut self, peer: u32, flag: u32, outer: Vec<SendDim>, bytes: u64, from: Addr, to: Addr) {
        let outer = outer.into_iter().filter(|o| o.count != 1).collect();
        let d = self.gen_.send(SendDesc { peer, flag, outer, bytes, from, to });
        self.instr(Op::DmaSend, &[d]);
    }

    /// What `f` makes, `trip` times.
    pub fn repeat<E>(&mut self, trip: u64, f: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        if trip == 0 {
            return Ok(());
        }
        self.code.push(Vec::new());
        f(self)?;
        let body = self.code.pop().unwrap_or_default();
        let counter = self.reg(HELD - 3);
        self.push(Code::Loop { counter, trip: trip as u32, body });
        Ok(())
    }

    /// Runs the kernels of `g`, whose stored arrays are at `address`.
    pub fn local(&mut self, g: &Graph, address: &[Option<u64>]) -> Result<(), CompileError> {
        let plan = plan(g);
        let scratch = std::collections::BTreeMap::new();
        let scope = Scope { g, address, scratch: &scratch };
        let outside = std::mem::replace(&mut self.gen_.depth, HELD);
        let code = self.gen_.steps(&scope, &plan);
        self.gen_.depth = outside;
        code?.into_iter().for_each(|c| self.push(c));
        Ok(())
    }
}

/// `base + register * scale`.
pub(super) fn at(base: i64, r: SReg, scale: u64) -> Addr {
    Addr { base, terms: vec![(r, scale as i64)] }
}

/// `base`.
pub(super) fn fixed(base: i64) -> Addr {
    Addr { base, terms: Vec::new() }
}

/// Writes this device's entry of a table to `to`.
pub(super) fn number(
    gen_: &mut Generator<'_>,
    node: &Node,
    table: i32,
    to: i64,
    body: &mut Vec<Code>,
) -> Result<(), CompileError> {
    let mut register = ZERO;
    let mut inside = Vec::new();
    let text = format!("device number from table {table}\n");
    gen_.operation(info(node, node.name, node.dtype, 0, 1), text, &mut inside, |e| {
        register = e.sreg()?;
        let (flag, word) = (e.flag()?, e.smem(1)?);
        e.code.raw(Op::SSt, &[i32::from(register.0), i32::from(ZERO.0), word as i32]);
        let desc = DmaDesc {
            dir: DmaDir::Store,
            mem: OnChip::Smem,
            elem_bytes: 4,
            outer: Vec::new(),
            rows: 1,
            row_stride: 0,
            cols: 1,
            col_stride: 4,
            lane_tiles: 0,
            hbm: fixed(to),
            local: fixed(i64::from(word)),
        };
        e.dma(desc, flag);
        e.wait(flag, 1);
        e.flush()
    })?;
    let read = Instr::new(Op::SDev, &[i32::from(register.0), table]);
    body.push(Code::Bundle(Bundle { instrs: vec![read] }));
    body.append(&mut inside);
    Ok(())
}
