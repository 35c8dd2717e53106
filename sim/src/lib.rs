//! Cycle-approximate, bit-exact simulator of TPU chips.
#![deny(missing_docs)]

pub mod profile;
