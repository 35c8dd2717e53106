//! Constant tensors.

use std::sync::Arc;

use super::TensorType;

/// A constant tensor. Elements are little-endian, row-major, [`tpusim_isa::num::DType::bytes`] each (`i1` is one byte, 0 or 1;
/// types below a byte take one byte, integers sign- or zero-extended). A splat keeps one element only, so that
/// `dense<0.0> : tensor<8192x8192xf32>` costs four bytes. Front ends store every constant whose elements are all equal as a splat.
#[derive(Clone, Debug, PartialEq)]
pub struct Literal {
    /// Shape and element type.
    pub ty: TensorType,
    /// Either all elements, or one if they are all equal.
    pub bytes: Arc<[u8]>,
}

impl Literal {
    /// A literal of `bytes`, folded to a splat if all elements are equal. `bytes` must hold one element or all of them.
    pub fn new(ty: TensorType, bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes: Arc<[u8]> = bytes.into();
        let w = ty.dtype.bytes();
        if bytes.len() > w && bytes.chunks_exact(w).all(|e| e == &bytes[..w]) {
            let one: Arc<[u8]> = bytes[..w].into();
            return Literal { ty, bytes: one };
        }
        Literal { ty, bytes }
    }

    /// Whether one element stands for all.
    pub fn is_splat(&self) -> bool {
        self.bytes.len() == self.ty.dtype.bytes()
    }

    /// Bytes of element `i` in row-major order.
    pub fn element(&self, i: usize) -> &[u8] {
        let w = self.ty.dtype.bytes();
        if self.is_splat() { &self.bytes[..w] } else { &self.bytes[i * w..(i + 1) * w] }
    }
}
