use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;

use prost::Message;
use tpusim_sim::profile::Unit;
use tpusim_traces::perfetto::proto::{EventType, Trace, TrackDescriptor};
use tpusim_traces::perfetto::{self, Core, picoseconds};

use crate::sample;

fn encode(names: &[&str]) -> Vec<u8> {
    let (program, chip, profile) = (sample::program(), sample::chip(), sample::profile());
    let cores: Vec<Core<'_>> =
        names.iter().map(|name| Core { name, program: &program, chip: &chip, profile: &profile }).collect();
    let mut bytes = Vec::new();
    perfetto::encode(&cores, &mut bytes).unwrap();
    bytes
}

/// A slice as a reader sees it.
#[derive(Debug, PartialEq)]
pub struct Slice {
    pub track: String,
    pub name: String,
    pub start: u64,
    pub end: u64,
    args: BTreeMap<String, String>,
}

/// Reads slices as trace processors do: interned names by number, ends matched with the innermost begin of the track.
pub fn slices(trace: &Trace) -> (Vec<Slice>, BTreeMap<u64, TrackDescriptor>) {
    let (mut names, mut args, mut texts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut tracks: BTreeMap<u64, TrackDescriptor> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<Slice>> = BTreeMap::new();
    let (mut done, mut last) = (Vec::new(), 0);
    for p in &trace.packet {
        if let Some(d) = &p.track_descriptor {
            assert!(tracks.insert(d.uuid.unwrap(), d.clone()).is_none(), "two tracks of one id");
        }
        let data = p.interned_data.clone().unwrap_or_default();
        names.extend(data.event_names.into_iter().map(|n| (n.iid, n.name.unwrap())));
        args.extend(data.debug_annotation_names.into_iter().map(|n| (n.iid, n.name.unwrap())));
        let decode = |b: Option<Vec<u8>>| String::from_utf8(b.unwrap()).unwrap();
        texts.extend(data.debug_annotation_string_values.into_iter().map(|n| (n.iid, decode(n.str))));
        let Some(e) = &p.track_event else { continue };
        let (track, ns) = (e.track_uuid.unwrap(), p.timestamp.unwrap());
        assert!(ns >= last, "times go back");
        last = ns;
        let stack = open.entry(track).or_default();
        match e.r#type() {
            EventType::SliceBegin => {
                let mut found = BTreeMap::new();
                for a in &e.debug_annotations {
                    let number = a.uint_value.map(|v| v.to_string()).or(a.double_value.map(|v| v.to_string()));
                    let value = number.unwrap_or_else(|| texts[&a.string_value_iid].clone());
                    found.insert(args[&a.name_iid].clone(), value);
                }
                let track = tracks[&track].name.clone().unwrap();
                stack.push(Slice { track, name: names[&e.name_iid].clone(), start: ns, end: 0, args: found });
                assert_eq!(stack.len(), 1, "slices of one track overlap");
            }
            EventType::SliceEnd => {
                let mut s = stack.pop().expect("an end without a begin");
                s.end = ns;
                done.push(s);
            }
            EventType::Counter => assert!((0.0..=100.0).contains(&e.double_counter_value.unwrap())),
            other => panic!("{other:?}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "slices are left open");
    (done, tracks)
}

// Oracle: the profile the trace was made from, read back with Perfetto's own rules.
#[test]
fn reads_back_what_the_profile_says() {
    let profile = sample::profile();
    let trace = Trace::decode(encode(&["core 0"]).as_slice()).unwrap();
    let (slices, tracks) = slices(&trace);
    let ns = |cycle| picoseconds(cycle, 1_500_000_000) / 1000;
    let ops: Vec<&Slice> = slices.iter().filter(|s| s.track == "Ops").collect();
    assert_eq!(ops.len(), profile.ops.len());
    for (s, o) in ops.iter().zip(&profile.ops) {
        assert_eq!((s.start, s.end), (ns(o.start), ns(o.end)));
        assert_eq!(s.args["cycles"], (o.end - o.start).to_string());
        assert_eq!(s.args["start_ps"], picoseconds(o.start, 1_500_000_000).to_string());
        assert_eq!(s.args["hbm_bytes_read"], o.hbm_read.to_string());
    }
    assert_eq!((ops[0].name.as_str(), ops[0].args["location"].as_str()), ("jit(step)/dot_general.1", "model.py:12"));
    assert_eq!((ops[0].args["bound"].as_str(), ops[5].args["modelled_cycles"].as_str()), ("MXU", "18000"));
    for unit in [Unit::Mxu, Unit::Vpu, Unit::Xlu, Unit::Hbm, Unit::VLoad, Unit::VStore] {
        let wanted = profile.spans.iter().filter(|s| s.unit == unit);
        let mut wanted: Vec<_> = wanted.map(|s| (ns(s.start), ns(s.end))).collect();
        let mut found: Vec<_> = slices.iter().filter(|s| s.track == unit.name()).map(|s| (s.start, s.end)).collect();
        wanted.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, wanted, "{}", unit.name());
    }
    // Transfers overlap in twos.
    let named = |name: &str| tracks.values().filter(|d| d.name.as_deref() == Some(name)).count();
    assert_eq!((named("HBM"), named("MXU"), named("HBM utilization")), (2, 1, 1));
}

// Oracle: ceil(cycle * 10^12 / hz), by hand for 1.5 GHz, and monotony.
#[test]
fn times_are_rounded_up_to_picoseconds() {
    assert_eq!([0, 1, 2, 3].map(|c| picoseconds(c, 1_500_000_000)), [0, 667, 1334, 2000]);
    assert_eq!(picoseconds(u64::MAX, 1), u64::MAX);
}

// Oracle: two runs of the encoder, and one process per core.
#[test]
fn is_repeatable_and_takes_several_cores_and_empty_runs() {
    assert_eq!(encode(&["a", "b"]), encode(&["a", "b"]));
    let (_, tracks) = slices(&Trace::decode(encode(&["a", "b"]).as_slice()).unwrap());
    let processes: Vec<_> = tracks.values().filter_map(|d| d.process.as_ref()?.process_name.clone()).collect();
    assert_eq!(processes, ["a (v5e)", "b (v5e)"]);
    let (program, chip) = (Default::default(), sample::chip());
    let profile = Default::default();
    let mut bytes = Vec::new();
    perfetto::encode(&[Core { name: "idle", program: &program, chip: &chip, profile: &profile }], &mut bytes).unwrap();
    assert!(Trace::decode(bytes.as_slice()).is_ok());
}

// Oracle: Perfetto's published schema and, where it is installed, its trace processor.
#[test]
fn fits_the_published_schema() {
    let path = sample::folder().join("run.pftrace");
    let (program, chip, profile) = (sample::program(), sample::chip(), sample::profile());
    perfetto::write(&path, &[Core { name: "core 0", program: &program, chip: &chip, profile: &profile }]).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/check_perfetto.py");
    let python = std::env::var("TPUSIM_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut say = std::io::stderr();
    match Command::new(python).arg(script).arg(&path).output() {
        Err(e) => writeln!(say, "skipped: no python: {e}").unwrap(),
        Ok(out) if out.status.code() == Some(77) => say.write_all(&out.stdout).unwrap(),
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{text}");
            writeln!(say, "{text}").unwrap();
        }
    }
}
