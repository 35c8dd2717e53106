//! Views: how a value that only moves data is read straight from the buffer behind it.
//!
//! Arrays in HBM are dense and row-major, so broadcasts, transposes, slices and reversals of a stored array are only other strides and
//! offsets, and a reshape is too where the dimensions it joins lie one after the other. A dynamic slice adds an index that the kernel
//! reads when it starts, times a stride.

use crate::graph::NodeId;

/// An index that moves a view: `min(max(index, 0), limit) * stride` elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shift {
    /// The index, an integer scalar.
    pub index: NodeId,
    /// The largest index at which the view lies inside its array.
    pub limit: u64,
    /// Elements that one step of the index moves.
    pub stride: i64,
}

/// A strided reading of a stored array; strides and offset count elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Element at index zero.
    pub offset: i64,
    /// Elements between neighbours of each dimension; 0 where a dimension repeats.
    pub strides: Vec<i64>,
    /// What moves it when the program runs.
    pub shifts: Vec<Shift>,
}

/// Row-major strides of `dims`; a size of one gets stride 0, since nothing ever steps along it.
pub fn dense_strides(dims: &[u64]) -> Vec<i64> {
    let mut strides = vec![0i64; dims.len()];
    let mut step = 1i64;
    for d in (0..dims.len()).rev() {
        strides[d] = if dims[d] == 1 { 0 } else { step };
        step *= dims[d] as i64;
    }
    strides
}

impl View {
    /// All of a stored array.
    pub fn dense(dims: &[u64]) -> View {
        View { offset: 0, strides: dense_strides(dims), shifts: Vec::new() }
    }

    /// The view of a broadcast: operand dimension `i` is result dimension `map[i]`.
    pub fn broadcast(&self, operand: &[u64], map: &[usize], result: &[u64]) -> View {
        let mut strides = vec![0; result.len()];
        for (i, &d) in map.iter().enumerate() {
            if operand[i] == result[d] {
                strides[d] = self.strides[i];
            }
        }
        View { strides, ..self.clone() }
    }

    /// The view of a transpose.
    pub fn transpose(&self, perm: &[usize]) -> View {
        View { strides: perm.iter().map(|&p| self.strides[p]).collect(), ..self.clone() }
    }

    /// The view of a slice.
    pub fn slice(&self, start: &[u64], step: &[i64]) -> View {
        let offset = start.iter().zip(&self.strides).map(|(&s, &st)| s as i64 * st).sum::<i64>() + self.offset;
        let strides = self.strides.iter().zip(step).map(|(&st, &k)| st * k).collect();
        View { offset, strides, shifts: self.shifts.clone() }
    }

    /// The view of a part of sizes `part` of an array of sizes `whole`, which starts at `indices` along `axes`.
    pub fn dynamic_slice(&self, whole: &[u64], part: &[u64], axes: &[usize], indices: &[NodeId]) -> View {
        let mut view = self.clone();
        for (&d, &index) in axes.iter().zip(indices) {
            let (limit, stride) = (whole[d] - part[d], self.strides[d]);
            if limit > 0 && stride != 0 {
                view.shifts.push(Shift { index, limit, stride });
            }
        }
        view
    }

    /// The view of a reshape, if it has one.
    pub fn reshape(&self, from: &[u64], to: &[u64]) -> Option<View> {
        if from.iter().product::<u64>() == 0 {
            return Some(View::dense(to));
        }
        // Walk both shapes from the right in groups of equal products.
        let (mut i, mut j) = (from.len(), to.len());
        let mut strides = vec![0i64; to.len()];
        while i > 0 || j > 0 {
            let (i_end, j_end) = (i, j);
            let (mut a, mut b) = (1u64, 1u64);
            loop {
                if a <= b && i > 0 && (a < b || a == 1) {
                    i -= 1;
                    a *= from[i];
                } else if b < a && j > 0 {
                    j -= 1;
                    b *= to[j];
                } else if i == 0 && a == 1 && j > 0 && to[j - 1] == 1 {
                    j -= 1;
                } else {
                    break;
                }
            }
            if a != b {
                return None;
            }
            // The operand's dimensions of the group must be one run.
            let dims: Vec<usize> = (i..i_end).filter(|&d| from[d] > 1).collect();
            let Some(&inner) = dims.last() else { continue };
            for w in dims.windows(2) {
                if self.strides[w[0]] != self.strides[w[1]] * from[w[1]] as i64 {
                    return None;
                }
            }
            let mut step = self.strides[inner];
            for d in (j..j_end).rev() {
                if to[d] > 1 {
                    strides[d] = step;
                    step *= to[d] as i64;
                }
            }
        }
        Some(View { strides, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshapes_split_and_join_runs() {
        let v = View::dense(&[2, 3, 4]);
        assert_eq!(v.reshape(&[2, 3, 4], &[6, 4]).unwrap().strides, [4, 1]);
        assert_eq!(v.reshape(&[2, 3, 4], &[2, 1, 12]).unwrap().strides, [12, 0, 1]);
        assert_eq!(v.reshape(&[2, 3, 4], &[24]).unwrap().strides, [1]);
        assert_eq!(v.reshape(&[2, 3, 4], &[4, 6]).unwrap().strides, [6, 1]);
        let t = v.transpose(&[1, 0, 2]);
        assert_eq!(t.reshape(&[3, 2, 4], &[3, 8]), None);
        assert_eq!(t.reshape(&[3, 2, 4], &[3, 2, 2, 2]).unwrap().strides, [4, 12, 2, 1]);
        assert_eq!(View::dense(&[]).reshape(&[], &[1, 1]).unwrap().strides, [0, 0]);
        assert_eq!(View::dense(&[1, 5, 1]).reshape(&[1, 5, 1], &[5]).unwrap().strides, [1]);
    }

    #[test]
    fn slices_and_broadcasts_compose() {
        let v = View::dense(&[4, 8]).slice(&[1, 6], &[2, -2]);
        assert_eq!(v, View { offset: 14, strides: vec![16, -2], shifts: vec![] });
        let b = View::dense(&[4, 1]).broadcast(&[4, 1], &[0, 2], &[4, 7, 9]);
        assert_eq!(b.strides, [1, 0, 0]);
    }

    // Oracle: element (i + a, j + b) of a 4 x 8 array, then with its dimensions exchanged and joined.
    #[test]
    fn dynamic_slices_move_a_view() {
        let (a, b) = (NodeId(7), NodeId(9));
        let v = View::dense(&[4, 8]).dynamic_slice(&[4, 8], &[2, 8], &[0, 1], &[a, b]);
        assert_eq!(v.shifts, [Shift { index: a, limit: 2, stride: 8 }]);
        let t = v.transpose(&[1, 0]).dynamic_slice(&[8, 2], &[3, 2], &[0], &[b]);
        assert_eq!(t.strides, [1, 8]);
        assert_eq!(t.shifts[1], Shift { index: b, limit: 5, stride: 1 });
        assert_eq!(v.reshape(&[2, 8], &[16]).unwrap().shifts, v.shifts);
    }
}
