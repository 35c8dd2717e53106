//! What a program says to other devices.

use super::sections::{Reader, Result, Writer, read_addr, write_addr};
use crate::pod::{Groups, Peer, SendDesc, SendDim, Table, TransferInfo};
use crate::program::Program;

pub(super) fn write(p: &Program) -> Vec<u8> {
    let mut w = Writer::default();
    w.items(&p.groups, |w, g| w.items(&g.members, |w, m| w.items(m, |w, d| w.u32(*d))));
    w.items(&p.peers, |w, p| match p {
        Peer::Shift { groups, shift } => {
            w.u8(0);
            w.u32(*groups);
            w.u32(*shift as u32);
        }
        Peer::Pairs(pairs) => {
            w.u8(1);
            w.items(pairs, |w, (from, to)| {
                w.u32(*from);
                w.u32(*to);
            });
        }
    });
    w.items(&p.tables, |w, t| match t {
        Table::Position { groups } => {
            w.u8(0);
            w.u32(*groups);
        }
        Table::Values(values) => {
            w.u8(1);
            w.items(values, |w, v| w.u32(*v as u32));
        }
    });
    w.items(&p.sends, write_send);
    w.items(&p.transfers, |w, t| {
        [&t.name, &t.source, &t.location, &t.axes].into_iter().for_each(|s| w.bytes(s.as_bytes()));
        w.u32(t.queue);
        w.u64(t.bytes);
        w.u32(t.flags);
    });
    w.0
}

fn write_send(w: &mut Writer, d: &SendDesc) {
    w.u32(d.peer);
    w.u32(d.flag);
    w.items(&d.outer, |w, o| {
        w.u32(o.count);
        w.i64(o.from_stride);
        w.i64(o.to_stride);
    });
    w.u64(d.bytes);
    write_addr(w, &d.from);
    write_addr(w, &d.to);
}

/// Reads what [`write`] wrote into `p`.
pub(super) fn read(r: &mut Reader<'_>, p: &mut Program) -> Result<()> {
    p.groups = r.items(|r| Ok(Groups { members: r.items(|r| r.items(Reader::u32))? }))?;
    p.peers = r.items(|r| match r.u8()? {
        0 => Ok(Peer::Shift { groups: r.u32()?, shift: r.u32()? as i32 }),
        1 => Ok(Peer::Pairs(r.items(|r| Ok((r.u32()?, r.u32()?)))?)),
        n => r.fail(format!("unknown kind of peer {n}")),
    })?;
    p.tables = r.items(|r| match r.u8()? {
        0 => Ok(Table::Position { groups: r.u32()? }),
        1 => Ok(Table::Values(r.items(|r| Ok(r.u32()? as i32))?)),
        n => r.fail(format!("unknown kind of table {n}")),
    })?;
    p.sends = r.items(|r| {
        Ok(SendDesc {
            peer: r.u32()?,
            flag: r.u32()?,
            outer: r.items(|r| Ok(SendDim { count: r.u32()?, from_stride: r.i64()?, to_stride: r.i64()? }))?,
            bytes: r.u64()?,
            from: read_addr(r)?,
            to: read_addr(r)?,
        })
    })?;
    p.transfers = r.items(|r| {
        Ok(TransferInfo {
            name: r.string()?,
            source: r.string()?,
            location: r.string()?,
            axes: r.string()?,
            queue: r.u32()?,
            bytes: r.u64()?,
            flags: r.u32()?,
        })
    })?;
    r.end()
}
