//! Which device of a slice plays which part of a mesh.
//!
//! Collectives run along mesh axes, so the devices of an axis should be neighbours: each axis gets links of the torus to itself where
//! the sizes allow it. Axes are placed from the last, which changes fastest and usually talks most, to the first. An axis takes the
//! torus axes whose lengths multiply to its size, the first of them fastest; where none do, it takes a factor of one, and what is
//! left of that one goes to the next. A factor of a torus axis that wraps is every so manieth place, so that it is a ring as well, whose
//! places all look alike, and what is left are neighbours; of a line it is a part. [`placement`] says the outcome to the compiler, whose collectives run along the torus axes.

use tpusim_isa::placement::{Level, NetworkAxis, Placement};
use tpusim_isa::pod::{Peer, Table};
use tpusim_isa::program::Program;
use tpusim_isa::topology::{AXES, DeviceId};
use tpusim_sim::network::Cluster;

/// A digit of a device's number: it counts `size` steps of `stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digit {
    size: u32,
    stride: u32,
    /// Whether the ends are neighbours.
    closed: bool,
}

/// The device of the cluster for each position of a mesh with axes of these sizes, in row-major order. `None` if the sizes do not
/// multiply to the devices there are.
pub fn assign(cluster: &Cluster, sizes: &[u64]) -> Option<Vec<u32>> {
    let devices = cluster.devices();
    if sizes.iter().try_fold(1u64, |n, s| n.checked_mul(*s)) != Some(u64::from(devices)) {
        return None;
    }
    // Physical digits: devices of a chip, the torus, slices.
    let per_chip = cluster.slice.devices_per_chip();
    let mut free: Vec<Digit> = vec![Digit { size: per_chip, stride: 1, closed: false }];
    let mut stride = per_chip;
    for axis in 0..AXES {
        let size = cluster.slice.dims()[axis];
        let closed = cluster.slice.wraps(axis) && !cluster.slice.twists(axis);
        free.push(Digit { size, stride, closed });
        stride *= size;
    }
    free.push(Digit { size: cluster.slices, stride, closed: false });
    let mut digits: Vec<Vec<Digit>> = Vec::new();
    for &size in sizes.iter().rev() {
        digits.push(take(&mut free, u32::try_from(size).ok()?)?);
    }
    digits.reverse();
    let device = |position: u32| {
        let (mut rest, mut device) = (position, 0);
        for (size, axis) in sizes.iter().zip(&digits).rev() {
            let mut at = rest % *size as u32;
            rest /= *size as u32;
            for d in axis {
                device += at % d.size * d.stride;
                at /= d.size;
            }
        }
        device
    };
    Some((0..devices).map(device).collect())
}

/// Where the device of each position is.
pub fn placement(cluster: &Cluster, devices: &[u32]) -> Placement {
    let slice = &cluster.slice;
    let mut axes = vec![NetworkAxis { length: slice.devices_per_chip(), level: Level::Die, closed: true }];
    for axis in 0..AXES {
        let closed = slice.wraps(axis) && !slice.twists(axis);
        axes.push(NetworkAxis { length: slice.dims()[axis], level: Level::Torus, closed });
    }
    axes.push(NetworkAxis { length: cluster.slices, level: Level::Slices, closed: true });
    let at = |d: &u32| {
        let (chip, die) = cluster.chip_of(DeviceId(*d));
        let (number, chip) = cluster.place(chip);
        let [x, y, z] = slice.coord(chip);
        vec![die, x, y, z, number]
    };
    Placement { axes, at: devices.iter().map(at).collect() }
}

/// Takes digits of `size` in all out of what is free.
fn take(free: &mut [Digit], size: u32) -> Option<Vec<Digit>> {
    // Whole axes first, as few as can be.
    let whole = (0..1u32 << free.len()).filter(|set| {
        let chosen = || (0..free.len()).filter(|i| set >> i & 1 == 1);
        chosen().all(|i| free[i].size > 1)
            && chosen().map(|i| u64::from(free[i].size)).product::<u64>() == u64::from(size)
    });
    if let Some(set) = whole.min_by_key(|s| (s.count_ones(), *s)) {
        let mut out = Vec::new();
        for (i, d) in free.iter_mut().enumerate().filter(|(i, _)| set >> i & 1 == 1) {
            let _ = i;
            out.push(*d);
            d.size = 1;
        }
        return Some(out);
    }
    let mut left = size;
    let mut out = Vec::new();
    for d in free.iter_mut() {
        let part = gcd(left, d.size);
        if part > 1 {
            let rest = d.size / part;
            let (own, others) = if d.closed { (rest, 1) } else { (1, part) };
            out.push(Digit { size: part, stride: d.stride * own, closed: d.closed });
            *d = Digit { size: rest, stride: d.stride * others, closed: false };
            left /= part;
        }
    }
    (left == 1).then_some(out)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Writes device `to[p]` wherever `program` says position `p`.
pub fn place(program: &mut Program, to: &[u32]) {
    let device = |p: u32| to.get(p as usize).copied().unwrap_or(p);
    for members in program.groups.iter_mut().flat_map(|g| &mut g.members) {
        members.iter_mut().for_each(|d| *d = device(*d));
    }
    for peer in &mut program.peers {
        if let Peer::Pairs(pairs) = peer {
            pairs.iter_mut().for_each(|(a, b)| (*a, *b) = (device(*a), device(*b)));
        }
    }
    for table in &mut program.tables {
        if let Table::Values(values) = table {
            let old = values.clone();
            for (p, v) in old.into_iter().enumerate() {
                if let Some(slot) = values.get_mut(device(p as u32) as usize) {
                    *slot = v;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tpusim_isa::chip::ChipSpec;
    use tpusim_isa::topology::Topology;

    fn cluster(chip: &str, shape: &str) -> Cluster {
        let chip = ChipSpec::load(chip).unwrap();
        Cluster { slice: Topology::parse(&chip, shape).unwrap(), slices: 1 }
    }

    /// Links between neighbours along each mesh axis, at most.
    fn worst_hops(c: &Cluster, sizes: &[u64]) -> Vec<usize> {
        let to = assign(c, sizes).unwrap();
        let mut seen = to.clone();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..c.devices()), "{sizes:?}");
        let mut stride = 1;
        let mut worst = Vec::new();
        for &size in sizes.iter().rev() {
            let mut most = 0;
            for p in 0..c.devices() as u64 {
                if p / stride % size + 1 < size {
                    let chip = |p: u64| c.slice.chip_of(DeviceId(to[p as usize]));
                    most = most.max(c.slice.route(chip(p), chip(p + stride)).len());
                }
            }
            worst.push(most);
            stride *= size;
        }
        worst.reverse();
        worst
    }

    // Oracle: routes. An axis of several torus axes goes on in the next row, round the wrap where there is one; one that shares an
    // axis makes jumps.
    #[test]
    fn axes_lie_along_the_torus() {
        assert_eq!(worst_hops(&cluster("v5e", "4x2"), &[4, 2]), [1, 1]);
        assert_eq!(worst_hops(&cluster("v5p", "8x8x16"), &[64, 16]), [2, 1]);
        assert_eq!(worst_hops(&cluster("v5p", "4x4x4"), &[16, 4]), [2, 1]);
        assert_eq!(worst_hops(&cluster("v7x", "2x2x1"), &[4, 2]), [2, 0]);
        assert_eq!(worst_hops(&cluster("v5e", "16x16"), &[32, 8]), [2, 2]);
        assert_eq!(worst_hops(&cluster("v5e", "8x8"), &[16, 4]), [5, 1]);
    }

    #[test]
    fn sizes_must_fit() {
        assert_eq!(assign(&cluster("v5e", "4x2"), &[3, 3]), None);
        assert_eq!(assign(&cluster("v5e", "4x2"), &[16]), None);
    }
}
