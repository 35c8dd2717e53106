//! What happens to data while time passes. The engine is one; a datapath is either [`Exact`](crate::exact::Exact) (real bits) or
//! [`Shapes`] (nothing, which compiles away), so that a run with data and one without cannot disagree about time.

use std::ops::Range;

use crate::code::Bundle;
use crate::fault::FaultKind;

/// The data side of a run. All methods name the core of the device that acts.
pub(crate) trait Datapath {
    /// Whether there is any data.
    const DATA: bool;

    /// Executes a bundle.
    fn bundle(&mut self, core: u32, b: Bundle<'_>) -> Result<(), FaultKind>;

    /// Sets a loop's counter.
    fn set_counter(&mut self, core: u32, register: u8, value: u32);

    /// What a scalar register of a core holds; 0 without data.
    fn scalar(&self, core: u32, register: u8) -> u32;

    /// An operation starts on the first `cores` cores.
    fn begin_op(&mut self, cores: u32);

    /// Lands every DMA of some cores.
    fn drain(&mut self, cores: Range<u32>) -> Result<(), FaultKind>;
}

/// No data: time only.
pub(crate) struct Shapes;

impl Datapath for Shapes {
    const DATA: bool = false;

    #[inline(always)]
    fn bundle(&mut self, _: u32, _: Bundle<'_>) -> Result<(), FaultKind> {
        Ok(())
    }

    #[inline(always)]
    fn set_counter(&mut self, _: u32, _: u8, _: u32) {}

    #[inline(always)]
    fn scalar(&self, _: u32, _: u8) -> u32 {
        0
    }

    #[inline(always)]
    fn begin_op(&mut self, _: u32) {}

    #[inline(always)]
    fn drain(&mut self, _: Range<u32>) -> Result<(), FaultKind> {
        Ok(())
    }
}
