//! Placeholder.
#![deny(missing_docs)]

pub mod atomic;
pub mod npy;
