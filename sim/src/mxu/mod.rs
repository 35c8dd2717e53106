//! Matrix units: when they take and give (`timing`), what they compute (`exact`), and a small model of the array itself that
//! both are held against ([`systolic`]).

pub(crate) mod exact;
pub mod kernel;
pub(crate) mod share;
pub mod systolic;
pub(crate) mod timing;
