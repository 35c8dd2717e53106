//! Folding changes nothing but the time it takes.

mod common;

use common::*;
use proptest::prelude::*;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::{Instr, Op};
use tpusim_isa::program::{BufferKind, DmaDir, Node, Program};
use tpusim_sim::profile::Profile;
use tpusim_sim::{RunOptions, execute, time};

fn options(fold: bool) -> RunOptions {
    RunOptions { fold, ..RunOptions::default() }
}

/// A program around `body`, with one load and one store descriptor of 64 rows.
fn with_dmas(chip: &ChipSpec, body: Vec<Node>) -> Program {
    let mut p = program(chip, body);
    p.descs = vec![dense(DmaDir::Load, 64, 128, 0, 0), dense(DmaDir::Store, 16, 128, 32768, 64)];
    p.buffers = vec![buffer(0, 32768, BufferKind::Param(0)), buffer(32768, 8192, BufferKind::Output(0))];
    p
}

/// Pieces of code that leave every queue and flag as they found it.
fn piece() -> impl Strategy<Value = Vec<Instr>> {
    let r = || 0..6i32;
    prop_oneof![
        (r(), r(), r()).prop_map(|(d, a, b)| vec![i(Op::VAddF, &[d, a, b])]),
        (r(), 0..8i32).prop_map(|(d, row)| vec![i(Op::VLd, &[d, 0, row * 8, 1])]),
        (r(), 0..2i32).prop_map(|(s, row)| vec![i(Op::VSt, &[s, 0, 64 + row * 8, 1])]),
        (r(), r()).prop_map(|(a, d)| vec![i(Op::EPow2, &[a]), i(Op::EPop, &[d])]),
        (r(), r()).prop_map(|(a, d)| vec![
            i(Op::EPow2, &[a]),
            i(Op::ETanh, &[a]),
            i(Op::EPop, &[d]),
            i(Op::EPop, &[a])
        ]),
        (r(), r()).prop_map(|(a, d)| vec![i(Op::XRot, &[0, a, 3]), i(Op::XPop, &[0, d])]),
        (r(), r()).prop_map(|(a, d)| vec![i(Op::MxMul, &[1, a, a, 0]), i(Op::MxPop, &[1, d]), i(Op::MxPop, &[1, a])]),
        (r()).prop_map(|a| vec![i(Op::MxPush, &[1, a, 0, 2]), i(Op::MxLatch, &[1])]),
        (0..2i32, 0..2i32).prop_map(|(d, f)| vec![i(Op::Dma, &[d, f]), i(Op::DmaWait, &[f, 1])]),
        // Started now, waited for in the next round: one more is always on its way.
        (0..2i32).prop_map(|d| vec![i(Op::DmaWait, &[5, 1]), i(Op::Dma, &[d, 5])]),
        (7..9i32, 7..9i32).prop_map(|(d, a)| vec![i(Op::SAddi, &[d, a, 5])]),
        Just(vec![i(Op::SLd, &[9, 0, 4])]),
    ]
}

fn code() -> impl Strategy<Value = Vec<Node>> {
    let leaf = prop::collection::vec(piece(), 1..5).prop_map(|p| seq(p.concat()));
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop::collection::vec((inner, prop_oneof![Just(1u32), 2..9u32, 20..60u32]), 1..3).prop_map(|parts| {
            parts.into_iter().enumerate().map(|(k, (body, trip))| repeat(10 + k as u8, trip, body)).collect()
        })
    })
}

fn same(a: &Profile, b: &Profile) {
    assert_eq!(a.cycles, b.cycles);
    assert_eq!(a.ops, b.ops);
    // Every cycle either issues a bundle or is a stall with a reason.
    assert_eq!(a.ops[0].stalls.iter().sum::<u64>() + a.ops[0].bundles, a.ops[0].end - a.ops[0].start);
    assert_eq!(a.series.window, b.series.window);
    let sum = |p: &Profile, u: usize| p.series.busy.iter().map(|w| w[u]).sum::<f64>();
    for u in 0..8 {
        let (x, y) = (sum(a, u), sum(b, u));
        assert!((x - y).abs() <= 1e-6 * x.max(1.0), "unit {u}: {x} {y}");
        assert!((x - a.ops[0].busy[u] as f64).abs() <= 1e-6 * x.max(1.0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    // Oracle: the unfolded run; and for data, the same bits under every option.
    #[test]
    fn folded_is_unfolded(body in code(), chip in prop_oneof![Just("v5e"), Just("v4")]) {
        let chip = bare(chip);
        let start = seq(vec![i(Op::Dma, &[0, 5])]);
        let p = with_dmas(&chip, [start, body].concat());
        let folded = time(&p, &chip, &options(true)).unwrap();
        same(&folded, &time(&p, &chip, &options(false)).unwrap());
        if folded.ops[0].bundles < 3000 {
            let x: Vec<u8> = (0..32768u32).map(|k| (k.wrapping_mul(0x9e37_79b9) >> 26) as u8).collect();
            let a = execute(&p, &chip, std::slice::from_ref(&x), &options(true)).unwrap();
            let b = execute(&p, &chip, &[x], &options(false)).unwrap();
            prop_assert!(a.outputs == b.outputs);
            same(&a.profile, &folded);
            same(&b.profile, &folded);
        }
    }
}

// Oracle: proportion. A body repeated 10^15 times takes 10^9 times as long as one repeated 10^6 times, and no longer to simulate.
#[test]
fn cost_does_not_depend_on_trips() {
    let chip = bare("v5e");
    let nest = |n: u32| {
        let inner = seq(vec![i(Op::VAddF, &[0, 0, 1]), i(Op::EPow2, &[0]), i(Op::EPop, &[1])]);
        let dma = seq(vec![i(Op::DmaWait, &[5, 1]), i(Op::Dma, &[0, 5])]);
        let body = repeat(6, n, [vec![repeat(5, n, inner)], dma].concat());
        with_dmas(&chip, vec![bundle(vec![i(Op::Dma, &[0, 5])]), repeat(7, n, vec![body])])
    };
    let small = time(&nest(100), &chip, &options(true)).unwrap();
    let large = time(&nest(100_000), &chip, &options(true)).unwrap();
    let ratio = large.cycles as f64 / small.cycles as f64 / 1e9;
    assert!((0.5..1.5).contains(&ratio), "{ratio}");
    assert_eq!(large.ops[0].hbm_read, (10_000_000_000 + 1) * 32768);
}

// Oracle: the loop written out. Operations inside a folded loop are listed as often as they ran.
#[test]
fn loops_of_operations_list_each_run() {
    let chip = ChipSpec::load("v5e").unwrap();
    let op =
        || Node::Op { op: 0, body: seq(vec![i(Op::Dma, &[0, 0]), i(Op::DmaWait, &[0, 1]), i(Op::VAddF, &[0, 0, 1])]) };
    let mut p = with_dmas(&chip, vec![]);
    p.body = vec![repeat(5, 50, vec![op()])];
    let folded = time(&p, &chip, &options(true)).unwrap();
    assert_eq!(folded.ops, time(&p, &chip, &options(false)).unwrap().ops);
    assert_eq!(folded.ops.len(), 50);
    assert_eq!(execute(&p, &chip, &[vec![0; 32768]], &options(true)).unwrap().profile.ops, folded.ops);
    p.body = (0..50).map(|_| op()).collect();
    let branches = 50 * u64::from(*chip.latency.branch);
    assert_eq!(folded.cycles, time(&p, &chip, &options(true)).unwrap().cycles + branches);
}
