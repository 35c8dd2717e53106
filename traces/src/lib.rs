//! Placeholder.
#![deny(missing_docs)]

pub mod atomic;
pub mod figure;
pub mod npy;
pub mod perfetto;
pub mod report;
pub mod tables;
pub mod units;
