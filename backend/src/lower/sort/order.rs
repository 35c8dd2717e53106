//! Comparing elements.

use tpusim_isa::op::Op;

use super::super::expr::splat;
use super::super::math::{MapOp, Types, Val, as_m, int_to_mask, map};
use super::super::vcode::{Code, M, V};
use super::{Order, SortSpec, Step, StepKind};
use tpusim_isa::num::DType;

/// Where `x` comes before `y`, given their words. `pads` is the number of real elements, if there are others.
///
/// Of two different elements exactly one comes before the other, also where a comparator says both or neither; without an index
/// neither of two equal ones does.
pub(super) fn before(c: &mut Code, s: &SortSpec, pads: Option<i32>, x: &[V], y: &[V]) -> M {
    let index = s.loads;
    match &s.order {
        Order::Key => {
            let less = c.cmp(Op::VLtI, x[0], y[0]);
            if !s.index {
                return less;
            }
            let equal = c.cmp(Op::VEqI, x[0], y[0]);
            let earlier = c.cmp(Op::VLtI, x[index], y[index]);
            let tie = c.m2(Op::MAnd, equal, earlier);
            c.m2(Op::MOr, less, tie)
        }
        Order::By(steps) => {
            let (xy, yx) = (compare(c, steps, x, y), compare(c, steps, y, x));
            let earlier = c.cmp(Op::VLtI, x[index], y[index]);
            let clear = c.m2(Op::MXor, xy, yx);
            let less = c.m2(Op::MAnd, clear, xy);
            let tied = c.mnot(clear);
            let tie = c.m2(Op::MAnd, tied, earlier);
            let mut m = c.m2(Op::MOr, less, tie);
            if let Some(n) = pads {
                let n = c.imm(n);
                let real = c.cmp(Op::VLtI, x[index], n);
                let beyond = c.cmp(Op::VLeI, n, y[index]);
                let beyond = c.m2(Op::MAnd, beyond, earlier);
                m = c.m2(Op::MAnd, m, real);
                m = c.m2(Op::MOr, m, beyond);
            }
            m
        }
    }
}

fn compare(c: &mut Code, steps: &[Step], x: &[V], y: &[V]) -> M {
    let mut values: Vec<Val> = Vec::with_capacity(steps.len());
    for s in steps {
        let args: Vec<Val> = s.args.iter().map(|&a| values[a]).collect();
        let v = match s.what {
            StepKind::Word { word, second } => {
                let v = if second { y[word] } else { x[word] };
                if s.dtype == DType::I1 { Val::M(int_to_mask(c, v)) } else { Val::V(v) }
            }
            StepKind::Splat(bits) => splat(c, bits, s.dtype),
            StepKind::Map(MapOp::Copy, _) => args[0],
            StepKind::Map(op, operand) => map(c, op, Types { operand, result: s.dtype }, &args),
        };
        values.push(v);
    }
    match values.last() {
        Some(&v) => as_m(c, v),
        None => {
            let v = c.imm(0);
            int_to_mask(c, v)
        }
    }
}

/// The words of an element exchanged for those of another where `m` is set.
pub(super) fn choose(c: &mut Code, m: M, yes: &[V], no: &[V]) -> Vec<V> {
    yes.iter().zip(no).map(|(&a, &b)| c.sel(m, a, b)).collect()
}
