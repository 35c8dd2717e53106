//! Speed of the MXU's data path on the host: the bare kernel, and whole `vmatmul` / `vmatpop` streams.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::{Instr, Op};
use tpusim_isa::program::{Bundle, Node, Program, SReg};
use tpusim_sim::mxu::kernel::{Aligned, multiply_f32};
use tpusim_sim::{RunOptions, execute};

fn kernels(c: &mut Criterion) {
    let mut g = c.benchmark_group("mxu");
    for dim in [128usize, 256] {
        let rows = 16;
        let x: Vec<f32> = (0..rows * dim).map(|i| (i % 251) as f32).collect();
        let w = Aligned::new(dim * dim, 1.5);
        let mut out = vec![0f32; rows * dim];
        // Elements per second are FLOP/s.
        g.throughput(Throughput::Elements((2 * rows * dim * dim) as u64));
        g.bench_function(format!("kernel f32 {rows}x{dim}x{dim}"), |b| {
            b.iter(|| multiply_f32(black_box(&x), black_box(w.get()), dim, &mut out));
        });
    }
    g.finish();
}

fn streams(c: &mut Criterion) {
    let mut g = c.benchmark_group("mxu stream");
    for name in ["v4", "v6e"] {
        let chip = ChipSpec::load(name).expect("a built-in chip");
        let dim = *chip.mxu.dim as usize;
        let regs = 2 * dim as i32 / 128;
        let mut body = vec![bundle(vec![Instr::new(Op::MxMul, &[0, 1, 1, 0])])];
        body.extend((0..regs).map(|r| bundle(vec![Instr::new(Op::MxPop, &[0, 2 + r])])));
        let n = 1000;
        let p = Program {
            chip: name.to_owned(),
            body: vec![Node::Loop { counter: SReg(4), trip: n, body }],
            ..Program::default()
        };
        let cores = u64::from(*chip.tensorcores_per_device);
        g.throughput(Throughput::Elements(u64::from(n) * cores * (2 * 16 * dim * dim) as u64));
        g.bench_function(format!("{name} vmatmul bf16"), |b| {
            b.iter(|| execute(&p, &chip, &[], &RunOptions::default()).expect("a correct program"));
        });
    }
    g.finish();
}

fn bundle(instrs: Vec<Instr>) -> Node {
    Node::Bundle(Bundle { instrs })
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(std::time::Duration::from_secs(2)).sample_size(20);
    targets = kernels, streams
}
criterion_main!(benches);
