//! Speed of the MXU's data path on the host: the bare kernel, whole `vmatmul` / `vmatpop` streams, and compiled products.
//!
//! What counts is a product of 1024 x 1024 bf16 matrices as a user runs it: the compiled program executed from its inputs in HBM
//! to its output, decoding and timing included, in one thread. Its FLOP/s stand beside those of a tuned f32 matrix product of the
//! same size (crate `matrixmultiply`, one thread) in the last lines; half is the goal.

#![allow(clippy::print_stdout)]

mod common;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use tpusim_backend::{compile::compile, front::parse_program, hlo::verify};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::{Instr, Op};
use tpusim_isa::program::{Bundle, Node, Program, SReg};
use tpusim_sim::mxu::kernel::{Aligned, multiply_f32};
use tpusim_sim::{RunOptions, execute, time};

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

/// The compiled product of two `n` x `n` bf16 matrices.
fn product(n: usize, chip: &ChipSpec) -> Program {
    let t = format!("tensor<{n}x{n}xbf16>");
    let text = format!(
        "module @product {{ func.func @main(%a: {t}, %b: {t}) -> {t} {{ \
           %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}\n return %0 : {t} }} }}"
    );
    let module = parse_program(text.as_bytes(), "product").expect("correct text");
    compile(&verify(module).expect("a correct module"), chip).expect("a program that fits the chip")
}

fn products(c: &mut Criterion) {
    const N: usize = 1024;
    let inputs: Vec<Vec<u8>> =
        (0..2).map(|_| (0..N * N * 2).map(|i| if i % 2 == 1 { 0x3f } else { (i * 7) as u8 }).collect()).collect();
    let (x, y, mut z) = (vec![1.5f32; N * N], vec![1.25f32; N * N], vec![0f32; N * N]);
    let mut gemm = || {
        let s = N as isize;
        // SAFETY: three row-major matrices of N x N numbers, none of which overlap.
        unsafe { matrixmultiply::sgemm(N, N, N, 1.0, x.as_ptr(), s, 1, y.as_ptr(), s, 1, 0.0, z.as_mut_ptr(), s, 1) };
        black_box(&mut z);
    };
    let flops = 2 * N.pow(3);
    let mut g = c.benchmark_group("product 1024");
    g.throughput(Throughput::Elements(flops as u64));
    g.bench_function("matrixmultiply f32", |b| b.iter(&mut gemm));
    let chips = ["v4", "v5e", "v6e", "v7x"].map(|name| ChipSpec::load(name).expect("a built-in chip"));
    let programs = chips.each_ref().map(|chip| product(N, chip));
    let run = |p: &Program, chip: &ChipSpec, threads: usize| {
        let opts = RunOptions { threads, ..RunOptions::default() };
        black_box(execute(p, chip, &inputs, &opts).expect("a correct program"));
    };
    for (chip, p) in chips.iter().zip(&programs) {
        for threads in [1, 2] {
            g.bench_function(format!("{} bf16, threads {threads}", chip.name), |b| b.iter(|| run(p, chip, threads)));
        }
    }
    g.finish();
    for (chip, p) in chips.iter().zip(&programs) {
        let ours = Box::new(|| run(p, chip, 1));
        let what = format!("product of 1024 x 1024, {}", chip.name);
        common::ratio(&what, "FLOP", flops as f64, ("bf16", ours), ("matrixmultiply f32", Box::new(&mut gemm)));
    }
}

/// Time without data of large products: what a user waits for in a timing run.
fn timing(c: &mut Criterion) {
    let mut g = c.benchmark_group("time product 4096");
    for name in ["v4", "v5e", "v6e"] {
        let chip = ChipSpec::load(name).expect("a built-in chip");
        let p = product(4096, &chip);
        g.bench_function(name, |b| b.iter(|| time(&p, &chip, &RunOptions::default()).expect("a correct program")));
    }
    g.finish();
}

fn bundle(instrs: Vec<Instr>) -> Node {
    Node::Bundle(Bundle { instrs })
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(std::time::Duration::from_secs(2)).sample_size(20);
    targets = kernels, streams, products, timing
}
criterion_main!(benches);
