//! CHLO's elementwise mathematics. Functions that `libm` lacks are computed in double precision.

use tpusim_isa::num::FloatFormat;
use tpusim_isa::num::convert::encode_f64;

use super::elementwise::{BinaryFns, UnaryFns, binary};
use super::{Arity, Eval, OpDef, Rule, Site, complex, complex_log, math, rules};
use crate::eval::{Fault, Tensor};
use crate::hlo::Opcode;

const ONE: Arity = Arity::Exactly(1);
const TWO: Arity = Arity::Exactly(2);

const fn float(f32: fn(f32) -> f32, f64: fn(f64) -> f64) -> UnaryFns {
    UnaryFns { f32: Some(f32), f64: Some(f64), int: None, complex: None }
}

const fn float2(f32: fn(f32, f32) -> f32, f64: fn(f64, f64) -> f64) -> BinaryFns {
    BinaryFns { f32: Some(f32), f64: Some(f64), int: None, complex: None }
}

macro_rules! unary {
    ($op:ident, $f32:expr, $f64:expr) => {
        OpDef::new(Opcode::$op, ONE, Rule::Infer(rules::elementwise_float), Eval::Unary(&const { float($f32, $f64) }))
    };
    ($op:ident, $f64:expr) => {
        unary!($op, |x| $f64(f64::from(x)) as f32, $f64)
    };
}

/// An inverse function, on complex numbers too.
macro_rules! inverse {
    ($op:ident, $f32:expr, $f64:expr, $complex:expr) => {
        OpDef::new(
            Opcode::$op,
            ONE,
            Rule::Infer(rules::elementwise_float),
            Eval::Unary(&const { UnaryFns { complex: Some($complex), ..float($f32, $f64) } }),
        )
    };
}

macro_rules! unsupported {
    ($op:ident, $n:expr) => {
        OpDef::new(Opcode::$op, $n, Rule::Check(rules::any), Eval::Unsupported)
    };
}

pub(super) static OPS: &[OpDef] = &[
    inverse!(ChloAcos, libm::acosf, libm::acos, complex_log::acos),
    inverse!(ChloAcosh, math::acosh32, math::acosh64, complex_log::acosh),
    inverse!(ChloAsin, libm::asinf, libm::asin, complex_log::asin),
    inverse!(ChloAsinh, libm::asinhf, libm::asinh, complex_log::asinh),
    inverse!(ChloAtan, libm::atanf, libm::atan, complex_log::atan),
    inverse!(ChloAtanh, libm::atanhf, libm::atanh, complex_log::atanh),
    OpDef::new(Opcode::ChloCosh, ONE, Rule::Infer(rules::elementwise_float), Eval::Unary(&COSH)),
    OpDef::new(Opcode::ChloSinh, ONE, Rule::Infer(rules::elementwise_float), Eval::Unary(&SINH)),
    OpDef::new(Opcode::ChloTan, ONE, Rule::Infer(rules::elementwise_float), Eval::Unary(&TAN)),
    unary!(ChloErf, libm::erff, libm::erf),
    unary!(ChloErfc, libm::erfcf, libm::erfc),
    unary!(ChloErfInv, math::erf_inv),
    unary!(ChloLgamma, libm::lgamma),
    unary!(ChloDigamma, math::digamma),
    unary!(ChloBesselI1e, math::bessel_i1e),
    OpDef::new(Opcode::ChloSquare, ONE, Rule::Infer(rules::elementwise), Eval::Unary(&SQUARE)),
    OpDef::new(Opcode::ChloConj, ONE, Rule::Infer(rules::elementwise), Eval::Unary(&complex::CONJ)),
    OpDef::new(Opcode::ChloNextAfter, TWO, Rule::Infer(rules::elementwise_float), Eval::Tensor(next_after)),
    OpDef::new(Opcode::ChloZeta, TWO, Rule::Infer(rules::elementwise_float), Eval::Binary(&ZETA)),
    OpDef::new(Opcode::ChloPolygamma, TWO, Rule::Infer(rules::elementwise_float), Eval::Binary(&POLYGAMMA)),
    OpDef::new(Opcode::ChloIsInf, ONE, Rule::Infer(rules::float_test), Eval::Tensor(is_inf)),
    OpDef::new(Opcode::ChloIsNegInf, ONE, Rule::Infer(rules::float_test), Eval::Tensor(is_inf)),
    OpDef::new(Opcode::ChloIsPosInf, ONE, Rule::Infer(rules::float_test), Eval::Tensor(is_inf)),
    unsupported!(ChloAsinAcosKernel, ONE),
];

static COSH: UnaryFns = UnaryFns { complex: Some(complex::cosh), ..float(libm::coshf, libm::cosh) };
static SINH: UnaryFns = UnaryFns { complex: Some(complex::sinh), ..float(libm::sinhf, libm::sinh) };
static TAN: UnaryFns = UnaryFns { complex: Some(complex::tan), ..float(libm::tanf, libm::tan) };
static SQUARE: UnaryFns = UnaryFns {
    f32: Some(|x| x * x),
    f64: Some(|x| x * x),
    int: Some(|_, x| x.wrapping_mul(x)),
    complex: Some(complex::square),
};
static NEXT_AFTER: BinaryFns = float2(math::next_after32, math::next_after64);
pub(super) static ZETA: BinaryFns = float2(|s, q| math::zeta(s.into(), q.into()) as f32, math::zeta);
pub(super) static POLYGAMMA: BinaryFns = float2(|n, x| math::polygamma(n.into(), x.into()) as f32, math::polygamma);

/// The elementwise form of a CHLO op that frameworks wrap in a `composite`, by the composite's name.
pub(super) fn native_composite(name: &str) -> Option<&'static UnaryFns> {
    let def = OPS.iter().find(|d| d.opcode.name() == name)?;
    match def.eval {
        Eval::Unary(f) => Some(f),
        _ => None,
    }
}

/// The numbers after those of the first operand in the direction of the second.
pub(super) fn next_after(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let [a, b] = operands else { return Err(Fault::invalid("needs two operands")) };
    let ty = site.result(0)?.clone();
    // A narrow float's neighbour is that of its code.
    let Some(format) = FloatFormat::of(a.dtype()) else { return binary(&NEXT_AFTER, a, b, ty) };
    let pairs = a.to_f64().into_iter().zip(b.to_f64());
    let values: Vec<f64> = pairs.map(|(a, b)| neighbour(format, a, b)).collect();
    let bytes = encode_f64(a.dtype(), &values);
    Ok(Tensor::make(ty, bytes))
}

fn neighbour(format: FloatFormat, a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    if a == b {
        return b;
    }
    if a == 0.0 {
        return format.decode(1).copysign(b);
    }
    // Codes without their sign are in the order of magnitudes.
    let magnitude = format.encode(a.abs());
    let outwards = (a < b) == (a > 0.0);
    format.decode(if outwards { magnitude + 1 } else { magnitude - 1 }).copysign(a)
}

fn is_inf(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let test: fn(f64) -> bool = match site.op.opcode {
        Opcode::ChloIsNegInf => |x| x == f64::NEG_INFINITY,
        Opcode::ChloIsPosInf => |x| x == f64::INFINITY,
        _ => f64::is_infinite,
    };
    let bytes = operands[0].to_f64().into_iter().map(|x| u8::from(test(x))).collect();
    Ok(Tensor::make(site.result(0)?.clone(), bytes))
}
