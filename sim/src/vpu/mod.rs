//! Vector unit: register files, lane arithmetic, and the instructions of the vector ALU slots.

pub(crate) mod alu;
pub(crate) mod eup;
pub(crate) mod format;
pub(crate) mod lanes;
pub(crate) mod regs;
