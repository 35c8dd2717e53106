//! DMAs: what a descriptor costs, when its data lands, and the copy itself.

mod copy;
mod cost;
mod scalar;

pub(crate) use copy::{rows, transfer};
pub(crate) use cost::{Cost, DmaTiming};
pub(crate) use scalar::transfer as transfer_scalars;
