//! Which scores of a tile are hidden.

use tpusim_isa::op::Op;

use super::super::emit::{Emitter, ZERO};
use super::super::vcode::V;

/// What is seen in a pair of tiles; everything else is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mask {
    /// Of keys whose place in their tile is `k` and queries whose place is `q`, those with `q - k` from `least` on, if there is a least, and
    /// below `end`, if there is an end.
    Band { least: Option<i32>, end: Option<i32> },
    /// Keys before this one.
    Keys(u32),
}

impl Mask {
    /// Registers for [`Self::apply`].
    pub fn registers(e: &mut Emitter<'_>, hidden: f32) -> Hidden {
        let (lane, sublane) = (e.code.ids(Op::VLaneId), e.code.ids(Op::VSubId));
        Hidden { place: e.code.v(Op::VSubI, &[lane, sublane]), value: e.code.imm_f(hidden) }
    }

    /// `x`, of keys `8 * group ..` and queries `128 * half ..`, with something else where it is hidden.
    pub fn apply(self, e: &mut Emitter<'_>, h: Hidden, x: V, group: u32, half: u32) -> V {
        let (least, end) = match self {
            Mask::Keys(n) if 8 * group + 8 <= n => return x,
            Mask::Keys(n) => {
                let m = e.code.below(Op::MSubLt, ZERO, n as i32 - 8 * group as i32);
                return e.code.sel(m, x, h.value);
            }
            Mask::Band { least, end } => (least, end),
        };
        // Of this register, `q - k` is lane minus sublane, from -7 to 127, plus this.
        let base = 128 * half as i32 - 8 * group as i32;
        let (least, end) = (least.map(|n| n - base), end.map(|n| n - base));
        if least.is_some_and(|n| n > 127) || end.is_some_and(|n| n <= -7) {
            return h.value;
        }
        let mut y = x;
        if let Some(n) = least.filter(|n| *n > -7) {
            let n = e.code.imm(n);
            let m = e.code.cmp(Op::VLeI, n, h.place);
            y = e.code.sel(m, y, h.value);
        }
        if let Some(n) = end.filter(|n| *n <= 127) {
            let n = e.code.imm(n - 1);
            let m = e.code.cmp(Op::VLeI, h.place, n);
            y = e.code.sel(m, y, h.value);
        }
        y
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
