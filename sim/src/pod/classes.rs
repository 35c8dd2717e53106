//! Folding of pods: devices that provably behave the same are simulated once.
//!
//! Two devices are alike if they run at the same speed, everything they send goes the same way (the same ports, hop by hop) through
//! chips that are alike to devices that are alike, and the same traffic of others passes through their chips. The coarsest such
//! grouping is found by refinement: start from what a device is by itself, split groups whose members differ in what they see, until
//! nothing splits. Every message that a device of a group sends or receives then has its equal at each other member, at the same
//! time, so one of them stands for all. On a torus whose axes all wrap that leaves one device; a mesh folds along nothing, but slices
//! and rings that never talk to each other do.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tpusim_isa::topology::{AXES, ChipId, DeviceId};

use super::routes::Routes;
use crate::network::{Network, NetworkError, PORTS, Port};

/// Which device stands for which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// The device that stands for each device: the first of its class.
    pub device: Vec<DeviceId>,
    /// The chip that stands for each chip.
    pub chip: Vec<ChipId>,
}

impl Classes {
    /// Every device stands for itself.
    pub fn all(devices: u32, chips: u32) -> Classes {
        Classes { device: (0..devices).map(DeviceId).collect(), chip: (0..chips).map(ChipId).collect() }
    }

    /// The devices that stand for a class, in order.
    pub fn representatives(&self) -> Vec<DeviceId> {
        self.device.iter().enumerate().filter(|(i, d)| *i as u32 == d.0).map(|(_, d)| *d).collect()
    }
}

/// A number for a sequence of words. Equal sequences have equal ones; that two others do among the few that a pod has is as likely as
/// a fault of the host.
fn digest(words: impl IntoIterator<Item = u64>) -> u128 {
    words.into_iter().fold(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835, |d: u128, w| {
        let mixed = (d ^ u128::from(w)).wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645);
        mixed ^ (mixed >> 61)
    })
}

/// Small numbers for distinct values, in order of appearance.
#[derive(Default)]
struct Numbers(FxHashMap<u128, u64>);

impl Numbers {
    fn of(&mut self, key: u128) -> u64 {
        let next = self.0.len() as u64;
        *self.0.entry(key).or_insert(next)
    }
}

/// Who sends to whom, and what passes through which chip.
struct Flow<'t> {
    targets: &'t [Vec<Option<DeviceId>>],
    routes: Routes,
    /// The chip behind each port of each chip.
    behind: Vec<[u32; PORTS]>,
    per_chip: u32,
}

impl<'t> Flow<'t> {
    fn new(network: &Network, targets: &'t [Vec<Option<DeviceId>>]) -> Result<Self, NetworkError> {
        let cluster = network.cluster();
        let behind = |c: u32, port| match port {
            Port::Ici(d) => cluster.neighbor(ChipId(c), d).map_or(c, |n| n.0),
            Port::Die { .. } | Port::In | Port::Out => c,
        };
        Ok(Flow {
            targets,
            routes: Routes::new(network, (0..cluster.devices()).map(DeviceId), targets)?,
            behind: (0..cluster.chips()).map(|c| Port::ALL.map(|p| behind(c, p))).collect(),
            per_chip: cluster.slice.devices_per_chip(),
        })
    }

    /// Peer, route and receiver of all that a device sends.
    fn messages(&self, d: usize) -> impl Iterator<Item = (u64, usize, DeviceId)> {
        let one =
            move |(p, t): (usize, &Vec<Option<DeviceId>>)| Some((p as u64, self.routes.of(d, p)? as usize, t[d]?));
        self.targets.iter().enumerate().filter_map(one)
    }

    /// The chips and ports that a message of a device passes.
    fn hops(&self, d: usize, route: usize, to: DeviceId) -> impl Iterator<Item = (u32, u64)> {
        let mut chip = d as u32 / self.per_chip;
        self.routes.all[route].iter().map(move |&port| {
            let here = (chip, u64::from(port));
            let out = usize::from(port) == Port::Out.index();
            chip = if out { to.0 / self.per_chip } else { self.behind[chip as usize][usize::from(port)] };
            here
        })
    }
}

/// Groups the devices of `network`. `targets[p][d]` is whom device `d` sends to as peer `p`; `start[d]` tells apart what differs by
/// itself, such as speed.
///
/// # Errors
/// [`NetworkError`] if failed links leave no way.
pub fn classes(network: &Network, targets: &[Vec<Option<DeviceId>>], start: &[u64]) -> Result<Classes, NetworkError> {
    let cluster = network.cluster();
    let (devices, chips) = (cluster.devices() as usize, cluster.chips() as usize);
    let per_chip = cluster.slice.devices_per_chip();
    if let Some(c) = uniform(network, targets, start) {
        return Ok(c);
    }
    let flow = Flow::new(network, targets)?;
    let mut color: Vec<u64> =
        (0..devices).map(|d| start[d] * u64::from(per_chip) + d as u64 % u64::from(per_chip)).collect();
    let mut groups = 0;
    loop {
        // What passes through each chip, in whatever order.
        let mut traffic = vec![0u128; chips];
        for (d, own) in color.iter().enumerate() {
            for (peer, route, to) in flow.messages(d) {
                for (hop, (chip, port)) in (0u64..).zip(flow.hops(d, route, to)) {
                    let sum = &mut traffic[chip as usize];
                    *sum = sum.wrapping_add(digest([port, hop, peer, *own]));
                }
            }
        }
        let mut numbers = Numbers::default();
        let chip_color: Vec<u64> = (0..chips)
            .map(|c| {
                let own = &color[c * per_chip as usize..(c + 1) * per_chip as usize];
                let passing = [traffic[c] as u64, (traffic[c] >> 64) as u64];
                numbers.of(digest(own.iter().copied().chain(passing)))
            })
            .collect();
        let mut numbers = Numbers::default();
        let next: Vec<u64> = (0..devices)
            .map(|d| {
                let (flow, color, chip_color) = (&flow, &color, &chip_color);
                let of_message = move |(peer, route, to): (u64, usize, DeviceId)| {
                    let way = flow.hops(d, route, to).flat_map(move |(c, port)| [chip_color[c as usize], port]);
                    [peer, color[to.0 as usize], route as u64].into_iter().chain(way)
                };
                let own = [color[d], chip_color[d / per_chip as usize]];
                numbers.of(digest(own.into_iter().chain(flow.messages(d).flat_map(of_message))))
            })
            .collect();
        let found = numbers.0.len();
        color = next;
        if found == groups {
            return Ok(by_color(&color, per_chip));
        }
        groups = found;
    }
}

fn by_color(color: &[u64], per_chip: u32) -> Classes {
    let mut first: BTreeMap<u64, DeviceId> = BTreeMap::new();
    let device: Vec<DeviceId> =
        color.iter().enumerate().map(|(d, c)| *first.entry(*c).or_insert(DeviceId(d as u32))).collect();
    let chip = device.iter().step_by(per_chip as usize).map(|d| ChipId(d.0 / per_chip)).collect();
    Classes { device, chip }
}

/// One class per device of a chip, where that is plain to see: every axis wraps, nothing has failed, all are equally fast, and
/// everyone sends by the same displacements within the slice.
fn uniform(network: &Network, targets: &[Vec<Option<DeviceId>>], start: &[u64]) -> Option<Classes> {
    let cluster = network.cluster();
    let (devices, per_chip) = (cluster.devices(), cluster.slice.devices_per_chip());
    let dims = cluster.slice.dims();
    let open = (0..AXES).any(|a| dims[a] > 1 && !cluster.slice.wraps(a));
    if open || network.any_failed() || start.iter().any(|s| *s != start[0]) {
        return None;
    }
    let step = |from: u32, to: DeviceId| {
        let ((a, _), (b, core)) = (cluster.chip_of(DeviceId(from)), cluster.chip_of(to));
        let ((slice_a, a), (slice_b, b)) = (cluster.place(a), cluster.place(b));
        (slice_a == slice_b).then(|| (cluster.slice.displacement(a, b), core))
    };
    for t in targets {
        for core in 0..per_chip {
            let same = match t[core as usize] {
                Some(to) => {
                    let first = step(core, to)?;
                    (core..devices)
                        .step_by(per_chip as usize)
                        .all(|d| t[d as usize].and_then(|x| step(d, x)) == Some(first))
                }
                None => (core..devices).step_by(per_chip as usize).all(|d| t[d as usize].is_none()),
            };
            if !same {
                return None;
            }
        }
    }
    Some(Classes {
        device: (0..devices).map(|d| DeviceId(d % per_chip)).collect(),
        chip: vec![ChipId(0); cluster.chips() as usize],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Cluster;
    use tpusim_isa::chip::ChipSpec;
    use tpusim_isa::topology::{Direction, Topology};

    fn network(chip: &str, shape: &str, slices: u32) -> Network {
        let chip = ChipSpec::load(chip).unwrap();
        let slice = Topology::parse(&chip, shape).unwrap();
        Network::new(&chip, Cluster { slice, slices })
    }

    /// Everyone sends to the next device along an axis.
    fn ring(n: &Network, axis: u8, up: bool) -> Vec<Option<DeviceId>> {
        let c = n.cluster();
        let per_chip = c.slice.devices_per_chip();
        (0..c.devices())
            .map(|d| {
                let (slice, chip) = c.place(ChipId(d / per_chip));
                let mut at = c.slice.coord(chip);
                let len = c.slice.dims()[usize::from(axis)];
                at[usize::from(axis)] = (at[usize::from(axis)] + if up { 1 } else { len - 1 }) % len;
                Some(DeviceId((c.slice.at(at).0 + slice * c.slice.chips()) * per_chip + d % per_chip))
            })
            .collect()
    }

    fn count(n: &Network, targets: &[Vec<Option<DeviceId>>]) -> usize {
        classes(n, targets, &vec![0; n.cluster().devices() as usize]).unwrap().representatives().len()
    }

    #[test]
    fn a_torus_folds_to_one_chip() {
        for (chip, shape, devices) in [("v5p", "8x8x8", 1), ("v7x", "4x4x4", 2), ("v5e", "16x16", 1)] {
            let n = network(chip, shape, 1);
            assert_eq!(count(&n, &[ring(&n, 0, true), ring(&n, 1, false)]), devices, "{chip} {shape}");
        }
    }

    // Oracle: general refinement finds what is plain to see, too.
    #[test]
    fn both_ways_to_one_class_agree() {
        let n = network("v5p", "4x4x4", 1);
        let targets = [ring(&n, 0, true), ring(&n, 2, false)];
        let start = vec![0; 64];
        let plain = uniform(&n, &targets, &start).unwrap();
        // A peer that nobody uses changes nothing but hides the uniformity test's shortcut for slices.
        let two = network("v5p", "4x4x4", 2);
        let general = classes(&two, &[ring(&two, 0, true), ring(&two, 2, false)], &[0; 128]).unwrap();
        assert_eq!(plain.representatives(), [DeviceId(0)]);
        assert_eq!(general.representatives(), [DeviceId(0)]);
    }

    #[test]
    fn meshes_fold_across_only() {
        // Rings along the wrapped axis of 8 x 16 know nothing of the other one.
        let n = network("v5e", "8x16", 1);
        assert_eq!(count(&n, &[ring(&n, 1, true)]), 1);
        // Along the open axis, the closing message of each ring passes through all of its chips.
        assert_eq!(count(&n, &[ring(&n, 0, true)]), 8);
    }

    #[test]
    fn a_failed_link_unfolds_its_ring_only() {
        let mut n = network("v5p", "4x4x4", 1);
        n.fail(ChipId(0), Direction { axis: 0, up: true }).unwrap();
        // The ring with the failed link and the chips of its detour stand apart, rings elsewhere stay one class.
        let folded = count(&n, &[ring(&n, 0, true)]);
        assert!((5..=16).contains(&folded), "{folded}");
        let along_y = count(&n, &[ring(&n, 1, true)]);
        assert_eq!(along_y, 1);
    }

    #[test]
    fn a_slow_chip_stands_apart() {
        let n = network("v5p", "4x4x4", 1);
        let mut start = vec![0; 64];
        start[5] = 1;
        let c = classes(&n, &[ring(&n, 1, true)], &start).unwrap();
        // Its ring of four, and all others.
        assert_eq!(c.representatives().len(), 5);
    }
}
