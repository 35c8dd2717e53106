//! The compiler of tpusim: StableHLO in, VLIW programs for a TPU core out.
#![deny(missing_docs)]

pub mod compile;
pub mod eval;
pub mod front;
mod generate;
pub mod graph;
pub mod hlo;
pub mod lower;
pub mod ops;
pub mod partition;
pub mod tile;
