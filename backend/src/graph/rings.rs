//! The axes of the network along which the devices of a group lie.
//!
//! A group whose devices form a box of the torus is a product of lines: the place of a device in the group is a number whose digits are
//! places along these lines. Collectives then run along one line after the other, and several at once, instead of once round
//! everybody.

use tpusim_isa::placement::{Level, NetworkAxis, Placement};

/// One digit of a device's place in its group, and the network axis it counts along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Devices of a line.
    pub size: u64,
    /// Places of the group between neighbours on the line.
    pub stride: u64,
    /// What joins them.
    pub level: Level,
    /// Whether the ends of the line are as near to each other as neighbours are.
    pub closed: bool,
    /// Of every so many devices that follow one another along the network, one is the first of its kind: digits count all of the
    /// first kind, then all of the second. A power of two, above 1 only on lines that close.
    pub kinds: u64,
}

impl Ring {
    /// A group about which nothing more is known: everybody in order.
    pub fn whole(size: u64) -> Ring {
        Ring { size, stride: 1, level: Level::Torus, closed: true, kinds: 1 }
    }

    /// The digit of the device at place `r` round the ring. A line that does not close is walked there over every other device and
    /// back over those left out, so that no step is longer than two links and each link is taken once in each direction.
    pub fn digit(&self, r: u64) -> u64 {
        match (self.closed, r < self.size.div_ceil(2)) {
            (true, _) => r % self.kinds * (self.size / self.kinds) + r / self.kinds,
            (false, true) => 2 * r,
            (false, false) => 2 * (self.size - 1 - r) + 1,
        }
    }
}

/// The digits of the place in each of `groups`, fastest first, or one ring if the groups are not all boxes of the same kind.
pub fn rings(groups: &[Vec<u32>], placement: Option<&Placement>) -> Vec<Ring> {
    let n = groups.first().map_or(1, |g| g.len() as u64);
    let boxed = placement.and_then(|p| boxes(groups, p));
    boxed.unwrap_or_else(|| vec![Ring::whole(n)])
}

fn boxes(groups: &[Vec<u32>], placement: &Placement) -> Option<Vec<Ring>> {
    let first = groups.first()?;
    let n = first.len();
    let at = |d: u32| placement.at.get(d as usize);
    // The only axis along which two devices differ.
    let between = |a: u32, b: u32| -> Option<usize> {
        let mut differ = at(a)?.iter().zip(at(b)?).enumerate().filter(|(_, (x, y))| x != y).map(|(i, _)| i);
        let axis = differ.next()?;
        differ.next().is_none().then_some(axis)
    };
    let mut lines: Vec<(usize, usize, usize)> = Vec::new();
    let mut stride = 1;
    while stride < n {
        let axis = between(first[0], first[stride])?;
        let along = |k: &usize| first.get(k * stride).is_some_and(|&d| between(first[0], d) == Some(axis));
        let longest = (2..=n / stride).take_while(|k| along(&(k - 1))).last().unwrap_or(1);
        let size = (2..=longest).rev().find(|s| n.is_multiple_of(stride * s))?;
        lines.push((size, stride, axis));
        stride *= size;
    }
    let mut out = Vec::new();
    for (size, stride, axis) in lines {
        let net: &NetworkAxis = placement.axes.get(axis)?;
        let mut coordinates: Vec<Vec<u32>> = Vec::new();
        for g in groups {
            for (p, &d) in g.iter().enumerate().filter(|(p, _)| p / stride % size == 0) {
                let mut line = vec![at(d)?.get(axis).copied()?];
                for k in 1..size {
                    let (before, here) = (*g.get(p + (k - 1) * stride)?, *g.get(p + k * stride)?);
                    if between(before, here)? != axis || between(d, here)? != axis {
                        return None;
                    }
                    line.push(at(here)?.get(axis).copied()?);
                }
                coordinates.push(line);
            }
        }
        let (size, stride) = (size as u64, stride as u64);
        let orders = (0..size.ilog2()).map(|k| 1 << k).filter(|kinds| size.is_multiple_of(*kinds));
        let ring = |kinds| {
            let plain = Ring { size, stride, level: net.level, closed: true, kinds };
            let (longest, closing) = steps(&plain, net, &coordinates);
            (longest, Ring { closed: closing <= longest, ..plain })
        };
        let best =
            orders.map(ring).filter(|(_, r)| r.closed || r.kinds == 1).min_by_key(|(longest, r)| (*longest, r.kinds));
        out.push(best?.1);
    }
    Some(out)
}

/// The longest step between neighbours round `ring` on any line, and the longest from the last to the first.
fn steps(ring: &Ring, net: &NetworkAxis, lines: &[Vec<u32>]) -> (u32, u32) {
    let (mut longest, mut closing) = (0, 0);
    for line in lines {
        let at = |r: u64| line.get(ring.digit(r) as usize).copied().unwrap_or(0);
        for r in 1..ring.size {
            longest = longest.max(net.distance(at(r - 1), at(r)));
        }
        closing = closing.max(net.distance(at(0), at(ring.size - 1)));
    }
    (longest, closing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mesh of `x` by `y` chips in row-major order, x fastest.
    fn torus(x: u32, y: u32, closed: bool) -> Placement {
        let axis = |length| NetworkAxis { length, level: Level::Torus, closed };
        Placement { axes: vec![axis(x), axis(y)], at: (0..x * y).map(|d| vec![d % x, d / x]).collect() }
    }

    fn found(groups: &[Vec<u32>], p: &Placement) -> Vec<(u64, u64, bool)> {
        rings(groups, Some(p)).iter().map(|r| (r.size, r.stride, r.closed)).collect()
    }

    // Oracle: coordinates written out.
    #[test]
    fn boxes_are_products_of_lines() {
        let p = torus(4, 4, true);
        assert_eq!(found(&[(0..16).collect()], &p), [(4, 1, true), (4, 4, true)]);
        // Columns, in either order.
        let column = |x: u32| (0..4).map(|y| x + 4 * y).collect::<Vec<u32>>();
        let mut columns: Vec<Vec<u32>> = (0..4).map(column).collect();
        columns[2].reverse();
        assert_eq!(found(&columns, &p), [(4, 1, true)]);
        // A quarter of a ring of four is no ring; two and two are lines.
        assert_eq!(found(&[vec![0, 1, 4, 5]], &p), [(2, 1, true), (2, 2, true)]);
        assert_eq!(found(&[vec![0, 1, 2, 4, 5, 6]], &p), [(3, 1, false), (2, 3, true)]);
        assert_eq!(found(&[(0..8).collect()], &torus(8, 1, false)), [(8, 1, false)]);
    }

    // Oracle: coordinates written out. Even places first, then odd ones, is a ring of neighbours.
    #[test]
    fn interleaved_lines_are_put_in_order() {
        let p = torus(8, 1, true);
        let whole = rings(&[vec![0, 2, 4, 6, 1, 3, 5, 7]], Some(&p));
        assert_eq!(whole, [Ring { kinds: 2, ..Ring::whole(8) }]);
        let walk: Vec<u64> = (0..8).map(|r| whole[0].digit(r)).collect();
        assert_eq!(walk, [0, 4, 1, 5, 2, 6, 3, 7]);
        assert_eq!(rings(&[vec![0, 2, 4, 6], vec![1, 3, 5, 7]], Some(&p)), [Ring::whole(4)]);
    }

    #[test]
    fn anything_else_is_one_ring() {
        let p = torus(4, 4, true);
        assert_eq!(found(&[vec![0, 5, 10, 15]], &p), [(4, 1, true)]);
        assert_eq!(found(&[vec![0, 1, 2, 3, 7, 6, 5, 4]], &p), [(8, 1, true)]);
        assert_eq!(rings(&[vec![0, 1, 2]], None), [Ring::whole(3)]);
    }

    // Oracle: the definition. Every place once, and no step longer than two.
    #[test]
    fn lines_are_walked_there_and_back() {
        for size in 2..9u64 {
            let line = Ring { closed: false, ..Ring::whole(size) };
            let walk: Vec<u64> = (0..size).map(|r| line.digit(r)).collect();
            let mut sorted = walk.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..size));
            assert!((0..size as usize).all(|r| walk[r].abs_diff(walk[(r + 1) % size as usize]) <= 2));
        }
    }
}
