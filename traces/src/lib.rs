//! Placeholder.
#![deny(missing_docs)]

pub mod atomic;
pub mod npy;
pub mod perfetto;
pub mod report;
pub mod units;
