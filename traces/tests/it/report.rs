use tpusim_isa::program::{FlowInfo, FlowKind, Program};
use tpusim_sim::profile::{Assumed, Assumption, Profile, Stall, Unit};
use tpusim_traces::perfetto::Core;
use tpusim_traces::report::{Bound, PerUnit, Report, TextOptions};

use crate::sample;

fn report() -> Report {
    Report::new(&sample::program(), &sample::chip(), &sample::profile(), "timing")
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-6 * b.abs().max(1e-12), "{a} is not {b}");
}

// Oracle: closed forms over the sample's numbers. Peak of v5e: 4 MXUs x 2 x 128 x 128 FLOPs a cycle.
#[test]
fn totals_follow_from_the_profile() {
    let r = report();
    assert_eq!((r.cycles, r.ops.len()), (97_000, 6));
    near(r.time_s, 97_000.0 / 1.5e9);
    let useful_cycles = 0.9 * 27_600.0 + 2.0 * 0.4 * 7_000.0;
    near(r.mfu, useful_cycles / 97_000.0);
    near(r.mxu_useful_fraction.unwrap(), useful_cycles / (27_600.0 + 14_000.0));
    near(r.modelled_fraction, 18_000.0 / 97_000.0);
    near(r.hbm_bandwidth_peak_bytes_per_s, 819e9);
    near(r.hbm_bandwidth_bytes_per_s, (r.hbm_bytes_read + r.hbm_bytes_written) as f64 / r.time_s);
    near(r.vpu_peak_flops_per_s, 1024.0 * 4.0 * 1.5e9);
    near(r.utilization.get(Unit::Mxu), (27_600.0 + 14_000.0) / 97_000.0);
    assert_eq!(r.stall_cycles.get(Stall::Launch), 6 * 1500);
    let padded = &r.ops[4];
    assert_eq!((padded.occurrence, padded.start_cycle, padded.cycles), (1, 67_000, 10_000));
    near(padded.mxu_useful_fraction.unwrap(), 0.4);
    near(padded.mfu, 0.28);
}

// Oracle: the weighting written out: an op at its own peak has MFU 1 whatever its type.
#[test]
fn mfu_holds_each_type_against_its_own_peak() {
    use tpusim_isa::num::DType;
    let (mut program, chip, mut profile) = (sample::program(), sample::chip(), sample::profile());
    for (op, dtype) in [(0, DType::BF16), (1, DType::I8)] {
        program.ops[op].dtype = dtype;
        let seconds = (profile.ops[op].end - profile.ops[op].start) as f64 / 1.5e9;
        program.ops[op].mxu_flops = (chip.peak_flops_device(dtype) * seconds).round() as u64;
    }
    profile.ops.truncate(2);
    profile.cycles = profile.ops[1].end;
    near(Report::new(&program, &chip, &profile, "").mfu, 1.0);
}

// Oracle: the rule in the module's documentation.
#[test]
fn bounds() {
    let names: Vec<&str> = report().ops.iter().map(|o| o.bound.name()).collect();
    assert_eq!(names, ["MXU", "HBM", "latency", "MXU", "MXU", "latency"]);
    let of = |list: &[(Unit, f64)]| {
        let mut shares = PerUnit::default();
        list.iter().for_each(|(u, s)| shares.0[*u as usize] = *s);
        Bound::of(&shares)
    };
    assert_eq!(of(&[(Unit::VStore, 0.9), (Unit::Vpu, 0.1), (Unit::Hbm, 0.7)]), Bound::Vpu);
    assert_eq!(of(&[(Unit::Scalar, 1.0), (Unit::Eup, 0.59)]), Bound::Latency);
    assert_eq!(of(&[(Unit::Eup, 0.6)]), Bound::Eup);
    assert_eq!(of(&[(Unit::Xlu, 0.8)]), Bound::Xlu);
    assert_eq!(of(&[]), Bound::Latency);
}

// Oracle: the names that readers of the file rely on.
#[test]
fn json_has_the_fields() {
    let json: serde_json::Value = serde_json::from_str(&report().to_json().unwrap()).unwrap();
    for key in [
        "chip",
        "cycles",
        "time_s",
        "flops",
        "mfu",
        "hbm_bytes_read",
        "hbm_bytes_written",
        "hbm_peak_bytes",
        "vmem_peak_bytes",
        "modelled_fraction",
        "hbm_bandwidth_bytes_per_s",
        "advice",
    ] {
        assert!(!json[key].is_null(), "{key}");
    }
    assert_eq!(json["ops"][0]["utilization"]["MXU"], 0.92);
    assert_eq!(json["ops"][2]["bound"], "latency");
    assert_eq!(json["ops"][5]["stall_cycles"]["modelled"], 18_000);
    assert_eq!(json["ops"][0]["location"], "model.py:12");
}

// Oracle: the layout that is promised: width, limit, no colour codes unless asked.
#[test]
fn text_fits_and_says_what_to_do() {
    let r = report();
    let text = r.text(TextOptions { top: 3, color: false });
    tpusim_traces::atomic::write_bytes(&sample::folder().join("report.txt"), r.text(TextOptions::default()).as_bytes())
        .unwrap();
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    assert!(!text.contains('\u{1b}'));
    for part in ["64.7 µs", "97,000 cycles", "of 819 GB/s", "3.00 GiB of 15.5 GiB", "and 2 more operations", "modelled"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(text.contains("dot_general.4 x2"), "{text}");
    assert!(r.text(TextOptions { top: 9, color: true }).contains('\u{1b}'));
    assert!((1..=3).contains(&r.advice.len()));
    assert!(r.advice[0].starts_with("MXU-bound for 52 %"), "{:?}", r.advice);
}

// Oracle: the sentences by hand; 97,000 of 100,000 cycles are operations.
#[test]
fn assumptions_are_listed() {
    let (mut program, chip, mut p) = (sample::program(), sample::chip(), sample::profile());
    assert!(report().assumptions.is_empty() && report().control_fraction.is_none());
    let flow = |name: &str| FlowInfo { name: name.to_owned(), location: String::new(), kind: FlowKind::While };
    program.flows = vec![flow("stablehlo.while")];
    p.cycles = 100_000;
    let assume = |flow, key: &str, location: &str, what| Assumption {
        flow,
        key: key.to_owned(),
        name: "stablehlo.x".to_owned(),
        location: location.to_owned(),
        what,
    };
    p.assumed = vec![
        assume(0, "while.0", "f.py:3", Assumed::Trips(20)),
        assume(1, "case.1", "", Assumed::Branch(2)),
        assume(2, &"long".repeat(40), "f.py:9", Assumed::Longest(0)),
    ];
    p.assumed.extend((0..10).map(|k| assume(3 + k, "while.3", "", Assumed::Trips(k))));
    let r = Report::new(&program, &chip, &p, "");
    assert_eq!(r.assumptions[0], "while.0 (stablehlo.x at f.py:3) runs 20 times");
    assert_eq!(r.assumptions[1], "case.1 (stablehlo.x) takes branch 2");
    assert!(r.assumptions[2].ends_with(" (stablehlo.x at f.py:9) takes branch 0, the longest"));
    assert_eq!(r.assumptions[4], "while.3 (stablehlo.x) runs once");
    near(r.control_fraction.unwrap(), 0.03);
    let text = r.text(TextOptions::default());
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    for part in
        ["  assumed     while.0 (", "              and 5 more\n", "  control     3.0 % of the time outside operations"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

// Oracle: each cause alone is named.
#[test]
fn advice_names_the_cause() {
    let (program, chip) = (sample::program(), sample::chip());
    let only = |op: usize, change: fn(&mut Profile)| {
        let mut p = sample::profile();
        let one = p.ops.swap_remove(op);
        p.cycles = one.end - one.start;
        p.ops = vec![one];
        change(&mut p);
        Report::new(&program, &chip, &p, "").advice.join("\n")
    };
    let none: fn(&mut Profile) = |_| {};
    assert!(only(1, none).contains("HBM-bound for 100 %"), "{}", only(1, none));
    assert!(only(2, none).contains("waiting for the XLU takes 58 %"), "{}", only(2, none));
    assert!(only(3, none).contains("60 % of the work of the MXU is lost to padding"), "{}", only(3, none));
    assert!(only(5, none).contains("90 % of the time comes from formulas"), "{}", only(5, none));
    let launch = only(2, |p| p.ops[0].stalls[Stall::Launch as usize] = 7_440);
    assert!(launch.contains("Launch overhead is 62 % of the time: 1 operation of 8.00 µs"), "{launch}");
}

// Oracle: no numbers without a run, and no panic.
#[test]
fn empty_and_foreign_profiles() {
    let empty = Report::new(&Program::default(), &sample::chip(), &Profile::default(), "");
    assert_eq!((empty.mfu, empty.time_s, empty.advice.as_slice()), (0.0, 0.0, &["Nothing ran.".to_owned()][..]));
    assert!(!empty.text(TextOptions::default()).is_empty());
    let foreign = Report::new(&Program::default(), &sample::chip(), &sample::profile(), "");
    assert_eq!(foreign.ops[3].name, "op3");
    let mut backwards = sample::profile();
    backwards.ops[0].end = 0;
    backwards.ops[1].start = u64::MAX;
    assert!(Report::new(&sample::program(), &sample::chip(), &backwards, "").to_json().is_ok());
}

// Oracle: the promise that bad numbers and names neither panic nor spoil the output.
#[test]
fn absurd_profiles() {
    let (mut program, mut profile) = (sample::program(), sample::profile());
    program.ops[0].name = format!("a\n\u{1b}[31m{}", "long ".repeat(100));
    program.ops[0].location = "\t".repeat(300);
    program.ops[1].mxu_flops = u64::MAX;
    program.ops[2].modelled_cycles = u64::MAX;
    profile.ops[1].hbm_read = u64::MAX;
    profile.ops[1].busy = [u64::MAX; 8];
    profile.ops[2].stalls = [u64::MAX; 8];
    profile.ops[3].end = profile.ops[3].start;
    profile.ops[4].start = u64::MAX;
    profile.ops[5].end = u64::MAX;
    let dir = tempfile::tempdir().unwrap();
    for (cycles, window, instances) in [(97_000, 400, 4), (1, 0, 0), (u64::MAX, u64::MAX, u32::MAX)] {
        (profile.cycles, profile.series.window, profile.instances) = (cycles, window, [instances; 8]);
        let r = Report::new(&program, &sample::chip(), &profile, "timing");
        let text = r.text(TextOptions::default());
        assert!(text.lines().all(|l| l.chars().count() <= 100) && !text.contains('\u{1b}'), "{text}");
        assert!(r.ops.iter().all(|o| o.utilization.0.iter().all(|u| (0.0..=1.0).contains(u))));
        assert!(r.to_json().is_ok());
        let path = dir.path().join("a.svg");
        let _ = tpusim_traces::figure::roofline(&path, &r);
        let _ = tpusim_traces::figure::utilization(&path, &r, &profile);
        let core = Core { name: "c", program: &program, chip: &sample::chip(), profile: &profile };
        tpusim_traces::perfetto::encode(&[core], &mut Vec::new()).unwrap();
    }
}
