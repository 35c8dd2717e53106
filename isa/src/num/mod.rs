//! Number formats of a TPU: element types, small floats, and the fixed-point aliases used for rates.

mod dtype;

pub use dtype::{DType, DTypeKind};
