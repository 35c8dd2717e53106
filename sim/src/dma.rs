//! DMAs: what a descriptor costs, when its data lands, and the copy itself.

mod copy;
mod cost;

pub(crate) use copy::{rows, transfer};
pub(crate) use cost::{Cost, DmaTiming};
