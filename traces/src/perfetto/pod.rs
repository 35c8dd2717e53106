//! The trace of some devices of a pod: a process each, with a track of operations and tracks of transfers.

use std::io::{self, Write};
use std::path::Path;

use tpusim_isa::program::Program;
use tpusim_isa::time::Picos;
use tpusim_sim::pod::profile::{DeviceProfile, Run};

use super::proto::{EXPLICIT_ORDER, INCREMENTAL_STATE_CLEARED, ProcessDescriptor, TracePacket, TrackDescriptor};
use super::{Event, Names, What, Writer, lanes};
use crate::atomic::{self, WriteError};

/// A device of a pod.
#[derive(Clone, Debug)]
pub struct Device<'a> {
    /// Shown as the process, e.g. `chip 5 device 1`.
    pub name: String,
    /// What it, or the device that stands for it, did.
    pub profile: &'a DeviceProfile,
}

/// Writes the trace of `devices`, which ran `program`, to the file `path`.
pub fn write_pod(path: &Path, program: &Program, devices: &[Device<'_>]) -> Result<(), WriteError> {
    atomic::write(path, |out| encode_pod(program, devices, out))
}

/// Writes the trace of `devices`, which ran `program`, to `out`.
pub fn encode_pod(program: &Program, devices: &[Device<'_>], out: &mut dyn Write) -> io::Result<()> {
    let mut trace = Writer { out, names: Names::default(), buffer: Vec::new(), uuid: 0 };
    let mut events = Vec::new();
    trace.packet(TracePacket { sequence_flags: Some(INCREMENTAL_STATE_CLEARED), ..TracePacket::default() })?;
    for (pid, device) in (1..).zip(devices) {
        trace.device(pid, program, device, &mut events)?;
    }
    events.sort_by_key(|e| e.ns);
    for event in events {
        trace.event(event)?;
    }
    Ok(())
}

impl Writer<'_> {
    fn device<'a>(
        &mut self,
        pid: i32,
        program: &'a Program,
        device: &Device<'a>,
        events: &mut Vec<Event<'a>>,
    ) -> io::Result<()> {
        let process = self.track(TrackDescriptor {
            process: Some(ProcessDescriptor { pid: Some(pid), process_name: Some(device.name.clone()) }),
            child_ordering: Some(EXPLICIT_ORDER),
            ..TrackDescriptor::default()
        })?;
        let ops =
            |r: &Run| program.ops.get(r.index as usize).map_or(("", ""), |o| (o.name.as_str(), o.source.as_str()));
        let transfers =
            |r: &Run| program.transfers.get(r.index as usize).map_or(("", ""), |t| (t.name.as_str(), t.axes.as_str()));
        type Named<'a, 'f> = &'f dyn Fn(&Run) -> (&'a str, &'a str);
        let kinds: [(&str, &'a [Run], Named<'a, '_>); 2] =
            [("operations", &device.profile.ops, &ops), ("transfers", &device.profile.transfers, &transfers)];
        let mut rank = 0;
        for (title, runs, name) in kinds {
            let mut runs: Vec<&Run> = runs.iter().collect();
            runs.sort_by_key(|r| (r.start, r.end));
            let lanes = lanes(runs.iter().map(|r| (r.start.0, r.end.0)));
            let mut tracks = Vec::new();
            for _ in 0..lanes.count {
                rank += 1;
                tracks.push(self.track(TrackDescriptor {
                    name: Some(title.to_owned()),
                    parent_uuid: Some(process),
                    sibling_order_rank: Some(rank),
                    ..TrackDescriptor::default()
                })?);
            }
            for (run, lane) in runs.into_iter().zip(lanes.of) {
                let Some(track) = tracks.get(lane).copied() else { continue };
                let ns = |t: Picos| t.0 / 1000;
                let (name, detail) = name(run);
                let what = What::BeginRun { name, detail, start: run.start.0, end: run.end.0 };
                events.push(Event { ns: ns(run.start), track, what });
                events.push(Event { ns: ns(run.end), track, what: What::End });
            }
        }
        Ok(())
    }
}
