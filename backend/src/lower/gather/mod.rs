//! Code of gathers and scatters: windows of arrays in HBM at places that the core reads as scalars.

mod copy;
mod layout;
mod places;
mod update;

pub use copy::GatherKernel;
pub use layout::Layout;
pub use update::{Array, ScatterKernel};
