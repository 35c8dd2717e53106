//! Communication: what may stand where, and whether everything named exists.

use super::{CheckKind, Place, Report};
use crate::op::{Instr, Op, Timing};
use crate::pod::{Peer, Table};
use crate::program::{Node, Program};

struct Walk<'p, 'r, 'c> {
    program: &'p Program,
    report: &'r mut Report<'c>,
    place: Place,
    /// The transfer around the code at hand.
    transfer: Option<u32>,
}

pub(super) fn check(program: &Program, report: &mut Report<'_>) {
    let mut walk = Walk { program, report, place: Place::default(), transfer: None };
    walk.tables();
    walk.nodes(&program.body);
}

impl Walk<'_, '_, '_> {
    fn exists(&mut self, what: &str, index: u32, has: usize) {
        if index as usize >= has {
            let kind = CheckKind::NoSuch { what: format!("{what} {index}"), has: has as u64 };
            self.report.add(&self.place, None, kind);
        }
    }

    /// What descriptors and tables name.
    fn tables(&mut self) {
        let p = self.program;
        for peer in &p.peers {
            if let Peer::Shift { groups, .. } = peer {
                self.exists("groups", *groups, p.groups.len());
            }
        }
        for t in &p.tables {
            if let Table::Position { groups } = t {
                self.exists("groups", *groups, p.groups.len());
            }
        }
        for s in &p.sends {
            self.exists("peer", s.peer, p.peers.len());
        }
    }

    fn nodes(&mut self, nodes: &[Node]) {
        for (i, node) in nodes.iter().enumerate() {
            let outer = self.place.enter(i, node);
            match node {
                Node::Bundle(b) => b.instrs.iter().enumerate().for_each(|(n, i)| self.instr(n, i)),
                Node::Start { transfer, body } => {
                    self.may_start(*transfer);
                    let outside = self.transfer.replace(*transfer);
                    self.nodes(body);
                    self.transfer = outside;
                }
                Node::Done { transfer } => self.may_start(*transfer),
                _ => {
                    for (k, body) in node.bodies().enumerate() {
                        let sections = matches!(node, Node::While { .. } | Node::Case { .. });
                        if sections {
                            self.place.path.push(k);
                        }
                        self.nodes(body);
                        if sections {
                            self.place.path.pop();
                        }
                    }
                }
            }
            self.place.leave(outer);
        }
    }

    /// Operations start and await no transfers; transfers only those of queues behind their own, so that none waits for itself.
    fn may_start(&mut self, transfer: u32) {
        self.exists("transfer", transfer, self.program.transfers.len());
        let queue = |t: u32| self.program.transfers.get(t as usize).map(|t| t.queue);
        let behind = self.transfer.is_none_or(|outer| queue(outer) < queue(transfer));
        if self.place.op.is_some() || !behind {
            self.report.add(&self.place, None, CheckKind::NestedTransfer);
        }
    }

    fn instr(&mut self, n: usize, i: &Instr) {
        let control = matches!(i.op.timing(), Timing::Scalar | Timing::DmaWait | Timing::DmaSend);
        let misplaced = match (i.op, self.place.op, self.transfer) {
            (Op::SDev, Some(_), _) | (Op::DmaSend, Some(_), _) | (Op::DmaSend, None, None) => true,
            (_, None, Some(_)) => !control,
            _ => false,
        };
        if misplaced {
            self.report.add(&self.place, Some((n, i)), CheckKind::Misplaced(i.op.name()));
        }
        let flags = self.transfer.and_then(|t| self.program.transfers.get(t as usize)).map(|t| t.flags);
        let flag = match i.op {
            Op::DmaSend => self.program.sends.get(i.args[0] as u32 as usize).map(|s| s.flag),
            Op::DmaWait if self.place.op.is_none() => Some(i.args[0] as u32),
            _ => None,
        };
        if let (Some(has), Some(flag)) = (flags, flag)
            && flag >= has
        {
            let kind = CheckKind::NoSuch { what: format!("transfer flag {flag}"), has: u64::from(has) };
            self.report.add(&self.place, Some((n, i)), kind);
        }
    }
}
