//! Values of the evaluator.

use std::sync::Arc;

use tpusim_isa::num::DType;
use tpusim_isa::num::convert::{decode_f32, decode_f64, decode_i64, encode_f32, encode_f64, encode_i64};

use crate::hlo::{Literal, TensorType, Type};

/// The bytes do not make a tensor of the type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// A dimension is dynamic, or the size overflows.
    #[error("{0} has no fixed size")]
    NoSize(String),
    /// Too few or too many bytes.
    #[error("{ty} takes {expected} bytes, got {got}")]
    Length {
        /// The type.
        ty: String,
        /// Bytes of such a tensor.
        expected: u64,
        /// Bytes given.
        got: usize,
    },
    /// A byte of an `i1` tensor is neither 0 nor 1.
    #[error("element {0} of an i1 tensor is neither 0 nor 1")]
    NotBool(usize),
}

/// A dense row-major tensor: little-endian, [`DType::bytes`] bytes an element. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    ty: TensorType,
    bytes: Arc<Vec<u8>>,
}

impl Tensor {
    /// A tensor of `bytes`.
    ///
    /// # Errors
    /// When the length does not fit the type, or an `i1` element is neither 0 nor 1.
    pub fn new(ty: TensorType, bytes: Vec<u8>) -> Result<Tensor, TensorError> {
        let expected = ty.bytes().ok_or_else(|| TensorError::NoSize(ty.to_string()))?;
        if expected != bytes.len() as u64 {
            return Err(TensorError::Length { ty: ty.to_string(), expected, got: bytes.len() });
        }
        if ty.dtype == DType::I1
            && let Some(i) = bytes.iter().position(|&b| b > 1)
        {
            return Err(TensorError::NotBool(i));
        }
        Ok(Tensor { ty, bytes: Arc::new(bytes) })
    }

    /// As [`Tensor::new`] for bytes that are known to fit.
    pub(crate) fn make(ty: TensorType, bytes: Vec<u8>) -> Tensor {
        debug_assert_eq!(ty.bytes(), Some(bytes.len() as u64), "{ty}");
        Tensor { ty, bytes: Arc::new(bytes) }
    }

    /// The elements of a literal, a splat spelled out.
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub fn from_literal(l: &Literal) -> Result<Tensor, TensorError> {
        let n = l.ty.elements().ok_or_else(|| TensorError::NoSize(l.ty.to_string()))?;
        let bytes = if l.is_splat() { l.bytes.repeat(n as usize) } else { l.bytes.to_vec() };
        Tensor::new(l.ty.clone(), bytes)
    }

    /// A tensor of shape `dims` whose elements are `values`, rounded to `dtype`.
    ///
    /// # Errors
    /// When there are not as many values as elements.
    pub fn from_f32(dims: &[i64], dtype: DType, values: &[f32]) -> Result<Tensor, TensorError> {
        Tensor::new(TensorType::new(dims, dtype), encode_f32(dtype, values))
    }

    /// As [`Tensor::from_f32`] from doubles.
    ///
    /// # Errors
    /// When there are not as many values as elements.
    pub fn from_f64(dims: &[i64], dtype: DType, values: &[f64]) -> Result<Tensor, TensorError> {
        Tensor::new(TensorType::new(dims, dtype), encode_f64(dtype, values))
    }

    /// A tensor of shape `dims` whose elements are `values`, wrapped to the width of `dtype`, an integer type or `i1`.
    ///
    /// # Errors
    /// When there are not as many values as elements.
    pub fn from_i64(dims: &[i64], dtype: DType, values: &[i64]) -> Result<Tensor, TensorError> {
        Tensor::new(TensorType::new(dims, dtype), encode_i64(dtype, values))
    }

    /// Shape and element type.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// The raw elements.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The raw elements, without copying where no clone shares them.
    pub fn into_bytes(self) -> Vec<u8> {
        Arc::try_unwrap(self.bytes).unwrap_or_else(|shared| shared.as_ref().clone())
    }

    /// Sizes of the dimensions.
    pub fn dims(&self) -> &[i64] {
        &self.ty.dims
    }

    /// Sizes of the dimensions as indices. They are never negative.
    pub(crate) fn shape(&self) -> Vec<usize> {
        self.ty.dims.iter().map(|&d| d as usize).collect()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.ty.dtype.bytes()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Elements as `f32`, see [`decode_f32`].
    pub fn to_f32(&self) -> Vec<f32> {
        decode_f32(self.dtype(), &self.bytes)
    }

    /// Elements as doubles, see [`decode_f64`].
    pub fn to_f64(&self) -> Vec<f64> {
        decode_f64(self.dtype(), &self.bytes)
    }

    /// Elements of an integer or `i1` tensor, see [`decode_i64`].
    pub fn to_i64(&self) -> Vec<i64> {
        decode_i64(self.dtype(), &self.bytes)
    }

    /// The same elements under another type with as many bytes.
    pub(crate) fn with_type(&self, ty: TensorType) -> Tensor {
        debug_assert_eq!(ty.bytes(), Some(self.bytes.len() as u64));
        Tensor { ty, bytes: Arc::clone(&self.bytes) }
    }
}

/// Whatever an SSA value can hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A tensor.
    Tensor(Tensor),
    /// A tuple.
    Tuple(Vec<Value>),
    /// `!stablehlo.token`.
    Token,
}

impl Value {
    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// The name of its type, for messages.
    pub(crate) fn type_name(&self) -> String {
        match self {
            Value::Tensor(t) => t.ty().to_string(),
            Value::Tuple(_) => "a tuple".to_owned(),
            Value::Token => Type::Token.to_string(),
        }
    }

    /// Whether the value is one of `ty`.
    pub fn has_type(&self, ty: &Type) -> bool {
        match (self, ty) {
            (Value::Tensor(t), Type::Tensor(ty)) => t.ty() == ty,
            (Value::Token, Type::Token) => true,
            (Value::Tuple(vs), Type::Tuple(ts)) => {
                vs.len() == ts.len() && vs.iter().zip(ts).all(|(v, t)| v.has_type(t))
            }
            _ => false,
        }
    }
}

impl From<Tensor> for Value {
    fn from(t: Tensor) -> Value {
        Value::Tensor(t)
    }
}
