//! Matrix products through the instruction set.

mod common;

use common::*;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::Format;
use tpusim_isa::op::{Instr, Op};
use tpusim_isa::program::{Addr, BufferKind, DmaDesc, DmaDir, OnChip, Program};
use tpusim_sim::{RunOptions, execute};

/// `rows` x `cols` elements of `bytes` each, dense in HBM at `hbm`, in VMEM at row `vmem`.
fn block(dir: DmaDir, bytes: u8, rows: u32, cols: u32, hbm: i64, vmem: i64) -> DmaDesc {
    let e = i64::from(bytes);
    DmaDesc {
        dir,
        mem: OnChip::Vmem,
        elem_bytes: bytes,
        outer: vec![],
        rows,
        row_stride: i64::from(cols) * e,
        cols,
        col_stride: e,
        lane_tiles: cols.div_ceil(128),
        hbm: Addr { base: hbm, terms: vec![] },
        local: Addr { base: vmem, terms: vec![] },
    }
}

/// One `vmatmul` of `8 * packing` rows against dim x dim weights: HBM holds rows, weights, results.
fn product(chip: &ChipSpec, f: Format, transposed: bool, accumulate: bool) -> Program {
    let (d, p) = (*chip.mxu.dim as i32, f.packing() as i32);
    let (h, t, e) = (d / 128, 8 * p, 4 / p);
    let code = f.code();
    let mut body: Vec<Instr> = vec![i(Op::Dma, &[0, 0]), i(Op::Dma, &[1, 0]), i(Op::DmaWait, &[0, 2])];
    let push = if transposed { Op::MxPushT } else { Op::MxPush };
    for slot in 0..d / t * h {
        body.extend([i(Op::VLd, &[0, 0, 1000 + slot * 8, 1]), i(push, &[0, 0, code, slot])]);
    }
    body.extend([i(Op::MxLatch, &[0]), i(Op::VLd, &[0, 0, 0, 1]), i(Op::VLd, &[1, 0, 8 * (h - 1), 1])]);
    if accumulate {
        body.extend([i(Op::MxIni, &[0, 0, 1, code, 3]), i(Op::MxAcc, &[0, 0, 1, code, 3])]);
    } else {
        body.push(i(Op::MxMul, &[0, 0, 1, code]));
    }
    for r in 0..p * h {
        body.push(if accumulate { i(Op::MxPopAcc, &[0, 2, 3 * h + r]) } else { i(Op::MxPop, &[0, 2]) });
        body.push(i(Op::VSt, &[2, 0, 5000 + r * 8, 1]));
    }
    body.extend([i(Op::Dma, &[2, 0]), i(Op::DmaWait, &[0, 1])]);
    let mut prog = program(chip, seq(body));
    let (x, w, o) = (i64::from(t * d * e), i64::from(d * d * e), i64::from(t * d * 4));
    prog.descs = vec![
        block(DmaDir::Load, e as u8, t as u32, d as u32, 0, 0),
        block(DmaDir::Load, e as u8, d as u32, d as u32, x, 1000),
        block(DmaDir::Store, 4, t as u32, d as u32, x + w, 5000),
    ];
    prog.buffers = vec![
        buffer(0, x as u64, BufferKind::Param(0)),
        buffer(x as u64, w as u64, BufferKind::Param(1)),
        buffer((x + w) as u64, o as u64, BufferKind::Output(0)),
    ];
    prog
}

fn codes(n: usize, bytes: usize, seed: u32) -> Vec<u8> {
    (0..n)
        .flat_map(|k| {
            let r = (k as u32 + seed).wrapping_mul(0x9e37_79b9).rotate_left(11).wrapping_mul(0x85eb_ca6b);
            // bf16 of moderate size; any byte.
            let c = if bytes == 2 { (r >> 16 & 0x81ff) as u16 + 0x3e00 } else { (r >> 24) as u16 };
            c.to_le_bytes()[..bytes].to_vec()
        })
        .collect()
}

/// Element `k` of a packed buffer as f64, for the formats of these tests.
fn decode(f: Format, b: &[u8], k: usize) -> f64 {
    match f {
        Format::Bf16 => f64::from(half::bf16::from_le_bytes([b[2 * k], b[2 * k + 1]]).to_f32()),
        Format::S8 => f64::from(b[k] as i8),
        Format::U8 => f64::from(b[k]),
        _ => {
            // f8e5m2 is the top half of an IEEE half.
            f64::from(half::f16::from_bits(u16::from(b[k]) << 8).to_f32())
        }
    }
}

fn check(chip: &str, f: Format, transposed: bool, accumulate: bool) {
    let chip = bare(chip);
    let (d, t) = (*chip.mxu.dim as usize, 8 * f.packing());
    let e = 4 / f.packing();
    let (mut x, mut w) = (codes(t * d, e, 1), codes(d * d, e, 77));
    if f == Format::E5M2 {
        // Keep clear of infinities and NaN.
        x.iter_mut().chain(&mut w).for_each(|c| *c &= 0xbf);
    }
    let p = product(&chip, f, transposed, accumulate);
    let out = &execute(&p, &chip, &[x.clone(), w.clone()], &RunOptions { poison: true, ..Default::default() })
        .unwrap()
        .outputs[0];
    for r in 0..t {
        for n in 0..d {
            let weight = |k: usize| decode(f, &w, if transposed { n * d + k } else { k * d + n });
            let got = out[(r * d + n) * 4..][..4].try_into().unwrap();
            if matches!(f, Format::S8 | Format::U8) {
                let sum: f64 = (0..d).map(|k| decode(f, &x, r * d + k) * weight(k)).sum();
                let times = if accumulate { 2 } else { 1 };
                assert_eq!(i32::from_le_bytes(got), sum as i32 * times, "{r},{n}");
            } else {
                let sum = (0..d).fold(0f32, |s, k| (decode(f, &x, r * d + k) as f32).mul_add(weight(k) as f32, s));
                let want = if accumulate { sum + sum } else { sum };
                assert_eq!(u32::from_le_bytes(got), want.to_bits(), "{r},{n}");
            }
        }
    }
}

// Oracle: the definition in plain arithmetic: f32 sums in ascending order, exact integers.
#[test]
fn products_of_every_family() {
    check("v4", Format::Bf16, false, false);
    check("v4", Format::Bf16, true, false);
    check("v4", Format::S8, false, false);
    check("v6e", Format::Bf16, false, false);
    check("v6e", Format::Bf16, true, false);
    check("v6e", Format::S8, true, false);
    check("v6e", Format::U8, false, false);
    check("v7x", Format::E5M2, false, false);
    if *bare("v7x").mxu.accumulators > 0 {
        check("v7x", Format::Bf16, false, true);
        check("v7x", Format::E5M2, true, true);
    }
}

/// Eight products on each of four MXUs, with weights of their own, before the first result is popped.
fn many_products(chip: &ChipSpec) -> Program {
    let mut body: Vec<Instr> = vec![i(Op::Dma, &[0, 0]), i(Op::DmaWait, &[0, 1])];
    for m in 0..4 {
        for slot in 0..8 {
            body.extend([i(Op::VLd, &[0, 0, (m * 5 + slot) * 8, 1]), i(Op::MxPush, &[m, 0, 0, slot])]);
        }
        body.push(i(Op::MxLatch, &[m]));
    }
    for k in 0..8 {
        body.push(i(Op::VLd, &[0, 0, (31 - k) * 8, 1]));
        body.extend((0..4).map(|m| i(Op::MxMul, &[m, 0, 0, 0])));
    }
    for (m, r) in (0..4).flat_map(|m| (0..16).map(move |r| (m, r))) {
        body.extend([i(Op::MxPop, &[m, 1]), i(Op::VSt, &[1, 0, 1000 + (m * 16 + r) * 8, 1])]);
    }
    body.extend([i(Op::Dma, &[1, 0]), i(Op::DmaWait, &[0, 1])]);
    let mut p = program(chip, seq(body));
    p.descs = vec![block(DmaDir::Load, 2, 512, 128, 0, 0), block(DmaDir::Store, 4, 512, 128, 131_072, 1000)];
    p.buffers = vec![buffer(0, 131_072, BufferKind::Param(0)), buffer(131_072, 262_144, BufferKind::Output(0))];
    p
}

// Oracle: the definition, on any number of host threads: f32 sums in ascending order.
#[test]
fn threads_do_not_change_bits() {
    let chip = bare("v4");
    let (p, x) = (many_products(&chip), codes(65_536, 2, 5));
    let value = |row: usize, col: usize| decode(Format::Bf16, &x, row * 128 + col) as f32;
    for threads in [0, 1, 2, 3, 16] {
        let opts = RunOptions { threads, ..RunOptions::default() };
        let out = floats(&execute(&p, &chip, std::slice::from_ref(&x), &opts).unwrap().outputs[0]);
        for (m, k, r, n) in [(0, 0, 0, 0), (1, 7, 15, 127), (2, 3, 9, 64), (3, 7, 8, 1), (3, 0, 15, 99), (0, 6, 4, 31)]
        {
            let weight = |j: usize| value((m * 5 + j / 16) * 16 + j % 16, n);
            let want = (0..128).fold(0f32, |s, j| value((31 - k) * 16 + r, j).mul_add(weight(j), s));
            let got = out[((m * 8 + k) * 16 + r) * 128 + n];
            assert_eq!(got.to_bits(), want.to_bits(), "{threads} threads, mxu {m}, product {k}: {r},{n}");
        }
        let one = execute(&p, &chip, std::slice::from_ref(&x), &RunOptions::default()).unwrap();
        assert!(floats(&one.outputs[0]).iter().zip(&out).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}
