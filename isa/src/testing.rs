//! Random programs for property tests.
//!
//! They are well-formed as data (text and binary must hold them exactly) but make no sense on any chip.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::num::{DType, Format};
use crate::op::{Field, Instr, MAX_FIELDS, Op};
use crate::pod::{Groups, Peer, SendDesc, SendDim, Table, TransferInfo};
use crate::program::{
    Addr, Buffer, BufferKind, Bundle, DmaDesc, DmaDim, DmaDir, FlowInfo, FlowKind, Node, OnChip, OpInfo, Program,
    Resident, SReg,
};

/// Any operand of a kind: mostly what a chip has, sometimes any bits.
fn arb_operand(field: Field) -> BoxedStrategy<i32> {
    let sensible = match field {
        Field::Vd | Field::Vs => 0..64,
        Field::Md | Field::Ms => 0..16,
        Field::Sd | Field::Ss => 0..32,
        Field::Mxu => 0..4,
        Field::Xlu => 0..2,
        Field::Fmt => 0..Format::ALL.len() as i32,
        Field::Flag => 0..256,
        Field::Desc | Field::Send | Field::Table => 0..100,
        Field::Imm => 0..40,
    };
    prop_oneof![20 => sensible, 1 => any::<i32>()].boxed()
}

/// Any instruction of the table.
pub fn arb_instr() -> impl Strategy<Value = Instr> {
    (0..Op::ALL.len()).prop_flat_map(|i| {
        let op = Op::ALL[i];
        let operands: Vec<_> = op.fields().iter().map(|f| arb_operand(*f)).collect();
        operands.prop_map(move |given| {
            let mut args = [0; MAX_FIELDS];
            args[..given.len()].copy_from_slice(&given);
            Instr { op, args }
        })
    })
}

/// Any bundle, in slot order or not.
pub fn arb_bundle() -> impl Strategy<Value = Bundle> {
    (vec(arb_instr(), 0..12), any::<bool>()).prop_map(|(mut instrs, sort)| {
        if sort {
            instrs.sort_by_key(|i| i.op.slot());
        }
        Bundle { instrs }
    })
}

fn arb_sreg() -> impl Strategy<Value = SReg> {
    prop_oneof![9 => 0u8..32, 1 => any::<u8>()].prop_map(SReg)
}

fn arb_node() -> impl Strategy<Value = Node> {
    arb_bundle().prop_map(Node::Bundle).prop_recursive(4, 24, 4, |inner| {
        let body = vec(inner, 0..4);
        prop_oneof![
            (arb_sreg(), any::<u32>(), body.clone()).prop_map(|(counter, trip, body)| Node::Loop {
                counter,
                trip,
                body
            }),
            (any::<u32>(), body.clone()).prop_map(|(op, body)| Node::Op { op, body }),
            (any::<u32>(), body.clone()).prop_map(|(transfer, body)| Node::Start { transfer, body }),
            any::<u32>().prop_map(|transfer| Node::Done { transfer }),
            (0u32..5, body.clone(), arb_sreg(), body.clone()).prop_map(|(info, cond, test, body)| Node::While {
                info,
                cond,
                test,
                body
            }),
            (any::<u32>(), arb_sreg(), vec(body, 0..3)).prop_map(|(info, selector, branches)| Node::Case {
                info,
                selector,
                branches
            }),
        ]
    })
}

fn arb_addr() -> impl Strategy<Value = Addr> {
    (any::<i64>(), vec((arb_sreg(), any::<i64>()), 0..4)).prop_map(|(base, terms)| Addr { base, terms })
}

fn arb_desc() -> impl Strategy<Value = DmaDesc> {
    let dim = any::<(u32, i64, i64)>().prop_map(|(count, hbm_stride, local_stride)| DmaDim {
        count,
        hbm_stride,
        local_stride,
    });
    (any::<(bool, bool, u8, u32, i64, u32, i64, u32)>(), vec(dim, 0..3), arb_addr(), arb_addr()).prop_map(
        |((load, smem, elem_bytes, rows, row_stride, cols, col_stride, lane_tiles), outer, hbm, local)| {
            let dir = if load { DmaDir::Load } else { DmaDir::Store };
            let mem = if smem { OnChip::Smem } else { OnChip::Vmem };
            DmaDesc { dir, mem, elem_bytes, outer, rows, row_stride, cols, col_stride, lane_tiles, hbm, local }
        },
    )
}

fn arb_info() -> impl Strategy<Value = OpInfo> {
    let text = ".{0,12}";
    ((text, text, text), any::<(u64, u64, u32, u64)>(), 0..DType::ALL.len()).prop_map(
        |((name, source, location), (mxu_flops, vector_flops, cores, modelled_cycles), dtype)| OpInfo {
            name,
            source,
            location,
            mxu_flops,
            vector_flops,
            dtype: DType::ALL[dtype],
            cores,
            modelled_cycles,
        },
    )
}

fn arb_flow() -> impl Strategy<Value = FlowInfo> {
    let text = ".{0,12}";
    let kind = prop_oneof![Just(FlowKind::While), Just(FlowKind::Case), Just(FlowKind::Counted)];
    (text, text, kind).prop_map(|(name, location, kind)| FlowInfo { name, location, kind })
}

fn arb_resident() -> impl Strategy<Value = Resident> {
    let text = ".{0,12}";
    (any::<u64>(), text, text, text, text).prop_map(|(bytes, array, name, source, location)| Resident {
        bytes,
        array,
        name,
        source,
        location,
    })
}

fn arb_data() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![vec(any::<u8>(), 0..70), (0usize..40).prop_map(|n| std::vec![0; n])];
    vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

fn arb_buffer() -> impl Strategy<Value = Buffer> {
    let kind = prop_oneof![
        any::<u32>().prop_map(BufferKind::Param),
        any::<u32>().prop_map(BufferKind::Output),
        arb_data().prop_map(|d| BufferKind::Constant(d.into())),
        Just(BufferKind::Temp),
    ];
    (any::<(u64, u64, u32, u32)>(), kind).prop_map(|((offset, bytes, first, last), kind)| Buffer {
        offset,
        bytes,
        kind,
        live: (first, last),
    })
}

fn arb_groups() -> impl Strategy<Value = Groups> {
    vec(vec(any::<u32>(), 0..4), 0..3).prop_map(|members| Groups { members })
}

fn arb_peer() -> impl Strategy<Value = Peer> {
    prop_oneof![
        any::<(u32, i32)>().prop_map(|(groups, shift)| Peer::Shift { groups, shift }),
        vec(any::<(u32, u32)>(), 0..4).prop_map(Peer::Pairs),
    ]
}

fn arb_table() -> impl Strategy<Value = Table> {
    prop_oneof![
        any::<u32>().prop_map(|groups| Table::Position { groups }),
        vec(any::<i32>(), 0..4).prop_map(Table::Values),
    ]
}

fn arb_send() -> impl Strategy<Value = SendDesc> {
    let dim =
        any::<(u32, i64, i64)>().prop_map(|(count, from_stride, to_stride)| SendDim { count, from_stride, to_stride });
    (any::<(u32, u32, u64)>(), vec(dim, 0..3), arb_addr(), arb_addr())
        .prop_map(|((peer, flag, bytes), outer, from, to)| SendDesc { peer, flag, outer, bytes, from, to })
}

fn arb_transfer() -> impl Strategy<Value = TransferInfo> {
    let text = ".{0,12}";
    ((text, text, text, text), any::<(u32, u64, u32)>()).prop_map(
        |((name, source, location, axes), (queue, bytes, flags))| TransferInfo {
            name,
            source,
            location,
            axes,
            queue,
            bytes,
            flags,
        },
    )
}

/// Any program.
pub fn arb_program() -> impl Strategy<Value = Program> {
    (
        (any::<String>(), any::<String>(), any::<(u64, u64)>()),
        vec(arb_node(), 0..6),
        vec(arb_desc(), 0..4),
        (vec(arb_info(), 0..4), vec(arb_flow(), 0..4)),
        (vec(arb_buffer(), 0..4), vec(arb_resident(), 0..4)),
        (
            vec(arb_groups(), 0..3),
            vec(arb_peer(), 0..3),
            vec(arb_table(), 0..3),
            vec(arb_send(), 0..3),
            vec(arb_transfer(), 0..3),
        ),
    )
        .prop_map(|((name, chip, (hbm_peak_bytes, vmem_peak_bytes)), body, descs, (ops, flows), memory, pods)| {
            let (buffers, residents) = memory;
            let (groups, peers, tables, sends, transfers) = pods;
            Program {
                name,
                chip,
                body,
                descs,
                ops,
                flows,
                groups,
                peers,
                tables,
                sends,
                transfers,
                buffers,
                residents,
                hbm_peak_bytes,
                vmem_peak_bytes,
            }
        })
}
