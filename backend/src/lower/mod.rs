//! Code generation: kernels as loop nests of scheduled vector code.

pub mod attention;
pub mod cells;
pub mod dot;
pub mod emit;
pub mod expr;
pub mod gather;
pub mod math;
pub mod nest;
pub mod scalar;
pub mod schedule;
pub mod sort;
pub mod vcode;
pub mod vector;
