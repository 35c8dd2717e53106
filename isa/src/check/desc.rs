//! DMA descriptors and the HBM plan by themselves.

use super::{CheckKind, Place, Report};
use crate::chip::ChipSpec;
use crate::program::{OnChip, Program};

pub(super) fn check(program: &Program, chip: &ChipSpec, report: &mut Report<'_>) {
    let nowhere = Place::default();
    let mut say = |text: String| report.add(&nowhere, None, CheckKind::Descriptor(text));
    for (i, d) in program.descs.iter().enumerate() {
        if !matches!(d.elem_bytes, 1 | 2 | 4) {
            say(format!("d{i} has elements of {} bytes; there are 1, 2 and 4", d.elem_bytes));
        } else if d.mem == OnChip::Vmem
            && u64::from(d.lane_tiles) * 128 < u64::from(d.cols)
            && d.rows > 32 / u32::from(d.elem_bytes)
        {
            say(format!("d{i} has {} columns in {} tiles per tile row: tile rows overlap", d.cols, d.lane_tiles));
        }
        let regs = d.hbm.terms.iter().chain(&d.local.terms).map(|(r, _)| r.0);
        for reg in regs.filter(|r| u32::from(*r) >= *chip.regs.scalar) {
            say(format!("d{i} adds s{reg}: there are {} scalar registers", *chip.regs.scalar));
        }
    }
    for (i, b) in program.buffers.iter().enumerate() {
        let has = *chip.hbm.usable_bytes_device;
        if b.offset.checked_add(b.bytes).is_none_or(|end| end > has) {
            let text = format!("buffer {i} of {} bytes at {} ends beyond the {has} bytes of HBM", b.bytes, b.offset);
            report.add(&nowhere, None, CheckKind::Descriptor(text));
        }
    }
}
