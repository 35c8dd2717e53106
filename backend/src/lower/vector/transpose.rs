//! Loads whose lanes run along the kernel's rows: tiles go through the XLUs into a scratch block.

use tpusim_isa::op::Op;

use super::super::cells::{format_of, packing};
use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::nest::{Iter, Nest};
use super::super::vcode::Place;
use super::*;

impl<'k> Lowering<'k> {
    /// Fills the scratch blocks of transposed loads, one 128 x 128 tile after another.
    pub(super) fn transpose(&mut self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        for t in self.transposes.clone() {
            let planes = if t.from.varies_plane { self.t.planes as u32 } else { 1 };
            let row_tiles = t.from.lane_tiles;
            let place = nest.place(t.from.stream, it);
            let packed = format_of(t.from.dtype);
            let q = packing(t.from.dtype);
            // One tile per XLU at a time.
            let width = (*e.chip.xlus).clamp(1, self.lane_tiles);
            for first in (0..self.lane_tiles).step_by(width as usize) {
                let tiles = first..(first + width).min(self.lane_tiles);
                e.repeat(planes, |e, plane| {
                    e.repeat(row_tiles, |e, r| {
                        let from = e.sreg()?;
                        let to = e.sreg()?;
                        e.si(Op::SAddi, from, place.base, 0);
                        e.sli(to, t.at as i32);
                        let steps =
                            [(plane, t.from.plane_rows, t.rows * self.lane_tiles), (r, 8, 128 * self.lane_tiles)];
                        for (counter, a, b) in steps {
                            if counter != ZERO {
                                for (reg, by) in [(from, a), (to, b)] {
                                    let x = e.affine(counter, by as i32, 0)?;
                                    e.ss(Op::SAdd, reg, reg, x);
                                    e.free(x);
                                }
                            }
                        }
                        let src = Place { base: from, ..place };
                        let dst = Place { object: t.object, base: to, offset: 0 };
                        for i in 0..16 / q {
                            for tile in tiles.clone() {
                                let v = e.code.load(src.at((tile * 128 / (8 * q) + i) * 8 * t.from.lane_tiles));
                                for part in 0..q {
                                    let v = match packed {
                                        Some(fmt) => e.code.unpack(v, fmt, part as usize),
                                        None => v,
                                    };
                                    e.code.xlu_push(Op::XPose, tile - first, v, 0);
                                }
                            }
                        }
                        for i in 0..16 {
                            for tile in tiles.clone() {
                                let v = e.code.xlu_pop(tile - first);
                                e.code.store(v, dst.at(i * self.lane_tiles * 8 + tile * 8));
                            }
                        }
                        e.flush()?;
                        e.free(from);
                        e.free(to);
                        Ok(())
                    })
                })?;
            }
        }
        Ok(())
    }
}
