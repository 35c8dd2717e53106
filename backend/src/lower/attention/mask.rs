//! Which scores of a tile are hidden.

use tpusim_isa::op::Op;

use super::super::emit::{Emitter, ZERO};
use super::super::vcode::V;
use super::TILE;
use crate::ops::attention::Attention;

/// What is hidden in the masked pairs of a list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mask {
    /// Keys behind their queries, in a tile on the diagonal.
    Causal,
    /// Keys from this one on, in the last tile of keys.
    Keys(u32),
}

impl Mask {
    /// That of `s`.
    pub fn of(s: &Attention) -> Mask {
        if s.causal { Mask::Causal } else { Mask::Keys((s.keys % u64::from(TILE)) as u32) }
    }

    /// Registers for [`Self::apply`].
    pub fn registers(e: &mut Emitter<'_>, hidden: f32) -> Hidden {
        let (lane, sublane) = (e.code.ids(Op::VLaneId), e.code.ids(Op::VSubId));
        Hidden { place: e.code.v(Op::VSubI, &[lane, sublane]), value: e.code.imm_f(hidden) }
    }

    /// `x`, of keys `8 * group ..` and queries `128 * half ..`, with something else where it is hidden.
    pub fn apply(self, e: &mut Emitter<'_>, h: Hidden, x: V, group: u32, half: u32) -> V {
        let mask = match self {
            Mask::Keys(n) if 8 * group + 8 <= n => return x,
            Mask::Keys(n) => e.code.below(Op::MSubLt, ZERO, n as i32 - 8 * group as i32),
            Mask::Causal if 8 * group + 7 <= 128 * half => return x,
            Mask::Causal if 8 * group > 128 * half + 127 => return h.value,
            Mask::Causal => {
                // Key 8 group + sublane is at most query 128 half + lane.
                let least = e.code.imm(8 * group as i32 - 128 * half as i32);
                e.code.cmp(Op::VLeI, least, h.place)
            }
        };
        e.code.sel(mask, x, h.value)
    }
}

/// What masking needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hidden {
    /// Lane minus sublane.
    place: V,
    /// What hidden scores become.
    value: V,
}
