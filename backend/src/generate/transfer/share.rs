//! How the data of a collective is shared out between strands that work beside each other.

use tpusim_isa::placement::Level;

use super::Cut;
use crate::graph::Ring;

/// Parts smaller than this are not cut further: they would be all latency.
const LEAST: u64 = 2 << 10;

/// Arrays are cut finer if each strand still has as much as this: what is done at the end of one is then less of the whole.
const AMPLE: u64 = 4 << 20;

/// What one strand moves of every part of an array: some of its rows, and of each the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// First row.
    pub row: u64,
    /// Rows.
    pub rows: u64,
    /// First byte of a run.
    pub at: u64,
    /// Bytes of a run.
    pub run: u64,
}

impl Share {
    /// Everything.
    pub const fn all(cut: Cut) -> Share {
        Share { row: 0, rows: cut.rows, at: 0, run: cut.run }
    }

    /// Bytes of a part.
    pub const fn bytes(self) -> u64 {
        self.rows * self.run
    }

    /// Whether a dense array of one part has it in one piece.
    pub const fn dense(self, cut: Cut) -> bool {
        self.rows == 1 || self.run == cut.run
    }
}

/// A strand: its share, the order in which it gathers along the rings, and which way round it goes further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Strand {
    pub share: Share,
    /// Rings in order. Scattering goes through them backwards.
    pub order: Vec<usize>,
    /// Whether backward messages take the longer half of each ring.
    pub mirrored: bool,
}

/// What a collective does along the rings of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// What is passed on grows from ring to ring; strands take the next one together.
    Gather,
    /// It shrinks, and every strand goes on as soon as it can.
    Scatter,
}

/// Cuts parts of whole elements of `elem` bytes between strands. Each gathers along the axes of the torus in an order of its own, so that
/// all are in use at once; first between slices, where a device's own part is all that has to cross, last between the dies of a
/// chip, whose links both would else fill with the same.
pub(super) fn strands(cut: Cut, elem: u64, rings: &[Ring], along: Along) -> Vec<Strand> {
    let at = |l: Level| -> Vec<usize> { (0..rings.len()).filter(|i| rings[*i].level == l).collect() };
    let (die, torus, slices) = (at(Level::Die), at(Level::Torus), at(Level::Slices));
    let turns = torus.len().max(1);
    let turned = |turn: usize| {
        let mut turned = torus.clone();
        turned.rotate_left(turn % torus.len().max(1));
        turned
    };
    let least = |k: usize| if k > 2 { AMPLE / cut.parts.max(1) } else { LEAST };
    let fits = |k: &usize| cut.part() / (k * turns) as u64 >= LEAST.max(least(*k));
    let Some(times) = [4, 2, 1].into_iter().find(fits) else {
        let order = slices.iter().chain(&torus).chain(&die).copied().collect();
        return vec![Strand { share: Share::all(cut), order, mirrored: false }];
    };
    let orders: Vec<Vec<usize>> = (0..turns).map(turned).collect();
    let weights = weights(&orders, rings, along).repeat(times);
    let mut all = Vec::new();
    for (k, share) in shares(cut, elem, &weights).into_iter().enumerate() {
        let Some(share) = share else { continue };
        let order = slices.iter().chain(&orders[k % turns]).chain(&die).copied().collect();
        all.push(Strand { share, order, mirrored: k / turns % 2 == 1 });
    }
    all
}

/// How much of the data should take each order, so that the busiest links have least to do.
fn weights(orders: &[Vec<usize>], rings: &[Ring], along: Along) -> Vec<u64> {
    let ring = |i: usize| rings.get(i).copied().unwrap_or(Ring::whole(1));
    // Steps of a gather along each order: the ring, and how long all of the data would take.
    let load = |order: &Vec<usize>| -> Vec<(usize, f64)> {
        let n: u64 = order.iter().map(|i| ring(*i).size).product();
        let mut have = 1;
        let step = |&i: &usize| {
            let r = ring(i);
            let moved = have * (r.size - 1);
            have *= r.size;
            // A line and two neighbours have one link for what a ring has two.
            let links = if r.closed && r.size > 2 { 2.0 } else { 1.0 };
            (i, moved as f64 / n as f64 / links)
        };
        order.iter().map(step).collect()
    };
    let loads: Vec<Vec<(usize, f64)>> = orders.iter().map(load).collect();
    let time = |w: &[u64]| -> f64 {
        let on = |i: usize, step: Option<usize>| -> f64 {
            let steps = loads.iter().zip(w).flat_map(|(l, w)| l.iter().enumerate().map(move |s| (s, *w as f64)));
            steps.filter(|((k, l), _)| l.0 == i && step.is_none_or(|s| s == *k)).map(|((_, l), w)| l.1 * w).sum()
        };
        let busiest = |step: Option<usize>| (0..rings.len()).map(|i| on(i, step)).fold(0.0, f64::max);
        match along {
            Along::Gather => (0..rings.len()).map(|k| busiest(Some(k))).sum(),
            Along::Scatter => busiest(None),
        }
    };
    let mut best = vec![128; orders.len()];
    let mut least = time(&best);
    // From one to another, in ever smaller steps, as long as it helps.
    for by in [32, 16, 8, 4, 2, 1].into_iter().flat_map(|by| [by; 8]) {
        for (from, to) in (0..orders.len()).flat_map(|a| (0..orders.len()).map(move |b| (a, b))) {
            let mut w = best.clone();
            if from == to || w[from] <= by {
                continue;
            }
            (w[from], w[to]) = (w[from] - by, w[to] + by);
            let t = time(&w);
            if t < least * (1.0 - 1e-9) {
                (best, least) = (w, t);
            }
        }
    }
    best
}

/// Shares in proportion to `weights`; `None` where nothing is left for one.
fn shares(cut: Cut, elem: u64, weights: &[u64]) -> Vec<Option<Share>> {
    let all = Share::all(cut);
    let count = weights.len() as u64;
    let sum = weights.iter().sum::<u64>().max(1);
    let pieces = |n: u64| -> Vec<Option<(u64, u64)>> {
        let mut before = 0;
        let piece = |w: &u64| {
            let (a, b) = (before, before + w);
            before = b;
            let place = |w: u64| (u128::from(n) * u128::from(w) / u128::from(sum)) as u64;
            Some((place(a), place(b))).filter(|(a, b)| a < b)
        };
        weights.iter().map(piece).collect()
    };
    if cut.rows >= 8 * count || cut.run / elem < count {
        let share = |(a, b)| Share { row: a, rows: b - a, ..all };
        return pieces(cut.rows).into_iter().map(|p| p.map(share)).collect();
    }
    // Whole vector registers where there are enough of them.
    let unit = [4096, 512, elem].into_iter().find(|u| u % elem == 0 && cut.run >= 16 * count * u).unwrap_or(elem);
    let (whole, rest) = (cut.run / unit, cut.run % unit);
    let share = |(a, b): (u64, u64)| {
        let more = if b == whole { rest } else { 0 };
        Share { at: a * unit, run: (b - a) * unit + more, ..all }
    };
    pieces(whole).into_iter().map(|p| p.map(share)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(size: u64, stride: u64, level: Level) -> Ring {
        Ring { level, stride, ..Ring::whole(size) }
    }

    // Oracle: the definition of a partition.
    #[test]
    fn shares_are_all_of_it_once() {
        for (rows, run) in [(1, 4096), (1, 12), (3, 4000), (100, 8), (2, 65540), (1, 4)] {
            let cut = Cut { rows, parts: 4, run };
            for count in 1..9 {
                let all: Vec<Share> = shares(cut, 4, &vec![7; count]).into_iter().flatten().collect();
                assert_eq!(all.iter().map(|s| s.bytes()).sum::<u64>(), rows * run, "{rows} {run} {count}");
                for (a, b) in all.iter().zip(&all[1..]) {
                    assert!(b.row == a.row + a.rows || b.at == a.at + a.run);
                }
            }
        }
    }

    #[test]
    fn dies_come_last_and_slices_first() {
        let rings =
            [ring(2, 1, Level::Die), ring(4, 2, Level::Torus), ring(4, 8, Level::Torus), ring(3, 32, Level::Slices)];
        let all = strands(Cut { rows: 1, parts: 96, run: 1 << 16 }, 4, &rings, Along::Gather);
        let orders: Vec<&[usize]> = all.iter().map(|s| &s.order[..]).collect();
        assert_eq!(orders, [[3, 1, 2, 0], [3, 2, 1, 0], [3, 1, 2, 0], [3, 2, 1, 0]]);
        assert_eq!(all.iter().filter(|s| s.mirrored).count(), 2);
        assert_eq!(strands(Cut { rows: 1, parts: 96, run: 1 << 10 }, 4, &rings, Along::Gather).len(), 1);
        assert_eq!(strands(Cut { rows: 1, parts: 96, run: 1 << 20 }, 4, &rings, Along::Gather).len(), 8);
    }

    // Oracle: loads worked out by hand. On 4 x 16 chips, gathering x first moves 3 and 60 of 64 parts, y first 15 and 48.
    #[test]
    fn unequal_axes_get_unequal_shares() {
        let rings = [ring(4, 1, Level::Torus), ring(16, 4, Level::Torus)];
        let orders = [vec![0, 1], vec![1, 0]];
        let w = weights(&orders, &rings, Along::Scatter);
        let (x, y) = (3 * w[0] + 48 * w[1], 60 * w[0] + 15 * w[1]);
        assert!(x.abs_diff(y) <= 63, "{w:?}");
        let equal = [ring(4, 1, Level::Torus), ring(4, 4, Level::Torus)];
        assert_eq!(weights(&orders, &equal, Along::Scatter), [128, 128]);
        assert_eq!(weights(&orders, &equal, Along::Gather), [128, 128]);
    }
}
