//! Shape rules that several ops share.

use tpusim_isa::num::{DType, DTypeKind};

use super::site::ensure;
use super::{RuleError, Site};
use crate::hlo::{TensorType, Type};

/// The result has the type of the (only) operand.
pub(super) fn same(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    Ok(vec![site.operand_type(0)?.clone()])
}

/// The results have the types of the operands.
pub(super) fn same_all(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    Ok(site.operand_types())
}

/// All operands have one type, and so has the result.
pub(super) fn elementwise(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let first = site.operand(0)?;
    for i in 1..site.op.operands.len() {
        let other = site.operand(i)?;
        ensure(compatible(first, other), || format!("operands differ: {first} and {other}"))?;
    }
    Ok(vec![Type::Tensor(first.clone())])
}

/// As [`elementwise`] on floats or complex numbers.
pub(super) fn elementwise_float(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let first = site.operand(0)?;
    let ok = matches!(first.dtype.kind(), DTypeKind::Float | DTypeKind::Complex) || first.quant.is_some();
    ensure(ok, || format!("needs floats, got {first}"))?;
    elementwise(site)
}

/// As [`elementwise`] on integers or booleans.
pub(super) fn elementwise_int(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let first = site.operand(0)?;
    let ok = !matches!(first.dtype.kind(), DTypeKind::Float | DTypeKind::Complex);
    ensure(ok, || format!("needs integers or booleans, got {first}"))?;
    elementwise(site)
}

/// A boolean for each float.
pub(super) fn float_test(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let t = site.operand(0)?;
    ensure(t.dtype.is_float(), || format!("needs floats, got {t}"))?;
    Ok(vec![tensor(&t.dims, DType::I1)])
}

/// Any operands and results.
pub(super) fn any(_: &Site<'_>) -> Result<(), RuleError> {
    Ok(())
}

/// A tensor type without quantization.
pub(super) fn tensor(dims: &[i64], dtype: DType) -> Type {
    Type::Tensor(TensorType::new(dims, dtype))
}

/// `t` with other dimensions.
pub(super) fn reshaped(t: &TensorType, dims: Vec<i64>) -> Type {
    Type::Tensor(TensorType { dims, dtype: t.dtype, quant: t.quant.clone() })
}

/// Whether two tensor types agree, quantization parameters aside.
pub(super) fn compatible(a: &TensorType, b: &TensorType) -> bool {
    a.dims == b.dims && (a.dtype == b.dtype || a.quant.is_some() || b.quant.is_some())
}

/// Whether two types agree, quantization parameters aside.
pub(crate) fn types_agree(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Tensor(a), Type::Tensor(b)) => compatible(a, b),
        _ => a == b,
    }
}

/// The type of one part of a complex type.
pub(super) fn part(dtype: DType) -> DType {
    match dtype {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        other => other,
    }
}
