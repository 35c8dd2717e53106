//! Loops and branches that data decides: what they compute, what they cost, and what can be wrong with them.

mod common;

use std::collections::BTreeMap;

use common::*;
use proptest::prelude::*;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::{Instr, Op};
use tpusim_isa::program::{BufferKind, DmaDir, FlowKind, Node, Program};
use tpusim_sim::profile::{Assumed, Profile};
use tpusim_sim::{FaultKind, RunOptions, TripCounts, execute, time};

fn ints(v: &[i32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Options that a run without data needs, for loops by `while.N` and branches by `case.N`.
fn told(trips: &[(u32, u32)], branches: &[(u32, u32)]) -> RunOptions {
    let name = |kind: &str, (k, n): &(u32, u32)| (format!("{kind}.{k}"), *n);
    RunOptions {
        trip_counts: TripCounts { all: None, by_name: trips.iter().map(|t| name("while", t)).collect() },
        branches: branches.iter().map(|b| name("case", b)).collect(),
        ..RunOptions::default()
    }
}

fn every_way(base: &RunOptions) -> Vec<RunOptions> {
    [(true, false, false), (false, false, false), (true, true, false), (true, false, true), (false, true, true)]
        .map(|(fold, poison, dma_late)| RunOptions { fold, poison, dma_late, ..base.clone() })
        .to_vec()
}

fn same(a: &Profile, b: &Profile) {
    assert_eq!(a.cycles, b.cycles);
    assert_eq!(a.ops, b.ops);
}

/// Input words at 0, output words at `words * 4`; both pass through SMEM, the input at word 0, the output from word 100.
fn on_scalars(chip: &ChipSpec, words: u32, body: Vec<Node>) -> Program {
    let io = |k| seq(vec![i(Op::Dma, &[k, 0]), i(Op::DmaWait, &[0, 1])]);
    let end = i64::from(words) * 4;
    Program {
        body: [io(0), body, io(1)].concat(),
        descs: vec![scalars(DmaDir::Load, words, 0, 0), scalars(DmaDir::Store, words, end, 100)],
        buffers: vec![
            buffer(0, end as u64, BufferKind::Param(0)),
            buffer(end as u64, end as u64, BufferKind::Output(0)),
        ],
        flows: vec![flow(FlowKind::While, "f.py:1"), flow(FlowKind::While, ""), flow(FlowKind::Case, "f.py:9")],
        ops: vec![info("op", 1), info("other", 1)],
        ..program(chip, vec![])
    }
}

/// Adds up what a word of SMEM counts down from, into word 100.
fn count_down(chip: &ChipSpec) -> Program {
    let cond = seq(vec![i(Op::SLd, &[5, 0, 0])]);
    let body = seq(vec![i(Op::SAdd, &[6, 6, 5]), i(Op::SAddi, &[5, 5, -1]), i(Op::SSt, &[5, 0, 0])]);
    let before = seq(vec![i(Op::SLi, &[6, 0])]);
    let after = seq(vec![i(Op::SSt, &[6, 0, 100])]);
    on_scalars(chip, 1, [before, vec![while_loop(0, cond, 5, body)], after].concat())
}

// Oracle: n (n + 1) / 2; and time told the same trip count, folded and not.
#[test]
fn a_loop_counts_down_what_it_was_given() {
    for chip in [bare("v5e"), bare("v4")] {
        let p = count_down(&chip);
        for n in [0, 1, 2, 7, 1000] {
            let timed = time(&p, &chip, &told(&[(0, n as u32)], &[])).unwrap();
            assert_eq!(timed.assumed.len(), 1);
            assert_eq!((timed.assumed[0].key.as_str(), timed.assumed[0].what), ("while.0", Assumed::Trips(n as u32)));
            same(&time(&p, &chip, &RunOptions { fold: false, ..told(&[(0, n as u32)], &[]) }).unwrap(), &timed);
            for opts in every_way(&RunOptions::default()) {
                let r = execute(&p, &chip, &[ints(&[n])], &opts).unwrap();
                assert_eq!(r.outputs, [ints(&[n * (n + 1) / 2])], "{n}");
                same(&r.profile, &timed);
                assert!(r.profile.assumed.is_empty());
            }
        }
    }
}

// Oracle: latencies of the chip file added by hand. Each test waits for its register and takes a branch.
#[test]
fn tests_take_a_branch_each() {
    let chip = bare("v5e");
    let l = &chip.latency;
    let (scalar, branch) = (u64::from(*l.scalar), u64::from(*l.branch));
    let mut p = on_scalars(&chip, 1, vec![]);
    p.body = vec![while_loop(0, seq(vec![i(Op::SLi, &[5, 1])]), 5, seq(vec![i(Op::SLi, &[6, 1])]))];
    for n in [0, 1, 5, 1_000_000_000] {
        let r = time(&p, &chip, &told(&[(0, n)], &[])).unwrap();
        assert_eq!(r.cycles, (u64::from(n) + 1) * (scalar + branch) + u64::from(n));
    }
    p.body = vec![case(2, 0, vec![vec![], seq(vec![i(Op::SLi, &[6, 1]); 9])])];
    assert_eq!(time(&p, &chip, &told(&[], &[(2, 0)])).unwrap().cycles, branch);
    assert_eq!(execute(&p, &chip, &[vec![0; 4]], &RunOptions::default()).unwrap().profile.cycles, branch);
    assert_eq!(time(&p, &chip, &told(&[], &[(2, 1)])).unwrap().cycles, branch + 9);
}

// Oracle: the same loops in Rust; where the inner count does not depend on the outer one, time told both.
#[test]
fn loops_nest() {
    let chip = bare("v5e");
    let nest = |fixed: bool| {
        let start = if fixed { i(Op::SLd, &[6, 0, 1]) } else { i(Op::SAddi, &[6, 5, 0]) };
        let inner = while_loop(1, vec![], 6, seq(vec![i(Op::SAddi, &[7, 7, 1]), i(Op::SAddi, &[6, 6, -1])]));
        let body = [seq(vec![start]), vec![inner], seq(vec![i(Op::SAddi, &[5, 5, -1])])].concat();
        let before = seq(vec![i(Op::SLd, &[5, 0, 0]), i(Op::SLi, &[7, 0])]);
        let after = seq(vec![i(Op::SSt, &[7, 0, 100]), i(Op::SSt, &[5, 0, 101])]);
        on_scalars(&chip, 2, [before, vec![while_loop(0, vec![], 5, body)], after].concat())
    };
    let run = |p: &Program, n, m| execute(p, &chip, &[ints(&[n, m])], &RunOptions::default()).unwrap();
    assert_eq!(run(&nest(false), 40, 0).outputs, [ints(&[(1..=40).sum(), 0])]);
    let p = nest(true);
    let r = run(&p, 30, 12);
    assert_eq!(r.outputs, [ints(&[360, 0])]);
    same(&r.profile, &time(&p, &chip, &told(&[(0, 30), (1, 12)], &[])).unwrap());
    // By the name in the source, both at once.
    let all =
        RunOptions { trip_counts: TripCounts { all: Some(7), by_name: BTreeMap::new() }, ..RunOptions::default() };
    let by_name = BTreeMap::from([("stablehlo.while".to_owned(), 7)]);
    let named = RunOptions { trip_counts: TripCounts { all: None, by_name }, ..RunOptions::default() };
    let r = run(&p, 7, 7);
    same(&r.profile, &time(&p, &chip, &all).unwrap());
    same(&r.profile, &time(&p, &chip, &named).unwrap());
}

/// An operation of one core that adds `by` to word `k` of the output.
fn add_to(p: &mut Program, k: u32, by: i32) -> Node {
    let at = i64::from(k) * 4 + p.buffers[1].offset as i64;
    let first = p.descs.len() as i32;
    p.descs.extend([scalars(DmaDir::Load, 1, at, 7), scalars(DmaDir::Store, 1, at, 7)]);
    let code = seq(vec![
        i(Op::Dma, &[first, 1]),
        i(Op::DmaWait, &[1, 1]),
        i(Op::SLd, &[9, 0, 7]),
        i(Op::SAddi, &[9, 9, by]),
        i(Op::SSt, &[9, 0, 7]),
        i(Op::Dma, &[first + 1, 1]),
        i(Op::DmaWait, &[1, 1]),
    ]);
    Node::Op { op: k % 2, body: code }
}

// Oracle: the same branches taken in Rust; a number that no branch has takes the last. On a megacore both cores go the same way.
#[test]
fn branches_are_taken_by_number() {
    for chip in [bare("v5e"), bare("v4")] {
        let index = [0, 2, 1, 1, -1, 3, i32::MAX, 0];
        let mut p = on_scalars(&chip, 8, vec![]);
        let branches = (0..3).map(|k| vec![add_to(&mut p, k, 1 + 10 * k as i32)]).collect();
        // What SMEM holds does not outlive an operation, so the number comes from HBM each time.
        let load = [seq(vec![i(Op::Dma, &[0, 0]), i(Op::DmaWait, &[0, 1]), i(Op::SLd, &[5, 4, 0])])].concat();
        let zero = seq((0..8).map(|k| i(Op::SSt, &[0, 0, 100 + k])).collect());
        let out = seq(vec![i(Op::Dma, &[1, 0]), i(Op::DmaWait, &[0, 1])]);
        p.body = [zero, out, vec![repeat(4, 8, [load, vec![case(2, 5, branches)]].concat())]].concat();
        let mut want = [0; 8];
        index.iter().for_each(|&k| {
            let k = usize::try_from(k).map_or(2, |k| k.min(2));
            want[k] += 1 + 10 * k as i32;
        });
        let first = execute(&p, &chip, &[ints(&index)], &RunOptions::default()).unwrap();
        for opts in every_way(&RunOptions::default()) {
            let r = execute(&p, &chip, &[ints(&index)], &opts).unwrap();
            assert_eq!(r.outputs, [ints(&want)]);
            same(&r.profile, &first.profile);
        }
        for k in 0..3 {
            let r = execute(&p, &chip, &[ints(&[k; 8])], &RunOptions::default()).unwrap();
            same(&r.profile, &time(&p, &chip, &told(&[], &[(2, k as u32)])).unwrap());
        }
    }
}

// Oracle: a loop whose condition is a word of HBM that an operation in its body writes, as the same loop in Rust.
#[test]
fn operations_decide_when_a_loop_ends() {
    for chip in [bare("v5e"), bare("v4")] {
        let mut p = on_scalars(&chip, 2, vec![]);
        let body = vec![add_to(&mut p, 0, -3), add_to(&mut p, 1, 2)];
        p.descs.push(scalars(DmaDir::Load, 1, 8, 50));
        let cond = seq(vec![
            i(Op::Dma, &[p.descs.len() as i32 - 1, 0]),
            i(Op::DmaWait, &[0, 1]),
            i(Op::SLd, &[5, 0, 50]),
            i(Op::SLti, &[5, 5, 1]),
            i(Op::SXori, &[5, 5, 1]),
        ]);
        let copy = seq(vec![
            i(Op::SLd, &[5, 0, 0]),
            i(Op::SSt, &[5, 0, 100]),
            i(Op::SSt, &[0, 0, 101]),
            i(Op::Dma, &[1, 0]),
            i(Op::DmaWait, &[0, 1]),
        ]);
        p.body = [p.body[..2].to_vec(), copy, vec![while_loop(0, cond, 5, body)]].concat();
        for opts in every_way(&RunOptions::default()) {
            let r = execute(&p, &chip, &[ints(&[20, 0])], &opts).unwrap();
            assert_eq!(r.outputs, [ints(&[-1, 14])]);
            same(&r.profile, &time(&p, &chip, &told(&[(0, 7)], &[])).unwrap());
            assert_eq!(r.profile.ops.len(), 14);
        }
    }
}

// Oracle: the longest of the runs in which each branch was asked for, by itself and in a loop; folding changes nothing.
#[test]
fn without_data_the_longest_branch_is_taken() {
    let chip = bare("v5e");
    let mut p = on_scalars(&chip, 1, vec![]);
    let spin = |n: u32| vec![repeat(8, n, seq(vec![i(Op::VAddF, &[0, 0, 1]), i(Op::SAddi, &[7, 7, 1])]))];
    // The case inside has its long branch second; the loops inside have run in trials before.
    let inner = vec![case(2, 5, vec![spin(3), spin(90), spin(90)])];
    p.flows.push(flow(FlowKind::Case, ""));
    p.flows.push(flow(FlowKind::While, ""));
    let branches = vec![spin(40), inner, vec![add_to(&mut p, 0, 1)], vec![while_loop(4, vec![], 5, spin(1))]];
    p.body = vec![repeat(4, 50, vec![case(3, 5, branches)])];
    let base = told(&[(4, 2)], &[]);
    let of = |k| time(&p, &chip, &RunOptions { branches: told(&[], &[(3, k)]).branches, ..base.clone() }).unwrap();
    let cycles: Vec<u64> = (0..4).map(|k| of(k).cycles).collect();
    let longest = time(&p, &chip, &base).unwrap();
    assert_eq!(Some(&longest.cycles), cycles.iter().max(), "{cycles:?}");
    let k = cycles.iter().position(|c| *c == longest.cycles).unwrap() as u32;
    let what: Vec<(u32, Assumed)> = longest.assumed.iter().map(|a| (a.flow, a.what)).collect();
    // The trials of branches that were not taken assume nothing.
    assert_eq!(what[0], (3, Assumed::Longest(k)));
    assert_eq!(of(1).assumed[1].what, Assumed::Longest(1));
    assert_eq!(of(3).assumed.iter().map(|a| a.what).collect::<Vec<_>>(), [Assumed::Branch(3), Assumed::Trips(2)]);
    same(&longest, &time(&p, &chip, &RunOptions { fold: false, ..base }).unwrap());
}

// Oracle: each mistake is named, with the loop's source and what to do.
#[test]
fn faults_name_the_loop() {
    let chip = bare("v4");
    let plain = RunOptions::default();
    let f = time(&count_down(&chip), &chip, &plain).unwrap_err();
    assert_eq!(
        f.kind.to_string(),
        "while.0 (`stablehlo.while` at f.py:1) runs as often as its data says, and timing has none: \
         give --trip-count N or --trip-count while.0=N"
    );
    assert_eq!(f.pc, [3]);
    let f = execute(&count_down(&chip), &chip, &[ints(&[9])], &RunOptions { max_iterations: 8, ..plain.clone() });
    let f = f.unwrap_err();
    assert_eq!(*f.kind, FaultKind::Endless { flow: "while.0 (`stablehlo.while` at f.py:1)".to_owned(), limit: 8 });
    assert!(f.to_string().contains("--max-iterations"), "{f}");
    assert!(
        execute(&count_down(&chip), &chip, &[ints(&[8])], &RunOptions { max_iterations: 8, ..plain.clone() }).is_ok()
    );
    let mut p = on_scalars(&chip, 1, vec![while_loop(1, vec![], 1, vec![])]);
    let f = execute(&p, &chip, &[ints(&[9])], &plain).unwrap_err();
    assert_eq!(
        f.kind.to_string(),
        "while.1 (`stablehlo.while`): the cores go different ways, core 1 holds 1 where core 0 holds 0"
    );
    let f = time(&p, &chip, &told(&[(1, 2), (7, 1)], &[])).unwrap_err();
    assert_eq!(
        f.kind.to_string(),
        "--trip-count while.7: the program has while.0 (`stablehlo.while` at f.py:1), while.1 (`stablehlo.while`)"
    );
    p.body = vec![case(2, 0, vec![vec![], vec![]])];
    let f = time(&p, &chip, &told(&[], &[(2, 2)])).unwrap_err();
    assert!(matches!(*f.kind, FaultKind::NoBranch { branch: 2, branches: 2, .. }), "{f}");
    let malformed = |node: Node| {
        p.body = vec![node];
        let f = time(&p, &chip, &plain).unwrap_err();
        assert!(matches!(*f.kind, FaultKind::Malformed(_) | FaultKind::Operand { .. }), "{f}");
    };
    let inside = Node::Op { op: 0, body: vec![while_loop(0, vec![], 0, vec![])] };
    [
        case(2, 0, vec![]),
        case(0, 0, vec![vec![]]),
        while_loop(9, vec![], 0, vec![]),
        while_loop(0, vec![], 99, vec![]),
        inside,
    ]
    .into_iter()
    .for_each(malformed);
    // The place of a fault: the second node of branch 0 of the case in the body of the while.
    let wrong = seq(vec![i(Op::SLi, &[5, -1]), i(Op::SLd, &[6, 5, 0])]);
    let p = on_scalars(&chip, 1, vec![while_loop(0, seq(vec![i(Op::SLi, &[5, 1])]), 5, vec![case(2, 0, vec![wrong])])]);
    let f = execute(&p, &chip, &[ints(&[9])], &plain).unwrap_err();
    assert_eq!(
        (f.pc.as_slice(), f.kind),
        ([2, 1, 0, 0, 1].as_slice(), FaultKind::Smem { first: -1, last: -1, words: 1 << 18 }.into())
    );
}

/// A program of the assembler's file tests.
fn file(name: &str) -> Program {
    let path = format!("{}/../isa/tests/asm/{name}", env!("CARGO_MANIFEST_DIR"));
    tpusim_isa::asm::parse(&std::fs::read_to_string(&path).unwrap()).unwrap()
}

// Oracle: what the files' first lines say, in Rust.
#[test]
fn files_do_what_they_say() {
    let p = file("gather_rows.asm");
    let chip = bare(&p.chip);
    let index: Vec<i32> = (0..64).map(|k| k * 37 % 1003 - 2).collect();
    let table: Vec<i32> = (0..128_000).collect();
    let rows = index.iter().map(|k| (*k).clamp(0, 999) as usize * 128);
    let want: Vec<i32> = rows.flat_map(|at| table[at..at + 128].to_vec()).collect();
    for opts in every_way(&RunOptions::default()) {
        let r = execute(&p, &chip, &[ints(&table), ints(&index)], &opts).unwrap();
        assert!(r.outputs == [ints(&want)]);
    }
    let p = file("while_case.asm");
    let chip = bare(&p.chip);
    for opts in every_way(&RunOptions::default()) {
        let r = execute(&p, &chip, &[ints(&[5])], &opts).unwrap();
        // The output counts from 0 those of 5, 4, 3, 2, 1 that are not 0: memory starts as 0 unless it is poisoned.
        let start = if opts.poison { 0x7fc0_dead } else { 0 };
        assert_eq!(r.outputs, [ints(&[start + 5])]);
        same(&r.profile, &time(&p, &chip, &told(&[(0, 5)], &[(1, 1)])).unwrap());
        same(&r.profile, &time(&p, &chip, &told(&[(0, 5)], &[])).unwrap());
    }
}

/// Code of random loops and branches, with what the registers will decide: see [`build`].
#[derive(Clone, Debug)]
enum Piece {
    Code(Vec<Instr>),
    Op(Vec<Instr>),
    Loop(u32, Vec<Piece>),
    While(u32, Vec<Piece>),
    Case(u32, Vec<Vec<Piece>>),
}

fn leaf() -> impl Strategy<Value = Vec<Instr>> {
    let one = prop_oneof![
        (0..4i32, 0..4i32).prop_map(|(d, a)| vec![i(Op::VAddF, &[d, a, a])]),
        (0..4i32, 0..4i32).prop_map(|(a, d)| vec![i(Op::EPow2, &[a]), i(Op::EPop, &[d])]),
        (0..4i32, 0..4i32).prop_map(|(a, d)| vec![i(Op::XRot, &[0, a, 3]), i(Op::XPop, &[0, d])]),
        (0..2i32).prop_map(|d| vec![i(Op::Dma, &[d, 3]), i(Op::DmaWait, &[3, 1])]),
        // Started now, waited for in the next round, or at the end of the operation it is in.
        (0..2i32).prop_map(|d| vec![i(Op::DmaWait, &[5, 1]), i(Op::Dma, &[d, 5])]),
        Just(vec![i(Op::SLd, &[7, 0, 4]), i(Op::SAddi, &[7, 7, 1])]),
    ];
    prop::collection::vec(one, 0..4).prop_map(|v| v.concat())
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let one = prop_oneof![leaf().prop_map(Piece::Code), leaf().prop_map(Piece::Op)];
    let list = prop::collection::vec(one, 1..3);
    list.prop_recursive(3, 16, 3, |inner| {
        let one = prop_oneof![
            (prop_oneof![0..5u32, 15..40u32], inner.clone()).prop_map(|(n, b)| Piece::Loop(n, b)),
            (prop_oneof![0..5u32, 15..40u32], inner.clone()).prop_map(|(n, b)| Piece::While(n, b)),
            (0..3u32, prop::collection::vec(inner, 3)).prop_map(|(k, b)| Piece::Case(k, b)),
        ];
        prop::collection::vec(one, 1..3)
    })
}

/// Appends code in which register `10 + depth` counts, and notes what it decides in `opts`.
fn build(pieces: &[Piece], depth: u8, p: &mut Program, opts: &mut RunOptions) -> Vec<Node> {
    let (count, test) = (i32::from(10 + 2 * depth), 11 + 2 * depth);
    let mut out = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Code(c) => out.extend(seq(c.clone())),
            Piece::Op(c) => out.push(Node::Op { op: 0, body: seq(c.clone()) }),
            Piece::Loop(n, b) => out.push(repeat(count as u8, *n, build(b, depth + 1, p, opts))),
            Piece::While(n, b) => {
                let id = p.flows.len() as u32;
                p.flows.push(flow(FlowKind::While, ""));
                opts.trip_counts.by_name.insert(format!("while.{id}"), *n);
                out.extend(seq(vec![i(Op::SLi, &[count, 0])]));
                let mut body = build(b, depth + 1, p, opts);
                body.extend(seq(vec![i(Op::SAddi, &[count, count, 1])]));
                let cond = seq(vec![i(Op::SLti, &[i32::from(test), count, *n as i32])]);
                out.push(while_loop(id, cond, test, body));
            }
            Piece::Case(k, b) => {
                let id = p.flows.len() as u32;
                p.flows.push(flow(FlowKind::Case, ""));
                opts.branches.insert(format!("case.{id}"), *k);
                out.extend(seq(vec![i(Op::SLi, &[count, *k as i32])]));
                let branches = b.iter().map(|b| build(b, depth + 1, p, opts)).collect();
                out.push(case(id, count as u8, branches));
            }
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    // Oracle: a run with data is a run that was told what its registers decide; folding changes neither. Told nothing about branches,
    // folding still changes nothing.
    #[test]
    fn data_and_options_agree(code in pieces(), chip in prop_oneof![Just("v5e"), Just("v4")]) {
        let chip = bare(chip);
        let mut p = program(&chip, vec![]);
        p.descs = vec![dense(DmaDir::Load, 64, 128, 0, 0), dense(DmaDir::Store, 16, 128, 32768, 64)];
        p.buffers = vec![buffer(0, 32768, BufferKind::Param(0)), buffer(32768, 8192, BufferKind::Output(0))];
        let mut opts = RunOptions::default();
        let start = seq(vec![i(Op::Dma, &[0, 5])]);
        p.body = [start, build(&code, 0, &mut p, &mut opts)].concat();
        let unfolded = |o: &RunOptions| RunOptions { fold: false, ..o.clone() };
        let timed = time(&p, &chip, &opts).unwrap();
        same(&time(&p, &chip, &unfolded(&opts)).unwrap(), &timed);
        let free = RunOptions { branches: BTreeMap::new(), ..opts.clone() };
        let longest = time(&p, &chip, &free).unwrap();
        same(&time(&p, &chip, &unfolded(&free)).unwrap(), &longest);
        if timed.cycles < 200_000 {
            let x = vec![1; 32768];
            let a = execute(&p, &chip, std::slice::from_ref(&x), &RunOptions::default()).unwrap();
            same(&a.profile, &timed);
            let b = execute(&p, &chip, &[x], &unfolded(&RunOptions::default())).unwrap();
            same(&b.profile, &timed);
            prop_assert!(a.outputs == b.outputs);
        }
    }
}
