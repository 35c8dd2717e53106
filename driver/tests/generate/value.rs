//! Values of a random program: what is known about each before it runs, and how errors pass through the op that made it.

use std::rc::Rc;

use tpusim_backend::hlo::{TensorType, ValueId};
use tpusim_isa::num::{DType, FloatFormat, convert};

/// Splitmix64: a gene's own stream of choices.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub fn percent(&mut self, p: usize) -> bool {
        self.below(100) < p
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// In [-1, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn shuffled(&mut self, n: usize) -> Vec<usize> {
        let mut v: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            v.swap(i, self.below(i + 1));
        }
        v
    }
}

/// Largest finite magnitude and error bound of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    pub mag: f64,
    pub err: f64,
}

/// Error bound of a result from those of the operands and its own magnitude.
pub type Rule = Rc<dyn Fn(&[Stat], f64) -> f64>;

/// A value.
#[derive(Clone)]
pub struct Val {
    pub id: ValueId,
    pub ty: TensorType,
    /// The simulator must give the same numbers.
    pub exact: bool,
    /// Floats that are whole numbers.
    pub whole: bool,
    /// No finite element is larger than this.
    pub mag: f64,
    pub args: Vec<usize>,
    pub rule: Rule,
}

impl Val {
    pub fn float(&self) -> bool {
        self.ty.dtype.is_float()
    }

    pub fn int(&self) -> bool {
        self.ty.dtype.is_int()
    }

    pub fn elements(&self) -> i64 {
        self.ty.dims.iter().product()
    }
}

/// One unit in the last place of a number of magnitude `mag`, at least the least positive number.
pub fn ulp(dtype: DType, mag: f64) -> f64 {
    match FloatFormat::of(dtype) {
        Some(f) => {
            let m = f.mantissa_bits as i32;
            mag * 2f64.powi(-m) + 2f64.powi(1 - f.bias - m)
        }
        None if dtype == DType::F32 => mag * 2f64.powi(-23) + 1e-37,
        None => 0.0,
    }
}

/// The largest finite number.
pub fn max_of(dtype: DType) -> f64 {
    if dtype == DType::I1 {
        return 1.0;
    }
    if dtype.is_int() {
        let (lo, hi) = convert::int_range(dtype);
        return (hi as f64).max(-(lo as f64));
    }
    match FloatFormat::of(dtype) {
        Some(f) => {
            let top = (0..1u32 << (f.exponent_bits + f.mantissa_bits)).rev().map(|c| f.decode(c as u16));
            top.into_iter().find(|x| x.is_finite()).unwrap_or(0.0)
        }
        None => f64::from(f32::MAX),
    }
}

/// The largest operand error, for ops that move or select.
pub fn moved() -> Rule {
    Rc::new(|a, _| a.iter().fold(0.0, |m, s| m.max(s.err)))
}
