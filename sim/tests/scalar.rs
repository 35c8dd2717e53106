//! Scalars from HBM, and addresses made of them.

mod common;

use common::*;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::Op;
use tpusim_isa::program::{Addr, BufferKind, DmaDesc, DmaDir, Program, SReg};
use tpusim_sim::{FaultKind, RunOptions, execute, time};

/// `out[i] = table[index[i]]` for rows of 128 words: the indices come to SMEM, each row to VMEM at an address made of its index, with
/// all rows on their way at once, and one DMA takes them out.
fn gather(chip: &ChipSpec, rows: u32, count: u32) -> Program {
    let table = i64::from(rows) * 512;
    let out = table + i64::from(count) * 4;
    let mut body = seq(vec![i(Op::Dma, &[0, 0]), i(Op::DmaWait, &[0, 1])]);
    body.push(repeat(4, count, seq(vec![i(Op::SLd, &[5, 4, 100]), i(Op::Dma, &[1, 1])])));
    body.extend(seq(vec![i(Op::DmaWait, &[1, count as i32]), i(Op::Dma, &[2, 2]), i(Op::DmaWait, &[2, 1])]));
    let mut p = program(chip, body);
    let row = dense(DmaDir::Load, 1, 128, 0, 0);
    p.descs = vec![
        scalars(DmaDir::Load, count, table, 100),
        DmaDesc {
            hbm: Addr { base: 0, terms: vec![(SReg(5), 512)] },
            local: Addr { base: 8, terms: vec![(SReg(4), 1)] },
            ..row
        },
        dense(DmaDir::Store, count, 128, out, 8),
    ];
    p.buffers = vec![
        buffer(0, table as u64, BufferKind::Param(0)),
        buffer(table as u64, u64::from(count) * 4, BufferKind::Param(1)),
        buffer(out as u64, u64::from(count) * 512, BufferKind::Output(0)),
    ];
    p
}

fn bytes(v: &[i32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn every_way() -> impl Iterator<Item = RunOptions> {
    [(true, false, false), (false, false, false), (true, true, false), (true, false, true), (false, true, true)]
        .into_iter()
        .map(|(fold, poison, dma_late)| RunOptions { fold, poison, dma_late, ..RunOptions::default() })
}

// Oracle: indexing, under every option that must not change results; the time is the same with data and without, folded and not.
#[test]
fn rows_are_gathered_by_index() {
    let chip = bare("v5e");
    let (rows, count) = (37, 500);
    let p = gather(&chip, rows, count);
    let table: Vec<f32> = (0..rows * 128).map(|k| k as f32).collect();
    let index: Vec<i32> = (0..count as i32).map(|k| (k * k + 5 * k + 3) % rows as i32).collect();
    let want: Vec<f32> = index.iter().flat_map(|&k| table[k as usize * 128..][..128].to_vec()).collect();
    let timed = time(&p, &chip, &RunOptions::default()).unwrap();
    assert_eq!(timed.ops, time(&p, &chip, &RunOptions { fold: false, ..RunOptions::default() }).unwrap().ops);
    for opts in every_way() {
        let r = execute(&p, &chip, &[words(&table), bytes(&index)], &opts).unwrap();
        assert_eq!(floats(&r.outputs[0]), want);
        assert_eq!((r.profile.cycles, &r.profile.ops), (timed.cycles, &timed.ops));
    }
}

// Oracle: HBM is as long as the plan. An index is signed, so -1 is the row before the first.
#[test]
fn an_index_out_of_range_is_a_fault() {
    let chip = bare("v5e");
    let p = gather(&chip, 4, 3);
    let fault = |index: [i32; 3], fold| {
        let opts = RunOptions { fold, ..RunOptions::default() };
        execute(&p, &chip, &[vec![0; 2048], bytes(&index)], &opts).unwrap_err()
    };
    let bytes = 4 * 512 + 12 + 3 * 512;
    let f = fault([0, -1, 0], false);
    assert_eq!(*f.kind, FaultKind::Hbm { first: -512, last: -1, bytes });
    assert_eq!(f.pc, [0, 2, 1]);
    assert_eq!(*fault([0, 0, 8], false).kind, FaultKind::Hbm { first: 4096, last: 4607, bytes });
    assert_eq!(*fault([0, i32::MIN, 0], true).kind, FaultKind::Hbm { first: -(1 << 40), last: 511 - (1 << 40), bytes });
    // A program of many rows is folded long before the row that is wrong.
    let p = gather(&chip, 4, 400);
    let mut index = [0; 400];
    index[399] = 9999;
    let f = execute(&p, &chip, &[vec![0; 2048], index.map(i32::to_le_bytes).concat()], &RunOptions::default());
    assert_eq!(f.unwrap_err().pc, [0, 2, 1]);
}

// Oracle: SMEM belongs to a core, and a narrow element has a word of its own; with poison, what nobody wrote shows.
#[test]
fn each_core_has_its_scalars() {
    let chip = bare("v4");
    let body = seq(vec![
        i(Op::Dma, &[0, 0]),
        i(Op::DmaWait, &[0, 1]),
        i(Op::SLd, &[5, 0, 3]),
        i(Op::SAddi, &[5, 5, 1]),
        i(Op::SSt, &[5, 0, 3]),
        i(Op::Dma, &[1, 0]),
        i(Op::DmaWait, &[0, 1]),
    ]);
    let mut p = program(&chip, body);
    p.ops[0].cores = 2;
    let half = |dir, hbm| DmaDesc {
        hbm: Addr { base: hbm, terms: vec![(SReg(1), 8)] },
        elem_bytes: 2,
        col_stride: 2,
        ..scalars(dir, 4, 0, 0)
    };
    p.descs = vec![half(DmaDir::Load, 0), DmaDesc { cols: 5, ..half(DmaDir::Store, 16) }];
    p.descs[1].hbm.terms[0].1 = 10;
    p.buffers = vec![buffer(0, 16, BufferKind::Param(0)), buffer(16, 20, BufferKind::Output(0))];
    let x: Vec<u8> = [1u16, 2, 3, 0xffff, 5, 6, 7, 8].iter().flat_map(|v| v.to_le_bytes()).collect();
    for (poison, rest) in [(false, 0), (true, 0xdead)] {
        let want = [1u16, 2, 3, 0, rest, 5, 6, 7, 9, rest];
        let want: Vec<u8> = want.iter().flat_map(|v| v.to_le_bytes()).collect();
        let opts = RunOptions { poison, ..RunOptions::default() };
        assert_eq!(execute(&p, &chip, std::slice::from_ref(&x), &opts).unwrap().outputs, [want]);
    }
}
