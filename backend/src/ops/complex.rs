//! Complex numbers. Parts are computed in double precision and rounded once.

use tpusim_isa::num::{DType, DTypeKind};

use super::binary::{broadcast_operand, broadcast_shapes};
use super::complex_log::{log, sqrt};
use super::elementwise::{C, UnaryFns, decode_complex};
use super::rules::part;
use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, rules};
use crate::eval::{Fault, Tensor};
use crate::hlo::{Opcode, TensorType, Type};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::Complex, Arity::Exactly(2), Rule::Infer(complex_rule), Eval::Tensor(complex)),
    OpDef::new(Opcode::Real, Arity::Exactly(1), Rule::Infer(real_part), Eval::Tensor(real)),
    OpDef::new(Opcode::Imag, Arity::Exactly(1), Rule::Infer(real_part), Eval::Tensor(imag)),
    OpDef::new(Opcode::ChloBroadcastComplex, Arity::Exactly(2), Rule::Check(broadcast_shapes), Eval::Tensor(broadcast)),
];

pub(super) static CONJ: UnaryFns =
    UnaryFns { f32: Some(|x| x), f64: Some(|x| x), int: None, complex: Some(|x| (x.0, -x.1)) };

/// The operand's type, its elements reduced to their real parts' type.
pub(super) fn real_part(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let t = site.operand(0)?;
    Ok(vec![Type::Tensor(TensorType { dims: t.dims.clone(), dtype: part(t.dtype), quant: t.quant.clone() })])
}

fn complex_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let (a, b) = (site.operand(0)?, site.operand(1)?);
    ensure(a == b, || format!("operands differ: {a} and {b}"))?;
    let dtype = match a.dtype {
        DType::F32 => DType::C64,
        DType::F64 => DType::C128,
        other => return Err(RuleError::new(format!("no complex type has parts {other}"))),
    };
    Ok(vec![rules::tensor(&a.dims, dtype)])
}

fn complex(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let w = operands[0].dtype().bytes();
    let pairs = operands[0].bytes().chunks_exact(w).zip(operands[1].bytes().chunks_exact(w));
    Ok(Tensor::make(site.result(0)?.clone(), pairs.flat_map(|(a, b)| [a, b]).flatten().copied().collect()))
}

/// CHLO's form broadcasts the parts.
fn broadcast(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (re, im) = (broadcast_operand(site, 0, operands)?, broadcast_operand(site, 1, operands)?);
    let ty = site.result(0)?;
    if re.dtype() != im.dtype() || re.dtype() != part(ty.dtype) {
        return Err(Fault::invalid(format!("{} and {} are no parts of {ty}", re.ty(), im.ty())));
    }
    complex(site, &[&re, &im])
}

fn real(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    if operands[0].dtype().kind() != DTypeKind::Complex {
        return Ok(operands[0].clone());
    }
    take_part(site, operands[0], 0)
}

fn imag(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    if operands[0].dtype().kind() != DTypeKind::Complex {
        return Ok(Tensor::make(operands[0].ty().clone(), vec![0; operands[0].bytes().len()]));
    }
    take_part(site, operands[0], 1)
}

fn take_part(site: &Site<'_>, x: &Tensor, which: usize) -> Result<Tensor, Fault> {
    let w = part(x.dtype()).bytes();
    let bytes = x.bytes().chunks_exact(w).skip(which).step_by(2).flatten().copied().collect();
    Ok(Tensor::make(site.result(0)?.clone(), bytes))
}

/// Absolute values.
pub(super) fn abs(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let values: Vec<f64> = decode_complex(operands[0]).into_iter().map(|x| libm::hypot(x.0, x.1)).collect();
    let ty = site.result(0)?.clone();
    let bytes = tpusim_isa::num::convert::encode_f64(ty.dtype, &values);
    Ok(Tensor::make(ty, bytes))
}

pub(super) fn mul(a: C, b: C) -> C {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// `x * x`, whose real part does not subtract infinities.
pub(super) fn square(x: C) -> C {
    let re = if x.0.abs() == x.1.abs() && x.0.is_finite() { 0.0 } else { (x.0 - x.1) * (x.0 + x.1) };
    (re, 2.0 * (x.0 * x.1))
}

pub(super) fn div(a: C, b: C) -> C {
    // Smith's method: scale by the larger part of the divisor.
    if b.0.abs() >= b.1.abs() {
        let r = b.1 / b.0;
        let d = b.0 + b.1 * r;
        ((a.0 + a.1 * r) / d, (a.1 - a.0 * r) / d)
    } else {
        let r = b.0 / b.1;
        let d = b.0 * r + b.1;
        ((a.0 * r + a.1) / d, (a.1 * r - a.0) / d)
    }
}

pub(super) fn exp(x: C) -> C {
    let m = libm::exp(x.0);
    if x.1 == 0.0 { (m, x.1) } else { (m * libm::cos(x.1), m * libm::sin(x.1)) }
}

pub(super) fn rsqrt(x: C) -> C {
    div((1.0, 0.0), sqrt(x))
}

pub(super) fn sin(x: C) -> C {
    (libm::sin(x.0) * libm::cosh(x.1), libm::cos(x.0) * libm::sinh(x.1))
}

pub(super) fn cos(x: C) -> C {
    (libm::cos(x.0) * libm::cosh(x.1), -libm::sin(x.0) * libm::sinh(x.1))
}

pub(super) fn tanh(x: C) -> C {
    if x.0.abs() > 20.0 {
        return (1f64.copysign(x.0), 0.0);
    }
    let d = libm::cosh(2.0 * x.0) + libm::cos(2.0 * x.1);
    (libm::sinh(2.0 * x.0) / d, libm::sin(2.0 * x.1) / d)
}

pub(super) fn expm1(x: C) -> C {
    // exp(re) cos(im) - 1 without cancellation.
    let half = libm::sin(x.1 / 2.0);
    (libm::expm1(x.0) * libm::cos(x.1) - 2.0 * half * half, libm::exp(x.0) * libm::sin(x.1))
}

pub(super) fn logistic(x: C) -> C {
    let e = exp((-x.0, -x.1));
    div((1.0, 0.0), (1.0 + e.0, e.1))
}

pub(super) fn cbrt(x: C) -> C {
    let (r, angle) = (libm::cbrt(libm::hypot(x.0, x.1)), libm::atan2(x.1, x.0) / 3.0);
    (r * libm::cos(angle), r * libm::sin(angle))
}

pub(super) fn sinh(x: C) -> C {
    (libm::sinh(x.0) * libm::cos(x.1), libm::cosh(x.0) * libm::sin(x.1))
}

pub(super) fn cosh(x: C) -> C {
    (libm::cosh(x.0) * libm::cos(x.1), libm::sinh(x.0) * libm::sin(x.1))
}

pub(super) fn tan(x: C) -> C {
    // tan x = -i tanh(i x).
    let t = tanh((-x.1, x.0));
    (t.1, -t.0)
}

pub(super) fn pow(a: C, b: C) -> C {
    if b == (0.0, 0.0) {
        return (1.0, 0.0);
    }
    if a == (0.0, 0.0) {
        return (0.0, 0.0);
    }
    exp(mul(b, log(a)))
}

/// The angle whose tangent is `y / x`: `-i log((x + i y) / sqrt(x^2 + y^2))`.
pub(super) fn atan2(y: C, x: C) -> C {
    let (xx, yy) = (mul(x, x), mul(y, y));
    let l = log(div((x.0 - y.1, x.1 + y.0), sqrt((xx.0 + yy.0, xx.1 + yy.1))));
    (l.1, -l.0)
}
