//! Instruction set, chip descriptions and programs of tpusim.
#![deny(missing_docs)]

pub mod num;
