//! Number formats of a TPU: element types, small floats, and the fixed-point aliases used for rates.

pub mod convert;
mod dtype;
mod float;

pub use dtype::{DType, DTypeKind};
pub use float::{FloatFormat, Specials};
