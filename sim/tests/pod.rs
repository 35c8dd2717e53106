//! Pods: transfers written by hand, held against plain Rust for data and closed forms for time.

use tpusim_isa::asm;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::Program;
use tpusim_isa::time::Picos;
use tpusim_isa::topology::{ChipId, Direction, Topology};
use tpusim_sim::FaultKind;
use tpusim_sim::network::{Cluster, Port};
use tpusim_sim::pod::{PodOptions, execute, time};

/// An all-gather of `bytes` per device round rings of `n` devices: each sends what it got last to the next, having heard that the next
/// is ready.
fn all_gather(chip: &str, groups: &[Vec<u32>], bytes: u64) -> Program {
    let n = groups[0].len();
    let list: Vec<String> = groups.iter().map(|g| format!("{g:?}")).collect();
    let whole = bytes * n as u64;
    let text = format!(
        r#"program "gather" chip "{chip}" hbm_peak {peak} vmem_peak 0
        transfer 0 "all-gather.0" source "" at "" axes "x" queue 0 bytes {whole} flags 2
        groups 0 {groups}
        peer 0 groups 0 shift 1
        peer 1 groups 0 shift -1
        table 0 position 0
        buffer 0 param 0 offset 0 bytes {bytes} live 0..0
        buffer 1 output 0 offset {bytes} bytes {whole} live 0..0
        send send0 peer 1 flag 0 bytes 0 from 0 to 0
        send send1 peer 0 flag 1 bytes {bytes} from {bytes} + s3*{bytes} to {bytes} + s3*{bytes}
        send send2 peer 2 flag 1 bytes {bytes} from 0 to {bytes} + s3*{bytes}
        peer 2 groups 0 shift 0
        code {{
          start 0 {{
            {{ s.dev s2, table0 }}
            {{ s.add s3, s2, s0 }}
            {{ dma.send send2 }}
            {{ dma.wait flag1, 1 }}
            {{ dma.send send0 }}
            {{ dma.wait flag0, 1 }}
            loop s4 = 0..{steps} {{
              {{ dma.send send1 }}
              {{ s.addi s3, s3, {back} }}
              {{ s.lti s5, s3, {n} }}
              {{ s.addi s6, s3, -{n} }}
              {{ s.sel s3, s5, s3, s6 }}
              {{ dma.wait flag1, 1 }}
            }}
          }}
          done 0
        }}"#,
        groups = list.join(" "),
        peak = bytes + whole,
        steps = n - 1,
        back = n - 1,
    );
    let p = asm::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let errors = tpusim_isa::check::check(&p, &ChipSpec::load(chip).unwrap());
    assert!(errors.is_empty(), "{errors:?}");
    p
}

fn cluster(chip: &str, shape: &str) -> (ChipSpec, Cluster) {
    let chip = ChipSpec::load(chip).unwrap();
    let slice = Topology::parse(&chip, shape).unwrap();
    (chip, Cluster { slice, slices: 1 })
}

/// Rings along x.
fn rows(c: &Cluster) -> Vec<Vec<u32>> {
    let x = c.slice.dims()[0];
    (0..c.devices() / x).map(|r| (0..x).map(|i| r * x + i).collect()).collect()
}

// Oracle: the shards one after the other.
#[test]
fn all_gather_gathers() {
    for (name, shape) in [("v5e", "4x2"), ("v5p", "4x2x1"), ("v5e", "16x16")] {
        let (chip, c) = cluster(name, shape);
        let groups = rows(&c);
        let p = all_gather(name, &groups, 64);
        let inputs: Vec<Vec<Vec<u8>>> =
            (0..c.devices()).map(|d| vec![(0..64).map(|i| (d * 7 + i) as u8).collect()]).collect();
        let run = execute(&p, &chip, &c, &inputs, &PodOptions::default()).unwrap();
        for g in &groups {
            let whole: Vec<u8> = g.iter().flat_map(|&d| inputs[d as usize][0].clone()).collect();
            g.iter().for_each(|&d| assert_eq!(run.outputs[d as usize][0], whole, "{name} {shape} device {d}"));
        }
    }
}

// Oracle: the bytes that cross each link over its rate, and for every step what a message of no bytes takes.
#[test]
fn a_ring_takes_its_bytes_and_its_hops() {
    let (chip, c) = cluster("v5p", "8x8x8");
    let groups = rows(&c);
    let (small, large) = (1 << 10, 64 << 20);
    let run = |bytes| time(&all_gather("v5p", &groups, bytes), &chip, &c, &PodOptions::default()).unwrap();
    let (a, b) = (run(small), run(large));
    let rate = 90e9 * 0.96;
    let want = 7.0 * (large - small) as f64 / rate;
    let got = (b.end - a.end).seconds();
    // Bytes to oneself take the way between dies, which has another rate.
    assert!((got / want - 1.0).abs() < 0.01, "{got} {want}");
    // Eight messages along a link, and one ahead to say that the receiver is ready.
    let hops = 8.0 * 1e-6;
    assert!(a.end.seconds() > hops && a.end.seconds() < hops + 10.0 * 1e-6, "{}", a.end);
    let up = Port::Ici(Direction { axis: 0, up: true }).index();
    assert_eq!(b.ports[0][up].bytes, 7 * large);
    assert_eq!(b.devices.len(), 1);
    assert_eq!(b.devices[0].members, 512);
}

// Oracle: the unfolded run.
#[test]
fn folding_changes_no_picosecond() {
    for (name, shape) in [("v5p", "4x4x4"), ("v5e", "8x8"), ("v7x", "4x4x2"), ("v5e", "2x4"), ("v4", "4x4x8_twisted")] {
        let (chip, c) = cluster(name, shape);
        let groups = match name {
            "v7x" => vec![(0..c.devices()).collect()],
            _ => rows(&c),
        };
        let p = all_gather(name, &groups, 4096);
        let mut opts = PodOptions::default();
        for failed in [false, true] {
            if failed {
                opts.failed.push((ChipId(0), Direction { axis: 0, up: true }));
            }
            let folded = time(&p, &chip, &c, &opts).unwrap();
            let all = time(&p, &chip, &c, &PodOptions { fold: false, ..opts.clone() }).unwrap();
            assert_eq!(folded.end, all.end, "{name} {shape}");
            for d in &all.devices {
                let class = folded.class[d.device.0 as usize];
                let like = folded.devices.iter().find(|x| x.device == class).unwrap();
                assert_eq!((d.end, &d.transfers), (like.end, &like.transfers), "{name} {shape} {:?}", d.device);
            }
            assert_eq!(folded.ports, all.ports, "{name} {shape}");
            assert!(folded.devices.len() <= all.devices.len());
        }
    }
}

#[test]
fn a_slow_chip_and_a_failed_link_cost_time() {
    let (chip, c) = cluster("v5p", "4x4x4");
    let p = all_gather("v5p", &rows(&c), 1 << 20);
    let plain = time(&p, &chip, &c, &PodOptions::default()).unwrap();
    let cut = PodOptions { failed: vec![(ChipId(0), Direction { axis: 0, up: true })], ..PodOptions::default() };
    assert!(time(&p, &chip, &c, &cut).unwrap().end > plain.end);
    let slow = PodOptions { slow: vec![(ChipId(3), 0.5)], ..PodOptions::default() };
    let slow = time(&p, &chip, &c, &slow).unwrap();
    assert!(slow.end > plain.end && slow.end < plain.end + Picos(1_000_000));
}

#[test]
fn who_waits_for_ever_is_named() {
    let (chip, c) = cluster("v5e", "2x2");
    let text = r#"program "stuck" chip "v5e" hbm_peak 0 vmem_peak 0
        transfer 0 "all-reduce.7" source "" at "" axes "" queue 0 bytes 0 flags 1
        code {
          start 0 { { dma.wait flag0, 2 } }
          done 0
        }"#;
    let e = time(&asm::parse(text).unwrap(), &chip, &c, &PodOptions::default()).unwrap_err();
    assert!(
        matches!(*e.kind, FaultKind::Malformed(ref m) if m.contains("all-reduce.7") && m.contains("flag 0")),
        "{e}"
    );
}
