//! Operand blocks: zeroed padding, transposition into scratch blocks, and conversion on the way to the array.

use tpusim_isa::num::{DType, Format};
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
        let k_pad = self.k_pad();
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
                let planes = s.outer.iter().map(|o| o.count).product::<u32>();
                for plane in (0..planes).map(|p| p * s.plane_rows) {
                    clear(e, at + plane + first, 8, (s.plane_rows - first) / 8)?;
                }
            }
        }
        Ok(())
    }

    /// Transposes an operand's block into its scratch block, converted.
    pub(super) fn prepare_block(
        &mut self,
        e: &mut Emitter<'_>,
        nest: &Nest,
        it: &Iter,
        r: Ready,
    ) -> Result<(), EmitError> {
        let Some((at, object)) = r.scratch else { return Ok(()) };
        let place = nest.place(r.stream, it);
        self.transpose_block(e, place, r, at, object)
    }

    /// A register of an operand as the array takes it: `row` counts those of the array's format along the block's rows, `tile` lane tiles
    /// from `base`. What lies there in another type is converted.
    pub(super) fn operand_register(
        &self,
        e: &mut Emitter<'_>,
        r: &Ready,
        object: Object,
        base: SReg,
        row: u32,
        tile: u32,
    ) -> V {
        let (q, lanes) = (self.q(), r.lane_tiles);
        let at = |row: u32| Place { object, base, offset: ((row * lanes + tile) * 8) as i32 };
        if r.scratch.is_some() || !r.route.convert {
            return e.code.load(at(row));
        }
        let src_q = packing(r.dtype);
        let mut parts = Vec::with_capacity(q as usize);
        let mut loaded = None;
        for group in row * q..(row + 1) * q {
            let v = match loaded {
                Some((from, v)) if from == group / src_q => v,
                _ => e.code.load(at(group / src_q)),
            };
            loaded = Some((group / src_q, v));
            parts.push(self.part(e, v, r.dtype, group % src_q));
        }
        e.code.pack(&parts, r.format)
    }

    /// Part `part` of a register of `dtype`, in 32 bits as the array's format is packed from.
    pub(super) fn part(&self, e: &mut Emitter<'_>, v: V, dtype: DType, part: u32) -> V {
        let v = match Format::of(dtype) {
            Some(f) => e.code.unpack(v, f, part as usize),
            None => v,
        };
        if self.k.format.dtype().is_float() && dtype.is_int() { e.code.v(Op::VI2F, &[v]) } else { v }
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
                        let v = self.part(e, v, r.dtype, p);
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
