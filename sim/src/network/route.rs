//! The ports a message goes through.

use std::collections::VecDeque;

use tpusim_isa::topology::{AXES, ChipId, DeviceId, Direction};

use super::{Network, NetworkError};

/// A way out of a chip, or into it from the data center network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Port {
    /// A link of the torus.
    Ici(Direction),
    /// Between the devices of a chip.
    Die {
        /// Towards higher numbers.
        up: bool,
    },
    /// Out of the slice.
    Out,
    /// Into the slice.
    In,
}

impl Port {
    /// Every port.
    pub const ALL: [Port; super::PORTS] = {
        let mut all = [Port::Die { up: true }; super::PORTS];
        let mut i = 0;
        while i < 2 * AXES {
            all[i] = Port::Ici(Direction::ALL[i]);
            i += 1;
        }
        all[2 * AXES + 1] = Port::Die { up: false };
        all[2 * AXES + 2] = Port::Out;
        all[2 * AXES + 3] = Port::In;
        all
    };

    /// Position in [`Port::ALL`].
    pub const fn index(self) -> usize {
        match self {
            Port::Ici(d) => d.index(),
            Port::Die { up: true } => 2 * AXES,
            Port::Die { up: false } => 2 * AXES + 1,
            Port::Out => 2 * AXES + 2,
            Port::In => 2 * AXES + 3,
        }
    }
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Port::Ici(d) => d.fmt(f),
            Port::Die { up } => write!(f, "die{}", if *up { '+' } else { '-' }),
            Port::Out => f.write_str("dcn out"),
            Port::In => f.write_str("dcn in"),
        }
    }
}

impl Network {
    /// Ports from one device to another, each with the chip it belongs to. Empty from a device to itself.
    ///
    /// # Errors
    /// [`NetworkError::Cut`] if failed links leave no way.
    pub fn route(&self, from: DeviceId, to: DeviceId) -> Result<Vec<(ChipId, Port)>, NetworkError> {
        let ((a, core_a), (b, core_b)) = (self.cluster.chip_of(from), self.cluster.chip_of(to));
        if from == to {
            return Ok(Vec::new());
        }
        if a == b {
            return Ok(vec![(a, Port::Die { up: core_a < core_b })]);
        }
        let ((slice_a, at_a), (slice_b, at_b)) = (self.cluster.place(a), self.cluster.place(b));
        if slice_a != slice_b {
            return Ok(vec![(a, Port::Out), (b, Port::In)]);
        }
        let mut here = a;
        let mut route = Vec::new();
        for d in self.cluster.slice.route(at_a, at_b) {
            if !self.works(here, d) {
                return self.detour(a, b);
            }
            route.push((here, Port::Ici(d)));
            here = self.cluster.neighbor(here, d).unwrap_or(here);
        }
        Ok(route)
    }

    /// A shortest way over the links that work, the first in order of directions.
    fn detour(&self, from: ChipId, to: ChipId) -> Result<Vec<(ChipId, Port)>, NetworkError> {
        let mut came: Vec<Option<(ChipId, Direction)>> = vec![None; self.cluster.chips() as usize];
        let mut queue = VecDeque::from([from]);
        while let Some(c) = queue.pop_front() {
            if c == to {
                break;
            }
            for d in Direction::ALL.into_iter().filter(|d| self.works(c, *d)) {
                let Some(n) = self.cluster.neighbor(c, d) else { continue };
                if n != from && came[n.0 as usize].is_none() {
                    came[n.0 as usize] = Some((c, d));
                    queue.push_back(n);
                }
            }
        }
        let mut route = Vec::new();
        let mut at = to;
        while at != from {
            let (c, d) = came[at.0 as usize].ok_or(NetworkError::Cut { from, to })?;
            route.push((c, Port::Ici(d)));
            at = c;
        }
        route.reverse();
        Ok(route)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cluster, Ports};
    use super::*;
    use tpusim_isa::chip::ChipSpec;
    use tpusim_isa::time::Picos;
    use tpusim_isa::topology::Topology;

    fn network(chip: &str, shape: &str, slices: u32) -> Network {
        let chip = ChipSpec::load(chip).unwrap();
        let slice = Topology::parse(&chip, shape).unwrap();
        Network::new(&chip, Cluster { slice, slices })
    }

    fn device(d: u32) -> DeviceId {
        DeviceId(d)
    }

    // Oracle: hops times latency plus bytes over rate.
    #[test]
    fn an_idle_route_takes_its_hops_and_its_bytes() {
        let n = network("v5p", "4x4x4", 1);
        let route = n.route(device(0), device(1 + 4 + 16)).unwrap();
        assert_eq!(route.len(), 3);
        let wire = n.wire(86_400_000); // one millisecond at 96 % of 90 GB/s
        let (mut head, mut tail) = (Picos(0), Picos(0));
        for (_, port) in route {
            (head, tail) = Ports::default().cross(port.index(), head, &wire, &n.latencies());
        }
        assert_eq!(head, Picos(3_000_000));
        assert_eq!(tail, Picos(1_003_000_000));
    }

    // Oracle: one link serves one message after the other.
    #[test]
    fn messages_on_one_link_queue() {
        let n = network("v5e", "2x2", 1);
        let (wire, latencies) = (n.wire(42_750_000), n.latencies());
        let up = Port::Ici(Direction { axis: 0, up: true }).index();
        let mut ports = Ports::default();
        let (_, first) = ports.cross(up, Picos(0), &wire, &latencies);
        let (_, second) = ports.cross(up, Picos(0), &wire, &latencies);
        assert_eq!(first, Picos(1_001_000_000));
        assert_eq!(second, Picos(2_001_000_000));
        assert_eq!(ports.usage()[up].bytes, 85_500_000);
        assert_eq!(ports.usage()[up].busy, Picos(2_000_000_000));
    }

    #[test]
    fn dies_and_slices_have_ways_of_their_own() {
        let n = network("v7x", "2x2x1", 2);
        assert_eq!(n.route(device(0), device(1)).unwrap(), [(ChipId(0), Port::Die { up: true })]);
        assert_eq!(n.route(device(0), device(9)).unwrap(), [(ChipId(0), Port::Out), (ChipId(4), Port::In)]);
        assert_eq!(n.route(device(8), device(10)).unwrap().len(), 1);
        assert!(n.route(device(3), device(3)).unwrap().is_empty());
    }

    // Oracle: a ring of 4 without one link still joins its ends the other way round.
    #[test]
    fn failed_links_are_gone_round() {
        let mut n = network("v5p", "4x1x1", 1);
        n.fail(ChipId(0), Direction { axis: 0, up: true }).unwrap();
        let route = n.route(device(0), device(1)).unwrap();
        assert_eq!(route.len(), 3);
        assert!(route.iter().all(|(_, p)| *p == Port::Ici(Direction { axis: 0, up: false })));
        n.fail(ChipId(0), Direction { axis: 0, up: false }).unwrap();
        let cut = n.route(device(0), device(1)).unwrap_err();
        assert_eq!(cut.to_string(), "no way is left from chip 0 to chip 1: too many links have failed");
        assert!(n.fail(ChipId(0), Direction { axis: 2, up: true }).is_err());
    }
}
