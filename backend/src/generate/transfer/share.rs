//! How the data of a collective is shared out between strands that work beside each other.

use tpusim_isa::placement::Level;

use super::Cut;
use crate::graph::Ring;

/// Parts smaller than this are not cut further: they would be all latency.
const LEAST: u64 = 2 << 10;

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

/// Cuts parts of whole elements of `elem` bytes between strands. Each gathers along the axes of the torus in an order of its own, so that
/// all are in use at once; first between slices, where a device's own part is all that has to cross, last between the dies of a
/// chip, whose links both would else fill with the same.
pub(super) fn strands(cut: Cut, elem: u64, rings: &[Ring]) -> Vec<Strand> {
    let at = |l: Level| -> Vec<usize> { (0..rings.len()).filter(|i| rings[*i].level == l).collect() };
    let (die, torus, slices) = (at(Level::Die), at(Level::Torus), at(Level::Slices));
    let turns = torus.len().max(1);
    let mut kinds: Vec<(Vec<usize>, bool)> = Vec::new();
    for mirrored in [false, true] {
        for turn in 0..turns {
            let mut turned = torus.clone();
            turned.rotate_left(turn % torus.len().max(1));
            kinds.push((slices.iter().chain(&turned).chain(&die).copied().collect(), mirrored));
        }
    }
    let fits = |k: &usize| cut.part() / *k as u64 >= LEAST;
    let count = [2 * turns, turns].into_iter().find(fits).unwrap_or(1);
    let shares = shares(cut, elem, count as u64);
    shares.into_iter().zip(kinds).map(|(share, (order, mirrored))| Strand { share, order, mirrored }).collect()
}

/// At most `count` shares that are about equal.
fn shares(cut: Cut, elem: u64, count: u64) -> Vec<Share> {
    let all = Share::all(cut);
    let pieces = |n: u64| (0..count).map(move |k| (n * k / count, n * (k + 1) / count)).filter(|(a, b)| a < b);
    if cut.rows >= 8 * count || cut.run / elem < count {
        return pieces(cut.rows).map(|(a, b)| Share { row: a, rows: b - a, ..all }).collect();
    }
    // Whole vector registers where there are enough of them.
    let unit = [4096, 512, elem].into_iter().find(|u| u % elem == 0 && cut.run >= 16 * count * u).unwrap_or(elem);
    let (whole, rest) = (cut.run / unit, cut.run % unit);
    let last = pieces(whole).last().map_or(0, |p| p.1);
    let share = |(a, b): (u64, u64)| {
        let more = if b == last { rest } else { 0 };
        Share { at: a * unit, run: (b - a) * unit + more, ..all }
    };
    pieces(whole).map(share).collect()
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
                let all = shares(cut, 4, count);
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
        let all = strands(Cut { rows: 1, parts: 96, run: 1 << 20 }, 4, &rings);
        let orders: Vec<&[usize]> = all.iter().map(|s| &s.order[..]).collect();
        assert_eq!(orders, [[3, 1, 2, 0], [3, 2, 1, 0], [3, 1, 2, 0], [3, 2, 1, 0]]);
        assert_eq!(all.iter().filter(|s| s.mirrored).count(), 2);
        assert_eq!(strands(Cut { rows: 1, parts: 96, run: 1 << 10 }, 4, &rings).len(), 1);
    }
}
