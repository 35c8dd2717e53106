//! Number formats of a TPU: element types, small floats, and the fixed-point aliases used for rates.

pub mod convert;
mod dtype;
pub mod eup;
mod float;
mod format;

pub use dtype::{DType, DTypeKind, UnknownDType};
pub use float::{FloatFormat, Specials};
pub use format::Format;

/// A rate in bytes per cycle. Fixed-point, so that transfer times are the same integers on every machine.
pub type BytesPerCycle = fixed::types::U32F32;
