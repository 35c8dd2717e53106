//! Instruction set, chip descriptions and programs of tpusim: what the compiler and the simulator agree on.
//!
//! - [`num`]: element types and packed formats;
//! - [`chip`]: a TPU generation as data, each number with its source;
//! - [`op`]: the instruction table, with the semantics of every instruction;
//! - [`program`]: bundles, loops, branches, DMA descriptors, and the plan of a program's memory;
//! - [`pod`]: what a program says to other devices;
//! - [`asm`] and [`binary`]: a program as text and as bytes, both exact;
//! - [`check`](mod@check): what can be said about a program without running it;
//! - [`time`]: cycles and picoseconds;
//! - [`topology`]: the torus of a slice: coordinates, wraps, routes.
//!
//! This crate has no state and knows no compiler.
#![deny(missing_docs)]

pub mod asm;
pub mod binary;
pub mod check;
pub mod chip;
mod limits;
pub mod num;
pub mod op;
pub mod placement;
pub mod pod;
pub mod program;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod topology;
