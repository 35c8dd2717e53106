//! Small kernels, VMEM to VMEM, scheduled by hand as a good compiler would, against cycles measured on a real v4 TensorCore.

#![allow(clippy::print_stderr)]

mod common;

use common::*;
use tpusim_isa::op::{Instr, Op};
use tpusim_isa::program::Node;
use tpusim_sim::{RunOptions, time};

fn cycles(body: Vec<Node>) -> u64 {
    let chip = bare("v4");
    time(&program(&chip, body), &chip, &RunOptions::default()).unwrap().cycles
}

fn ld(d: i32, block: i32) -> Instr {
    i(Op::VLd, &[d, 0, block * 8, 1])
}

fn st(s: i32, block: i32) -> Instr {
    i(Op::VSt, &[s, 0, 1000 + block * 8, 1])
}

fn push(mxu: i32, reg: i32, slot: i32) -> Instr {
    i(Op::MxPush, &[mxu, reg, 0, slot])
}

fn mul(mxu: i32, reg: i32) -> Instr {
    i(Op::MxMul, &[mxu, reg, reg, 0])
}

/// Loads 8 weight registers and pushes them to `n` MXUs.
fn weights(n: i32) -> Vec<Node> {
    let mut body: Vec<Node> = (0..4).map(|k| bundle(vec![ld(k, k)])).collect();
    for slot in 0..8 {
        for m in (0..n).step_by(2) {
            let mut b = if slot < 4 && m == 0 { vec![ld(4 + slot, 4 + slot)] } else { vec![] };
            b.extend((m..(m + 2).min(n)).map(|m| push(m, slot, slot)));
            body.push(bundle(b));
        }
    }
    body
}

/// `rows` x 128 x 128 in bf16 over `n` MXUs: weights, then `rows / 16` packed products, each with 2 results.
fn matmul(rows: i32, n: i32) -> Vec<Node> {
    let mut body = weights(n);
    let passes = rows / 16;
    for k in 0..n.min(4) {
        body.push(bundle(vec![ld(8 + k, 8 + k)]));
    }
    for m in (0..n).step_by(2) {
        body.push(bundle((m..(m + 2).min(n)).map(|m| i(Op::MxLatch, &[m])).collect()));
    }
    // Six steps of 16 cycles cover the latency of 83; results are then popped as they come.
    let (steps, delay) = (passes / n, 6);
    for s in 0..steps + delay {
        if s < steps {
            for m in (0..n).step_by(2) {
                body.push(bundle((m..(m + 2).min(n)).map(|m| mul(m, 8 + m)).collect()));
            }
            if s + 1 < steps {
                body.extend((0..n).map(|k| bundle(vec![ld(8 + k, 8 + k)])));
            }
        }
        if let Some(done) = s.checked_sub(delay).filter(|d| *d >= 0 && *d < steps) {
            for r in 0..2 * n {
                let mut b = vec![i(Op::MxPop, &[r / 2, 20 + r % 2])];
                if r > 0 {
                    b.insert(0, st(20 + (r - 1) % 2, done * 2 * n + r - 1));
                }
                body.push(bundle(b));
            }
            body.push(bundle(vec![st(21, done * 2 * n + 2 * n - 1)]));
        }
    }
    body
}

/// Transposes 128 x 128 words on each of the given XLUs, started together where they differ.
fn transposes(xlus: &[i32]) -> Vec<Node> {
    let mut body = Vec::new();
    let together = xlus.len() == 2 && xlus[0] != xlus[1];
    let load_push = |body: &mut Vec<Node>, x: i32, k: i32, base: i32| {
        body.push(bundle(vec![ld(k % 16, base + k)]));
        body.push(bundle(vec![i(Op::XPose, &[x, k % 16])]));
    };
    if together {
        for k in 0..16 {
            body.push(bundle(vec![ld(0, k)]));
            body.push(bundle(vec![ld(1, 16 + k)]));
            body.push(bundle(vec![i(Op::XPose, &[xlus[0], 0]), i(Op::XPose, &[xlus[1], 1])]));
        }
        for k in 0..16 {
            body.push(bundle(vec![i(Op::XPop, &[xlus[0], 2]), i(Op::XPop, &[xlus[1], 3])]));
            body.push(bundle(vec![st(2, k)]));
            body.push(bundle(vec![st(3, 16 + k)]));
        }
        return body;
    }
    for (n, &x) in xlus.iter().enumerate() {
        (0..16).for_each(|k| load_push(&mut body, x, k, 16 * n as i32));
        for k in 0..16 {
            body.push(bundle(vec![i(Op::XPop, &[x, 20])]));
            body.push(bundle(vec![st(20, 16 * n as i32 + k)]));
        }
    }
    body
}

// Oracle: shared/silicon/units.toml, measured on silicon. The tolerance covers what a kernel's own entry and exit cost.
#[test]
fn kernels_take_what_silicon_takes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/silicon/units.toml");
    let Ok(text) = std::fs::read_to_string(path) else {
        eprintln!("skipped: {path} is not there");
        return;
    };
    let table: toml::Table = toml::from_str(&text).unwrap();
    let row_sum = seq(vec![ld(0, 0), i(Op::XSumF, &[0, 0]), i(Op::XPop, &[0, 1]), st(1, 0)]);
    let cases = [
        ("matmul_bf16_16x128_128x128", matmul(16, 1), 10),
        ("matmul_bf16_128x128_128x128", matmul(128, 4), 15),
        ("matmul_bf16_1024x128_128x128", matmul(1024, 4), 10),
        ("transpose_f32_128x128", transposes(&[0]), 10),
        ("transpose_two_f32_128x128_one_xlu", transposes(&[0, 0]), 10),
        ("transpose_two_f32_128x128_two_xlus", transposes(&[0, 1]), 10),
        ("row_sum_f32_8x128", row_sum, 30),
    ];
    let mut wrong = Vec::new();
    for (name, body, percent) in cases {
        let measured = table["v4"]["kernel"][name].as_integer().unwrap();
        let got = cycles(body) as i64;
        let off = (got - measured) * 100 / measured;
        eprintln!("{name}: {got} cycles, measured {measured}, {off} %");
        if off.abs() > percent {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
