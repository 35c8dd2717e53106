//! Types as the tables hold them, including those the IR has no place for.

use tpusim_isa::num::DType;

use crate::hlo::{Quant, TensorType, Type};

/// A decoded type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ty {
    /// A type of the IR.
    Hlo(Type),
    /// A quantized element type.
    Quant(Box<Quant>),
    /// `none`, which stands for an absent attribute in VHLO.
    None,
    /// A type the IR does not have, by its spelling.
    Other(String),
}

impl Ty {
    pub fn scalar(dtype: DType) -> Ty {
        Ty::Hlo(Type::Scalar(dtype))
    }

    /// The type of the IR, or the spelling of what it lacks.
    pub fn into_hlo(self) -> Result<Type, String> {
        match self {
            Ty::Hlo(t) => Ok(t),
            Ty::Quant(q) => Err(format!("bare type {q}")),
            Ty::None => Err("type none".into()),
            Ty::Other(s) => Err(format!("type {s}")),
        }
    }

    /// Spelling for messages.
    pub fn spelling(&self) -> String {
        match self {
            Ty::Hlo(t) => t.to_string(),
            Ty::Quant(q) => q.to_string(),
            Ty::None => "none".into(),
            Ty::Other(s) => s.clone(),
        }
    }

    /// Size of the type as a tree.
    pub fn nodes(&self) -> usize {
        match self {
            Ty::Hlo(t) => nodes(t),
            Ty::Quant(q) => 1 + q.scales.len(),
            Ty::None => 1,
            Ty::Other(s) => 1 + s.len() / 16,
        }
    }

    /// A tensor of `dims` with elements of this type. `index` elements are 64-bit integers here, as in every program that uses
    /// them (shapes computed at run time).
    pub fn tensor(self, dims: Vec<i64>) -> Ty {
        let dims: Vec<i64> = dims.into_iter().map(|d| if d < 0 { crate::hlo::DYNAMIC } else { d }).collect();
        match self {
            Ty::Hlo(Type::Scalar(dtype)) => Ty::Hlo(Type::Tensor(TensorType { dims, dtype, quant: None })),
            Ty::Hlo(Type::Index) => Ty::Hlo(Type::Tensor(TensorType::new(dims, DType::I64))),
            Ty::Quant(q) => Ty::Hlo(Type::Tensor(TensorType { dims, dtype: q.storage, quant: Some(q) })),
            other => {
                let dims: String = dims.iter().map(|d| if *d < 0 { "?x".into() } else { format!("{d}x") }).collect();
                Ty::Other(format!("tensor<{dims}{}>", other.spelling()))
            }
        }
    }

    /// `complex<...>`.
    pub fn complex(self) -> Ty {
        match self {
            Ty::Hlo(Type::Scalar(DType::F32)) => Ty::scalar(DType::C64),
            Ty::Hlo(Type::Scalar(DType::F64)) => Ty::scalar(DType::C128),
            other => Ty::Other(format!("complex<{}>", other.spelling())),
        }
    }
}

fn nodes(t: &Type) -> usize {
    match t {
        Type::Tensor(t) => 1 + t.dims.len() / 8 + t.quant.as_ref().map_or(0, |q| q.scales.len()),
        Type::Tuple(ts) => 1 + ts.iter().map(nodes).sum::<usize>(),
        Type::Func(f) => 1 + f.inputs.iter().chain(&f.outputs).map(nodes).sum::<usize>(),
        _ => 1,
    }
}

/// The number that the `bits` lowest bits of `raw` stand for, in an attribute of type `ty`: unsigned types are zero-extended,
/// all others sign-extended. Numbers of 2^63 and more wrap.
pub(super) fn extend(raw: u64, ty: &Type) -> i64 {
    let (bits, unsigned) = match ty {
        Type::Scalar(d) => (d.bits(), !d.is_signed()),
        _ => (64, false),
    };
    let shift = 64 - bits.clamp(1, 64);
    let high = raw << shift;
    if unsigned { (high >> shift) as i64 } else { (high as i64) >> shift }
}

/// The value of a float of type `ty` with the given bits; `None` for types whose scalar attributes no program has.
pub(super) fn float(raw: u64, ty: DType) -> Option<f64> {
    match ty {
        DType::BF16 => Some(half::bf16::from_bits(raw as u16).to_f64()),
        DType::F16 => Some(half::f16::from_bits(raw as u16).to_f64()),
        DType::F32 => Some(f64::from(f32::from_bits(raw as u32))),
        DType::F64 => Some(f64::from_bits(raw)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_extend_by_signedness() {
        assert_eq!(extend(0xff, &Type::Scalar(DType::I8)), -1);
        assert_eq!(extend(0xff, &Type::Scalar(DType::U8)), 255);
        assert_eq!(extend(0x0f, &Type::Scalar(DType::I4)), -1);
        assert_eq!(extend(u64::MAX, &Type::Index), -1);
    }

    #[test]
    fn floats_by_type() {
        assert_eq!(float(0x3f80, DType::BF16), Some(1.0));
        assert_eq!(float(0x3c00, DType::F16), Some(1.0));
        assert_eq!(float(u64::from(1e-5f32.to_bits()), DType::F32), Some(f64::from(1e-5f32)));
    }
}
