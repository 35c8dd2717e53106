//! Front ends: everything that turns a program as a framework hands it over into a [`crate::hlo::Module`].

pub mod bytecode;
