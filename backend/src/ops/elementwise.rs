//! How an elementwise op is described and applied.

use tpusim_isa::num::convert::{encode_f32, encode_f64, encode_i64, wrap};
use tpusim_isa::num::{DType, DTypeKind};

use super::Site;
use super::rules::part;
use crate::eval::{Fault, Tensor};
use crate::hlo::TensorType;

/// A complex number.
pub(crate) type C = (f64, f64);

/// An elementwise op of one operand, by kind of element. Narrow floats are computed in `f32`. Integers (and `i1`) are in the form
/// of [`tpusim_isa::num::convert`]; their result is wrapped.
pub struct UnaryFns {
    /// On floats up to 32 bits.
    pub f32: Option<fn(f32) -> f32>,
    /// On doubles.
    pub f64: Option<fn(f64) -> f64>,
    /// On integers and `i1`.
    pub int: Option<fn(DType, i64) -> i64>,
    /// On complex numbers.
    pub complex: Option<fn(C) -> C>,
}

/// An elementwise op of two operands, see [`UnaryFns`].
pub struct BinaryFns {
    /// On floats up to 32 bits.
    pub f32: Option<fn(f32, f32) -> f32>,
    /// On doubles.
    pub f64: Option<fn(f64, f64) -> f64>,
    /// On integers and `i1`.
    pub int: Option<fn(DType, i64, i64) -> i64>,
    /// On complex numbers.
    pub complex: Option<fn(C, C) -> C>,
}

/// How elements of a type are computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    F32,
    F64,
    Int,
    Complex,
}

impl Class {
    pub(crate) fn of(dtype: DType) -> Class {
        match dtype.kind() {
            DTypeKind::Float if dtype == DType::F64 => Class::F64,
            DTypeKind::Float => Class::F32,
            DTypeKind::Complex => Class::Complex,
            _ => Class::Int,
        }
    }
}

fn not_on(t: &TensorType) -> Fault {
    Fault::Unsupported(format!(" on {}", t.dtype))
}

/// Complex elements as pairs of doubles.
pub(crate) fn decode_complex(t: &Tensor) -> Vec<C> {
    let parts = tpusim_isa::num::convert::decode_f64(part(t.dtype()), t.bytes());
    parts.as_chunks::<2>().0.iter().map(|&[re, im]| (re, im)).collect()
}

/// A complex tensor of `values`, each part rounded once.
pub(crate) fn encode_complex(ty: TensorType, values: &[C]) -> Tensor {
    let parts: Vec<f64> = values.iter().flat_map(|&(re, im)| [re, im]).collect();
    let bytes = encode_f64(part(ty.dtype), &parts);
    Tensor::make(ty, bytes)
}

/// Applies `f` to every element.
pub(crate) fn eval_unary(site: &Site<'_>, f: &UnaryFns, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let [x] = operands else { return Err(Fault::invalid("needs one operand")) };
    unary(f, x, site.result(0)?.clone())
}

/// Applies `f` to every element of `x`; `ty` has its shape and type.
pub(crate) fn unary(f: &UnaryFns, x: &Tensor, ty: TensorType) -> Result<Tensor, Fault> {
    let dtype = x.dtype();
    let bytes = match Class::of(dtype) {
        Class::F32 => {
            let f = f.f32.ok_or_else(|| not_on(&ty))?;
            let mut v = x.to_f32();
            v.iter_mut().for_each(|x| *x = f(*x));
            encode_f32(dtype, &v)
        }
        Class::F64 => {
            let f = f.f64.ok_or_else(|| not_on(&ty))?;
            encode_f64(dtype, &x.to_f64().into_iter().map(f).collect::<Vec<_>>())
        }
        Class::Int => {
            let f = f.int.ok_or_else(|| not_on(&ty))?;
            encode_i64(dtype, &x.to_i64().into_iter().map(|x| wrap(dtype, f(dtype, x))).collect::<Vec<_>>())
        }
        Class::Complex => {
            let f = f.complex.ok_or_else(|| not_on(&ty))?;
            return Ok(encode_complex(ty, &decode_complex(x).into_iter().map(f).collect::<Vec<_>>()));
        }
    };
    Ok(Tensor::make(ty, bytes))
}

/// Applies `f` to every pair of elements.
pub(crate) fn eval_binary(site: &Site<'_>, f: &BinaryFns, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let [a, b] = operands else { return Err(Fault::invalid("needs two operands")) };
    binary(f, a, b, site.result(0)?.clone())
}

/// Applies `f` to every pair of elements of `a` and `b`; all have the shape and type `ty`.
pub(crate) fn binary(f: &BinaryFns, a: &Tensor, b: &Tensor, ty: TensorType) -> Result<Tensor, Fault> {
    let dtype = a.dtype();
    if b.dtype() != dtype || a.len() != b.len() {
        return Err(Fault::invalid(format!("operands differ: {} and {}", a.ty(), b.ty())));
    }
    let bytes = match Class::of(dtype) {
        Class::F32 => {
            let f = f.f32.ok_or_else(|| not_on(&ty))?;
            let mut v = a.to_f32();
            v.iter_mut().zip(b.to_f32()).for_each(|(a, b)| *a = f(*a, b));
            encode_f32(dtype, &v)
        }
        Class::F64 => {
            let f = f.f64.ok_or_else(|| not_on(&ty))?;
            encode_f64(dtype, &a.to_f64().into_iter().zip(b.to_f64()).map(|(a, b)| f(a, b)).collect::<Vec<_>>())
        }
        Class::Int => {
            let f = f.int.ok_or_else(|| not_on(&ty))?;
            let pairs = a.to_i64().into_iter().zip(b.to_i64());
            encode_i64(dtype, &pairs.map(|(a, b)| wrap(dtype, f(dtype, a, b))).collect::<Vec<_>>())
        }
        Class::Complex => {
            let f = f.complex.ok_or_else(|| not_on(&ty))?;
            let pairs = decode_complex(a).into_iter().zip(decode_complex(b));
            return Ok(encode_complex(ty, &pairs.map(|(a, b)| f(a, b)).collect::<Vec<_>>()));
        }
    };
    Ok(Tensor::make(ty, bytes))
}
