//! Helpers to write small programs by hand.
#![allow(dead_code)]

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_isa::op::{Instr, Op};
use tpusim_isa::program::{
    Addr, Buffer, BufferKind, Bundle, DmaDesc, DmaDir, FlowInfo, FlowKind, Node, OnChip, OpInfo, Program, SReg,
};

pub fn i(op: Op, operands: &[i32]) -> Instr {
    Instr::new(op, operands)
}

pub fn bundle(instrs: Vec<Instr>) -> Node {
    Node::Bundle(Bundle { instrs })
}

/// One instruction per bundle.
pub fn seq(instrs: Vec<Instr>) -> Vec<Node> {
    instrs.into_iter().map(|x| bundle(vec![x])).collect()
}

pub fn repeat(counter: u8, trip: u32, body: Vec<Node>) -> Node {
    Node::Loop { counter: SReg(counter), trip, body }
}

pub fn while_loop(info: u32, cond: Vec<Node>, test: u8, body: Vec<Node>) -> Node {
    Node::While { info, cond, test: SReg(test), body }
}

pub fn case(info: u32, selector: u8, branches: Vec<Vec<Node>>) -> Node {
    Node::Case { info, selector: SReg(selector), branches }
}

pub fn flow(kind: FlowKind, location: &str) -> FlowInfo {
    FlowInfo { name: format!("stablehlo.{}", kind.name()), location: location.to_owned(), kind }
}

pub fn info(name: &str, cores: u32) -> OpInfo {
    OpInfo {
        name: name.to_owned(),
        source: String::new(),
        location: String::new(),
        mxu_flops: 0,
        vector_flops: 0,
        dtype: DType::F32,
        cores,
        modelled_cycles: 0,
    }
}

/// A program of one operation.
pub fn program(chip: &ChipSpec, body: Vec<Node>) -> Program {
    Program {
        name: "test".to_owned(),
        chip: chip.name.clone(),
        body: vec![Node::Op { op: 0, body }],
        ops: vec![info("op", 1)],
        ..Program::default()
    }
}

/// A block of rows x cols 32-bit elements, dense in HBM.
pub fn dense(dir: DmaDir, rows: u32, cols: u32, hbm: i64, vmem: i64) -> DmaDesc {
    DmaDesc {
        dir,
        mem: OnChip::Vmem,
        elem_bytes: 4,
        outer: vec![],
        rows,
        row_stride: i64::from(cols) * 4,
        cols,
        col_stride: 4,
        lane_tiles: cols.div_ceil(128),
        hbm: Addr { base: hbm, terms: vec![] },
        local: Addr { base: vmem, terms: vec![] },
    }
}

/// A row of `words` 32-bit elements in HBM and SMEM.
pub fn scalars(dir: DmaDir, words: u32, hbm: i64, smem: i64) -> DmaDesc {
    DmaDesc { mem: OnChip::Smem, ..dense(dir, 1, words, hbm, smem) }
}

pub fn buffer(offset: u64, bytes: u64, kind: BufferKind) -> Buffer {
    Buffer { offset, bytes, kind, live: (0, 0) }
}

/// The chip without launch and entry cost, so that cycles can be counted by hand.
pub fn bare(name: &str) -> ChipSpec {
    let zero = |key: &str, value: &str| (format!("overhead.{key}"), value.to_owned());
    ChipSpec::load_with(name, &[zero("op_launch_s", "0.0"), zero("entry_cycles", "0")]).unwrap()
}

pub fn words(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

pub fn floats(b: &[u8]) -> Vec<f32> {
    b.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}
