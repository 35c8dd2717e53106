//! The text of what a program says to other devices.

use std::fmt::{self, Write};

use super::cursor::{Parser, Result};
use super::lex::Tok;
use super::print::{quote, write_addr};
use crate::pod::{Groups, Peer, SendDesc, SendDim, Table, TransferInfo};

pub(super) fn write_groups(out: &mut String, i: usize, g: &Groups) -> fmt::Result {
    write!(out, "groups {i}")?;
    for members in &g.members {
        let list: Vec<String> = members.iter().map(u32::to_string).collect();
        write!(out, " [{}]", list.join(", "))?;
    }
    Ok(())
}

pub(super) fn write_peer(out: &mut String, i: usize, p: &Peer) -> fmt::Result {
    match p {
        Peer::Shift { groups, shift } => write!(out, "peer {i} groups {groups} shift {shift}"),
        Peer::Pairs(pairs) => {
            write!(out, "peer {i} pairs")?;
            pairs.iter().try_for_each(|(from, to)| write!(out, " [{from}: {to}]"))
        }
    }
}

pub(super) fn write_table(out: &mut String, i: usize, t: &Table) -> fmt::Result {
    match t {
        Table::Position { groups } => write!(out, "table {i} position {groups}"),
        Table::Values(values) => {
            write!(out, "table {i} values")?;
            values.iter().try_for_each(|v| write!(out, " {v}"))
        }
    }
}

pub(super) fn write_send(out: &mut String, i: usize, d: &SendDesc) -> fmt::Result {
    write!(out, "send send{i} peer {} flag {}", d.peer, d.flag)?;
    for o in &d.outer {
        write!(out, " outer [{}: {}, {}]", o.count, o.from_stride, o.to_stride)?;
    }
    write!(out, " bytes {} from ", d.bytes)?;
    write_addr(out, &d.from)?;
    out.push_str(" to ");
    write_addr(out, &d.to)
}

pub(super) fn write_transfer(out: &mut String, i: usize, t: &TransferInfo) -> fmt::Result {
    write!(out, "transfer {i} ")?;
    quote(out, &t.name);
    out.push_str(" source ");
    quote(out, &t.source);
    out.push_str(" at ");
    quote(out, &t.location);
    out.push_str(" axes ");
    quote(out, &t.axes);
    write!(out, " queue {} bytes {} flags {}", t.queue, t.bytes, t.flags)
}

impl Parser<'_> {
    pub fn groups(&mut self, index: usize) -> Result<Groups> {
        self.index(index, "groups")?;
        let mut members = Vec::new();
        while self.is_sign('[') {
            self.advance()?;
            let mut group = Vec::new();
            while !self.is_sign(']') {
                group.push(self.unsigned("a device")?);
                if self.is_sign(',') {
                    self.advance()?;
                } else if !self.is_sign(']') {
                    return self.expected("`,` or `]` after the device");
                }
            }
            self.advance()?;
            members.push(group);
        }
        Ok(Groups { members })
    }

    pub fn peer(&mut self, index: usize) -> Result<Peer> {
        self.index(index, "peer")?;
        if self.is_word("groups") {
            let groups = self.keyed("groups")?;
            let shift = self.keyed_signed("shift")?;
            return match i32::try_from(shift) {
                Ok(shift) => Ok(Peer::Shift { groups, shift }),
                Err(_) => self.fail(format!("shift {shift} does not fit 32 bits")),
            };
        }
        self.word("pairs")?;
        let mut pairs = Vec::new();
        while self.is_sign('[') {
            self.advance()?;
            let from = self.unsigned("the sending device")?;
            self.sign(':')?;
            let to = self.unsigned("the receiving device")?;
            self.sign(']')?;
            pairs.push((from, to));
        }
        Ok(Peer::Pairs(pairs))
    }

    pub fn table(&mut self, index: usize) -> Result<Table> {
        self.index(index, "table")?;
        if self.is_word("position") {
            return Ok(Table::Position { groups: self.keyed("position")? });
        }
        self.word("values")?;
        let mut values = Vec::new();
        while self.is_sign('-') || matches!(self.token.kind, Tok::Int(_)) {
            let v = self.signed("a value")?;
            match i32::try_from(v) {
                Ok(v) => values.push(v),
                Err(_) => return self.fail(format!("value {v} does not fit 32 bits")),
            }
        }
        Ok(Table::Values(values))
    }

    pub fn send(&mut self, index: usize) -> Result<SendDesc> {
        let n = self.numbered("send", "a send descriptor")?;
        if n as usize != index {
            return self.fail(format!("expected `send{index}`, the next send descriptor, found `send{n}`"));
        }
        let peer = self.keyed("peer")?;
        let flag = self.keyed("flag")?;
        let mut outer = Vec::new();
        while self.eat("outer")? {
            self.sign('[')?;
            let count = self.unsigned("a count")?;
            self.sign(':')?;
            let from_stride = self.signed("the sender's stride in bytes")?;
            self.sign(',')?;
            let to_stride = self.signed("the receiver's stride in bytes")?;
            self.sign(']')?;
            outer.push(SendDim { count, from_stride, to_stride });
        }
        let bytes = self.keyed("bytes")?;
        self.word("from")?;
        let from = self.addr()?;
        self.word("to")?;
        Ok(SendDesc { peer, flag, outer, bytes, from, to: self.addr()? })
    }

    pub fn transfer(&mut self, index: usize) -> Result<TransferInfo> {
        self.index(index, "transfer")?;
        let name = self.string()?;
        self.word("source")?;
        let source = self.string()?;
        self.word("at")?;
        let location = self.string()?;
        self.word("axes")?;
        let axes = self.string()?;
        let queue = self.keyed("queue")?;
        let bytes = self.keyed("bytes")?;
        let flags = self.keyed("flags")?;
        Ok(TransferInfo { name, source, location, axes, queue, bytes, flags })
    }
}
