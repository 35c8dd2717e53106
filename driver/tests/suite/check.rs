//! The ops of the `check` dialect: what they compare and how near it must be.

use tpusim_backend::eval::Tensor;
use tpusim_backend::hlo::{Attr, Op, ValueId};
use tpusim_isa::num::{DType, DTypeKind, convert};

/// How near two tensors must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Nearness {
    /// The same numbers. NaNs are the same.
    Equal,
    /// No further apart than this.
    Within(f64),
    /// So many numbers of the type further, at least and at most. What is not finite is as far as can be from anything else.
    Ulps(u64, u64),
    /// [`Nearness::Equal`] on integers, [`Nearness::Within`] on floats.
    EqualOrWithin(f64),
}

/// One check.
pub struct Check {
    /// Which result is looked at.
    pub actual: usize,
    /// Which result it is compared with, or the constant.
    expected: Expected,
    nearness: Nearness,
}

enum Expected {
    Result(usize),
    Constant(Tensor),
}

impl Check {
    /// Reads the op; the values it looks at are added to `looked`.
    pub fn new(name: &str, op: &Op, looked: &mut Vec<ValueId>) -> Result<Check, String> {
        let float = |n: &str| match op.attrs.get(n) {
            Some(Attr::Float(v, _)) => Some(*v),
            Some(Attr::Int(v, _)) => Some(*v as f64),
            _ => None,
        };
        let custom = op.attrs.get("has_side_effect").is_some();
        let nearness = match name {
            "check.expect_eq" | "check.expect_eq_const" => Nearness::Equal,
            "check.expect_almost_eq" if custom => Nearness::Within(1e-3),
            "check.expect_almost_eq" | "check.expect_almost_eq_const" => {
                Nearness::Within(float("tolerance").unwrap_or(1e-4))
            }
            "check.expect_close" if custom => Nearness::Ulps(0, 3),
            "check.expect_close" => {
                let limit = |n, default| float(n).map_or(default, |v| v as u64);
                Nearness::Ulps(limit("min_ulp_difference", 0), limit("max_ulp_difference", 1))
            }
            "check.eq" => Nearness::EqualOrWithin(1e-4),
            other => return Err(format!("the check `{other}`")),
        };
        let mut look = |i: usize| -> Result<usize, String> {
            looked.push(*op.operands.get(i).ok_or_else(|| format!("`{name}` lacks an operand"))?);
            Ok(looked.len() - 1)
        };
        let actual = look(0)?;
        let expected = match op.attrs.get("value") {
            Some(Attr::Dense(l)) => Expected::Constant(Tensor::from_literal(l).map_err(|e| e.to_string())?),
            _ => Expected::Result(look(1)?),
        };
        Ok(Check { actual, expected, nearness })
    }
}

/// How far a number of the chip may be from `want` where a check asks for more than the machine has; `None` if `want` is out of its
/// range. See `docs/float-semantics.md`.
///
/// An `f64` is the sum of two f32: some 48 bits, to which functions come within 1e-11 and which end where f32 ends. The chip's
/// functions of f32 are its own instructions times constants: a few ulp times the size of the argument.
fn chip_slack(part: DType, want: f64) -> Option<f64> {
    match part {
        DType::F64 if want.is_finite() && want.abs() > f64::from(f32::MAX) => None,
        DType::F64 => Some(1e-11 * want.abs() + f64::from(f32::from_bits(1))),
        DType::F32 => Some(8.0 * f64::from(f32::EPSILON) * want.abs()),
        _ => Some(0.0),
    }
}

/// Whether `a` is as near to `b` as the chip can be.
fn near_for_chip(part: DType, a: f64, b: f64) -> bool {
    match chip_slack(part, b) {
        None => a.is_infinite() && a.signum() == b.signum(),
        Some(slack) => (a - b).abs() <= slack,
    }
}

/// What is wrong with the first check that does not hold.
pub fn failure(checks: &[Check], values: &[Tensor], chip: bool) -> Option<String> {
    checks.iter().find_map(|c| match &c.expected {
        Expected::Result(i) => near(c, &values[c.actual], &values[*i], chip),
        Expected::Constant(t) => near(c, &values[c.actual], t, chip),
    })
}

/// What is wrong, if `got` is not as near to `want` as the check asks, or as the chip can be.
pub fn near(c: &Check, got: &Tensor, want: &Tensor, chip: bool) -> Option<String> {
    if got.ty().dims != want.ty().dims || got.dtype() != want.dtype() {
        return Some(format!("{} instead of {}", got.ty(), want.ty()));
    }
    let part = match want.dtype() {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        d => d,
    };
    if part.kind() != DTypeKind::Float {
        let (g, w) = (convert::decode_i64(part, got.bytes()), convert::decode_i64(part, want.bytes()));
        let i = (0..g.len()).find(|&i| g[i] != w[i])?;
        return Some(format!("element {i} is {} instead of {}", g[i], w[i]));
    }
    let (g, w) = (convert::decode_f64(part, got.bytes()), convert::decode_f64(part, want.bytes()));
    let bits = |t: &Tensor, i: usize| {
        let n = part.bytes();
        t.bytes()[i * n..(i + 1) * n].iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b))
    };
    let wrong = |i: usize| {
        let (a, b) = (g[i], w[i]);
        let same = a == b || (a.is_nan() && b.is_nan());
        match c.nearness {
            Nearness::Ulps(low, _) if same => low > 0,
            _ if same => false,
            Nearness::Ulps(0, _) if chip && near_for_chip(part, a, b) => false,
            Nearness::Within(_) if chip && near_for_chip(part, a, b) => false,
            Nearness::Equal if chip && part == DType::F64 && near_for_chip(part, a, b) => false,
            Nearness::Equal => true,
            Nearness::Within(t) | Nearness::EqualOrWithin(t) => (a - b).abs().is_nan() || (a - b).abs() > t,
            Nearness::Ulps(_, high) if !a.is_finite() || !b.is_finite() => high < u64::MAX,
            Nearness::Ulps(low, high) => !(low..=high).contains(&ulps(part, bits(got, i), bits(want, i))),
        }
    };
    let i = (0..g.len()).find(|&i| wrong(i))?;
    let count = (i..g.len()).filter(|&i| wrong(i)).count();
    Some(format!(
        "element {i} is {:e} instead of {:e} ({:?}); {count} of {} are wrong",
        g[i],
        w[i],
        c.nearness,
        g.len()
    ))
}

/// How many numbers of the type lie between two.
fn ulps(d: DType, a: u64, b: u64) -> u64 {
    let sign = 1u64 << (d.bits() - 1);
    let (x, y) = (a & (sign - 1), b & (sign - 1));
    if (a ^ b) & sign != 0 { x + y } else { x.abs_diff(y) }
}
