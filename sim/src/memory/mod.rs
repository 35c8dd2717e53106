//! Memories that hold data: VMEM of each core and HBM of the device.

pub(crate) mod hbm;
pub(crate) mod vmem;
