//! CHLO's operations that broadcast their operands: what they broadcast, and what they do then.

use super::*;
use crate::hlo::{Op, Opcode};

/// What is done to the operands of a broadcasting operation once they have one shape.
pub(super) fn without_broadcast(opcode: Opcode) -> Option<Opcode> {
    use Opcode as O;
    Some(match opcode {
        O::ChloBroadcastAdd => O::Add,
        O::ChloBroadcastAnd => O::And,
        O::ChloBroadcastAtan2 => O::Atan2,
        O::ChloBroadcastCompare => O::Compare,
        O::ChloBroadcastComplex => O::Complex,
        O::ChloBroadcastDivide => O::Divide,
        O::ChloBroadcastMaximum => O::Maximum,
        O::ChloBroadcastMinimum => O::Minimum,
        O::ChloBroadcastMultiply => O::Multiply,
        O::ChloBroadcastNextAfter => O::ChloNextAfter,
        O::ChloBroadcastOr => O::Or,
        O::ChloBroadcastPolygamma => O::ChloPolygamma,
        O::ChloBroadcastPower => O::Power,
        O::ChloBroadcastRemainder => O::Remainder,
        O::ChloBroadcastSelect => O::Select,
        O::ChloBroadcastShiftLeft => O::ShiftLeft,
        O::ChloBroadcastShiftRightArithmetic => O::ShiftRightArithmetic,
        O::ChloBroadcastShiftRightLogical => O::ShiftRightLogical,
        O::ChloBroadcastSubtract => O::Subtract,
        O::ChloBroadcastXor => O::Xor,
        O::ChloBroadcastZeta => O::ChloZeta,
        _ => return None,
    })
}

impl Builder<'_> {
    /// The operands of a broadcasting operation in the shape of its result: along its last dimensions, or along
    /// `broadcast_dimensions` for those of lower rank.
    pub(super) fn alike(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let name = op.opcode.name().rsplit('.').next().unwrap_or("broadcast");
        let [result] = op.results[..] else { return Err(self.error(op.opcode.name(), op.loc, "has one result")) };
        let to = self.tensor(f, result, op.opcode.name(), op.loc)?.dims;
        let mut out = Vec::with_capacity(args.len());
        for &arg in args {
            out.push(self.each(arg, |b, x, _| {
                let (rank, dtype) = (b.node(x).dims.len(), b.node(x).dtype);
                let map = match op.attrs.ints("broadcast_dimensions") {
                    Some(d) if rank < to.len() => d.iter().map(|&d| d as usize).collect(),
                    _ => (to.len() - rank.min(to.len())..to.len()).collect(),
                };
                b.broadcast(x, map, &Shape { dims: to.clone(), dtype }, name, site.clone())
            }));
        }
        Ok(out)
    }
}
