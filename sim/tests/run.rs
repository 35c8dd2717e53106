//! Whole small programs: data against plain arithmetic, time against closed forms.

mod common;

use common::*;
use tpusim_isa::op::Op;
use tpusim_isa::program::{BufferKind, DmaDir, Program, SReg};
use tpusim_sim::profile::{Stall, Unit};
use tpusim_sim::{FaultKind, RunOptions, execute, time};

/// `out = a + a * 2` over `n` registers of 8 x 128 elements, one DMA in, a loop, one DMA out.
fn triple(chip: &tpusim_isa::chip::ChipSpec, n: u32) -> Program {
    let bytes = u64::from(n) * 4096;
    let mut body = seq(vec![i(Op::Dma, &[0, 0]), i(Op::DmaWait, &[0, 1]), i(Op::SLi, &[5, 0])]);
    body.push(repeat(
        4,
        n,
        vec![
            bundle(vec![i(Op::VLd, &[0, 5, 0, 1])]),
            bundle(vec![i(Op::VAddF, &[1, 0, 0])]),
            bundle(vec![i(Op::VAddF, &[1, 1, 0])]),
            bundle(vec![i(Op::SAddi, &[5, 5, 8]), i(Op::VSt, &[1, 5, 0, 1])]),
        ],
    ));
    body.extend(seq(vec![i(Op::Dma, &[1, 1]), i(Op::DmaWait, &[1, 1])]));
    let mut p = program(chip, body);
    p.descs = vec![dense(DmaDir::Load, 8 * n, 128, 0, 0), dense(DmaDir::Store, 8 * n, 128, bytes as i64, 0)];
    p.buffers = vec![buffer(0, bytes, BufferKind::Param(0)), buffer(bytes, bytes, BufferKind::Output(0))];
    p
}

// Oracle: plain arithmetic, under every option that must not change results.
#[test]
fn computes() {
    let chip = bare("v5e");
    let p = triple(&chip, 20);
    let x: Vec<f32> = (0..20 * 1024).map(|k| k as f32 * 0.37 - 100.0).collect();
    let want: Vec<f32> = x.iter().map(|v| (v + v) + v).collect();
    let base = time(&p, &chip, &RunOptions::default()).unwrap();
    for (fold, poison, dma_late) in
        [(true, false, false), (false, false, false), (true, true, false), (true, false, true), (false, true, true)]
    {
        let opts = RunOptions { fold, poison, dma_late, ..RunOptions::default() };
        let r = execute(&p, &chip, &[words(&x)], &opts).unwrap();
        assert_eq!(floats(&r.outputs[0]), want);
        assert_eq!(r.profile.cycles, base.cycles);
        assert_eq!(r.profile.ops, base.ops);
    }
}

// Oracle: latencies and rates of the chip file added by hand.
#[test]
fn takes_the_time_it_should() {
    let chip = bare("v5e");
    let n = 1000;
    let p = triple(&chip, n);
    let r = time(&p, &chip, &RunOptions::default()).unwrap();
    let bytes = f64::from(n) * 4096.0;
    let rate = *chip.hbm.bps_chip as f64 / *chip.clock_hz as f64;
    let latency = chip.cycles(*chip.hbm.latency_s);
    let read = (bytes / (rate * *chip.hbm.read_efficiency)).ceil() as u64;
    let write = (bytes / (rate * *chip.hbm.write_efficiency)).ceil() as u64;
    // Each iteration: load, its latency to the first add, two dependent adds, the store, the branch.
    let l = &chip.latency;
    let per = u64::from(*l.vload + 2 * *l.valu_float) + 1 + u64::from(*l.branch);
    // The DMA issues at cycle 0 and the wait when it has landed; one bundle sets the address; the second DMA follows the loop.
    let want = read + latency + 2 + u64::from(n) * per + write + latency + 1;
    assert_eq!(r.cycles, want);
    let op = &r.ops[0];
    assert_eq!((op.hbm_read, op.hbm_written), (bytes as u64, bytes as u64));
    assert_eq!(op.busy[Unit::Hbm as usize], read + write);
    assert_eq!(op.busy[Unit::Vpu as usize], 2 * u64::from(n));
    assert_eq!(op.bundles, 4 * u64::from(n) + 5);
    let stalls: u64 = op.stalls.iter().sum();
    assert_eq!(stalls + op.bundles, r.cycles);
    assert_eq!(op.stalls[Stall::Branch as usize], u64::from(n) * u64::from(*l.branch));
}

// Oracle: each mistake is named.
#[test]
fn faults_are_named() {
    let chip = bare("v5e");
    let kind = |instrs| *time(&program(&chip, seq(instrs)), &chip, &RunOptions::default()).unwrap_err().kind;
    assert_eq!(kind(vec![i(Op::EPop, &[0])]), FaultKind::EmptyQueue { unit: "EUP result" });
    assert_eq!(kind(vec![i(Op::DmaWait, &[3, 2])]), FaultKind::Deadlock { flag: 3, wanted: 2, coming: 0 });
    assert!(matches!(kind(vec![i(Op::VMov, &[0, 99])]), FaultKind::Operand { what: "vector register", index: 99, .. }));
    assert!(matches!(kind(vec![i(Op::MxPush, &[0, 0, 77, 0])]), FaultKind::UnknownFormat { code: 77, .. }));
    assert!(matches!(kind(vec![i(Op::MxMul, &[0, 0, 0, 0]); 40]), FaultKind::QueueFull { unit: "MXU", .. }));
    assert!(matches!(kind(vec![i(Op::Dma, &[0, 0])]), FaultKind::Operand { what: "descriptor", .. }));
    let xlu = vec![i(Op::XPose, &[0, 0]), i(Op::XRot, &[0, 0, 1])];
    assert_eq!(kind(xlu), FaultKind::BrokenTranspose { xlu: 0, pushes: 1 });
    let p = program(&chip, seq(vec![i(Op::SLi, &[2, -1]), i(Op::VLd, &[0, 2, 0, 1])]));
    let f = execute(&p, &chip, &[], &RunOptions::default()).unwrap_err();
    assert!(matches!(*f.kind, FaultKind::Vmem { first: -1, last: 6, .. }), "{f}");
    assert_eq!((f.pc.as_slice(), f.op.as_deref()), ([0, 1].as_slice(), Some("op")));
    let p = triple(&chip, 2);
    let f = execute(&p, &chip, &[vec![0; 5]], &RunOptions::default()).unwrap_err();
    assert_eq!(*f.kind, FaultKind::InputSize { index: 0, got: 5, want: 8192 });
    let f = execute(&p, &chip, &[], &RunOptions::default()).unwrap_err();
    assert_eq!(*f.kind, FaultKind::InputMissing { index: 0, given: 0 });
}

// Oracle: all of a bundle reads before any of it writes: a swap swaps.
#[test]
fn a_bundle_swaps() {
    let chip = bare("v5e");
    let mut body = seq(vec![i(Op::VImm, &[0, 7]), i(Op::VLaneId, &[1])]);
    body.push(bundle(vec![i(Op::VMov, &[0, 1]), i(Op::VMov, &[1, 0])]));
    body.extend(seq(vec![i(Op::VSt, &[0, 0, 0, 1]), i(Op::VSt, &[1, 0, 8, 1]), i(Op::Dma, &[0, 0])]));
    let mut p = program(&chip, body);
    p.descs = vec![dense(DmaDir::Store, 16, 128, 0, 0)];
    p.buffers = vec![buffer(0, 8192, BufferKind::Output(0))];
    let r = execute(&p, &chip, &[], &RunOptions::default()).unwrap();
    let got: Vec<u32> = r.outputs[0].chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
    assert!(got[..1024].iter().enumerate().all(|(k, x)| *x == k as u32 % 128));
    assert!(got[1024..].iter().all(|x| *x == 7));
}

// Oracle: two cores that take half each do what one does, in the time of their share.
#[test]
fn a_megacore_splits_by_core_index() {
    let chip = bare("v4");
    let mut p = triple(&chip, 20);
    p.ops[0].cores = 2;
    for d in &mut p.descs {
        d.rows = 80;
        d.hbm.terms = vec![(SReg(1), 80 * 512)];
    }
    let tpusim_isa::program::Node::Op { body, .. } = &mut p.body[0] else { panic!() };
    for n in body.iter_mut() {
        if let tpusim_isa::program::Node::Loop { trip, .. } = n {
            *trip = 10;
        }
    }
    let x: Vec<f32> = (0..20 * 1024).map(|k| k as f32).collect();
    let r = execute(&p, &chip, &[words(&x)], &RunOptions::default()).unwrap();
    assert_eq!(floats(&r.outputs[0]), x.iter().map(|v| 3.0 * v).collect::<Vec<_>>());
    assert_eq!(r.profile.ops[0].hbm_read, 20 * 4096);
    assert_eq!(r.profile, time(&p, &chip, &RunOptions::default()).unwrap());
}

// Oracle: with two transfers in flight the memory never idles: n x bytes / rate, and one latency.
#[test]
fn double_buffering_hides_latency() {
    let chip = bare("v5e");
    let n = 500;
    let next = vec![bundle(vec![i(Op::DmaWait, &[0, 1])]), bundle(vec![i(Op::Dma, &[0, 0])])];
    let mut body = seq(vec![i(Op::Dma, &[0, 0]), i(Op::Dma, &[0, 0])]);
    body.push(repeat(4, n - 2, next));
    body.extend(seq(vec![i(Op::DmaWait, &[0, 1]), i(Op::DmaWait, &[0, 1])]));
    let mut p = program(&chip, body);
    p.descs = vec![dense(DmaDir::Load, 1024, 128, 0, 0)];
    let opts = RunOptions { trace_spans: 100, ..RunOptions::default() };
    let r = time(&p, &chip, &opts).unwrap();
    let rate = *chip.hbm.bps_chip as f64 / *chip.clock_hz as f64 * *chip.hbm.read_efficiency;
    let service = (524_288.0 / rate).ceil() as u64;
    let latency = chip.cycles(*chip.hbm.latency_s);
    assert!(service > latency + 20, "the oracle needs transfers longer than the latency");
    // The last wait issues when the last transfer has landed.
    assert_eq!(r.cycles, u64::from(n) * service + latency + 1);
    assert_eq!(r.ops[0].busy[Unit::Hbm as usize], u64::from(n) * service);
    let hbm: Vec<_> = r.spans.iter().filter(|s| s.unit == Unit::Hbm).collect();
    assert_eq!(hbm.iter().map(|s| s.bytes).sum::<u64>(), u64::from(n) * 524_288);
    assert_eq!(hbm.iter().map(|s| s.busy).sum::<u64>(), u64::from(n) * service);
}

// Oracle: (passes - 1) x interval + latency, and 8 rows more for the second result, for each chip's rates.
#[test]
fn products_take_passes_times_interval() {
    for name in ["v4", "v5e", "v6e", "v7x"] {
        let chip = bare(name);
        let results = 2 * *chip.mxu.dim / 128;
        let passes = *chip.mxu.result_queue / results;
        let mut body = seq(vec![i(Op::MxMul, &[0, 0, 1, 0]); passes as usize]);
        body.extend(seq(vec![i(Op::MxPop, &[0, 2]); (passes * results) as usize]));
        let r = time(&program(&chip, body), &chip, &RunOptions::default()).unwrap();
        let interval = u64::from(16 / *chip.mxu.rows_per_cycle_16bit);
        let streamed = u64::from(passes - 1) * interval;
        let count = u64::from(passes * results);
        let halves = u64::from(*chip.mxu.dim / 128);
        // Pops start behind the last product, one a cycle, each not before its own result.
        let ready = (0..count).map(|k| {
            let (pass, group) = (k / u64::from(results), k % u64::from(results) / halves);
            pass * interval + u64::from(*chip.mxu.latency) + group * interval / 2 + (count - k)
        });
        let want = ready.max().unwrap().max(streamed + 1 + count);
        assert_eq!(r.cycles, want, "{name}");
        assert_eq!(r.ops[0].busy[Unit::Mxu as usize], u64::from(passes) * interval);
    }
}

// Oracle: what was loaded. A register keeps its contents when the rows it came from change: by a store in the same bundle or a
// later one, plain, masked or strided, to some of the rows, or by a DMA; and a store of it elsewhere writes them.
#[test]
fn loaded_registers_keep_their_contents() {
    let chip = bare("v5e");
    let load = |d, row| i(Op::VLd, &[d, 0, row, 1]);
    let store = |s, row, stride| i(Op::VSt, &[s, 0, row, stride]);
    let mut body = seq(vec![i(Op::Dma, &[0, 0]), i(Op::DmaWait, &[0, 1]), i(Op::VImm, &[9, 7]), i(Op::SLi, &[5, 8])]);
    // v0 to v5 are rows 0..8, 8..16, ... 40..48; each loses its rows in another way.
    body.push(bundle(vec![load(0, 0), i(Op::VMov, &[8, 9])]));
    body.push(bundle(vec![load(1, 8), store(9, 0, 1)]));
    body.extend(seq(vec![store(9, 15, 1), load(2, 16), load(3, 24), i(Op::MLaneLt, &[0, 5, 0])]));
    body.extend(seq(vec![i(Op::VStM, &[9, 0, 17, 1, 0]), store(9, 31, -1), load(4, 32), load(5, 40), store(9, 3, 11)]));
    body.extend(seq(vec![load(6, 48), i(Op::VMov, &[7, 6]), store(6, 52, 1), i(Op::VXor, &[6, 6, 7])]));
    body.extend(seq(vec![i(Op::Dma, &[1, 0]), i(Op::DmaWait, &[0, 1])]));
    body.extend(seq((0..7).map(|k| store(k, 1000 + 8 * k, 1)).collect()));
    body.extend(seq(vec![i(Op::Dma, &[2, 0]), i(Op::DmaWait, &[0, 1])]));
    let mut p = program(&chip, body);
    p.descs = vec![
        dense(DmaDir::Load, 60, 128, 0, 0),
        dense(DmaDir::Load, 8, 128, 0, 44),
        dense(DmaDir::Store, 56, 128, 60 * 512, 1000),
    ];
    p.buffers = vec![buffer(0, 60 * 512, BufferKind::Param(0)), buffer(60 * 512, 56 * 512, BufferKind::Output(0))];
    let x: Vec<f32> = (0..60 * 128).map(|k| k as f32 + 1.0).collect();
    let seven = f32::from_bits(7);
    let mut want = x[..56 * 128].to_vec();
    // The store at 15 overwrote nothing that v1 had not loaded; v2 came after it. What v3 to v5 lost they had loaded before.
    want[16 * 128..23 * 128].fill(seven);
    // v6 was xored with its own copy.
    want[48 * 128..].fill(0.0);
    // v4 and v5 came after nothing touched their rows.
    for (poison, dma_late) in [(false, false), (true, false), (false, true)] {
        let opts = RunOptions { poison, dma_late, ..RunOptions::default() };
        let got = floats(&execute(&p, &chip, &[words(&x)], &opts).unwrap().outputs[0]);
        for (row, (g, w)) in got.chunks(128).zip(want.chunks(128)).enumerate() {
            assert_eq!(g, w, "row {row}");
        }
    }
}
