//! The compiler of tpusim: StableHLO in, VLIW programs for a TPU core out.
#![deny(missing_docs)]

pub mod front;
pub mod hlo;
