//! A weight-stationary systolic array, processing element by processing element and cycle by cycle: small and slow, and the
//! model that the fast one is held against.
//!
//! Left-hand rows enter at the left, element `k` of a row at array row `k`, one cycle later for each `k`, and move right. Partial
//! sums start from zero at the top and move down, so every output adds its products in ascending `k`. Each element holds two
//! weights. A row of weights enters at the top, moves down to its place, and is kept in the one that is not in use; which one is
//! in use travels with the left-hand rows. A change of weights is therefore a wave right behind the last row that needs the old
//! ones, and costs no cycle.

use std::collections::VecDeque;

/// What enters the array in one cycle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Feed<'a> {
    /// A left-hand row, one value per array row.
    pub row: Option<&'a [f32]>,
    /// A row of weights (one value per array column) and the array row it is for. It goes to the weights not in use.
    pub push: Option<(usize, &'a [f32])>,
    /// Change weights before this cycle's row; this cycle's push already goes to the other ones.
    pub latch: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Element {
    weights: [f32; 2],
    /// Left-hand value and the weight it wants, to the right neighbour.
    x: Option<(f32, usize)>,
    /// Partial sum to the neighbour below.
    sum: f32,
    /// Weight on its way down: value, array row, which of the two.
    load: Option<(f32, usize, usize)>,
}

/// An array of `depth` rows (the products of an output) and `width` columns (outputs per row).
#[derive(Clone, Debug)]
pub struct Array {
    depth: usize,
    width: usize,
    elements: Vec<Element>,
    active: usize,
    /// Values that wait at the left edge, per array row: element `k` waits `k` cycles.
    left: Vec<VecDeque<Option<(f32, usize)>>>,
    /// Weights that wait at the top edge, per column.
    top: Vec<VecDeque<Option<(f32, usize, usize)>>>,
    /// Outputs that wait at the bottom for the rest of their row, per column.
    bottom: Vec<VecDeque<f32>>,
}

impl Array {
    /// An idle array with weights of zero.
    pub fn new(depth: usize, width: usize) -> Array {
        Array {
            depth,
            width,
            elements: vec![Element::default(); depth * width],
            active: 0,
            left: (0..depth).map(|k| std::iter::repeat_n(None, k).collect()).collect(),
            top: (0..width).map(|n| std::iter::repeat_n(None, n).collect()).collect(),
            bottom: vec![VecDeque::new(); width],
        }
    }

    /// Cycles from the one in which a row enters to the one in which its outputs are complete, both counted.
    pub fn latency(&self) -> usize {
        self.depth + self.width - 1
    }

    /// One cycle. Returns a row of outputs if one is complete.
    pub fn step(&mut self, feed: Feed) -> Option<Vec<f32>> {
        if feed.latch {
            self.active ^= 1;
        }
        for (k, edge) in self.left.iter_mut().enumerate() {
            edge.push_back(feed.row.and_then(|r| r.get(k)).map(|x| (*x, self.active)));
        }
        for (n, edge) in self.top.iter_mut().enumerate() {
            edge.push_back(feed.push.and_then(|(k, w)| w.get(n).map(|w| (*w, k, self.active ^ 1))));
        }
        // From the bottom right, so that every element sees what its neighbours gave in the cycle before.
        for k in (0..self.depth).rev() {
            for n in (0..self.width).rev() {
                self.element(k, n);
            }
        }
        if self.bottom.iter().all(|q| !q.is_empty()) {
            return self.bottom.iter_mut().map(VecDeque::pop_front).collect();
        }
        None
    }

    fn element(&mut self, k: usize, n: usize) {
        let at = k * self.width + n;
        let x = match n.checked_sub(1) {
            Some(_) => self.elements[at - 1].x,
            None => self.left[k].pop_front().flatten(),
        };
        let (sum, load) = match k.checked_sub(1) {
            Some(_) => (self.elements[at - self.width].sum, self.elements[at - self.width].load),
            None => (0.0, self.top[n].pop_front().flatten()),
        };
        let e = &mut self.elements[at];
        if let Some((w, row, which)) = load
            && row == k
        {
            e.weights[which] = w;
        }
        e.load = load;
        e.x = x;
        if let Some((x, which)) = x {
            e.sum = x.mul_add(e.weights[which], sum);
            if k + 1 == self.depth {
                self.bottom[n].push_back(e.sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernel;
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn values(rng: &mut ChaCha8Rng, n: usize) -> Vec<f32> {
        (0..n).map(|_| f32::from_bits(rng.random::<u32>() & 0x807f_0000 | rng.random_range(110..140) << 23)).collect()
    }

    fn want(x: &[f32], w: &[f32], n: usize, width: usize) -> f32 {
        x.iter().enumerate().fold(0.0, |s, (k, x)| x.mul_add(w[k * width + n], s))
    }

    /// Runs matrices `(weights, rows)` back to back, pushing the next weights while the rows of this one stream. Returns the
    /// outputs with the cycle each was complete, and the cycle the first row entered.
    fn stream(depth: usize, width: usize, work: &[(Vec<f32>, Vec<f32>)]) -> (Vec<(usize, Vec<f32>)>, usize) {
        let mut a = Array::new(depth, width);
        let mut out = Vec::new();
        let mut cycle = 0;
        let mut step = |feed: Feed, out: &mut Vec<(usize, Vec<f32>)>| {
            if let Some(row) = a.step(feed) {
                out.push((cycle, row));
            }
            cycle += 1;
        };
        let weight = |m: usize, k: usize| work.get(m).map(|(w, _)| (k, &w[k * width..(k + 1) * width]));
        for k in 0..depth {
            step(Feed { push: weight(0, k), ..Feed::default() }, &mut out);
        }
        for (m, (_, x)) in work.iter().enumerate() {
            for (t, row) in x.chunks_exact(depth).enumerate() {
                let push = if t < depth { weight(m + 1, t) } else { None };
                step(Feed { row: Some(row), push, latch: t == 0 }, &mut out);
            }
        }
        for _ in 0..depth + width {
            step(Feed::default(), &mut out);
        }
        (out, depth)
    }

    // Oracle: the definition for the bits; depth + width - 1 cycles to the first output, then one row a cycle without a gap at the
    // changes of weights, for the time.
    #[test]
    fn streams_without_gaps() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        for (depth, width) in [(1, 1), (1, 5), (5, 1), (2, 3), (4, 4), (8, 3), (3, 8), (16, 16), (7, 31)] {
            for rows in [depth, depth + 3] {
                let work: Vec<_> =
                    (0..3).map(|_| (values(&mut rng, depth * width), values(&mut rng, rows * depth))).collect();
                let (out, first) = stream(depth, width, &work);
                assert_eq!(out.len(), 3 * rows);
                for (i, (cycle, row)) in out.iter().enumerate() {
                    assert_eq!(*cycle, first + i + Array::new(depth, width).latency() - 1, "{depth}x{width}");
                    let (w, x) = &work[i / rows];
                    let x = &x[i % rows * depth..(i % rows + 1) * depth];
                    for (n, y) in row.iter().enumerate() {
                        assert_eq!(y.to_bits(), want(x, w, n, width).to_bits());
                    }
                }
            }
        }
    }

    // Oracle: this array gives the bits of the fast kernel at full size.
    #[test]
    fn the_fast_kernel_gives_the_same_bits() {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let (w, x) = (values(&mut rng, 128 * 128), values(&mut rng, 16 * 128));
        let mut fast = vec![0.0; 16 * 128];
        kernel::multiply_f32(&x, &w, 128, &mut fast);
        let (out, _) = stream(128, 128, &[(w, x)]);
        let slow: Vec<f32> = out.into_iter().flat_map(|(_, r)| r).collect();
        assert!(fast.iter().zip(&slow).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}
