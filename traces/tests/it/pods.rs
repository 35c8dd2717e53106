use prost::Message;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_isa::pod::TransferInfo;
use tpusim_isa::program::{Buffer, BufferKind, OpInfo, Program};
use tpusim_isa::time::Picos;
use tpusim_isa::topology::{ChipId, DeviceId, Topology};
use tpusim_sim::network::{Cluster, PORTS, Usage};
use tpusim_sim::pod::PodProfile;
use tpusim_sim::pod::profile::{DeviceProfile, Run};
use tpusim_traces::figure::{self, Correlation, ScalePoint};
use tpusim_traces::perfetto::{self, proto::Trace};
use tpusim_traces::pod::PodReport;

use crate::{perfetto::slices, sample};

const MS: u64 = 1_000_000_000;

fn op(name: &str, mxu_flops: u64) -> OpInfo {
    OpInfo {
        name: name.into(),
        source: String::new(),
        location: String::new(),
        mxu_flops,
        vector_flops: 0,
        dtype: DType::BF16,
        cores: 1,
        modelled_cycles: 0,
    }
}

fn run(index: u32, from_ms: u64, to_ms: u64) -> Run {
    Run { index, start: Picos(from_ms * MS), end: Picos(to_ms * MS) }
}

/// Two operations with a transfer between them that hides for a millisecond, on 4 chips that are all alike.
fn pod() -> (Program, Cluster, PodProfile) {
    let buffer = |offset, bytes, kind, live| Buffer { offset, bytes, kind, live };
    let program = Program {
        ops: vec![op("dot.0", 1 << 40), op("add.1", 0)],
        transfers: vec![TransferInfo {
            name: "all_gather.0".into(),
            source: String::new(),
            location: String::new(),
            axes: "fsdp".into(),
            queue: 0,
            bytes: 1 << 20,
            flags: 1,
        }],
        buffers: vec![
            buffer(0, 1 << 30, BufferKind::Param(0), (0, 1)),
            buffer(0, 1 << 30, BufferKind::Output(0), (0, 1)),
            buffer(1 << 30, 1 << 29, BufferKind::Temp, (0, 0)),
            buffer(3 << 29, 1 << 28, BufferKind::Temp, (1, 1)),
        ],
        hbm_peak_bytes: (3 << 29) + (1 << 28),
        ..Program::default()
    };
    let chip = ChipSpec::load("v5e").unwrap();
    let cluster = Cluster { slice: Topology::parse(&chip, "2x2").unwrap(), slices: 1 };
    let device = DeviceProfile {
        device: DeviceId(0),
        members: 4,
        ops: vec![run(0, 0, 4), run(1, 6, 9)],
        op_totals: vec![(1, Picos(4 * MS)), (1, Picos(3 * MS))],
        transfers: vec![run(0, 3, 6)],
        transfer_totals: vec![(1, Picos(3 * MS), Picos(2 * MS))],
        end: Picos(10 * MS),
    };
    let mut ports = [Usage::default(); PORTS];
    ports[0] = Usage { busy: Picos(5 * MS), bytes: 1 << 20 };
    let profile = PodProfile {
        end: Picos(10 * MS),
        devices: vec![device],
        class: vec![DeviceId(0); 4],
        chip_class: vec![ChipId(0); 4],
        ports: vec![ports; 4],
        ..PodProfile::default()
    };
    (program, cluster, profile)
}

fn read(path: &std::path::Path) -> String {
    std::fs::read_to_string(path.with_extension("csv")).unwrap()
}

// Oracle: the times and sizes of the pod above, by hand.
#[test]
fn a_step_is_drawn_by_class_and_memory() {
    let (program, cluster, profile) = pod();
    let report = PodReport::new(&program, &ChipSpec::load("v5e").unwrap(), &cluster, &profile, "time");
    let parts = [report.hbm_arguments_bytes, report.hbm_constants_bytes, report.hbm_temporaries_bytes];
    assert_eq!(parts, [1 << 30, 0, (1 << 29) + (1 << 28)]);
    assert_eq!(report.bound().0, "MXU");
    for extension in ["svg", "png"] {
        let path = sample::folder().join(format!("pod.{extension}"));
        figure::pod(&path, &report, &program, &profile).unwrap();
        let csv = read(&path);
        let rows: Vec<Vec<f64>> =
            csv.lines().skip(1).map(|l| l.split(',').map(|v| v.parse().unwrap()).collect()).collect();
        let mean = |column: usize| rows.iter().map(|r| r[column]).sum::<f64>() / rows.len() as f64;
        for (column, want) in [(1, 0.4), (2, 0.3), (3, 0.2), (4, 0.1)] {
            assert!((mean(column) - want).abs() < 1e-9, "{column}: {} for {want}", mean(column));
        }
        let held = |share: f64| rows[(share * rows.len() as f64) as usize][5] as u64;
        assert_eq!([held(0.1), held(0.5), held(0.7)], [3 << 29, 1 << 30, (1 << 30) + (1 << 28)]);
    }
}

// Oracle: the files' own headers and the numbers that went in.
#[test]
fn links_scaling_and_correlation_are_drawn() {
    let (_, cluster, profile) = pod();
    for extension in ["svg", "png"] {
        let at = |name: &str| sample::folder().join(format!("{name}.{extension}"));
        figure::links(&at("links"), &cluster, &profile).unwrap();
        assert!(read(&at("links")).contains("0,3,1,1,0,x+,0.5,1048576"), "{}", read(&at("links")));
        let points = [256, 512, 1024].map(|chips| ScalePoint { chips, tokens_per_s_chip: 9e3, mfu: 0.4 });
        figure::scaling(&at("scaling"), "a model", &points).unwrap();
        assert!(read(&at("scaling")).contains("512,9000,0.4"));
        let point = |measured: f64| Correlation {
            name: "run".into(),
            group: "v5e".into(),
            measured,
            predicted: 1.1 * measured,
        };
        figure::correlation(&at("correlation"), "time of a step", &[point(1.0), point(30.0)]).unwrap();
        assert!(read(&at("correlation")).contains("run,v5e,30,33"));
    }
    let empty = figure::links(&sample::folder().join("none.svg"), &cluster, &PodProfile::default());
    assert!(empty.unwrap_err().to_string().contains("nothing crossed a link"));
}

// Oracle: a reader of the format, and the runs that went in.
#[test]
fn devices_of_a_pod_are_traced() {
    let (program, _, profile) = pod();
    let device = |name: &str| perfetto::Device { name: name.into(), profile: &profile.devices[0] };
    let mut bytes = Vec::new();
    perfetto::encode_pod(&program, &[device("chip 0"), device("chip 3, as device 0")], &mut bytes).unwrap();
    let (found, tracks) = slices(&Trace::decode(bytes.as_slice()).unwrap());
    let names: Vec<&str> = tracks.values().filter_map(|t| t.process.as_ref()?.process_name.as_deref()).collect();
    assert_eq!(names, ["chip 0", "chip 3, as device 0"]);
    let of = |name: &str| found.iter().filter(|s| s.name == name).map(|s| (s.start, s.end)).collect::<Vec<_>>();
    assert_eq!(of("dot.0"), [(0, 4_000_000); 2]);
    assert_eq!(of("all_gather.0"), [(3_000_000, 6_000_000); 2]);
}
