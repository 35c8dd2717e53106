//! Memories that hold data: VMEM and SMEM of each core and HBM of the device.

pub(crate) mod hbm;
pub(crate) mod smem;
pub(crate) mod vmem;
