//! Views: how a value that only moves data is read straight from the buffer behind it.
//!
//! Arrays in HBM are dense and row-major, so broadcasts, transposes, slices and reversals of a stored array are only other strides and
//! offsets, and a reshape is too where the dimensions it joins lie one after the other.

/// A strided reading of a stored array; strides and offset count elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Element at index zero.
    pub offset: i64,
    /// Elements between neighbours of each dimension; 0 where a dimension repeats.
    pub strides: Vec<i64>,
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
        View { offset: 0, strides: dense_strides(dims) }
    }

    /// The view of a broadcast: operand dimension `i` is result dimension `map[i]`.
    pub fn broadcast(&self, operand: &[u64], map: &[usize], result: &[u64]) -> View {
        let mut strides = vec![0; result.len()];
        for (i, &d) in map.iter().enumerate() {
            if operand[i] == result[d] {
                strides[d] = self.strides[i];
            }
        }
        View { offset: self.offset, strides }
    }

    /// The view of a transpose.
    pub fn transpose(&self, perm: &[usize]) -> View {
        View { offset: self.offset, strides: perm.iter().map(|&p| self.strides[p]).collect() }
    }

    /// The view of a slice.
    pub fn slice(&self, start: &[u64], step: &[i64]) -> View {
        let offset = start.iter().zip(&self.strides).map(|(&s, &st)| s as i64 * st).sum::<i64>() + self.offset;
        View { offset, strides: self.strides.iter().zip(step).map(|(&st, &k)| st * k).collect() }
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
        Some(View { offset: self.offset, strides })
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
        assert_eq!(v, View { offset: 14, strides: vec![16, -2] });
        let b = View::dense(&[4, 1]).broadcast(&[4, 1], &[0, 2], &[4, 7, 9]);
        assert_eq!(b.strides, [1, 0, 0]);
    }
}
