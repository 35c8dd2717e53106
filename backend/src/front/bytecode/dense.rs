//! Tensor constants.

use tpusim_isa::num::{DType, DTypeKind};

use super::decode::Cursor;
use super::error::{ErrorKind, Result};
use crate::hlo::{Attr, Literal, TensorType, Type};

impl Cursor<'_, '_> {
    /// A constant of type `ty` from the bytes the file holds: all elements, or one for all. Booleans may be one bit each.
    pub fn literal(&mut self, ty: TensorType, data: &[u8]) -> Result<Literal> {
        let wrong = |c: &Self| c.fail(ErrorKind::Dense { bytes: data.len(), ty: ty.to_string() });
        let Some(n) = ty.elements().and_then(|n| usize::try_from(n).ok()) else { return wrong(self) };
        let width = ty.dtype.bytes();
        if n == 0 {
            return Ok(Literal::new(ty, Vec::new()));
        }
        if ty.dtype == DType::I1 {
            let bytes = match booleans(data, n) {
                Some(b) => b,
                None => return wrong(self),
            };
            return Ok(Literal::new(ty, bytes));
        }
        if data.len() != width && n.checked_mul(width) != Some(data.len()) {
            return wrong(self);
        }
        Ok(Literal::new(ty.clone(), narrow(data, ty.dtype)))
    }
}

/// One byte per boolean. The data is one byte for all (0xFF is true), one bit each, or one byte each.
fn booleans(data: &[u8], n: usize) -> Option<Vec<u8>> {
    match data {
        [0xff] => Some(vec![1]),
        [b] if n == 1 => Some(vec![u8::from(*b != 0)]),
        _ if data.len() == n.div_ceil(8) => {
            let bit = |i: usize| data.get(i / 8).map(|b| b >> (i % 8) & 1);
            (0..n).map(bit).collect()
        }
        [b] => Some(vec![u8::from(*b != 0)]),
        _ if data.len() == n => Some(data.iter().map(|b| u8::from(*b != 0)).collect()),
        _ => None,
    }
}

/// Elements below a byte: the unused bits follow the sign, or are zero.
fn narrow(data: &[u8], dtype: DType) -> Vec<u8> {
    let unused = 8u32.saturating_sub(dtype.bits());
    if unused == 0 {
        return data.to_vec();
    }
    match dtype.kind() {
        DTypeKind::Signed => data.iter().map(|b| (((b << unused) as i8) >> unused) as u8).collect(),
        _ => data.iter().map(|b| (b << unused) >> unused).collect(),
    }
}

/// The integers of a constant; `None` if it is of another element type or its size is not known.
pub(super) fn integers(lit: &Literal) -> Option<impl Iterator<Item = i64> + '_> {
    let width = lit.ty.dtype.bytes();
    if !matches!(lit.ty.dtype.kind(), DTypeKind::Signed | DTypeKind::Unsigned | DTypeKind::Bool) {
        return None;
    }
    let n = usize::try_from(lit.ty.elements()?).ok()?;
    let signed = lit.ty.dtype.is_signed();
    let one = move |e: &[u8]| {
        let mut le = [if signed && e.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 }; 8];
        for (to, from) in le.iter_mut().zip(e) {
            *to = *from;
        }
        i64::from_le_bytes(le)
    };
    let repeat = if lit.is_splat() { n } else { 1 };
    let chunks = lit.bytes.chunks_exact(width).flat_map(move |e| std::iter::repeat_n(one(e), repeat));
    Some(chunks.take(n))
}

/// The tensor type of a constant.
pub(super) fn tensor_type(c: &Cursor<'_, '_>, ty: Type) -> Result<TensorType> {
    match ty {
        Type::Tensor(t) => Ok(t),
        _ => c.expected("a tensor type"),
    }
}

/// `array<T: ...>`: integers and booleans as lists, floats as attributes.
pub(super) fn array(c: &mut Cursor<'_, '_>) -> Result<Attr> {
    let ty = c.ty()?;
    let n = c.r.varint()?;
    let data = c.r.blob()?;
    let Type::Scalar(dtype) = ty else { return c.expected("a scalar type") };
    let width = dtype.bytes();
    if n.checked_mul(width as u64) != Some(data.len() as u64) {
        return c.fail(ErrorKind::Dense { bytes: data.len(), ty: format!("array of {n} {dtype}") });
    }
    c.charge(data.len() / width)?;
    let lit = Literal { ty: TensorType::new([n as i64], dtype), bytes: data.into() };
    Ok(match dtype.kind() {
        DTypeKind::Bool => Attr::Bools(data.iter().map(|b| *b != 0).collect()),
        DTypeKind::Signed | DTypeKind::Unsigned => {
            Attr::Ints(integers(&lit).map(Iterator::collect).unwrap_or_default())
        }
        _ => Attr::Dense(std::sync::Arc::new(Literal::new(lit.ty, data))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_in_every_packing() {
        assert_eq!(booleans(&[0xff], 100), Some(vec![1]));
        assert_eq!(booleans(&[0], 100), Some(vec![0]));
        assert_eq!(booleans(&[0b101], 3), Some(vec![1, 0, 1]));
        assert_eq!(booleans(&[1, 0, 1], 3), Some(vec![1, 0, 1]));
        assert_eq!(booleans(&[1, 0, 1], 30), None);
    }

    #[test]
    fn small_integers_are_extended() {
        assert_eq!(narrow(&[0x0f, 0x07], DType::I4), [0xff, 0x07]);
        assert_eq!(narrow(&[0xff], DType::U4), [0x0f]);
    }

    #[test]
    fn integers_of_a_splat_repeat() {
        let lit = Literal::new(TensorType::new([3], DType::I32), (-2i32).to_le_bytes().to_vec());
        assert_eq!(integers(&lit).unwrap().collect::<Vec<_>>(), [-2, -2, -2]);
    }
}
