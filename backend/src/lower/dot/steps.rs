//! The software pipeline of steps through the arrays.

use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::expr::{Kind, Parts};
use super::super::math::Val;
use super::super::vcode::{M, Object, Place, V};
use super::epilogue::Cell;
use super::window::{Digit, Planes};
use super::*;

impl<'k> Lowering<'k> {
    /// Rows from one `k` group to the next in the weights block, and from one column group to the next.
    pub(super) fn weight_steps(&self) -> (u32, u32) {
        let (dk, dn) = (self.dim * self.t.k_split, self.dim * self.t.col_split);
        let tile = 8 * self.weights.packing(self.q());
        let lt = self.weights.lane_tiles;
        if self.weights.route.lanes_along_k {
            (dk / 128 * 8, dn / tile * 8 * lt)
        } else {
            (dk / tile * 8 * lt, dn / 128 * 8)
        }
    }

    /// The registers of one MXU's weights: (row, lane tile, slot), as [`Self::operand_register`] takes them.
    pub(super) fn weight_slots(&self, ki: u32, ni: u32) -> Vec<(u32, u32, u32)> {
        let halves = self.halves();
        let groups = self.dim / (8 * self.q());
        let mut out = Vec::new();
        for g in 0..groups {
            for h in 0..halves {
                let (row, tile) = if self.weights.route.lanes_along_k {
                    // Rows are weight columns, lanes are weight rows.
                    (ni * groups + g, ki * halves + h)
                } else {
                    (ki * groups + g, ni * halves + h)
                };
                out.push((row, tile, g * halves + h));
            }
        }
        out
    }

    pub(super) fn mxu(&self, ki: u32, ni: u32, mi: u32) -> u32 {
        (ki * self.t.col_split + ni) * self.t.row_split + mi
    }

    /// Pushes weights for a step: all of them, or the share `part` of `parts`.
    pub(super) fn push_weights(
        &self,
        e: &mut Emitter<'_>,
        (object, base): (Object, SReg),
        (part, parts): (u32, u32),
        masks: &[Option<M>],
    ) {
        // Of a last position without a partner, the second half of the array is empty.
        let pair = self.k.paired(u64::from(self.dim)).is_some();
        let empty = masks.get(1).copied().flatten().filter(|_| pair);
        let transposed = self.weights.route.lanes_along_k;
        let mut all = Vec::new();
        for ki in 0..self.t.k_split {
            for ni in 0..self.t.col_split {
                all.extend(self.weight_slots(ki, ni).into_iter().map(|(row, tile, s)| (s, ki, ni, row, tile)));
            }
        }
        // Interleave the MXUs, so that no one waits for its neighbour's pushes.
        all.sort_unstable();
        let n = all.len() as u32;
        let range = (n * part / parts) as usize..(n * (part + 1) / parts) as usize;
        for &(slot, ki, ni, row, tile) in &all[range] {
            let mut w = self.operand_register(e, &self.weights, object, base, row, tile);
            if let Some(m) = empty.filter(|_| row % (self.dim / (8 * self.q())) >= 128 / (8 * self.q())) {
                let zero = e.code.imm(0);
                w = e.code.sel(m, w, zero);
            }
            for mi in 0..self.t.row_split {
                e.code.mxu_push(self.mxu(ki, ni, mi), w, self.weights.format, slot, transposed);
            }
        }
    }

    pub(super) fn latch(&self, e: &mut Emitter<'_>) {
        for m in 0..self.t.k_split * self.t.col_split * self.t.row_split {
            e.code.mxu_latch(m);
        }
    }

    /// Streams push `j` of a step (one register per MXU).
    pub(super) fn push_rows(&self, e: &mut Emitter<'_>, object: Object, base: SReg, j: u32, masks: &[Option<M>]) {
        let halves = self.halves();
        if !self.planes.is_empty() {
            for mi in 0..self.t.row_split {
                let row = j * self.t.row_split + mi;
                for ki in 0..self.t.k_split {
                    let mut half = |h: u32| {
                        let tile = ki * halves + h;
                        let mask = masks.get(tile as usize).copied().flatten();
                        self.plane_rows(e, object, base, row, tile, mask)
                    };
                    let lo = half(0);
                    let hi = if halves > 1 { half(1) } else { lo };
                    for ni in 0..self.t.col_split {
                        e.code.mxu_mul(self.mxu(ki, ni, mi), lo, hi, self.k.format);
                    }
                }
            }
            return;
        }
        for mi in 0..self.t.row_split {
            let row = j * self.t.row_split + mi;
            for ki in 0..self.t.k_split {
                let lo = self.operand_register(e, &self.stream, object, base, row, ki * halves);
                let hi = match halves {
                    1 => lo,
                    _ => self.operand_register(e, &self.stream, object, base, row, ki * halves + 1),
                };
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
                    // Pushes that do not divide repeat the last group.
                    let group = self.planes.group(row * q + g);
                    for (h, cell) in cells.iter_mut().enumerate() {
                        let tile = ni * halves + h as u32;
                        let at = group.as_ref().map_or(0, |(at, g)| {
                            Planes::output(at, &self.planes.acc_pitch) + (g * self.out_tiles + tile) * 8
                        });
                        let place = Place { object: self.acc.1, base: s.acc, offset: at as i32 };
                        let load = !v.first && group.is_some();
                        let mut sum = load.then(|| e.code.load(place));
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
                        if let Some(x) = sum.filter(|_| group.is_some()) {
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
                        self.finish_push(e, s, row, ni * halves + h as u32, product)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Applies the epilogue to what push `row` gave in lane tile `tile`.
    fn finish_push(
        &mut self,
        e: &mut Emitter<'_>,
        s: &Site<'_>,
        row: u32,
        tile: u32,
        product: Parts,
    ) -> Result<(), EmitError> {
        let q = self.q();
        if self.planes.is_empty() {
            return self.epilogue(e, s, &Cell { plane: Vec::new(), row, parts: q, tile }, product);
        }
        let parts = self.k.plane_parts(self.t.rows).unwrap_or(1);
        for (i, part) in product.chunks(parts as usize).enumerate() {
            if let Some((plane, g)) = self.planes.group(row * q + i as u32 * parts) {
                self.epilogue(e, s, &Cell { plane, row: g / parts, parts, tile }, part.to_vec())?;
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
        let ragged = self.ragged();
        let masks = self.lane_masks(e, ragged.then_some(r.left));
        let masks_next = if next { self.lane_masks(e, ragged.then_some(r.left_next)) } else { Vec::new() };
        for j in 0..pushes {
            if j < early {
                self.push_rows(e, so, r.stream, j + lag, &masks);
                if next {
                    self.push_weights(e, (wo, r.weights_next), (j, early), &masks_next);
                }
            } else if next {
                if j == early {
                    if early == 0 {
                        self.push_weights(e, (wo, r.weights_next), (0, 1), &masks_next);
                    }
                    self.latch(e);
                }
                self.push_rows(e, so, r.stream_next, j + lag - pushes, &masks_next);
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
        let pushes = self.pushes();
        let interval = e.chip.mxu_interval(self.k.format).max(1);
        let capacity = (*e.chip.mxu.result_queue / (self.q() * self.halves())).max(2) - 1;
        let lag = ((*e.chip.mxu.latency + 32).div_ceil(interval) + 1).min(pushes).min(capacity);
        let digits = self.digits();
        let counters = digits.iter().map(|_| e.sreg()).collect::<Result<Vec<SReg>, EmitError>>()?;
        let mut r = StepRegs {
            stream: e.sreg()?,
            stream_next: e.sreg()?,
            weights_next: e.sreg()?,
            out: e.sreg()?,
            left: ZERO,
            left_next: ZERO,
        };
        let ragged = self.ragged();
        if ragged {
            (r.left, r.left_next) = (e.sreg()?, e.sreg()?);
        }
        for &c in &counters {
            e.sli(c, 0);
        }
        self.step_addresses(e, r, &digits, &counters, bases)?;
        let (so, wo) = (self.object_of(s.nest, s.it, &self.stream), self.object_of(s.nest, s.it, &self.weights));
        let masks = self.lane_masks(e, ragged.then_some(r.left_next));
        self.push_weights(e, (wo, r.weights_next), (0, 1), &masks);
        self.latch(e);
        for j in 0..lag {
            self.push_rows(e, so, r.stream_next, j, &masks);
        }
        e.flush()?;
        let cols = self.col_groups();
        let mut one = |e: &mut Emitter<'_>, s: &mut Site<'_>, v: Variant, next: bool| -> Result<(), EmitError> {
            // This step is what was next; then the odometer moves on.
            e.si(Op::SAddi, r.stream, r.stream_next, 0);
            if ragged {
                e.si(Op::SAddi, r.left, r.left_next, 0);
            }
            match digits.iter().zip(&counters).find(|(d, _)| d.out > 0) {
                Some((d, &c)) => e.si(Op::SMuli, r.out, c, d.out as i32),
                None => e.sli(r.out, 0),
            }
            if next {
                self.advance(e, &digits, &counters)?;
                self.step_addresses(e, r, &digits, &counters, bases)?;
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
        let left = [r.left, r.left_next].into_iter().filter(|x| *x != ZERO);
        for x in counters.into_iter().chain([r.stream, r.stream_next, r.weights_next, r.out]).chain(left) {
            e.free(x);
        }
        Ok(())
    }

    /// What counts the steps, innermost first: columns, contracted features, and the positions of windows.
    fn digits(&self) -> Vec<Digit> {
        let (wk, wn) = self.weight_steps();
        let features = self.dim * self.t.k_split;
        let out = self.halves() * self.t.col_split * 8;
        let mut all = vec![
            Digit { count: self.col_groups(), stream: 0, weights: wn, out, features: 0 },
            Digit { count: self.k_groups(), stream: features / 128 * 8, weights: wk, out: 0, features },
        ];
        all.extend(self.planes.positions(self.k.paired(u64::from(self.dim))));
        all.retain(|d| d.count > 1);
        all
    }

    /// Steps the odometer.
    fn advance(&self, e: &mut Emitter<'_>, digits: &[Digit], counters: &[SReg]) -> Result<(), EmitError> {
        let mut carry: Option<SReg> = None;
        for (i, (d, &c)) in digits.iter().zip(counters).enumerate() {
            match carry.take() {
                None => e.si(Op::SAddi, c, c, 1),
                Some(r) => {
                    e.ss(Op::SAdd, c, c, r);
                    e.free(r);
                }
            }
            if i + 1 < digits.len() {
                let full = e.sreg()?;
                e.si(Op::SEqi, full, c, d.count as i32);
                e.ss4(Op::SSel, c, full, ZERO, c);
                carry = Some(full);
            }
        }
        Ok(())
    }

    /// Addresses of the operands of the step the odometer shows, and the contracted elements left from there on.
    fn step_addresses(
        &self,
        e: &mut Emitter<'_>,
        r: StepRegs,
        digits: &[Digit],
        counters: &[SReg],
        [stream, weights]: [SReg; 2],
    ) -> Result<(), EmitError> {
        let t = e.sreg()?;
        let sum = |e: &mut Emitter<'_>, to: SReg, from: SReg, step: &dyn Fn(&Digit) -> i32| {
            let mut from = from;
            for (d, &c) in digits.iter().zip(counters).filter(|(d, _)| step(d) != 0) {
                e.si(Op::SMuli, t, c, step(d));
                e.ss(Op::SAdd, to, from, t);
                from = to;
            }
            if from != to {
                e.si(Op::SAddi, to, from, 0);
            }
        };
        sum(e, r.weights_next, weights, &|d| d.weights as i32);
        sum(e, r.stream_next, stream, &|d| d.stream as i32);
        if self.ragged() {
            e.sli(r.left_next, self.features() as i32);
            sum(e, r.left_next, r.left_next, &|d| -(d.features as i32));
        }
        e.free(t);
        Ok(())
    }
}
