//! Scores on their way into the softmax, and what leaves it.

use tpusim_isa::num::Format;
use tpusim_isa::op::Op;

use super::super::emit::Emitter;
use super::super::vcode::{Place, V};
use super::stages::LANES;
use crate::ops::attention::Form;

/// The hyperbolic tangent of scaled scores over their bound, if they have one.
pub(super) fn bounded(e: &mut Emitter<'_>, form: Form, x: V) -> V {
    let Some(cap) = form.softcap else { return x };
    let factor = e.code.imm_f((form.scale / cap) as f32);
    let x = e.code.v(Op::VMulF, &[x, factor]);
    e.code.eup(Op::ETanh, x)
}

/// Totals over sums, and the logarithm of sums: of `totals`, `maxima`, `sums` and where logarithms go, if they do.
pub(super) fn scaled(e: &mut Emitter<'_>, places: &[Place], rows: u32, scale: f32, to: Place) {
    let &[totals, maxima, sums, ..] = places else { return };
    for h in 0..LANES {
        let mut sum = e.code.load(sums.at(h * 8));
        for by in [4, 2, 1] {
            let other = e.code.vi(Op::VSubRot, sum, by);
            sum = e.code.v(Op::VAddF, &[sum, other]);
        }
        let over = e.code.eup(Op::ERcp, sum);
        if let Some(log) = places.get(3) {
            let l = e.code.eup(Op::ELog2, sum);
            let (ln2, scale) = (e.code.imm_f(std::f32::consts::LN_2), e.code.imm_f(scale));
            let l = e.code.v(Op::VMulF, &[l, ln2]);
            let m = e.code.load(maxima.at(h * 8));
            let m = e.code.v(Op::VMulF, &[m, scale]);
            let l = e.code.v(Op::VAddF, &[l, m]);
            e.code.store(l, log.at(h * 8));
        }
        for g in 0..rows / 16 {
            let part = |e: &mut Emitter<'_>, i: u32| {
                let x = e.code.load(totals.at(((2 * g + i) * LANES + h) * 8));
                e.code.v(Op::VMulF, &[x, over])
            };
            let parts = [part(e, 0), part(e, 1)];
            let v = e.code.pack(&parts, Format::Bf16);
            e.code.store(v, to.at((g * LANES + h) * 8));
        }
    }
}
