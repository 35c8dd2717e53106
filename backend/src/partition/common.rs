//! What a block computes twice from the same values is computed once, so that it is cut, and brought to where it is needed, once: a weight
//! that is converted for each of its products would be gathered for each of them.

use rustc_hash::FxHashMap;

use super::rule::elementwise;
use crate::hlo::{Attr, Block, Func, Op, Opcode, ValueId};

/// Values that stand for others.
type Same = FxHashMap<ValueId, ValueId>;

/// Merges equal ops of each block.
pub(super) fn merge(func: &mut Func) {
    let mut body = std::mem::take(&mut func.body);
    block(func, &mut body, &mut Same::default());
    func.body = body;
}

/// Ops that may be merged: one result from operands and attributes alone.
fn candidate(op: &Op) -> bool {
    use Opcode::*;
    let plain = match op.opcode {
        BroadcastInDim | Iota | Reshape | Slice | Transpose => true,
        Constant => matches!(op.attrs.get("value"), Some(Attr::Dense(l)) if l.is_splat()),
        o => elementwise(o) && !o.name().starts_with("sdy."),
    };
    plain && op.regions.is_empty() && op.results.len() == 1
}

fn block(func: &Func, b: &mut Block, same: &mut Same) {
    let mut known: FxHashMap<(Opcode, Vec<ValueId>), Vec<usize>> = FxHashMap::default();
    let mut ops: Vec<Op> = Vec::with_capacity(b.ops.len());
    for mut op in std::mem::take(&mut b.ops) {
        for v in &mut op.operands {
            *v = same.get(v).copied().unwrap_or(*v);
        }
        for r in &mut op.regions {
            block(func, &mut r.block, same);
        }
        if candidate(&op) {
            let twins = known.entry((op.opcode, op.operands.clone())).or_default();
            let equal = |&&i: &&usize| {
                let Some(other) = ops.get(i) else { return false };
                other.attrs == op.attrs && func.ty(other.results[0]) == func.ty(op.results[0])
            };
            if let Some(other) = twins.iter().find(equal).and_then(|&i| ops.get(i)) {
                same.insert(op.results[0], other.results[0]);
                continue;
            }
            twins.push(ops.len());
        }
        ops.push(op);
    }
    b.ops = ops;
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: by hand: of two conversions of one weight, and what follows from them alike, one of each is left.
    #[test]
    fn what_is_computed_twice_is_computed_once() {
        let text =
            "func.func @main(%w: tensor<8x4xf32>, %x: tensor<8x4xbf16>) -> (tensor<8x4xbf16>, tensor<8x4xbf16>) {
            %a = stablehlo.convert %w : (tensor<8x4xf32>) -> tensor<8x4xbf16>
            %b = stablehlo.convert %w : (tensor<8x4xf32>) -> tensor<8x4xbf16>
            %c = stablehlo.negate %a : tensor<8x4xbf16>
            %d = stablehlo.negate %b : tensor<8x4xbf16>
            %e = stablehlo.negate %x : tensor<8x4xbf16>
            %f = stablehlo.multiply %c, %e : tensor<8x4xbf16>
            %g = stablehlo.add %d, %e : tensor<8x4xbf16>
            return %f, %g : tensor<8x4xbf16>, tensor<8x4xbf16>
        }";
        let module = crate::hlo::verify(crate::front::parse_text(text, "test").unwrap()).unwrap();
        let mut f = super::super::inline::inline(&module).unwrap();
        merge(&mut f);
        let count = |o: Opcode| f.body.ops.iter().filter(|op| op.opcode == o).count();
        assert_eq!([Opcode::Convert, Opcode::Negate, Opcode::Multiply, Opcode::Add].map(count), [1, 2, 1, 1]);
        let of = |o: Opcode| f.body.ops.iter().find(|op| op.opcode == o).map(|op| op.operands.clone());
        assert_eq!(of(Opcode::Multiply), of(Opcode::Add));
    }
}
