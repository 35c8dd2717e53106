//! The software pipeline of steps through the arrays.

use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::expr::{Kind, Parts};
use super::super::math::Val;
use super::super::vcode::{Object, Place, V};
use super::*;

impl<'k> Lowering<'k> {
    /// Rows from one `k` group to the next in the weights block, and from one column group to the next.
    pub(super) fn weight_steps(&self) -> (u32, u32) {
        let (dk, dn) = (self.dim * self.t.k_split, self.dim * self.t.col_split);
        let tile = 8 * self.q();
        let lt = self.weights.lane_tiles;
        if self.weights.route.lanes_along_k {
            (dk / 128 * 8, dn / tile * 8 * lt)
        } else {
            (dk / tile * 8 * lt, dn / 128 * 8)
        }
    }

    /// The registers of one MXU's weights: (offset from the step's weights address, slot).
    pub(super) fn weight_slots(&self, ki: u32, ni: u32) -> Vec<(u32, u32)> {
        let tile = 8 * self.q();
        let halves = self.halves();
        let groups = self.dim / tile;
        let lt = self.weights.lane_tiles;
        let mut out = Vec::new();
        for g in 0..groups {
            for h in 0..halves {
                let offset = if self.weights.route.lanes_along_k {
                    // Rows are weight columns, lanes are weight rows.
                    ((ni * groups + g) * lt + ki * halves + h) * 8
                } else {
                    ((ki * groups + g) * lt + ni * halves + h) * 8
                };
                out.push((offset, g * halves + h));
            }
        }
        out
    }

    pub(super) fn mxu(&self, ki: u32, ni: u32, mi: u32) -> u32 {
        (ki * self.t.col_split + ni) * self.t.row_split + mi
    }

    /// Pushes weights for a step: all of them, or the share `part` of `parts`.
    pub(super) fn push_weights(&self, e: &mut Emitter<'_>, object: Object, base: SReg, part: u32, parts: u32) {
        let transposed = self.weights.route.lanes_along_k;
        let mut all = Vec::new();
        for ki in 0..self.t.k_split {
            for ni in 0..self.t.col_split {
                all.extend(self.weight_slots(ki, ni).into_iter().map(|(o, s)| (s, ki, ni, o)));
            }
        }
        // Interleave the MXUs, so that no one waits for its neighbour's pushes.
        all.sort_unstable();
        let n = all.len() as u32;
        let range = (n * part / parts) as usize..(n * (part + 1) / parts) as usize;
        for &(slot, ki, ni, offset) in &all[range] {
            let w = e.code.load(Place { object, base, offset: offset as i32 });
            for mi in 0..self.t.row_split {
                e.code.mxu_push(self.mxu(ki, ni, mi), w, self.k.format, slot, transposed);
            }
        }
    }

    pub(super) fn latch(&self, e: &mut Emitter<'_>) {
        for m in 0..self.t.k_split * self.t.col_split * self.t.row_split {
            e.code.mxu_latch(m);
        }
    }

    /// Streams push `j` of a step (one register per MXU).
    pub(super) fn push_rows(&self, e: &mut Emitter<'_>, object: Object, base: SReg, j: u32) {
        let halves = self.halves();
        for mi in 0..self.t.row_split {
            let row = j * self.t.row_split + mi;
            for ki in 0..self.t.k_split {
                let at = |h: u32| Place {
                    object,
                    base,
                    offset: ((row * self.stream.lane_tiles + ki * halves + h) * 8) as i32,
                };
                let lo = e.code.load(at(0));
                let hi = if halves > 1 { e.code.load(at(1)) } else { lo };
                for ni in 0..self.t.col_split {
                    e.code.mxu_mul(self.mxu(ki, ni, mi), lo, hi, self.k.format);
                }
            }
        }
    }

    /// Pops the results of push `j` and puts them where the variant says.
    pub(super) fn pop_rows(&mut self, e: &mut Emitter<'_>, s: &Site<'_>, j: u32, v: Variant) -> Result<(), EmitError> {
        let integer = self.k.nodes.iter().any(|n| n.kind == Kind::Product && n.dtype.is_int());
        // Arrays without an integer path multiply in bf16; one pass of at most 256 products of bytes is exact in f32.
        let round = integer && self.k.format.dtype().is_float();
        let add = if integer { Op::VAddI } else { Op::VAddF };
        let (q, halves) = (self.q(), self.halves());
        for mi in 0..self.t.row_split {
            for ni in 0..self.t.col_split {
                let row = j * self.t.row_split + mi;
                // cell[half][group]
                let mut cells: Vec<Vec<V>> = vec![Vec::new(); halves as usize];
                for g in 0..q {
                    for (h, cell) in cells.iter_mut().enumerate() {
                        let place = Place {
                            object: self.acc.1,
                            base: s.acc,
                            offset: (((row * q + g) * self.out_tiles + ni * halves + h as u32) * 8) as i32,
                        };
                        let mut sum = if v.first { None } else { Some(e.code.load(place)) };
                        for ki in 0..self.t.k_split {
                            let mut r = e.code.mxu_pop(self.mxu(ki, ni, mi));
                            if round {
                                r = e.code.v(Op::VF2I, &[r]);
                            }
                            sum = Some(match sum {
                                None => r,
                                Some(x) => e.code.v(add, &[x, r]),
                            });
                        }
                        if let Some(x) = sum {
                            if v.last && s.inline {
                                cell.push(x);
                            } else {
                                e.code.store(x, place);
                            }
                        }
                    }
                }
                if v.last && s.inline {
                    for (h, cell) in cells.into_iter().enumerate() {
                        let product: Parts = cell.into_iter().map(Val::V).collect();
                        self.epilogue(e, s, row, q, ni * halves + h as u32, product)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// One step: streams this step's remaining pushes, the next step's first `lag`, and pops all of this step's results.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn step(
        &mut self,
        e: &mut Emitter<'_>,
        s: &Site<'_>,
        r: StepRegs,
        lag: u32,
        v: Variant,
        next: bool,
    ) -> Result<(), EmitError> {
        let pushes = self.pushes();
        let (so, wo) = (self.object_of(s.nest, s.it, &self.stream), self.object_of(s.nest, s.it, &self.weights));
        let early = pushes - lag;
        for j in 0..pushes {
            if j < early {
                self.push_rows(e, so, r.stream, j + lag);
                if next {
                    self.push_weights(e, wo, r.weights_next, j, early);
                }
            } else if next {
                if j == early {
                    if early == 0 {
                        self.push_weights(e, wo, r.weights_next, 0, 1);
                    }
                    self.latch(e);
                }
                self.push_rows(e, so, r.stream_next, j + lag - pushes);
            }
            self.pop_rows(e, s, j, v)?;
        }
        e.flush()
    }

    /// Runs all steps of a row chunk as one software pipeline, `k` groups outer. `segments` are runs of `k` groups of one variant.
    pub(super) fn pipeline(
        &mut self,
        e: &mut Emitter<'_>,
        s: &mut Site<'_>,
        bases: [SReg; 2],
        segments: &[(u32, Variant)],
    ) -> Result<(), EmitError> {
        let cols = self.col_groups();
        let pushes = self.pushes();
        let interval = e.chip.mxu_interval(self.k.format).max(1);
        let capacity = (*e.chip.mxu.result_queue / (self.q() * self.halves())).max(2) - 1;
        let lag = ((*e.chip.mxu.latency + 32).div_ceil(interval) + 1).min(pushes).min(capacity);
        let out_step = self.halves() * self.t.col_split * 8;
        // Counters of the next step: `k` and column group. Its addresses follow from them.
        let (kn, nn) = (e.sreg()?, e.sreg()?);
        let r = StepRegs { stream: e.sreg()?, stream_next: e.sreg()?, weights_next: e.sreg()?, out: e.sreg()? };
        e.sli(kn, 0);
        e.sli(nn, 0);
        self.step_addresses(e, r, kn, nn, bases)?;
        let (so, wo) = (self.object_of(s.nest, s.it, &self.stream), self.object_of(s.nest, s.it, &self.weights));
        self.push_weights(e, wo, r.weights_next, 0, 1);
        self.latch(e);
        for j in 0..lag {
            self.push_rows(e, so, r.stream_next, j);
        }
        e.flush()?;
        let mut one = |e: &mut Emitter<'_>, s: &mut Site<'_>, v: Variant, next: bool| -> Result<(), EmitError> {
            // This step is what was next; then the odometer moves on.
            e.si(Op::SAddi, r.stream, r.stream_next, 0);
            e.si(Op::SMuli, r.out, nn, out_step as i32);
            if next {
                let c = e.sreg()?;
                e.si(Op::SAddi, nn, nn, 1);
                e.si(Op::SEqi, c, nn, cols as i32);
                e.ss4(Op::SSel, nn, c, ZERO, nn);
                e.ss(Op::SAdd, kn, kn, c);
                e.free(c);
                self.step_addresses(e, r, kn, nn, bases)?;
            }
            self.site_addresses(e, s, r.out)?;
            self.step(e, s, r, lag, v, next)?;
            self.drop_site(e, s);
            Ok(())
        };
        for (i, &(groups, v)) in segments.iter().enumerate() {
            let last = u32::from(i + 1 == segments.len());
            e.repeat(groups * cols - last, |e, _| {
                one(e, s, v, true)?;
                e.flush()
            })?;
            if last == 1 {
                one(e, s, v, false)?;
            }
        }
        for x in [kn, nn, r.stream, r.stream_next, r.weights_next, r.out] {
            e.free(x);
        }
        Ok(())
    }

    /// Addresses of the operands of step (`kn`, `nn`).
    pub(super) fn step_addresses(
        &self,
        e: &mut Emitter<'_>,
        r: StepRegs,
        kn: SReg,
        nn: SReg,
        bases: [SReg; 2],
    ) -> Result<(), EmitError> {
        let [stream, weights] = bases;
        let (wk, wn) = self.weight_steps();
        let lk = self.dim * self.t.k_split / 128 * 8;
        let t = e.sreg()?;
        e.si(Op::SMuli, t, kn, wk as i32);
        e.ss(Op::SAdd, r.weights_next, weights, t);
        e.si(Op::SMuli, t, nn, wn as i32);
        e.ss(Op::SAdd, r.weights_next, r.weights_next, t);
        e.si(Op::SMuli, t, kn, lk as i32);
        e.ss(Op::SAdd, r.stream_next, stream, t);
        e.free(t);
        Ok(())
    }
}
