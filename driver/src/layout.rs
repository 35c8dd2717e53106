//! Which device of a slice plays which part of a mesh.
//!
//! Collectives run along mesh axes, so the devices of an axis should be neighbours: each axis gets links of the torus to itself where
//! the sizes allow it. Slices go to the first axes that divide them, as frameworks have it: what lies between slices is slow. The rest
//! of the axes is placed from the last, which changes fastest and usually talks most, to the first. An axis takes the torus axes whose
//! lengths multiply to its size, the first of them fastest; where none do, it takes a factor of one, and what is left of that one goes
//! to the next. Half of a torus axis that wraps is every other place, so that it is a ring as well, whose places all look alike, and what
//! is left are neighbours; other factors are parts next to each other.
//!
//! Where all-to-alls run along an axis that is different: a ring of all its devices is the worst place for them, since half of what is
//! sent goes half way round. Such an axis is also tried as a box with sides along several torus axes, and of all layouts the one whose
//! busiest links have least to carry is taken. [`placement`] says the outcome to the compiler, whose collectives run along the torus
//! axes.

use tpusim_isa::placement::{Level, NetworkAxis, Placement};
use tpusim_isa::pod::{Peer, Table};
use tpusim_isa::program::Program;
use tpusim_isa::topology::{AXES, DeviceId};
use tpusim_sim::network::Cluster;

use crate::traffic::AxisUse;

/// A digit of a device's number: it counts `size` steps of `stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digit {
    size: u32,
    stride: u32,
    /// Links between neighbours; 0 if no links of the torus join them.
    links: u32,
    /// Whether the ends are neighbours.
    closed: bool,
}

impl Digit {
    /// The first `part` places, and what is left: the first place of each such part.
    fn near(self, part: u32) -> (Digit, Digit) {
        let (size, whole) = (self.size / part, self.size == part);
        (
            Digit { size: part, closed: self.closed && whole, ..self },
            Digit { size, stride: self.stride * part, links: self.links * part, closed: self.closed },
        )
    }

    /// Every so manieth place, and what is left: the places between two of them.
    fn far(self, part: u32) -> (Digit, Digit) {
        let (far, near) = self.near(self.size / part);
        (near, far)
    }
}

/// The device of the cluster for each position of a mesh with these axes, in row-major order. `None` if the sizes do not multiply to
/// the devices there are.
pub fn assign(cluster: &Cluster, axes: &[AxisUse]) -> Option<Vec<u32>> {
    let devices = cluster.devices();
    if axes.iter().try_fold(1u64, |n, a| n.checked_mul(a.size)) != Some(u64::from(devices)) {
        return None;
    }
    let sizes: Vec<u32> = axes.iter().map(|a| u32::try_from(a.size).ok()).collect::<Option<_>>()?;
    // Physical digits: devices of a chip, the torus, slices.
    let per_chip = cluster.slice.devices_per_chip();
    let mut free: Vec<Digit> = vec![Digit { size: per_chip, stride: 1, links: 0, closed: false }];
    let mut stride = per_chip;
    for axis in 0..AXES {
        let size = cluster.slice.dims()[axis];
        let closed = cluster.slice.wraps(axis) && !cluster.slice.twists(axis);
        free.push(Digit { size, stride, links: 1, closed });
        stride *= size;
    }
    let slices = |size, stride| Digit { size, stride, links: 0, closed: false };
    let mut left = cluster.slices;
    let mut over: Vec<Digit> = Vec::new();
    for &size in &sizes {
        let part = gcd(left, size);
        left /= part;
        over.push(slices(part, stride * left));
    }
    if left > 1 {
        over.iter_mut().for_each(|d| d.size = 1);
        free.push(slices(cluster.slices, stride));
    }
    let within: Vec<(u32, &AxisUse)> = sizes.iter().zip(&over).zip(axes).map(|((n, o), a)| (n / o.size, a)).collect();
    let mut best: Option<(f64, Vec<Vec<Digit>>)> = None;
    layouts(&free, &within, 0.0, &mut Vec::new(), &mut best);
    let (_, mut digits) = best?;
    digits.reverse();
    for (own, slices) in digits.iter_mut().zip(&over) {
        own.extend((slices.size > 1).then_some(*slices));
    }
    let device = |position: u32| {
        let (mut rest, mut device) = (position, 0);
        for (size, axis) in sizes.iter().zip(&digits).rev() {
            let mut at = rest % *size;
            rest /= *size;
            for d in axis {
                device += at % d.size * d.stride;
                at /= d.size;
            }
        }
        device
    };
    Some((0..devices).map(device).collect())
}

/// Tries layouts of `axes`, the last first, on what is `free`; `chosen` are those of the axes after them, and cost so much. Keeps the
/// first of the cheapest.
fn layouts(
    free: &[Digit],
    axes: &[(u32, &AxisUse)],
    cost: f64,
    chosen: &mut Vec<Vec<Digit>>,
    best: &mut Option<(f64, Vec<Vec<Digit>>)>,
) {
    let Some(((size, carries), rest)) = axes.split_last() else {
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            *best = Some((cost, chosen.clone()));
        }
        return;
    };
    let mut choices: Vec<(Vec<Digit>, Vec<Digit>)> = take(free, *size).into_iter().collect();
    if carries.exchanged > 0.0 {
        boxes(free, *size, &mut choices);
    }
    for (own, left) in choices {
        let cost = cost + carries.exchanged * exchange(&own) + carries.gathered * gather(&own);
        chosen.push(own);
        layouts(&left, rest, cost, chosen, best);
        chosen.pop();
    }
}

/// What an all-to-all puts on the busiest link, as a share of what a device sends.
fn exchange(digits: &[Digit]) -> f64 {
    // Round a ring, what a device sends goes a quarter of the way on average, both ways; over the middle of a line go two quarters.
    let on = |d: &Digit| f64::from(d.size * d.links) / if d.closed && d.size > 2 { 8.0 } else { 4.0 };
    digits.iter().filter(|d| d.size > 1).map(on).fold(0.0, f64::max)
}

/// What a gather puts on a link, as a share of its result: all links that the digits have take part.
fn gather(digits: &[Digit]) -> f64 {
    let on = |d: &Digit| if d.closed && d.size > 2 { 2.0 } else { 1.0 } / f64::from(d.links);
    let links: f64 = digits.iter().filter(|d| d.size > 1 && d.links > 0).map(on).sum();
    if links > 0.0 { 1.0 / links } else { 0.0 }
}

/// Every box of `size` devices with sides along axes of the torus, and what is left of each.
fn boxes(free: &[Digit], size: u32, out: &mut Vec<(Vec<Digit>, Vec<Digit>)>) {
    fn sides(
        free: &[Digit],
        k: usize,
        size: u32,
        own: &mut Vec<Digit>,
        left: &mut Vec<Digit>,
        out: &mut Vec<(Vec<Digit>, Vec<Digit>)>,
    ) {
        let Some(d) = free.get(k) else {
            if size == 1 {
                out.push((own.clone(), left.clone()));
            }
            return;
        };
        let most = if d.links == 0 { 1 } else { d.size };
        for part in (1..=most).filter(|p| d.size.is_multiple_of(*p) && size.is_multiple_of(*p)) {
            let (side, rest) = d.near(part);
            own.extend((part > 1).then_some(side));
            left.push(rest);
            sides(free, k + 1, size / part, own, left, out);
            left.pop();
            if part > 1 {
                own.pop();
            }
        }
    }
    sides(free, 0, size, &mut Vec::new(), &mut Vec::new(), out);
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

/// Takes digits of `size` in all out of what is free: those, and what is left.
fn take(free: &[Digit], size: u32) -> Option<(Vec<Digit>, Vec<Digit>)> {
    let mut left = free.to_vec();
    // Whole axes first, as few as can be.
    let whole = (0..1u32 << free.len()).filter(|set| {
        let chosen = || (0..free.len()).filter(|i| set >> i & 1 == 1);
        chosen().all(|i| free[i].size > 1)
            && chosen().map(|i| u64::from(free[i].size)).product::<u64>() == u64::from(size)
    });
    let mut out = Vec::new();
    if let Some(set) = whole.min_by_key(|s| (s.count_ones(), *s)) {
        for (_, d) in left.iter_mut().enumerate().filter(|(i, _)| set >> i & 1 == 1) {
            out.push(*d);
            d.size = 1;
        }
        return Some((out, left));
    }
    let mut wanted = size;
    for d in &mut left {
        let part = gcd(wanted, d.size);
        if part > 1 {
            // Interleaved rings share links: two of them load these as a line does that is walked there and back, more of them more.
            let (own, rest) = if d.closed && d.size / part == 2 { d.far(part) } else { d.near(part) };
            out.push(own);
            *d = rest;
            wanted /= part;
        }
    }
    (wanted == 1).then_some((out, left))
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

    fn axes(sizes: &[u64]) -> Vec<AxisUse> {
        let plain = |n: &u64| AxisUse { name: String::new(), size: *n, exchanged: 0.0, gathered: 1.0 };
        sizes.iter().map(plain).collect()
    }

    /// Links between neighbours along each mesh axis, at most.
    fn worst_hops(c: &Cluster, sizes: &[u64]) -> Vec<usize> {
        let to = assign(c, &axes(sizes)).unwrap();
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

    // Oracle: by hand. Four slices are the first axis, though the last is as long.
    #[test]
    fn slices_are_the_first_axes() {
        let slices = |count: u32, sizes: &[u64]| {
            let c = Cluster { slices: count, ..cluster("v6e", "4x4") };
            let to = assign(&c, &axes(sizes)).unwrap();
            let mut seen = to.clone();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..c.devices()), "{sizes:?}");
            to.iter().map(|d| d / 16).collect::<Vec<_>>()
        };
        let whole = |n: u32| (0..16 * n).map(|p| p / 16).collect::<Vec<_>>();
        assert_eq!(slices(4, &[4, 4, 4]), whole(4));
        assert_eq!(slices(8, &[2, 4, 4, 4]), whole(8));
        // An axis over slices and within them.
        assert_eq!(slices(2, &[4, 8]), whole(2));
    }

    // Oracle: by hand. A ring of 16 has twice the load of a block of 4 by 4, which costs the gathers along the other axis.
    #[test]
    fn exchanges_get_blocks() {
        let c = cluster("v5p", "16x16x32");
        let mut mesh = axes(&[512, 16]);
        let corner = |mesh: &[AxisUse]| -> Vec<u32> { assign(&c, mesh).unwrap()[..16].to_vec() };
        assert_eq!(corner(&mesh), (0..16).collect::<Vec<u32>>());
        (mesh[1].exchanged, mesh[1].gathered) = (10.0, 0.0);
        let block: Vec<u32> = (0..16).map(|p| p % 4 * 16 + p / 4 * 256).collect();
        assert_eq!(corner(&mesh), block);
        // Where the others have much more to gather, they keep their links.
        mesh[0].gathered = 1000.0;
        assert_eq!(corner(&mesh), (0..16).collect::<Vec<u32>>());
    }

    #[test]
    fn sizes_must_fit() {
        assert_eq!(assign(&cluster("v5e", "4x2"), &axes(&[3, 3])), None);
        assert_eq!(assign(&cluster("v5e", "4x2"), &axes(&[16])), None);
    }
}
