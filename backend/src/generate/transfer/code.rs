//! Control code under construction.

use std::convert::Infallible;

use tpusim_isa::op::{Instr, Op};
use tpusim_isa::pod::{MAIN_QUEUES, Peer, SendDesc, SendDim, Table, TransferInfo};
use tpusim_isa::program::{Addr, Bundle, DmaDesc, DmaDir, Node as Code, OnChip, SReg};

use super::super::{Generator, Scope};
use super::info;
use super::share::{Share, Strand};
use crate::compile::CompileError;
use crate::graph::{Collective, Graph, Node, Ring};
use crate::lower::emit::{ZERO, counter_register};
use crate::tile::fuse::plan;

/// Registers of a transfer, as loop levels that the kernels inside it keep free.
const HELD: u32 = 8;

/// The code of a transfer.
pub(super) struct Control<'g, 'c> {
    pub gen_: &'g mut Generator<'c>,
    pub node: &'g Node,
    pub what: &'g Collective,
    groups: u32,
    /// Devices of a group.
    pub n: u64,
    code: Vec<Vec<Code>>,
    flags: u32,
    /// Transfers that have been started and not waited for.
    strands: Vec<u32>,
}

/// The register a kernel inside a transfer reads as loop counter `k`.
pub(super) const fn held(k: u32) -> u32 {
    k
}

impl<'g, 'c> Control<'g, 'c> {
    pub fn new(gen_: &'g mut Generator<'c>, node: &'g Node, c: &'g Collective) -> Self {
        let groups = gen_.groups(&c.groups);
        Control { gen_, node, what: c, groups, n: c.size(), code: vec![Vec::new()], flags: 0, strands: Vec::new() }
    }

    /// The code and the flags it uses.
    pub fn finish(mut self) -> (Vec<Code>, u32) {
        (self.code.pop().unwrap_or_default(), self.flags)
    }

    /// What `f` makes, beside the rest: a transfer of its own, on the next queue.
    pub fn strand<E>(&mut self, f: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let transfer = self.gen_.program.transfers.len() as u32;
        let strand = self.strands.len() as u32 + 1;
        // Devices need not start two transfers in the same order, so strands of two never share a queue.
        let queue = self.gen_.queue + MAIN_QUEUES * strand;
        let name = format!("{} strand {strand}", self.node.name);
        let (source, location) = (self.node.source.clone(), self.node.location.clone());
        let axes = self.what.axes.clone();
        let info = TransferInfo { name, source, location, axes, queue, bytes: 0, flags: 0 };
        self.gen_.program.transfers.push(info);
        let outside = std::mem::take(&mut self.flags);
        self.code.push(Vec::new());
        f(self)?;
        let body = self.code.pop().unwrap_or_default();
        let flags = std::mem::replace(&mut self.flags, outside);
        if let Some(t) = self.gen_.program.transfers.get_mut(transfer as usize) {
            t.flags = flags;
        }
        self.push(Code::Start { transfer, body });
        self.strands.push(transfer);
        Ok(())
    }

    /// What `f` makes for each strand: beside each other if there are several.
    pub fn beside(
        &mut self,
        strands: &[Strand],
        mut f: impl FnMut(&mut Self, &Strand) -> Result<(), CompileError>,
    ) -> Result<(), CompileError> {
        if let [only] = strands {
            return f(self, only);
        }
        strands.iter().try_for_each(|s| self.strand(|k| f(k, s)))?;
        self.join();
        Ok(())
    }

    /// Waits for all strands.
    pub fn join(&mut self) {
        for transfer in std::mem::take(&mut self.strands) {
            self.push(Code::Done { transfer });
        }
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

    /// The axes of the network along which the group lies.
    pub fn ring(&self, i: usize) -> Ring {
        self.what.rings.get(i).copied().unwrap_or(Ring::whole(self.n))
    }

    /// The lines along ring `i` as groups, in the order of the ring.
    fn lines(&mut self, i: usize) -> u32 {
        let ring = self.ring(i);
        let line = |g: &Vec<u32>, p: u64| -> Vec<u32> {
            (0..ring.size).filter_map(|r| g.get((p + ring.digit(r) * ring.stride) as usize).copied()).collect()
        };
        let first = |p: &u64| (p / ring.stride).is_multiple_of(ring.size);
        let groups = &self.what.groups;
        let all: Vec<Vec<u32>> =
            groups.iter().flat_map(|g| (0..self.n).filter(first).map(move |p| line(g, p))).collect();
        self.gen_.groups(&all)
    }

    /// `r` = this device's place on its line along ring `i`. Returns the devices before and behind it.
    pub fn along(&mut self, i: usize, r: SReg) -> (u32, u32) {
        let groups = self.lines(i);
        let table = self.gen_.table(Table::Position { groups });
        self.instr(Op::SDev, &[i32::from(r.0), table]);
        self.neighbours(i)
    }

    /// The next and the previous device round ring `i`.
    pub fn neighbours(&mut self, i: usize) -> (u32, u32) {
        let groups = self.lines(i);
        (self.gen_.peer(Peer::Shift { groups, shift: 1 }), self.gen_.peer(Peer::Shift { groups, shift: -1 }))
    }

    /// The member `shift` places further along ring `i`.
    pub fn on_line(&mut self, i: usize, shift: i32) -> u32 {
        let groups = self.lines(i);
        self.gen_.peer(Peer::Shift { groups, shift })
    }

    /// `r` = the part of the device's place in its group that these rings make up.
    pub fn offset(&mut self, rings: &[usize], r: SReg) {
        let digits: Vec<Ring> = rings.iter().map(|i| self.ring(*i)).collect();
        let mut values = vec![0; self.what.devices as usize];
        for g in &self.what.groups {
            for (p, d) in (0u64..).zip(g) {
                let part: u64 = digits.iter().map(|r| p / r.stride % r.size * r.stride).sum();
                if let Some(v) = values.get_mut(*d as usize) {
                    *v = part as i32;
                }
            }
        }
        let table = self.gen_.table(Table::Values(values));
        self.instr(Op::SDev, &[i32::from(r.0), table]);
    }

    /// `to` = the digit of the device at place `from` round a ring.
    pub fn digit(&mut self, to: SReg, from: SReg, ring: Ring) {
        let (c, low) = (i32::from(self.reg(HELD - 1).0), i32::from(self.reg(HELD - 2).0));
        let (to, from, size) = (i32::from(to.0), i32::from(from.0), ring.size as i32);
        if ring.kinds > 1 {
            // place mod kinds * (size / kinds) + place / kinds
            self.instr(Op::SLi, &[c, ring.kinds as i32 - 1]);
            self.instr(Op::SAnd, &[low, from, c]);
            self.instr(Op::SMuli, &[low, low, (ring.size / ring.kinds) as i32]);
            self.instr(Op::SLi, &[c, ring.kinds.ilog2() as i32]);
            self.instr(Op::SShr, &[to, from, c]);
            self.instr(Op::SAdd, &[to, to, low]);
            return;
        }
        if ring.closed {
            self.instr(Op::SAddi, &[to, from, 0]);
            return;
        }
        self.instr(Op::SMuli, &[low, from, -2]);
        self.instr(Op::SAddi, &[low, low, 2 * size - 1]);
        self.instr(Op::SLti, &[c, from, size.div_euclid(2) + size % 2]);
        self.instr(Op::SMuli, &[to, from, 2]);
        self.instr(Op::SSel, &[to, c, to, low]);
    }

    /// `to` = `(from + by) mod n`, `by` from `-n` to `n`, in registers whose value is below `n`.
    pub fn step(&mut self, to: SReg, from: SReg, by: i64, n: u64) {
        let by = by.rem_euclid(n.max(1) as i64) as i32;
        let n = n as i32;
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
        let mut outer: Vec<SendDim> = outer.into_iter().filter(|o| o.count != 1).collect();
        let mut bytes = bytes;
        // Runs that follow one another on both sides are one.
        while let Some(o) = outer.pop_if(|o| o.from_stride == bytes as i64 && o.to_stride == bytes as i64) {
            bytes *= u64::from(o.count);
        }
        let d = self.gen_.send(SendDesc { peer, flag, outer, bytes, from, to });
        self.instr(Op::DmaSend, &[d]);
    }

    /// Moves a dense share of a part to its place in an array of whole runs.
    pub fn unpack(&mut self, share: Share, run: u64, from: i64, to: i64) {
        let flag = self.flag();
        let me = self.shift(0);
        let rows = SendDim { count: share.rows as u32, from_stride: share.run as i64, to_stride: run as i64 };
        self.send(me, flag, vec![rows], share.run, fixed(from), fixed(to));
        self.wait(flag, 1);
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

    /// As [`Control::repeat`], for what cannot fail.
    pub fn repeat_sure(&mut self, trip: u64, f: impl FnOnce(&mut Self)) {
        let made: Result<(), Infallible> = self.repeat(trip, |k| {
            f(k);
            Ok(())
        });
        match made {
            Ok(()) => {}
            Err(e) => match e {},
        }
    }

    /// Runs the kernels of `g`, whose stored arrays are at `address`.
    pub fn local(&mut self, g: &Graph, address: &[Option<u64>]) -> Result<(), CompileError> {
        let code = self.kernels(g, address)?;
        self.run(code);
        Ok(())
    }

    /// Runs kernels.
    pub fn run(&mut self, code: Vec<Code>) {
        code.into_iter().for_each(|c| self.push(c));
    }

    /// The kernels of `g`, whose stored arrays are at `address`.
    pub fn kernels(&mut self, g: &Graph, address: &[Option<u64>]) -> Result<Vec<Code>, CompileError> {
        let plan = plan(g);
        let scratch = std::collections::BTreeMap::new();
        let scope = Scope { g, address, scratch: &scratch };
        let outside = std::mem::replace(&mut self.gen_.depth, HELD);
        let code = self.gen_.steps(&scope, &plan);
        self.gen_.depth = outside;
        code
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
