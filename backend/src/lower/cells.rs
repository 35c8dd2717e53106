//! How cells read and write the blocks of streams: packing, broadcasting, types.

use tpusim_isa::num::{DType, Format};
use tpusim_isa::op::Op;

use super::emit::Emitter;
use super::expr::Parts;
use super::math::{MapOp, Types, Val, as_v, int_to_mask, map};
use super::vcode::{Place, V};

/// One stream's block in VMEM as cells address it.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Which stream of the nest.
    pub stream: usize,
    /// Element type.
    pub dtype: DType,
    /// Lane tiles of a tile row.
    pub lane_tiles: u32,
    /// VMEM rows of a plane.
    pub plane_rows: u32,
    /// Whether the block has several planes.
    pub varies_plane: bool,
    /// Whether it varies over rows; if not, its single row is the first.
    pub varies_row: bool,
    /// Whether it varies over columns; if not, its single column is the first.
    pub varies_col: bool,
}

/// Bytes an element takes in HBM and VMEM.
pub fn stored_bytes(t: DType) -> u8 {
    t.bytes() as u8
}

/// The packed format elements of `t` are stored in; `None` for 32-bit types.
pub fn format_of(t: DType) -> Option<Format> {
    match t {
        DType::I1 | DType::U2 | DType::U4 => Some(Format::U8),
        DType::I2 | DType::I4 => Some(Format::S8),
        _ => Format::of(t),
    }
}

/// Elements per 32-bit word.
pub fn packing(t: DType) -> u32 {
    t.packing() as u32
}

/// The XLUs in turn.
pub fn next_xlu(e: &Emitter<'_>, turn: &mut u32) -> u32 {
    *turn = (*turn + 1) % (*e.chip.xlus).max(1);
    *turn
}

/// Registers read from VMEM as values of their type.
pub fn typed(e: &mut Emitter<'_>, v: V, dtype: DType) -> Val {
    if dtype == DType::I1 { Val::M(int_to_mask(&mut e.code, v)) } else { Val::V(v) }
}

/// Loads a cell of `parts` registers (8 rows each) at `place`; one register if the stream does not vary over rows.
pub fn load_parts(e: &mut Emitter<'_>, s: &Shape, place: Place, parts: u32, xlu: &mut u32) -> Vec<V> {
    let q = packing(s.dtype);
    let packed_rows = if s.varies_row { parts / q } else { 1 };
    let mut out: Vec<V> = Vec::new();
    for i in 0..packed_rows {
        let at = place.at(i * s.lane_tiles * 8);
        match format_of(s.dtype) {
            Some(fmt) => {
                let p = e.code.load(at);
                let want = if s.varies_row { q } else { 1 };
                out.extend((0..want).map(|part| e.code.unpack(p, fmt, part as usize)));
            }
            None if s.varies_row => out.push(e.code.load(at)),
            None => out.push(e.code.load_row(at)),
        }
    }
    if !s.varies_row && format_of(s.dtype).is_some() {
        out = out.iter().map(|&p| e.code.vi(Op::VSubBcast, p, 0)).collect();
    }
    if !s.varies_col {
        for p in &mut out {
            let x = next_xlu(e, xlu);
            e.code.xlu_push(Op::XBcast, x, *p, 0);
            *p = e.code.xlu_pop(x);
        }
    }
    out
}

/// Stores a cell, packing it. A value with fewer registers than the cell repeats.
pub fn store_parts(e: &mut Emitter<'_>, s: &Shape, place: Place, parts: u32, value: &Parts) {
    let q = packing(s.dtype) as usize;
    let count = if s.varies_row { parts as usize } else { q };
    let vals: Vec<V> = (0..count).map(|i| as_v(&mut e.code, value[i % value.len()])).collect();
    for (i, chunk) in vals.chunks(q).enumerate() {
        let v = match format_of(s.dtype) {
            Some(fmt) => e.code.pack(chunk, fmt),
            None => chunk[0],
        };
        e.code.store(v, place.at(i as u32 * s.lane_tiles * 8));
    }
}

/// Reductions accumulate in 32 bits; the result has the element type's precision and range.
pub fn finish_reduce(e: &mut Emitter<'_>, v: V, dtype: DType) -> V {
    match format_of(dtype) {
        None => v,
        Some(f) if dtype.is_float() => e.code.round(v, f),
        Some(_) => {
            // Adding nothing wraps it.
            let zero = Val::V(e.code.imm(0));
            let types = Types { operand: dtype, result: dtype };
            let fitted = map(&mut e.code, MapOp::Add, types, &[Val::V(v), zero]);
            as_v(&mut e.code, fitted)
        }
    }
}
