//! Elementwise ops of one operand.

use tpusim_isa::num::{DType, FloatFormat};

use super::elementwise::{C, UnaryFns};
use super::{Arity, Eval, OpDef, Rule, Site, complex, complex_log, math, rules};
use crate::eval::{Fault, Tensor};
use crate::hlo::Opcode;

const NONE: UnaryFns = UnaryFns { f32: None, f64: None, int: None, complex: None };

/// Declares a float op by its two precisions, and its form on complex numbers.
macro_rules! float {
    ($op:ident, $f32:expr, $f64:expr) => {
        float!($op, UnaryFns { f32: Some($f32), f64: Some($f64), ..NONE })
    };
    ($op:ident, $f32:expr, $f64:expr, $complex:expr) => {
        float!($op, UnaryFns { f32: Some($f32), f64: Some($f64), complex: Some($complex), ..NONE })
    };
    ($op:ident, $fns:expr) => {
        OpDef::new(Opcode::$op, ONE, Rule::Infer(rules::elementwise_float), Eval::Unary(&$fns))
    };
}

/// Declares an op of integers.
macro_rules! int {
    ($op:ident, $f:expr) => {
        OpDef::new(
            Opcode::$op,
            ONE,
            Rule::Infer(rules::elementwise_int),
            Eval::Unary(&UnaryFns { int: Some($f), ..NONE }),
        )
    };
}

const ONE: Arity = Arity::Exactly(1);

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::Abs, ONE, Rule::Infer(complex::real_part), Eval::Tensor(abs)),
    OpDef::new(Opcode::Negate, ONE, Rule::Infer(rules::elementwise), Eval::Unary(&NEGATE)),
    OpDef::new(Opcode::Sign, ONE, Rule::Infer(rules::elementwise), Eval::Unary(&SIGN)),
    float!(Cbrt, libm::cbrtf, libm::cbrt, complex::cbrt),
    float!(Ceil, f32::ceil, f64::ceil),
    float!(Cosine, libm::cosf, libm::cos, complex::cos),
    float!(Exponential, libm::expf, libm::exp, complex::exp),
    float!(ExponentialMinusOne, libm::expm1f, libm::expm1, complex::expm1),
    float!(Floor, f32::floor, f64::floor),
    float!(Log, libm::logf, libm::log, complex_log::log),
    float!(LogPlusOne, libm::log1pf, libm::log1p, complex_log::log1p),
    float!(Logistic, math::logistic32, math::logistic64, complex::logistic),
    float!(RoundNearestAfz, f32::round, f64::round),
    float!(RoundNearestEven, f32::round_ties_even, f64::round_ties_even),
    float!(Rsqrt, |x| (1.0 / f64::from(x).sqrt()) as f32, |x| 1.0 / x.sqrt(), complex::rsqrt),
    float!(Sine, libm::sinf, libm::sin, complex::sin),
    float!(Sqrt, f32::sqrt, f64::sqrt, complex_log::sqrt),
    float!(Tan, libm::tanf, libm::tan, complex::tan),
    float!(Tanh, libm::tanhf, libm::tanh, complex::tanh),
    int!(Not, |d, x| if d == DType::I1 { x ^ 1 } else { !x }),
    int!(Popcnt, |d, x| i64::from(field(d, x).count_ones())),
    int!(CountLeadingZeros, |d, x| i64::from(field(d, x).leading_zeros() + d.bits()) - 64),
    OpDef::new(Opcode::IsFinite, ONE, Rule::Infer(rules::float_test), Eval::Tensor(is_finite)),
    OpDef::new(Opcode::ReducePrecision, ONE, Rule::Infer(rules::elementwise_float), Eval::Tensor(reduce_precision)),
];

static NEGATE: UnaryFns = UnaryFns {
    f32: Some(|x| -x),
    f64: Some(|x| -x),
    int: Some(|_, x| x.wrapping_neg()),
    complex: Some(|x| (-x.0, -x.1)),
};

static SIGN: UnaryFns = UnaryFns {
    f32: Some(math::sign32),
    f64: Some(math::sign64),
    int: Some(|d, x| if d.is_signed() { x.signum() } else { i64::from(x != 0) }),
    complex: Some(sign_complex),
};

pub(super) static ABS: UnaryFns = UnaryFns {
    f32: Some(f32::abs),
    f64: Some(f64::abs),
    int: Some(|d, x| if d.is_signed() { x.wrapping_abs() } else { x }),
    ..NONE
};

fn sign_complex(x: C) -> C {
    let r = libm::hypot(x.0, x.1);
    if r == 0.0 { (0.0, 0.0) } else { (x.0 / r, x.1 / r) }
}

/// The bits of an integer, zero-extended.
fn field(d: DType, x: i64) -> u64 {
    (x as u64) & (u64::MAX >> (64 - d.bits()))
}

fn abs(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    match super::elementwise::Class::of(operands[0].dtype()) {
        super::elementwise::Class::Complex => complex::abs(site, operands),
        _ => super::eval_unary(site, &ABS, operands),
    }
}

fn is_finite(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let bytes = operands[0].to_f64().into_iter().map(|x| u8::from(x.is_finite())).collect();
    Ok(Tensor::make(site.result(0)?.clone(), bytes))
}

fn reduce_precision(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (e, m) = (site.int("exponent_bits")?, site.int("mantissa_bits")?);
    let (Ok(e), Ok(m)) = (u32::try_from(e), u32::try_from(m)) else {
        return Err(Fault::invalid("exponent_bits and mantissa_bits must not be negative"));
    };
    if e == 0 {
        return Err(Fault::invalid("exponent_bits must be positive"));
    }
    let x = operands[0];
    let values: Vec<f64> = x.to_f64().into_iter().map(|v| narrow(v, e, m)).collect();
    let bytes = tpusim_isa::num::convert::encode_f64(x.dtype(), &values);
    Ok(Tensor::make(site.result(0)?.clone(), bytes))
}

/// Rounds `v` to a float of `e` exponent and `m` mantissa bits that has infinities but no subnormals.
fn narrow(v: f64, e: u32, m: u32) -> f64 {
    if v.is_nan() && m == 0 {
        // No mantissa bit is left to tell a NaN.
        return f64::INFINITY.copysign(v);
    }
    if !v.is_finite() || v == 0.0 {
        return v;
    }
    let bits = v.to_bits();
    let rounded = if m >= 52 {
        v
    } else {
        let drop = 52 - m;
        let half = (1u64 << (drop - 1)) - 1 + ((bits >> drop) & 1);
        f64::from_bits((bits + half) >> drop << drop)
    };
    let bias = (1i64 << (e.min(11) - 1)) - 1;
    let exponent = ((rounded.to_bits() >> 52) & 0x7ff) as i64 - 1023;
    if exponent > bias {
        f64::INFINITY.copysign(v)
    } else if exponent < 1 - bias {
        0f64.copysign(v)
    } else {
        rounded
    }
}

/// Rounds one scalar as a conversion to `dtype` and back would; used where a scalar program stands for tensor ops.
pub(super) fn round_to(dtype: DType, v: f64) -> f64 {
    match dtype {
        DType::F64 => v,
        DType::F32 => f64::from(v as f32),
        _ => FloatFormat::of(dtype).map_or(v, |f| f.decode(f.encode(v))),
    }
}
