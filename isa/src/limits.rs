//! What numbers of a chip may be changed to. What no machine could have is refused, so that a slip of the finger is an error and not a
//! run without end.

use crate::chip::{ChipError, ChipSpec};

/// Least and greatest value by the beginning of the key; the first that fits counts.
const RANGES: &[(&str, f64, f64)] = &[
    ("clock_hz", 1e6, 1e11),
    ("tensorcores_per_", 1.0, 16.0),
    ("scoped_vmem_bytes", 65_536.0, 17_179_869_184.0),
    ("vmem_bytes", 65_536.0, 17_179_869_184.0),
    ("smem_bytes", 1024.0, 17_179_869_184.0),
    ("xlus", 1.0, 16.0),
    ("mxu.count", 1.0, 16.0),
    ("mxu.dim", 128.0, 256.0),
    ("mxu.rows_per_cycle_16bit", 1.0, 64.0),
    ("mxu.rows_per_cycle_", 0.0, 64.0),
    ("mxu.push_interval", 1.0, 10_000.0),
    ("mxu.latency", 1.0, 10_000.0),
    ("mxu.", 0.0, 65_536.0),
    ("slots.", 1.0, 32.0),
    ("regs.", 8.0, 256.0),
    ("latency.scalar_load_interval", 1.0, 10_000.0),
    ("latency.", 0.0, 10_000.0),
    ("hbm.bps_chip", 1e6, 1e18),
    ("hbm.read_efficiency", 0.001, 1.0),
    ("hbm.write_efficiency", 0.001, 1.0),
    ("hbm.latency_s", 0.0, 1.0),
    ("hbm.granule_bytes", 1.0, 65_536.0),
    ("hbm.", 1.0, 1e18),
    ("ici.dims", 1.0, 3.0),
    ("ici.link_efficiency", 0.001, 1.0),
    ("ici.d2d_bps", 0.0, 1e18),
    ("ici.hop_latency_s", 0.0, 1.0),
    ("ici.dcn_latency_s", 0.0, 1.0),
    ("ici.", 1.0, 1e18),
    ("overhead.entry_cycles", 0.0, 1e6),
    ("overhead.", 0.0, 1.0),
];

fn refuse(key: &str, value: f64) -> Option<String> {
    let (_, low, high) = RANGES.iter().find(|(prefix, _, _)| key.starts_with(prefix))?;
    if key == "mxu.dim" && value != 128.0 && value != 256.0 {
        return Some("the array is 128 or 256 wide".to_owned());
    }
    (!(*low..=*high).contains(&value)).then(|| format!("expected a number from {low} to {high}"))
}

fn refuse_cores(key: &str, chip: &ChipSpec) -> Option<String> {
    let divides = (*chip.tensorcores_per_chip).is_multiple_of(*chip.tensorcores_per_device);
    (key.starts_with("tensorcores_per_") && !divides)
        .then(|| format!("tensorcores_per_device must divide the {} tensorcores_per_chip", *chip.tensorcores_per_chip))
}

/// Refuses overrides out of range.
///
/// # Errors
/// [`ChipError::Override`] for the first one.
pub(crate) fn check(chip: &ChipSpec, overrides: &[(String, String)]) -> Result<(), ChipError> {
    if overrides.is_empty() {
        return Ok(());
    }
    let values: Vec<(String, f64)> =
        chip.table().into_iter().filter_map(|(k, v, _)| Some((k, v.parse().ok()?))).collect();
    for (key, value) in overrides {
        let number = values.iter().find(|(k, _)| k == key).map(|(_, v)| *v);
        let message = number.and_then(|v| refuse(key, v)).or_else(|| refuse_cores(key, chip));
        if let Some(message) = message {
            return Err(ChipError::Override { key: key.clone(), value: value.clone(), message });
        }
    }
    Ok(())
}
