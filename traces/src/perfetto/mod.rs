//! Traces for Perfetto (`ui.perfetto.dev`, `trace_processor`): one process per core that was recorded, a track of operations, a track
//! per unit, and utilization over time as counters.
//!
//! **Time.** The trace clock counts whole nanoseconds, a core cycle is shorter. Every time is first taken to picoseconds,
//! `ceil(cycle * 10^12 / clock)`, and then rounded down to nanoseconds, so order is kept and neighbours stay neighbours; slices
//! carry `start_ps`, `duration_ps` and `cycles` as arguments. A slice of less than a nanosecond may have a duration of 0.
//!
//! **Overlap.** Slices of one Perfetto track must nest, transfers overlap freely. Each unit therefore has as many tracks of the same
//! name as it has activities at a time, and the viewer shows them as one.

mod pod;
pub mod proto;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, Write};
use std::path::Path;

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::Program;
use tpusim_sim::profile::{Profile, Series, Span, Unit};

use crate::atomic::{self, WriteError};
use crate::report::{OpReport, PerUnit, Report};
pub use pod::{Device, encode_pod, write_pod};
use proto::{
    CounterDescriptor, DebugAnnotation, EXPLICIT_ORDER, EventName, EventType, INCREMENTAL_STATE_CLEARED, InternedData,
    InternedString, NEEDS_INCREMENTAL_STATE, ProcessDescriptor, TracePacket, TrackDescriptor, TrackEvent,
};

/// One recorded core.
#[derive(Clone, Copy, Debug)]
pub struct Core<'a> {
    /// Shown as the process, e.g. `chip 0 core 0`.
    pub name: &'a str,
    /// The program it ran.
    pub program: &'a Program,
    /// The chip it is part of.
    pub chip: &'a ChipSpec,
    /// What was recorded.
    pub profile: &'a Profile,
}

/// Units with a track of their own, in the order they are shown.
const TRACKS: [Unit; 7] = [Unit::Mxu, Unit::Vpu, Unit::Xlu, Unit::Eup, Unit::Hbm, Unit::VLoad, Unit::VStore];
/// Every packet belongs to this one writer.
const SEQUENCE: u32 = 1;

/// Picoseconds from cycle 0 to `cycle` at `clock_hz`, rounded up.
pub fn picoseconds(cycle: u64, clock_hz: u64) -> u64 {
    let ps = (u128::from(cycle) * 1_000_000_000_000).div_ceil(u128::from(clock_hz.max(1)));
    u64::try_from(ps).unwrap_or(u64::MAX)
}

/// Writes the trace of `cores` to the file `path`.
pub fn write(path: &Path, cores: &[Core<'_>]) -> Result<(), WriteError> {
    atomic::write(path, |out| encode(cores, out))
}

/// Writes the trace of `cores` to `out`.
pub fn encode(cores: &[Core<'_>], out: &mut dyn Write) -> io::Result<()> {
    let mut trace = Writer { out, names: Names::default(), buffer: Vec::new(), uuid: 0 };
    let mut events = Vec::new();
    trace.packet(TracePacket { sequence_flags: Some(INCREMENTAL_STATE_CLEARED), ..TracePacket::default() })?;
    for (pid, core) in (1..).zip(cores) {
        trace.core(pid, core, &mut events)?;
    }
    // Stable: within a track the order stays, so that a slice ends before the next begins at the same nanosecond.
    events.sort_by_key(|e| e.ns);
    for event in events {
        trace.event(event)?;
    }
    Ok(())
}

/// Something at a moment on a track.
struct Event<'a> {
    ns: u64,
    track: u64,
    what: What<'a>,
}

enum What<'a> {
    BeginOp(&'a str, Box<OpReport>, u64),
    BeginSpan(&'a str, &'a Span, u64),
    /// A run of an operation or transfer of a pod, in picoseconds.
    BeginRun {
        name: &'a str,
        detail: &'a str,
        start: u64,
        end: u64,
    },
    End,
    Counter(f64),
}

/// Strings are written once, before their first use, and referred to by number.
#[derive(Default)]
struct Names {
    events: BTreeMap<String, u64>,
    args: BTreeMap<String, u64>,
    values: BTreeMap<String, u64>,
    fresh: InternedData,
}

fn intern(map: &mut BTreeMap<String, u64>, text: &str, fresh: impl FnOnce(u64)) -> u64 {
    if let Some(iid) = map.get(text) {
        return *iid;
    }
    let iid = map.len() as u64 + 1;
    map.insert(text.to_owned(), iid);
    fresh(iid);
    iid
}

impl Names {
    fn event(&mut self, name: &str) -> Option<u64> {
        let list = &mut self.fresh.event_names;
        let add = |iid| list.push(EventName { iid: Some(iid), name: Some(name.to_owned()) });
        Some(intern(&mut self.events, name, add))
    }

    fn arg(&mut self, name: &str) -> Option<u64> {
        let list = &mut self.fresh.debug_annotation_names;
        let add = |iid| list.push(EventName { iid: Some(iid), name: Some(name.to_owned()) });
        Some(intern(&mut self.args, name, add))
    }

    fn text(&mut self, name: &str, value: &str) -> DebugAnnotation {
        let list = &mut self.fresh.debug_annotation_string_values;
        let add = |iid| list.push(InternedString { iid: Some(iid), str: Some(value.as_bytes().to_vec()) });
        let string_value_iid = Some(intern(&mut self.values, value, add));
        DebugAnnotation { name_iid: self.arg(name), string_value_iid, ..DebugAnnotation::default() }
    }

    fn count(&mut self, name: &str, value: u64) -> DebugAnnotation {
        DebugAnnotation { name_iid: self.arg(name), uint_value: Some(value), ..DebugAnnotation::default() }
    }

    fn number(&mut self, name: &str, value: f64) -> DebugAnnotation {
        DebugAnnotation { name_iid: self.arg(name), double_value: Some(value), ..DebugAnnotation::default() }
    }
}

struct Writer<'w> {
    out: &'w mut dyn Write,
    names: Names,
    buffer: Vec<u8>,
    uuid: u64,
}

impl Writer<'_> {
    fn packet(&mut self, mut packet: TracePacket) -> io::Result<()> {
        packet.trusted_packet_sequence_id = Some(SEQUENCE);
        self.buffer.clear();
        // Field 1 of `Trace`, length-delimited.
        prost::encoding::message::encode(1, &packet, &mut self.buffer);
        self.out.write_all(&self.buffer)
    }

    fn track(&mut self, descriptor: TrackDescriptor) -> io::Result<u64> {
        self.uuid += 1;
        let uuid = Some(self.uuid);
        let track_descriptor = Some(TrackDescriptor { uuid, ..descriptor });
        self.packet(TracePacket { track_descriptor, ..TracePacket::default() })?;
        Ok(self.uuid)
    }

    /// Declares the tracks of `core` and collects its events.
    fn core<'a>(&mut self, pid: i32, core: &Core<'a>, events: &mut Vec<Event<'a>>) -> io::Result<()> {
        let missing = if core.profile.spans_truncated { ", later unit activity not recorded" } else { "" };
        let process_name = Some(format!("{} ({}{missing})", core.name, core.chip.name));
        let process = self.track(TrackDescriptor {
            process: Some(ProcessDescriptor { pid: Some(pid), process_name }),
            child_ordering: Some(EXPLICIT_ORDER),
            ..TrackDescriptor::default()
        })?;
        let clock = *core.chip.clock_hz;
        let mut rank = 0;
        let mut child = |writer: &mut Self, name: &str, counter| {
            rank += 1;
            writer.track(TrackDescriptor {
                name: Some(name.to_owned()),
                parent_uuid: Some(process),
                sibling_order_rank: Some(rank),
                counter,
                ..TrackDescriptor::default()
            })
        };
        let mut report = Report::new(core.program, core.chip, core.profile, "");
        report.ops.sort_by_key(|o| o.start_cycle);
        let lanes = lanes(report.ops.iter().map(|o| (o.start_cycle, o.start_cycle.saturating_add(o.cycles))));
        let uuids = (0..lanes.count).map(|_| child(self, "Ops", None)).collect::<io::Result<Vec<u64>>>()?;
        for (o, lane) in report.ops.into_iter().zip(lanes.of) {
            let (start, end) = (o.start_cycle, o.start_cycle.saturating_add(o.cycles));
            let name = op_name(core.program, o.op);
            slice(events, uuids.get(lane), clock, (start, end), What::BeginOp(name, Box::new(o), clock));
        }
        for unit in TRACKS {
            let mut spans: Vec<&Span> = core.profile.spans.iter().filter(|s| s.unit == unit).collect();
            spans.sort_by_key(|s| s.start);
            let lanes = self::lanes(spans.iter().map(|s| (s.start, s.end)));
            let uuids = (0..lanes.count).map(|_| child(self, unit.name(), None)).collect::<io::Result<Vec<u64>>>()?;
            for (s, lane) in spans.into_iter().zip(lanes.of) {
                let begin = What::BeginSpan(op_name(core.program, s.op), s, clock);
                slice(events, uuids.get(lane), clock, (s.start, s.end), begin);
            }
        }
        let series = &core.profile.series;
        for unit in TRACKS.into_iter().filter(|_| !series.busy.is_empty()) {
            let counter =
                CounterDescriptor { unit_name: Some("%".to_owned()), y_axis_share_key: Some("utilization".to_owned()) };
            let track = child(self, &format!("{} utilization", unit.name()), Some(counter))?;
            let mut last = None;
            for (start, shares) in windows(series, core.profile) {
                // Equal windows in a row are one step.
                let value = shares.get(unit) * 100.0;
                if last.replace(value) != Some(value) {
                    events.push(Event { ns: picoseconds(start, clock) / 1000, track, what: What::Counter(value) });
                }
            }
            let end = picoseconds(core.profile.cycles, clock) / 1000;
            events.push(Event { ns: end, track, what: What::Counter(0.0) });
        }
        Ok(())
    }

    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        let n = &mut self.names;
        let mut e = TrackEvent { track_uuid: Some(event.track), ..TrackEvent::default() };
        let mut kind = EventType::SliceBegin;
        match event.what {
            What::BeginOp(name, o, clock) => {
                e.name_iid = n.event(if name.is_empty() { &o.name } else { name });
                e.debug_annotations = op_args(n, &o, clock);
            }
            What::BeginSpan(name, s, clock) => {
                e.name_iid = n.event(if name.is_empty() { s.unit.name() } else { name });
                e.debug_annotations =
                    vec![n.count("cycles", s.end.saturating_sub(s.start)), n.count("busy_cycles", s.busy)];
                if s.bytes > 0 {
                    e.debug_annotations.push(n.count("bytes", s.bytes));
                }
                e.debug_annotations.extend(times(n, s.start, s.end, clock));
            }
            What::BeginRun { name, detail, start, end } => {
                e.name_iid = n.event(if name.is_empty() { "unknown" } else { name });
                if !detail.is_empty() {
                    e.debug_annotations.push(n.text("detail", detail));
                }
                e.debug_annotations.push(n.count("start_ps", start));
                e.debug_annotations.push(n.count("duration_ps", end.saturating_sub(start)));
            }
            What::End => kind = EventType::SliceEnd,
            What::Counter(value) => {
                kind = EventType::Counter;
                e.double_counter_value = Some(value);
            }
        }
        e.r#type = Some(kind as i32);
        let fresh = std::mem::take(&mut n.fresh);
        self.packet(TracePacket {
            timestamp: Some(event.ns),
            track_event: Some(e),
            interned_data: (fresh != InternedData::default()).then_some(fresh),
            sequence_flags: Some(NEEDS_INCREMENTAL_STATE),
            ..TracePacket::default()
        })
    }
}

/// As the source calls it, or its short name; empty for an operation of another program.
fn op_name(program: &Program, op: u32) -> &str {
    match program.ops.get(op as usize) {
        Some(info) if info.source.is_empty() => &info.name,
        Some(info) => &info.source,
        None => "",
    }
}

fn op_args(n: &mut Names, o: &OpReport, clock: u64) -> Vec<DebugAnnotation> {
    let mut args = vec![n.text("operation", &o.name)];
    if !o.location.is_empty() {
        args.push(n.text("location", &o.location));
    }
    args.push(n.text("bound", o.bound.name()));
    args.push(n.count("hbm_bytes_read", o.hbm_bytes_read));
    args.push(n.count("hbm_bytes_written", o.hbm_bytes_written));
    args.push(n.count("flops", o.flops));
    args.push(n.count("vector_flops", o.vector_flops));
    args.push(n.number("mfu", o.mfu));
    args.push(n.count("cycles", o.cycles));
    if o.modelled_cycles > 0 {
        args.push(n.count("modelled_cycles", o.modelled_cycles));
    }
    for unit in Unit::ALL {
        args.push(n.number(&format!("utilization.{}", unit.name()), o.utilization.get(unit)));
    }
    for (stall, cycles) in tpusim_sim::profile::Stall::ALL.iter().zip(o.stall_cycles.0).filter(|(_, c)| *c > 0) {
        args.push(n.count(&format!("stall_cycles.{}", stall.name()), cycles));
    }
    args.extend(times(n, o.start_cycle, o.start_cycle.saturating_add(o.cycles), clock));
    args
}

fn times(n: &mut Names, start: u64, end: u64, clock: u64) -> [DebugAnnotation; 2] {
    let (from, to) = (picoseconds(start, clock), picoseconds(end, clock));
    [n.count("start_ps", from), n.count("duration_ps", to.saturating_sub(from))]
}

fn slice<'a>(events: &mut Vec<Event<'a>>, track: Option<&u64>, clock: u64, cycles: (u64, u64), begin: What<'a>) {
    let Some(track) = track.copied() else { return };
    let (start, end) = (picoseconds(cycles.0, clock) / 1000, picoseconds(cycles.1.max(cycles.0), clock) / 1000);
    events.push(Event { ns: start, track, what: begin });
    events.push(Event { ns: end, track, what: What::End });
}

/// The first cycle of each window and the shares in it. The last window may be shorter than the others.
pub(crate) fn windows<'a>(series: &'a Series, profile: &'a Profile) -> impl Iterator<Item = (u64, PerUnit)> + 'a {
    series.busy.iter().enumerate().map(move |(i, busy)| {
        let start = (i as u64).saturating_mul(series.window);
        let length = profile.cycles.saturating_sub(start).clamp(1, series.window.max(1));
        (start, PerUnit::from_busy(busy, length as f64, &profile.instances))
    })
}

struct Lanes {
    count: usize,
    of: Vec<usize>,
}

/// Puts intervals that come in order of their starts into as few lanes as possible, none overlapping in a lane. The lane that was
/// free first is taken.
fn lanes(intervals: impl Iterator<Item = (u64, u64)>) -> Lanes {
    let mut free: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut of = Vec::new();
    for (start, end) in intervals {
        let lane = match free.peek() {
            Some(Reverse((until, lane))) if *until <= start => {
                let lane = *lane;
                free.pop();
                lane
            }
            _ => free.len(),
        };
        free.push(Reverse((end.max(start), lane)));
        of.push(lane);
    }
    Lanes { count: free.len(), of }
}
