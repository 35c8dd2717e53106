//! Speed of the vector data path on the host, beside a plain copy of the same bytes; and of the timing engine.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::{Instr, Op};
use tpusim_isa::program::{Bundle, Node, Program, SReg};
use tpusim_sim::{RunOptions, execute, time};

/// Registers per pass.
const N: u32 = 1000;

fn stream(chip: &ChipSpec, ops: Vec<Instr>) -> Program {
    let mut body = vec![bundle(Instr::new(Op::VLd, &[0, 5, 0, 1]))];
    body.extend(ops.into_iter().map(bundle));
    body.push(Node::Bundle(Bundle {
        instrs: vec![Instr::new(Op::SAddi, &[5, 5, 8]), Instr::new(Op::VSt, &[1, 5, 0, 1])],
    }));
    Program {
        chip: chip.name.clone(),
        body: vec![Node::Loop {
            counter: SReg(3),
            trip: 10,
            body: vec![bundle(Instr::new(Op::SLi, &[5, 0])), Node::Loop { counter: SReg(4), trip: N, body }],
        }],
        ..Program::default()
    }
}

fn bundle(i: Instr) -> Node {
    Node::Bundle(Bundle { instrs: vec![i] })
}

fn vector(c: &mut Criterion) {
    let chip = ChipSpec::load("v5e").expect("a built-in chip");
    let mut g = c.benchmark_group("vector");
    g.throughput(Throughput::Bytes(10 * u64::from(N) * 8192));
    let words = N as usize * 1024;
    let source = vec![1u32; words];
    let mut target = vec![0u32; words];
    g.bench_function("memcpy", |b| {
        b.iter(|| {
            for _ in 0..10 {
                target.copy_from_slice(black_box(&source));
                black_box(&mut target);
            }
        });
    });
    let cases = [
        ("load add store", vec![Instr::new(Op::VAddF, &[1, 0, 0])]),
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
    for (name, ops) in cases {
        let p = stream(&chip, ops);
        g.bench_function(name, |b| {
            b.iter(|| execute(&p, &chip, &[], &RunOptions::default()).expect("a correct program"));
        });
    }
    g.finish();
    let p = stream(&chip, vec![Instr::new(Op::VAddF, &[1, 0, 0])]);
    let mut g = c.benchmark_group("timing");
    g.throughput(Throughput::Elements(10 * u64::from(N) * 3));
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
    targets = vector
}
criterion_main!(benches);
