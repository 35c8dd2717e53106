//! What a pod works out about a program before it runs: who the peers are, which devices are alike, how long operations take.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::pod::{Groups, Peer, Table};
use tpusim_isa::program::Program;
use tpusim_isa::topology::DeviceId;

use crate::RunOptions;
use crate::code::{Code, Node};
use crate::core::Engine;
use crate::datapath::Shapes;
use crate::fault::FaultKind;
use crate::profile::OpProfile;

fn groups(program: &Program, index: u32) -> Result<&Groups, FaultKind> {
    let found = program.groups.get(index as usize);
    found.ok_or_else(|| FaultKind::Malformed(format!("groups {index} of {}", program.groups.len())))
}

/// Whom each device sends to, by peer.
pub(super) fn targets(program: &Program, devices: u32) -> Result<Vec<Vec<Option<DeviceId>>>, FaultKind> {
    let known = |d: u32| {
        let error = || FaultKind::Malformed(format!("device {d} of a pod of {devices}"));
        if d < devices { Ok(d) } else { Err(error()) }
    };
    let mut all = Vec::new();
    for p in &program.peers {
        let mut to = vec![None; devices as usize];
        match p {
            Peer::Shift { groups: g, shift } => {
                for members in &groups(program, *g)?.members {
                    let n = members.len() as i64;
                    for (i, &d) in members.iter().enumerate() {
                        let other = (i as i64 + i64::from(*shift)).rem_euclid(n.max(1));
                        to[known(d)? as usize] = Some(DeviceId(known(members[other as usize])?));
                    }
                }
            }
            Peer::Pairs(pairs) => {
                for &(from, other) in pairs {
                    to[known(from)? as usize] = Some(DeviceId(known(other)?));
                }
            }
        }
        all.push(to);
    }
    Ok(all)
}

/// Each table's value for each device.
pub(super) fn tables(program: &Program, devices: u32) -> Result<Vec<Vec<u32>>, FaultKind> {
    let one = |t: &Table| {
        Ok(match t {
            Table::Position { groups: g } => {
                let at = groups(program, *g)?.positions(devices);
                at.into_iter().map(|p| p.map_or(0, |(_, i)| i)).collect()
            }
            Table::Values(v) => (0..devices as usize).map(|d| v.get(d).map_or(0, |v| *v as u32)).collect(),
        })
    };
    program.tables.iter().map(one).collect()
}

/// Times of operations, each found once.
pub(super) struct Times<'a> {
    program: &'a Program,
    chip: &'a ChipSpec,
    opts: &'a RunOptions,
    code: &'a Code,
    ops: FxHashMap<u32, &'a Node>,
    known: Vec<OnceLock<OpProfile>>,
}

impl<'a> Times<'a> {
    pub fn new(program: &'a Program, chip: &'a ChipSpec, opts: &'a RunOptions, code: &'a Code) -> Self {
        let mut ops = FxHashMap::default();
        code.each_op(&mut |op, node| {
            ops.insert(op, node);
        });
        Times { program, chip, opts, code, ops, known: program.ops.iter().map(|_| OnceLock::new()).collect() }
    }

    /// Cycles of an operation that starts on an idle device.
    pub fn cycles(&self, op: u32) -> Result<u64, FaultKind> {
        let known = self.known.get(op as usize);
        if let Some(p) = known.and_then(OnceLock::get) {
            return Ok(p.end - p.start);
        }
        let (Some(&node), Some(known)) = (self.ops.get(&op), known) else {
            return Err(FaultKind::Malformed(format!("operation {op} has no code")));
        };
        let profile = Engine::new(self.program, self.chip, self.opts, self.code, Shapes).time_operation(node)?;
        let cycles = profile.end - profile.start;
        // Another host thread may have found the same in the meantime.
        known.get_or_init(|| profile);
        Ok(cycles)
    }

    /// Profiles of the operations that ran.
    pub fn finish(self) -> Vec<Option<OpProfile>> {
        self.known.into_iter().map(OnceLock::into_inner).collect()
    }
}
