//! Speed of the vector data path on the host, beside a plain copy of the same bytes; and of the timing engine.
//!
//! The loop that counts is what compiled programs run: two loads, an add, a store, over three arrays in VMEM that are larger than
//! the host's inner caches. Its speed is the bytes that the program moves, loads plus stores (12 KiB for each register of the
//! result), over the time of a whole run, decoding and timing included. The copy moves the same bytes, read plus written: it copies
//! one and a half arrays to as many. The last line is the ratio of the two; half is the goal.

#![allow(clippy::print_stdout)]

mod common;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::{Instr, Op};
use tpusim_isa::program::{Bundle, Node, Program, SReg};
use tpusim_sim::{RunOptions, execute, time};

/// Registers per pass.
const N: u32 = 1000;
/// Passes over the arrays: many, so that the host's page faults at the first touch of VMEM do not count.
const PASSES: u32 = 100;
/// Bytes of an array.
const ARRAY: usize = N as usize * 4096;

/// A loop over registers of one or, with `second`, two arrays: loads, `ops`, and a store of `v1` to the array behind.
fn stream(chip: &ChipSpec, second: bool, ops: Vec<Instr>) -> Program {
    let rows = N as i32 * 8;
    let mut body = vec![bundle(Instr::new(Op::VLd, &[0, 5, 0, 1]))];
    if second {
        body.push(bundle(Instr::new(Op::VLd, &[2, 5, rows, 1])));
    }
    body.extend(ops.into_iter().map(bundle));
    body.push(Node::Bundle(Bundle {
        instrs: vec![Instr::new(Op::SAddi, &[5, 5, 8]), Instr::new(Op::VSt, &[1, 5, 2 * rows, 1])],
    }));
    Program {
        chip: chip.name.clone(),
        body: vec![Node::Loop {
            counter: SReg(3),
            trip: PASSES,
            body: vec![bundle(Instr::new(Op::SLi, &[5, 0])), Node::Loop { counter: SReg(4), trip: N, body }],
        }],
        ..Program::default()
    }
}

fn add(chip: &ChipSpec) -> Program {
    stream(chip, true, vec![Instr::new(Op::VAddF, &[1, 0, 2])])
}

fn bundle(i: Instr) -> Node {
    Node::Bundle(Bundle { instrs: vec![i] })
}

fn run(p: &Program, chip: &ChipSpec) {
    black_box(execute(p, chip, &[], &RunOptions::default()).expect("a correct program"));
}

fn vector(c: &mut Criterion) {
    let chip = ChipSpec::load("v5e").expect("a built-in chip");
    let mut g = c.benchmark_group("vector");
    let cases = [
        ("load max store", vec![Instr::new(Op::VMaxF, &[1, 0, 0])]),
        ("load floor store", vec![Instr::new(Op::VFloor, &[1, 0])]),
        ("load round-bf16 store", vec![Instr::new(Op::VRound, &[1, 0, 0])]),
        ("load compare select store", vec![Instr::new(Op::VLtF, &[1, 0, 2]), Instr::new(Op::VSel, &[1, 1, 0, 2])]),
        ("load pow2 store", vec![Instr::new(Op::EPow2, &[0]), Instr::new(Op::EPop, &[1])]),
        ("load lane-sum store", vec![Instr::new(Op::XSumF, &[0, 0]), Instr::new(Op::XPop, &[0, 1])]),
        (
            "load unpack pack store",
            vec![Instr::new(Op::VUnpack, &[1, 0, 0, 1]), Instr::new(Op::VPack, &[1, 1, 0, 0, 1])],
        ),
    ];
    g.throughput(Throughput::Bytes(u64::from(PASSES) * 2 * ARRAY as u64));
    for (name, ops) in cases {
        let p = stream(&chip, false, ops);
        g.bench_function(name, |b| b.iter(|| run(&p, &chip)));
    }
    g.throughput(Throughput::Bytes(u64::from(PASSES) * 3 * ARRAY as u64));
    let p = add(&chip);
    g.bench_function("load load add store", |b| b.iter(|| run(&p, &chip)));
    let source = vec![1u8; ARRAY / 2 * 3];
    let mut target = vec![0u8; ARRAY / 2 * 3];
    let mut copy = || {
        for _ in 0..PASSES {
            target.copy_from_slice(black_box(&source));
            black_box(&mut target);
        }
    };
    g.bench_function("memcpy", |b| b.iter(&mut copy));
    g.finish();
    let bytes = f64::from(PASSES) * 3.0 * ARRAY as f64;
    let loops = Box::new(|| run(&p, &chip));
    common::ratio("vector loop", "B", bytes, ("load load add store", loops), ("memcpy", Box::new(copy)));
}

fn timing(c: &mut Criterion) {
    let chip = ChipSpec::load("v5e").expect("a built-in chip");
    let p = add(&chip);
    let mut g = c.benchmark_group("timing");
    g.throughput(Throughput::Elements(u64::from(PASSES) * u64::from(N) * 4));
    for fold in [true, false] {
        g.bench_function(format!("bundles, fold {fold}"), |b| {
            b.iter(|| time(&p, &chip, &RunOptions { fold, ..RunOptions::default() }).expect("a correct program"));
        });
    }
    g.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(std::time::Duration::from_secs(1)).sample_size(10);
    targets = vector, timing
}
criterion_main!(benches);
