//! Windows of arrays at computed places: what gathers and scatters are reduced to.

use tpusim_isa::num::DType;

use crate::lower::math::MapOp;

/// Windows of one shape in a dense array. A window starts `place * unit` elements into the array; places are an i32 array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Number of windows.
    pub count: u64,
    /// Size and stride, in elements, of a window's dimensions, outermost first. None has size one, and what is one run is one dimension.
    pub dims: Vec<(u64, u64)>,
    /// Elements that one step of a place moves the window.
    pub unit: u64,
}

impl Windows {
    /// Joins `dims` (sizes and strides in elements, outermost first) where they are one run.
    pub fn new(count: u64, dims: impl IntoIterator<Item = (u64, u64)>, unit: u64) -> Windows {
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (size, stride) in dims.into_iter().filter(|d| d.0 != 1) {
            match out.last_mut() {
                Some(last) if last.1 == size * stride => *last = (last.0 * size, stride),
                _ => out.push((size, stride)),
            }
        }
        Windows { count, dims: out, unit }
    }

    /// Elements of a window.
    pub fn elements(&self) -> u64 {
        self.dims.iter().map(|d| d.0).product()
    }
}

/// Windows overwritten by a combination of what is there and updates, in ascending order. Operands of the node: the arrays, the
/// places, the slots, the updates; result `k` overwrites array `k`.
///
/// Updates are worked off in batches. A batch loads all its windows at once, each into a slot of its own, combines them with the
/// updates in order, and stores them. Several updates of one window share the slot of the first: the *home* of an update is the
/// first position in its batch with the same place. Its slot is its home, plus [`Scatter::DROPPED`] for an update that does not count.
#[derive(Clone, Debug, PartialEq)]
pub struct Scatter {
    /// The windows; their count is a multiple of the batch.
    pub windows: Windows,
    /// Updates of a batch.
    pub batch: u64,
    /// How one element of each array and of its update combine.
    pub region: Function,
}

impl Scatter {
    /// Added to the slot of an update outside of the array.
    pub const DROPPED: i32 = 1 << 16;

    /// Whether windows of arrays of these types may be moved in words of other types: elements of all must lie in the same lanes.
    pub fn words(&self, mut dtypes: impl Iterator<Item = DType>) -> bool {
        let first = dtypes.next().map(DType::bytes);
        dtypes.all(|t| Some(t.bytes()) == first)
    }

    /// Arrays that are updated together.
    pub fn arrays(&self) -> usize {
        self.region.results.len()
    }
}

/// A function of scalars that is computed elementwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// Its values, operands before their users.
    pub values: Vec<Term>,
    /// Which of them are its results.
    pub results: Vec<usize>,
}

/// A value of a [`Function`].
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// What it is.
    pub what: What,
    /// Operands.
    pub args: Vec<usize>,
    /// Element type.
    pub dtype: DType,
}

/// What a [`Term`] is.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A parameter.
    Param(usize),
    /// A constant, as registers hold it.
    Splat(i32),
    /// An elementwise operation; the type is that of its first operand that is not a predicate.
    Map(MapOp, DType),
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: a run is what has no gaps.
    #[test]
    fn runs_are_joined() {
        assert_eq!(Windows::new(1, [(2, 12), (3, 4), (4, 1)], 1).dims, [(24, 1)]);
        assert_eq!(Windows::new(1, [(2, 20), (1, 4), (4, 1)], 1).dims, [(2, 20), (4, 1)]);
        assert_eq!(Windows::new(1, [(5, 7), (1, 1)], 1).dims, [(5, 7)]);
        assert_eq!(Windows::new(1, [(1, 7), (1, 1)], 1).elements(), 1);
    }
}
