//! The torus of a slice: which chips there are, which links join them, and how messages go.
//!
//! Chips have coordinates `(x, y, z)`; chip ids count x fastest, as frameworks number devices. The devices of a chip follow one another.
//! An axis has wrap-around links if its length is a multiple of the generation's [`wrap_multiple`](crate::chip::IciSpec::wrap_multiple),
//! otherwise it is a mesh. A *twisted* torus (n x n x 2n and n x 2n x 2n) shifts the other coordinates by half their length when a
//! message crosses the wrap of a short axis, which shortens the longest routes (Jouppi et al., ISCA 2023; Camarero et al., IEEE
//! Transactions on Computers 2015).
//!
//! Routes are minimal and dimension-ordered: x first, then y, then z. Where both ways round are equally long, the upward one is taken.

use std::fmt;

use crate::chip::ChipSpec;

/// A chip of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChipId(pub u32);

/// A device of a slice: a chip, or one of its TensorCores where each is a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// Axes of a torus.
pub const AXES: usize = 3;

/// Coordinates of a chip.
pub type Coord = [u32; AXES];

/// One of the (up to six) ways out of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Direction {
    /// Axis: 0 is x.
    pub axis: u8,
    /// Towards higher coordinates.
    pub up: bool,
}

impl Direction {
    /// Every direction.
    pub const ALL: [Direction; 2 * AXES] = {
        let mut all = [Direction { axis: 0, up: true }; 2 * AXES];
        let mut i = 0;
        while i < 2 * AXES {
            all[i] = Direction { axis: (i / 2) as u8, up: i % 2 == 0 };
            i += 1;
        }
        all
    };

    /// Position in [`Direction::ALL`].
    pub const fn index(self) -> usize {
        2 * self.axis as usize + if self.up { 0 } else { 1 }
    }

    /// The way back.
    pub const fn opposite(self) -> Direction {
        Direction { axis: self.axis, up: !self.up }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axis = ["x", "y", "z"].get(usize::from(self.axis)).copied().unwrap_or("?");
        write!(f, "{axis}{}", if self.up { '+' } else { '-' })
    }
}

/// A slice that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("topology {wanted} of {chip}: {message}")]
pub struct TopologyError {
    /// Chip.
    pub chip: String,
    /// What was asked for.
    pub wanted: String,
    /// What is wrong and what would work.
    pub message: String,
}

/// A slice of one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    dims: Coord,
    wrap: [bool; AXES],
    /// What crossing the wrap of an axis upwards adds to the coordinates.
    twist: [Coord; AXES],
    devices_per_chip: u32,
}

impl Topology {
    /// The slice of `chip` with these axis lengths, and twisted wraps if asked for.
    ///
    /// # Errors
    /// [`TopologyError`] if the slice is larger than a pod, has more axes than the chip, or cannot be twisted.
    pub fn new(chip: &ChipSpec, dims: &[u32], twisted: bool) -> Result<Topology, TopologyError> {
        let fail = |message: String| {
            let wanted = dims.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
            TopologyError { chip: chip.name.clone(), wanted, message }
        };
        let axes = (*chip.ici.dims as usize).min(AXES);
        if dims.is_empty() || dims.contains(&0) {
            return Err(fail("every axis needs at least one chip".to_owned()));
        }
        if dims.len() > axes && dims[axes..].iter().any(|&d| d != 1) {
            return Err(fail(format!("the chip's network has {axes} axes")));
        }
        let mut own = [1u32; AXES];
        own.iter_mut().zip(dims).for_each(|(o, &d)| *o = d);
        let sorted = |mut v: Vec<u32>| {
            v.sort_unstable();
            v
        };
        let pod = sorted(chip.ici.pod.iter().copied().chain(std::iter::repeat(1)).take(AXES).collect());
        // Optical switches join the cubes of a 3D torus in any shape; the links of a 2D torus are wired.
        let fits = match axes {
            AXES => own.iter().try_fold(1u32, |a, &b| a.checked_mul(b)).is_some_and(|n| n <= pod_chips(chip)),
            _ => sorted(own.to_vec()).iter().zip(&pod).all(|(d, limit)| d <= limit),
        };
        if !fits {
            let limit = chip.ici.pod.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
            return Err(fail(format!("the largest slice is {limit}, {} chips", pod_chips(chip))));
        }
        let wrap = own.map(|d| d > 1 && d.is_multiple_of(*chip.ici.wrap_multiple));
        let mut t = Topology { dims: own, wrap, twist: [[0; AXES]; AXES], devices_per_chip: chip.devices_per_chip() };
        if twisted {
            t.twist = twist(own).filter(|_| wrap == [true; AXES]).ok_or_else(|| {
                fail("only n x n x 2n and n x 2n x 2n tori whose axes all wrap can be twisted, e.g. 4x4x8".to_owned())
            })?;
        }
        Ok(t)
    }

    /// Parses `4x4x8`, `16x16` or `4x4x8_twisted`, with or without the chip's name and a colon in front.
    ///
    /// # Errors
    /// [`TopologyError`].
    pub fn parse(chip: &ChipSpec, text: &str) -> Result<Topology, TopologyError> {
        let fail = |message: &str| TopologyError {
            chip: chip.name.clone(),
            wanted: text.to_owned(),
            message: message.to_owned(),
        };
        let shape = text.rsplit(':').next().unwrap_or(text);
        let (shape, twisted) = match shape.strip_suffix("_twisted") {
            Some(s) => (s, true),
            None => (shape, false),
        };
        let dims: Result<Vec<u32>, _> = shape.split('x').map(str::parse).collect();
        let dims = dims.map_err(|_| fail("expected axis lengths such as 4x4x8"))?;
        Topology::new(chip, &dims, twisted)
    }

    /// The slice of `chips` chips that frameworks would get: as cubic as possible, with as many wraps as possible.
    ///
    /// # Errors
    /// [`TopologyError`] naming the nearest sizes if no shape has that many chips.
    pub fn of_size(chip: &ChipSpec, chips: u32) -> Result<Topology, TopologyError> {
        if let Some(t) = Topology::best(chip, chips) {
            return Ok(t);
        }
        let limit = pod_chips(chip);
        let below = (1..chips.min(limit + 1)).rev().find(|&n| Topology::best(chip, n).is_some());
        let above = (chips.saturating_add(1)..=limit).find(|&n| Topology::best(chip, n).is_some());
        let near: Vec<String> = [below, above].into_iter().flatten().map(|n| n.to_string()).collect();
        Err(TopologyError {
            chip: chip.name.clone(),
            wanted: format!("with {chips} chips"),
            message: format!("no slice has this many; {} would work, {limit} at most", near.join(" or ")),
        })
    }

    fn best(chip: &ChipSpec, chips: u32) -> Option<Topology> {
        let axes = (*chip.ici.dims as usize).min(AXES);
        let mut best: Option<((u32, u32), Topology)> = None;
        let divisors = |n: u32| (1..=n).take_while(move |d| d * d <= n).filter(move |d| n.is_multiple_of(*d));
        for x in divisors(chips) {
            let rest = chips / x;
            let ys: Vec<u32> = if axes == 3 { divisors(rest).filter(|&y| y >= x).collect() } else { vec![rest] };
            for y in ys {
                let mut dims = [x, y, rest / y];
                dims[..axes].sort_unstable();
                let Ok(t) = Topology::new(chip, &dims[..axes], false) else { continue };
                // Short axes first; among equals, the one with more wraps.
                let meshes = (0..AXES).filter(|&a| dims[a] > 2 && !t.wrap[a]).count() as u32;
                let key = (dims.iter().sum::<u32>() + meshes * 2, dims[0]);
                if best.as_ref().is_none_or(|(k, _)| key < *k) {
                    best = Some((key, t));
                }
            }
        }
        best.map(|(_, t)| t)
    }

    /// Length of each axis; unused ones are 1.
    pub fn dims(&self) -> Coord {
        self.dims
    }

    /// Whether an axis has wrap-around links.
    pub fn wraps(&self, axis: usize) -> bool {
        self.wrap[axis]
    }

    /// Whether crossing the wrap of an axis changes other coordinates too.
    pub fn twists(&self, axis: usize) -> bool {
        self.twist[axis].iter().any(|&t| t != 0)
    }

    /// Whether wraps are twisted.
    pub fn is_twisted(&self) -> bool {
        (0..AXES).any(|a| self.twists(a))
    }

    /// Number of chips.
    pub fn chips(&self) -> u32 {
        self.dims.iter().product()
    }

    /// Number of devices.
    pub fn devices(&self) -> u32 {
        self.chips() * self.devices_per_chip
    }

    /// Devices of one chip.
    pub fn devices_per_chip(&self) -> u32 {
        self.devices_per_chip
    }

    /// The chip a device is on.
    pub fn chip_of(&self, d: DeviceId) -> ChipId {
        ChipId(d.0 / self.devices_per_chip)
    }

    /// Coordinates of a chip.
    pub fn coord(&self, c: ChipId) -> Coord {
        let [x, y, _] = self.dims;
        [c.0 % x, c.0 / x % y, c.0 / (x * y)]
    }

    /// The chip at coordinates.
    pub fn at(&self, [cx, cy, cz]: Coord) -> ChipId {
        let [x, y, _] = self.dims;
        ChipId(cx + x * (cy + y * cz))
    }

    /// The chip one link away.
    pub fn neighbor(&self, c: ChipId, d: Direction) -> Option<ChipId> {
        let axis = usize::from(d.axis);
        let mut at = self.coord(c);
        let n = self.dims[axis];
        if n == 1 {
            return None;
        }
        let crosses = at[axis] == if d.up { n - 1 } else { 0 };
        if crosses && !self.wrap[axis] {
            return None;
        }
        at[axis] = if d.up { (at[axis] + 1) % n } else { (at[axis] + n - 1) % n };
        if crosses {
            for (a, x) in at.iter_mut().enumerate() {
                let (n, by) = (self.dims[a], self.twist[axis][a]);
                *x = if d.up { (*x + by) % n } else { (*x + n - by) % n };
            }
        }
        Some(self.at(at))
    }

    /// The links of a minimal, dimension-ordered route, first to last.
    pub fn route(&self, from: ChipId, to: ChipId) -> Vec<Direction> {
        let steps = self.displacement(from, to);
        let mut route = Vec::new();
        for (axis, &s) in steps.iter().enumerate() {
            let hop = Direction { axis: axis as u8, up: s > 0 };
            route.extend(std::iter::repeat_n(hop, s.unsigned_abs() as usize));
        }
        route
    }

    /// Links along each axis of the shortest way, negative downwards.
    pub fn displacement(&self, from: ChipId, to: ChipId) -> [i32; AXES] {
        let (a, b) = (self.coord(from), self.coord(to));
        let straight: [i32; AXES] = std::array::from_fn(|i| b[i] as i32 - a[i] as i32);
        // Two turns round a long axis may be what the twists of two short ones add up to.
        let most = if self.is_twisted() { 2 } else { 1 };
        let turns = |axis: usize| if self.wrap[axis] { -most..=most } else { 0..=0 };
        let mut best = ((u32::MAX, [0; AXES]), straight);
        for i in turns(0) {
            for j in turns(1) {
                for k in turns(2) {
                    let mut v = straight;
                    for (axis, times) in [i, j, k].into_iter().enumerate() {
                        v[axis] += times * self.dims[axis] as i32;
                        (0..AXES).for_each(|o| v[o] -= times * self.twist[axis][o] as i32);
                    }
                    // A way along a mesh must stay inside it.
                    if (0..AXES).any(|o| !self.wrap[o] && v[o] != straight[o]) {
                        continue;
                    }
                    let length = v.iter().map(|s| s.unsigned_abs()).sum();
                    let key = (length, v.map(|s| -s));
                    if key < best.0 {
                        best = (key, v);
                    }
                }
            }
        }
        best.1
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.dims.iter().rposition(|&d| d > 1).map_or(1, |p| p + 1).max(2);
        let dims: Vec<String> = self.dims[..used].iter().map(u32::to_string).collect();
        write!(f, "{}{}", dims.join("x"), if self.is_twisted() { "_twisted" } else { "" })
    }
}

fn pod_chips(chip: &ChipSpec) -> u32 {
    chip.ici.pod.iter().fold(1u32, |a, &b| a.saturating_mul(b))
}

/// Offsets of the twisted wraps of n x n x 2n and n x 2n x 2n, the axes in any order.
fn twist(dims: Coord) -> Option<[Coord; AXES]> {
    let (&short, &long) = (dims.iter().min()?, dims.iter().max()?);
    (long == 2 * short && dims.iter().all(|&d| d == short || d == long)).then(|| {
        std::array::from_fn(|axis| {
            std::array::from_fn(|o| if dims[axis] == short && dims[o] == long { short } else { 0 })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn chip(name: &str) -> ChipSpec {
        ChipSpec::load(name).unwrap()
    }

    fn topology(name: &str, shape: &str) -> Topology {
        Topology::parse(&chip(name), shape).unwrap()
    }

    /// Oracle: breadth-first search over the links.
    fn distances(t: &Topology, from: ChipId) -> Vec<usize> {
        let mut far = vec![usize::MAX; t.chips() as usize];
        far[from.0 as usize] = 0;
        let mut queue = VecDeque::from([from]);
        while let Some(c) = queue.pop_front() {
            for n in Direction::ALL.into_iter().filter_map(|d| t.neighbor(c, d)) {
                if far[n.0 as usize] == usize::MAX {
                    far[n.0 as usize] = far[c.0 as usize] + 1;
                    queue.push_back(n);
                }
            }
        }
        far
    }

    #[test]
    fn routes_arrive_and_are_shortest() {
        for (name, shape) in [
            ("v5e", "4x2"),
            ("v5e", "16x16"),
            ("v6e", "8x16"),
            ("v4", "2x2x1"),
            ("v5p", "4x4x4"),
            ("v5p", "4x4x8"),
            ("v5p", "4x4x8_twisted"),
            ("v4", "4x8x8_twisted"),
            ("v7x", "8x4x4_twisted"),
        ] {
            let t = topology(name, shape);
            for from in [0, 1, t.chips() / 2, t.chips() - 1].map(ChipId) {
                let far = distances(&t, from);
                for to in (0..t.chips()).map(ChipId) {
                    let route = t.route(from, to);
                    let end = route.iter().try_fold(from, |c, d| t.neighbor(c, *d));
                    assert_eq!(end, Some(to), "{shape} {from:?} to {to:?}");
                    assert_eq!(route.len(), far[to.0 as usize], "{shape} {from:?} to {to:?}");
                }
            }
        }
    }

    #[test]
    fn links_lead_back() {
        for shape in ["4x4x8_twisted", "4x8x8_twisted", "2x4x6"] {
            let t = topology("v5p", shape);
            for c in (0..t.chips()).map(ChipId) {
                for d in Direction::ALL {
                    if let Some(n) = t.neighbor(c, d) {
                        assert_eq!(t.neighbor(n, d.opposite()), Some(c), "{shape}");
                    }
                }
            }
        }
    }

    #[test]
    fn twists_shorten_the_diameter() {
        let diameter = |shape| distances(&topology("v4", shape), ChipId(0)).into_iter().max().unwrap();
        assert_eq!(diameter("4x4x8"), 8);
        assert_eq!(diameter("4x4x8_twisted"), 6);
    }

    #[test]
    fn axes_wrap_as_the_generation_has_it() {
        let wraps = |name, shape| (0..3).map(|a| topology(name, shape).wraps(a)).collect::<Vec<_>>();
        assert_eq!(wraps("v5e", "8x16"), [false, true, false]);
        assert_eq!(wraps("v5p", "4x8x2"), [true, true, false]);
    }

    #[test]
    fn sizes_become_shapes() {
        let shape = |name, n| Topology::of_size(&chip(name), n).map(|t| t.to_string());
        assert_eq!(shape("v5e", 256).unwrap(), "16x16");
        assert_eq!(shape("v5e", 8).unwrap(), "2x4");
        assert_eq!(shape("v5p", 1024).unwrap(), "8x8x16");
        assert_eq!(shape("v7x", 64).unwrap(), "4x4x4");
        assert_eq!(shape("v7x", 8192).unwrap(), "16x16x32");
        assert_eq!(shape("v4", 4096).unwrap(), "16x16x16");
        assert_eq!(
            shape("v5e", 300).unwrap_err().to_string(),
            "topology with 300 chips of v5e: no slice has this many; 256 would work, 256 at most"
        );
    }

    #[test]
    fn what_cannot_be_says_why() {
        let error = |name, shape| Topology::parse(&chip(name), shape).unwrap_err().to_string();
        assert_eq!(error("v5e", "32x16"), "topology 32x16 of v5e: the largest slice is 16x16, 256 chips");
        assert_eq!(error("v5e", "4x4x4"), "topology 4x4x4 of v5e: the chip's network has 2 axes");
        assert!(error("v5p", "4x4x4_twisted").contains("can be twisted"));
        assert!(error("v5p", "4x").contains("expected axis lengths"));
    }
}
