//! Placeholder.
#![deny(missing_docs)]

pub mod atomic;
pub mod npy;
pub mod report;
pub mod units;
