//! Elementwise ops of two operands, and CHLO's forms of them that broadcast.

use tpusim_isa::num::DType;

use super::elementwise::{BinaryFns, binary};
use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, complex, math, rules, shape, special};
use crate::eval::{Fault, Tensor};
use crate::hlo::{Opcode, TensorType};

pub(super) const NONE: BinaryFns = BinaryFns { f32: None, f64: None, int: None, complex: None };
const TWO: Arity = Arity::Exactly(2);

/// Declares a StableHLO op and its broadcasting CHLO form.
macro_rules! op {
    ($op:ident, $rule:ident, $fns:expr) => {
        OpDef::new(Opcode::$op, TWO, Rule::Infer(rules::$rule), Eval::Binary(&$fns))
    };
    (chlo $op:ident) => {
        OpDef::new(Opcode::$op, TWO, Rule::Check(broadcast_rule), Eval::Tensor(broadcast))
    };
}

pub(super) static OPS: &[OpDef] = &[
    op!(Add, elementwise, ADD),
    op!(Subtract, elementwise, SUBTRACT),
    op!(Multiply, elementwise, MULTIPLY),
    op!(Divide, elementwise, DIVIDE),
    op!(Remainder, elementwise, REMAINDER),
    op!(Maximum, elementwise, MAXIMUM),
    op!(Minimum, elementwise, MINIMUM),
    op!(Power, elementwise, POWER),
    op!(Atan2, elementwise_float, ATAN2),
    op!(And, elementwise_int, AND),
    op!(Or, elementwise_int, OR),
    op!(Xor, elementwise_int, XOR),
    op!(ShiftLeft, elementwise_int, SHIFT_LEFT),
    op!(ShiftRightArithmetic, elementwise_int, SHIFT_RIGHT_ARITHMETIC),
    op!(ShiftRightLogical, elementwise_int, SHIFT_RIGHT_LOGICAL),
    op!(ChloMulhi, elementwise_int, MULHI),
    op!(chlo ChloBroadcastAdd),
    op!(chlo ChloBroadcastSubtract),
    op!(chlo ChloBroadcastMultiply),
    op!(chlo ChloBroadcastDivide),
    op!(chlo ChloBroadcastRemainder),
    op!(chlo ChloBroadcastMaximum),
    op!(chlo ChloBroadcastMinimum),
    op!(chlo ChloBroadcastPower),
    op!(chlo ChloBroadcastAtan2),
    op!(chlo ChloBroadcastAnd),
    op!(chlo ChloBroadcastOr),
    op!(chlo ChloBroadcastXor),
    op!(chlo ChloBroadcastShiftLeft),
    op!(chlo ChloBroadcastShiftRightArithmetic),
    op!(chlo ChloBroadcastShiftRightLogical),
    op!(chlo ChloBroadcastNextAfter),
    op!(chlo ChloBroadcastZeta),
    op!(chlo ChloBroadcastPolygamma),
];

pub(super) static ADD: BinaryFns = BinaryFns {
    f32: Some(|a, b| a + b),
    f64: Some(|a, b| a + b),
    int: Some(|d, a, b| if d == DType::I1 { a | b } else { a.wrapping_add(b) }),
    complex: Some(|a, b| (a.0 + b.0, a.1 + b.1)),
};
static SUBTRACT: BinaryFns = BinaryFns {
    f32: Some(|a, b| a - b),
    f64: Some(|a, b| a - b),
    int: Some(|_, a, b| a.wrapping_sub(b)),
    complex: Some(|a, b| (a.0 - b.0, a.1 - b.1)),
};
pub(super) static MULTIPLY: BinaryFns = BinaryFns {
    f32: Some(|a, b| a * b),
    f64: Some(|a, b| a * b),
    int: Some(|_, a, b| a.wrapping_mul(b)),
    complex: Some(complex::mul),
};
static DIVIDE: BinaryFns =
    BinaryFns { f32: Some(|a, b| a / b), f64: Some(|a, b| a / b), int: Some(divide), complex: Some(complex::div) };
static REMAINDER: BinaryFns =
    BinaryFns { f32: Some(|a, b| a % b), f64: Some(|a, b| a % b), int: Some(remainder), ..NONE };
pub(super) static MAXIMUM: BinaryFns = BinaryFns {
    f32: Some(math::max32),
    f64: Some(math::max64),
    int: Some(|d, a, b| if less(d, a, b) { b } else { a }),
    complex: Some(|a, b| if a < b { b } else { a }),
};
pub(super) static MINIMUM: BinaryFns = BinaryFns {
    f32: Some(math::min32),
    f64: Some(math::min64),
    int: Some(|d, a, b| if less(d, a, b) { a } else { b }),
    complex: Some(|a, b| if a < b { a } else { b }),
};
static POWER: BinaryFns =
    BinaryFns { f32: Some(libm::powf), f64: Some(libm::pow), int: Some(power), complex: Some(complex::pow) };
static ATAN2: BinaryFns =
    BinaryFns { f32: Some(libm::atan2f), f64: Some(libm::atan2), int: None, complex: Some(complex::atan2) };
static MULHI: BinaryFns = BinaryFns { int: Some(mulhi), ..NONE };
pub(super) static AND: BinaryFns = BinaryFns { int: Some(|_, a, b| a & b), ..NONE };
pub(super) static OR: BinaryFns = BinaryFns { int: Some(|_, a, b| a | b), ..NONE };
static XOR: BinaryFns = BinaryFns { int: Some(|_, a, b| a ^ b), ..NONE };
static SHIFT_LEFT: BinaryFns = BinaryFns { int: Some(|d, a, b| shift(d, b).map_or(0, |s| a << s)), ..NONE };
static SHIFT_RIGHT_ARITHMETIC: BinaryFns = BinaryFns { int: Some(shift_right_arithmetic), ..NONE };
static SHIFT_RIGHT_LOGICAL: BinaryFns =
    BinaryFns { int: Some(|d, a, b| shift(d, b).map_or(0, |s| (zero_extended(d, a) >> s) as i64)), ..NONE };

/// Whether `a < b` as integers of type `d`.
pub(super) fn less(d: DType, a: i64, b: i64) -> bool {
    if d.is_signed() { a < b } else { (a as u64) < b as u64 }
}

fn zero_extended(d: DType, a: i64) -> u64 {
    (a as u64) & (u64::MAX >> (64 - d.bits()))
}

/// Quotient towards zero; all ones (-1) by zero; the least number by -1 is itself.
fn divide(d: DType, a: i64, b: i64) -> i64 {
    match (b, d.is_signed()) {
        (0, _) => -1,
        (_, true) => a.wrapping_div(b),
        (_, false) => (a as u64 / b as u64) as i64,
    }
}

/// Remainder of the dividend's sign; the dividend itself by zero.
fn remainder(d: DType, a: i64, b: i64) -> i64 {
    match (b, d.is_signed()) {
        (0, _) => a,
        (_, true) => a.wrapping_rem(b),
        (_, false) => (a as u64 % b as u64) as i64,
    }
}

/// The upper half of the product.
fn mulhi(d: DType, a: i64, b: i64) -> i64 {
    let wide = |v: i64| if d.is_signed() { i128::from(v) } else { i128::from(zero_extended(d, v)) };
    // Two unsigned factors of 64 bits overflow the sign, not the bits.
    (wide(a).wrapping_mul(wide(b)) >> d.bits()) as i64
}

/// Power by squaring, wrapping. A negative exponent gives the integer part of the power: 1 and -1 for those bases, else 0.
fn power(d: DType, a: i64, b: i64) -> i64 {
    if d.is_signed() && b < 0 {
        return match a {
            1 => 1,
            -1 if b & 1 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut base, mut e, mut out) = (a, b as u64, 1i64);
    while e > 0 {
        if e & 1 == 1 {
            out = out.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        e >>= 1;
    }
    out
}

/// The shift amount, if it is below the width. It is an unsigned number, so that negative ones are too large.
fn shift(d: DType, b: i64) -> Option<u32> {
    u32::try_from(zero_extended(d, b)).ok().filter(|&s| s < d.bits())
}

fn shift_right_arithmetic(d: DType, a: i64, b: i64) -> i64 {
    let s = shift(d, b).unwrap_or(d.bits());
    // An unsigned operand shifts in its top bit, too.
    let left = 64 - d.bits();
    ((a << left) >> left) >> s.min(63)
}

/// The op that a broadcasting CHLO op applies.
fn broadcast_fns(opcode: Opcode) -> Option<&'static BinaryFns> {
    Some(match opcode {
        Opcode::ChloBroadcastAdd => &ADD,
        Opcode::ChloBroadcastSubtract => &SUBTRACT,
        Opcode::ChloBroadcastMultiply => &MULTIPLY,
        Opcode::ChloBroadcastDivide => &DIVIDE,
        Opcode::ChloBroadcastRemainder => &REMAINDER,
        Opcode::ChloBroadcastMaximum => &MAXIMUM,
        Opcode::ChloBroadcastMinimum => &MINIMUM,
        Opcode::ChloBroadcastPower => &POWER,
        Opcode::ChloBroadcastAtan2 => &ATAN2,
        Opcode::ChloBroadcastAnd => &AND,
        Opcode::ChloBroadcastOr => &OR,
        Opcode::ChloBroadcastXor => &XOR,
        Opcode::ChloBroadcastShiftLeft => &SHIFT_LEFT,
        Opcode::ChloBroadcastShiftRightArithmetic => &SHIFT_RIGHT_ARITHMETIC,
        Opcode::ChloBroadcastShiftRightLogical => &SHIFT_RIGHT_LOGICAL,
        Opcode::ChloBroadcastZeta => &special::ZETA,
        Opcode::ChloBroadcastPolygamma => &special::POLYGAMMA,
        _ => return None,
    })
}

/// Which dimensions of the result operand `i` runs along: the last ones, or `broadcast_dimensions` for the one of lower rank.
pub(super) fn broadcast_dims(site: &Site<'_>, i: usize, result: &TensorType) -> Result<Vec<i64>, RuleError> {
    let (rank, out) = (site.operand(i)?.rank(), result.rank());
    ensure(rank <= out, || format!("operand {i} has a higher rank than the result"))?;
    match site.op.attrs.ints("broadcast_dimensions") {
        Some(d) if rank < out => Ok(d.to_vec()),
        _ => Ok(((out - rank) as i64..out as i64).collect()),
    }
}

fn broadcast_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let result = site.result(0)?;
    for i in 0..2 {
        ensure(site.operand(i)?.dtype == result.dtype, || {
            format!("operand {i} should have elements {}", result.dtype)
        })?;
    }
    broadcast_shapes(site)
}

/// Every operand can be broadcast to the shape of the result.
pub(super) fn broadcast_shapes(site: &Site<'_>) -> Result<(), RuleError> {
    let result = site.result(0)?;
    (0..site.op.operands.len()).try_for_each(|i| {
        shape::broadcast_fits(&site.operand(i)?.dims, &broadcast_dims(site, i, result)?, &result.dims)
    })
}

/// Operand `i` broadcast to the shape of the result.
pub(super) fn broadcast_operand(site: &Site<'_>, i: usize, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let result = site.result(0)?;
    Ok(shape::broadcast_to(operands[i], &broadcast_dims(site, i, result)?, &result.dims))
}

fn broadcast(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (a, b) = (broadcast_operand(site, 0, operands)?, broadcast_operand(site, 1, operands)?);
    if site.op.opcode == Opcode::ChloBroadcastNextAfter {
        return special::next_after(site, &[&a, &b]);
    }
    let f = broadcast_fns(site.op.opcode).ok_or_else(|| Fault::Unsupported(String::new()))?;
    binary(f, &a, &b, site.result(0)?.clone())
}
