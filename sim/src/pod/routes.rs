//! The ports of all messages. Few sequences of ports exist, since devices all over the torus send the same way.

use rustc_hash::FxHashMap;
use tpusim_isa::topology::DeviceId;

use crate::network::{Network, NetworkError};

/// Routes from some devices to their peers.
#[derive(Debug)]
pub(super) struct Routes {
    /// Every sequence of ports, in order, so that numbers do not depend on who takes them.
    pub all: Vec<Box<[u8]>>,
    /// The number of each device's route to each peer; `u32::MAX` if it has no such peer.
    of: Vec<u32>,
    peers: usize,
}

impl Routes {
    /// Routes of `devices`. `targets[p][d]` is whom device `d` sends to as peer `p`.
    ///
    /// # Errors
    /// [`NetworkError`] if failed links leave no way.
    pub fn new(
        network: &Network,
        devices: impl Iterator<Item = DeviceId>,
        targets: &[Vec<Option<DeviceId>>],
    ) -> Result<Routes, NetworkError> {
        let mut known: FxHashMap<Box<[u8]>, u32> = FxHashMap::default();
        let mut of = Vec::new();
        let mut ports: Vec<u8> = Vec::new();
        for from in devices {
            for to in targets {
                let Some(to) = to[from.0 as usize] else {
                    of.push(u32::MAX);
                    continue;
                };
                ports.clear();
                ports.extend(network.route(from, to)?.iter().map(|(_, p)| p.index() as u8));
                let count = known.len() as u32;
                of.push(match known.get(ports.as_slice()) {
                    Some(n) => *n,
                    None => *known.entry(ports.as_slice().into()).or_insert(count),
                });
            }
        }
        let mut all: Vec<(Box<[u8]>, u32)> = known.into_iter().collect();
        all.sort_unstable();
        let mut place = vec![0; all.len()];
        for (new, (_, old)) in (0u32..).zip(&all) {
            place[*old as usize] = new;
        }
        of.iter_mut().filter(|r| **r != u32::MAX).for_each(|r| *r = place[*r as usize]);
        Ok(Routes { all: all.into_iter().map(|(ports, _)| ports).collect(), of, peers: targets.len() })
    }

    /// The route of the `device`-th of the devices to a peer.
    pub fn of(&self, device: usize, peer: usize) -> Option<u32> {
        let all = self.of.get(device * self.peers..)?.get(..self.peers)?;
        all.get(peer).copied().filter(|r| *r != u32::MAX)
    }
}
