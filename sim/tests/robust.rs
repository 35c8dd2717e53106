//! Wrong programs fault; they do not panic, hang or take the host's memory. Races and uninitialised reads show.

mod common;

use common::*;
use proptest::prelude::*;
use tpusim_isa::op::{Field, Instr, Op};
use tpusim_isa::program::{Addr, BufferKind, DmaDesc, DmaDim, DmaDir, Node, OnChip, SReg};
use tpusim_sim::{RunOptions, execute, time};

fn operand(field: Field) -> BoxedStrategy<i32> {
    let any = prop_oneof![Just(0), Just(1), Just(-1), Just(i32::MAX), Just(i32::MIN), -300..300i32];
    match field {
        Field::Imm => any.boxed(),
        Field::Mxu | Field::Xlu | Field::Desc => (0..2i32).boxed(),
        _ => prop_oneof![20 => 0..8i32, 1 => any].boxed(),
    }
}

fn instr() -> impl Strategy<Value = Instr> {
    (0..Op::ALL.len()).prop_flat_map(|k| {
        let op = Op::ALL[k];
        let args: Vec<_> = op.fields().iter().map(|f| operand(*f)).collect();
        args.prop_map(move |a| Instr::new(op, &a))
    })
}

fn stride() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0i64), Just(2), Just(4), Just(-4), Just(512), Just(i64::MAX), Just(i64::MIN), -5000..5000i64]
}

fn desc() -> impl Strategy<Value = DmaDesc> {
    let dim = (0..4u32, stride(), stride()).prop_map(|(count, hbm_stride, local_stride)| DmaDim {
        count,
        hbm_stride,
        local_stride,
    });
    let addr = || {
        (-100..9000i64, prop_oneof![Just(0i64), stride()])
            .prop_map(|(base, k)| Addr { base, terms: vec![(SReg(4), k)] })
    };
    (
        (any::<(bool, bool)>(), prop_oneof![Just(1u8), Just(2), Just(4), Just(3)], prop::collection::vec(dim, 0..3)),
        (prop_oneof![0..40u32, Just(u32::MAX)], stride(), prop_oneof![0..300u32, Just(u32::MAX)], stride()),
        (prop_oneof![0..4u32, Just(u32::MAX)], addr(), addr()),
    )
        .prop_map(
            |(((load, smem), elem_bytes, outer), (rows, row_stride, cols, col_stride), (lane_tiles, hbm, local))| {
                DmaDesc {
                    dir: if load { DmaDir::Load } else { DmaDir::Store },
                    mem: if smem { OnChip::Smem } else { OnChip::Vmem },
                    elem_bytes,
                    outer,
                    rows,
                    row_stride,
                    cols,
                    col_stride,
                    lane_tiles,
                    hbm,
                    local,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    // Oracle: a result or a fault. Where the data runs through, time alone does too, and takes as long.
    #[test]
    fn any_program_ends(
        bundles in prop::collection::vec(prop::collection::vec(instr(), 1..3), 1..6),
        descs in prop::collection::vec(desc(), 2),
        trip in 0..5u32,
        late in any::<bool>(),
    ) {
        let chip = bare("v4");
        let body: Vec<Node> = bundles.into_iter().map(bundle).collect();
        let mut p = program(&chip, vec![repeat(4, trip, body)]);
        p.descs = descs;
        p.ops[0].cores = 2;
        p.buffers = vec![buffer(0, 8192, BufferKind::Param(0)), buffer(8192, 8192, BufferKind::Output(0))];
        let opts = RunOptions { dma_late: late, ..RunOptions::default() };
        let timed = time(&p, &chip, &opts);
        if let Ok(r) = execute(&p, &chip, &[vec![7; 8192]], &opts) {
            prop_assert_eq!(r.profile, timed.unwrap());
        }
    }
}

// Oracle: data read before the wait is the old data when DMAs are late, and the new data when they are early; poison shows in what
// nobody wrote.
#[test]
fn races_and_poison_show() {
    let chip = bare("v5e");
    let load = |wait_first: bool| {
        let mut body = vec![i(Op::Dma, &[0, 0]), i(Op::DmaWait, &[0, 1]), i(Op::VLd, &[0, 0, 0, 1])];
        if !wait_first {
            body.swap(1, 2);
        }
        body.extend([i(Op::VSt, &[0, 0, 8, 1]), i(Op::Dma, &[1, 0]), i(Op::DmaWait, &[0, 1])]);
        let mut p = program(&chip, seq(body));
        p.descs = vec![dense(DmaDir::Load, 7, 128, 0, 0), dense(DmaDir::Store, 8, 128, 4096, 8)];
        p.buffers = vec![buffer(0, 4096, BufferKind::Param(0)), buffer(4096, 4096, BufferKind::Output(0))];
        p
    };
    let run = |p, dma_late| {
        let opts = RunOptions { dma_late, poison: true, ..RunOptions::default() };
        let out = execute(&p, &chip, &[words(&[2.5; 1024])], &opts).unwrap().outputs.remove(0);
        floats(&out)
    };
    for late in [false, true] {
        let right = run(load(true), late);
        assert!(right[..896].iter().all(|x| *x == 2.5));
        assert!(right[896..].iter().all(|x| x.is_nan()), "the eighth row was never written");
    }
    assert_eq!(run(load(false), false)[0], 2.5);
    assert!(run(load(false), true)[0].is_nan(), "the race shows");
}
