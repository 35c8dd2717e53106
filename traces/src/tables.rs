//! Tables as CSV: a header line, plain numbers in SI base units, one row per operation or window.

use std::io::{self, Write};
use std::path::Path;

use tpusim_sim::profile::{Profile, Stall, Unit};

use crate::atomic::{self, WriteError};
use crate::perfetto::windows;
use crate::report::Report;

/// Writes one row per operation and run of it to `path`.
pub fn write_ops(path: &Path, report: &Report) -> Result<(), WriteError> {
    atomic::write(path, |out| ops(report, out))
}

/// Writes one row per window of the profile's utilization series to `path`.
pub fn write_series(path: &Path, clock_hz: u64, profile: &Profile) -> Result<(), WriteError> {
    atomic::write(path, |out| series(clock_hz, profile, out))
}

/// One row per operation and run of it, in the order they ran.
pub fn ops(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let fixed = [
        "op",
        "occurrence",
        "name",
        "source",
        "location",
        "dtype",
        "cores",
        "start_s",
        "time_s",
        "start_cycle",
        "cycles",
        "bound",
        "mfu",
        "flops",
        "vector_flops",
        "hbm_bytes_read",
        "hbm_bytes_written",
        "bundles",
        "modelled_cycles",
    ];
    let mut header: Vec<String> = fixed.map(str::to_owned).to_vec();
    header.extend(Unit::ALL.map(|u| format!("utilization_{}", u.name())));
    header.extend(Stall::ALL.map(|s| format!("stall_cycles_{}", s.name())));
    csv.write_record(&header)?;
    for o in &report.ops {
        let mut row =
            vec![o.op.to_string(), o.occurrence.to_string(), o.name.clone(), o.source.clone(), o.location.clone()];
        row.extend([o.dtype.to_owned(), o.cores.to_string(), o.start_s.to_string(), o.time_s.to_string()]);
        row.extend([o.start_cycle.to_string(), o.cycles.to_string(), o.bound.name().to_owned(), o.mfu.to_string()]);
        let counts = [o.flops, o.vector_flops, o.hbm_bytes_read, o.hbm_bytes_written, o.bundles, o.modelled_cycles];
        row.extend(counts.map(|n| n.to_string()));
        row.extend(Unit::ALL.map(|u| o.utilization.get(u).to_string()));
        row.extend(Stall::ALL.map(|s| o.stall_cycles.get(s).to_string()));
        csv.write_record(&row)?;
    }
    csv.flush()
}

/// One row per window: its start in seconds and cycles and each unit's utilization, 0 to 1.
pub fn series(clock_hz: u64, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let mut header = vec!["start_s".to_owned(), "start_cycle".to_owned()];
    header.extend(Unit::ALL.map(|u| u.name().to_owned()));
    csv.write_record(&header)?;
    for (start, shares) in windows(&profile.series, profile) {
        let mut row = vec![(start as f64 / clock_hz.max(1) as f64).to_string(), start.to_string()];
        row.extend(Unit::ALL.map(|u| shares.get(u).to_string()));
        csv.write_record(&row)?;
    }
    csv.flush()
}
