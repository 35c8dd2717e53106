//! Operand blocks: zeroed padding, conversion and transposition into scratch blocks.

use tpusim_isa::num::Format;
use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::cells::{next_xlu, packing};
use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::nest::{Iter, Nest};
use super::super::vcode::{Object, Place, V};
use super::*;

impl<'k> Lowering<'k> {
    /// Zeroes what the DMAs of an operand leave untouched along `k`.
    pub(super) fn zero_padding(&self, e: &mut Emitter<'_>, nest: &Nest, r: &Ready) -> Result<(), EmitError> {
        let s = &nest.streams()[r.stream];
        let k_pad = self.k_groups() * self.t.k_split * self.dim;
        if self.t.k as u32 == k_pad {
            return Ok(());
        }
        let tile = 8 * packing(r.dtype);
        for (at, rows) in nest.buffers(r.stream) {
            let object = e.object();
            let clear = |e: &mut Emitter<'_>, first: u32, step: u32, count: u32| -> Result<(), EmitError> {
                e.repeat(count, |e, c| {
                    let base = e.affine(c, step as i32, first as i32)?;
                    let z = e.code.imm(0);
                    e.code.store(z, Place { object, base, offset: 0 });
                    e.flush()?;
                    e.free(base);
                    Ok(())
                })
            };
            if r.route.lanes_along_k {
                // The lane tiles from the ragged one on, in every tile row.
                let tile_rows = rows / (8 * s.lane_tiles);
                for t in self.t.k as u32 / 128..s.lane_tiles {
                    clear(e, at + t * 8, s.lane_tiles * 8, tile_rows)?;
                }
            } else {
                // The last rows of each window position's plane.
                let first = self.t.k as u32 / tile * 8 * s.lane_tiles;
                for plane in (0..rows).step_by(s.plane_rows.max(8) as usize) {
                    clear(e, at + plane + first, 8, (s.plane_rows - first) / 8)?;
                }
            }
        }
        Ok(())
    }

    /// Converts or transposes an operand's block into its scratch block.
    pub(super) fn prepare_block(
        &mut self,
        e: &mut Emitter<'_>,
        nest: &Nest,
        it: &Iter,
        r: Ready,
    ) -> Result<(), EmitError> {
        let Some((at, object)) = r.scratch else { return Ok(()) };
        let place = nest.place(r.stream, it);
        let src_q = packing(r.dtype);
        let q = self.q();
        if r.route.transpose {
            return self.transpose_block(e, place, r, at, object);
        }
        // Groups of rows that fill packed registers on both sides.
        let group = 8 * q.max(src_q);
        let groups = r.rows.div_ceil(group);
        let unroll = r.lane_tiles.min(4);
        e.repeat(groups, |e, g| {
            let src = e.affine(g, (group / (8 * src_q) * 8 * r.lane_tiles) as i32, 0)?;
            e.ss(Op::SAdd, src, src, place.base);
            let dst = e.affine(g, (group / (8 * q) * 8 * r.lane_tiles) as i32, at as i32)?;
            e.repeat(r.lane_tiles / unroll, |e, t| {
                let step = e.affine(t, (unroll * 8) as i32, 0)?;
                let (s, d) = (e.sreg()?, e.sreg()?);
                e.ss(Op::SAdd, s, src, step);
                e.ss(Op::SAdd, d, dst, step);
                for u in 0..unroll {
                    self.convert_cell(
                        e,
                        r,
                        Place { base: s, ..place }.at(u * 8),
                        Place { object, base: d, offset: 0 }.at(u * 8),
                        group,
                    );
                }
                e.flush()?;
                for x in [step, s, d] {
                    e.free(x);
                }
                Ok(())
            })?;
            for u in r.lane_tiles / unroll * unroll..r.lane_tiles {
                self.convert_cell(
                    e,
                    r,
                    Place { base: src, ..place }.at(u * 8),
                    Place { object, base: dst, offset: 0 }.at(u * 8),
                    group,
                );
            }
            e.flush()?;
            e.free(src);
            e.free(dst);
            Ok(())
        })
    }

    pub(super) fn convert_cell(&self, e: &mut Emitter<'_>, r: Ready, src: Place, dst: Place, group: u32) {
        let (src_q, q) = (packing(r.dtype), self.q());
        let mut parts = Vec::new();
        for i in 0..group / (8 * src_q) {
            let v = e.code.load(src.at(i * r.lane_tiles * 8));
            match Format::of(r.dtype) {
                Some(f) => parts.extend((0..src_q).map(|p| e.code.unpack(v, f, p as usize))),
                None => parts.push(v),
            }
        }
        let to_float = self.k.format.dtype().is_float();
        if to_float && r.dtype.is_int() {
            parts = parts.iter().map(|&v| e.code.v(Op::VI2F, &[v])).collect();
        }
        for (i, chunk) in parts.chunks(q as usize).enumerate() {
            let v = e.code.pack(chunk, self.k.format);
            e.code.store(v, dst.at(i as u32 * r.lane_tiles * 8));
        }
    }

    /// Source tiles have rows along `k`; the scratch block has rows along the operand's own dimension, packed.
    pub(super) fn transpose_block(
        &mut self,
        e: &mut Emitter<'_>,
        place: Place,
        r: Ready,
        at: u32,
        object: Object,
    ) -> Result<(), EmitError> {
        let (src_q, q) = (packing(r.dtype), self.q());
        for kt in 0..r.lane_tiles {
            e.repeat(r.source_lane_tiles, |e, own| {
                let src = e.affine(own, 8, (kt * 128 / (8 * src_q) * 8 * r.source_lane_tiles) as i32)?;
                e.ss(Op::SAdd, src, src, place.base);
                let dst = e.affine(own, (128 / (8 * q) * 8 * r.lane_tiles) as i32, (at + kt * 8) as i32)?;
                let x = next_xlu(e, &mut self.xlu);
                for i in 0..16 / src_q {
                    let v = e.code.load(Place { base: src, ..place }.at(i * 8 * r.source_lane_tiles));
                    for p in 0..src_q {
                        let mut v = match Format::of(r.dtype) {
                            Some(f) => e.code.unpack(v, f, p as usize),
                            None => v,
                        };
                        if self.k.format.dtype().is_float() && r.dtype.is_int() {
                            v = e.code.v(Op::VI2F, &[v]);
                        }
                        e.code.xlu_push(Op::XPose, x, v, 0);
                    }
                }
                let out: Vec<V> = (0..16).map(|_| e.code.xlu_pop(x)).collect();
                for (i, chunk) in out.chunks(q as usize).enumerate() {
                    let v = e.code.pack(chunk, self.k.format);
                    e.code.store(v, Place { object, base: dst, offset: 0 }.at(i as u32 * 8 * r.lane_tiles));
                }
                e.flush()?;
                e.free(src);
                e.free(dst);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// First row of an operand's ready block, in a fresh register.
    pub(super) fn ready_base(&self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter, r: &Ready) -> Result<SReg, EmitError> {
        match r.scratch {
            Some((at, _)) => e.affine(ZERO, 0, at as i32),
            None => {
                let p = nest.place(r.stream, it);
                let d = e.sreg()?;
                e.si(Op::SAddi, d, p.base, p.offset);
                Ok(d)
            }
        }
    }

    pub(super) fn object_of(&self, nest: &Nest, it: &Iter, r: &Ready) -> Object {
        r.scratch.map_or_else(|| nest.place(r.stream, it).object, |(_, o)| o)
    }
}
