//! Reductions of values together with their indices, as argmax and argmin are written.
//!
//! The region is recognised by its structure: the accumulator stays if its value compares greater (or less) or is NaN, and on equal
//! values the lower index stays. Reduced over an iota this is the index of the first NaN, or else of the first extremum, which are
//! two ordinary reductions.

use super::super::{NodeId, NodeOp};
use super::*;
use crate::hlo::{Op, Opcode};
use crate::lower::math::{Combine, Direction};

/// The reducer's region, with values looked up by the operations that define them.
struct Region<'a> {
    block: &'a Block,
}

impl<'a> Region<'a> {
    fn def(&self, v: ValueId, opcode: Opcode) -> Option<&'a Op> {
        self.block.ops.iter().find(|o| o.opcode == opcode && o.results.first() == Some(&v))
    }

    /// Operands of `v`, if it compares in `direction`.
    fn compare(&self, v: ValueId, direction: &str) -> Option<[ValueId; 2]> {
        let op = self.def(v, Opcode::Compare)?;
        let plain = op.attrs.text("compare_type") != Some("TOTALORDER");
        let found = op.attrs.text("comparison_direction") == Some(direction) && plain;
        op.operands[..].try_into().ok().filter(|_| found)
    }

    fn binary(&self, v: ValueId, opcode: Opcode) -> Option<[ValueId; 2]> {
        self.def(v, opcode)?.operands[..].try_into().ok()
    }

    /// The extremum that the region keeps.
    fn keeps(&self) -> Option<Combine> {
        let &[value, index, new_value, new_index] = &self.block.args[..] else { return None };
        let ret = self.block.ops.last()?;
        let &[value_out, index_out] = &ret.operands[..] else { return None };
        let select = |v: ValueId, args: [ValueId; 2]| {
            let op = self.def(v, Opcode::Select)?;
            (op.operands[1..] == args).then(|| op.operands[0])
        };
        let better = select(value_out, [value, new_value])?;
        let first = select(index_out, [index, new_index])?;
        let [a, b] = self.binary(better, Opcode::Or)?;
        let nan = |v: ValueId| self.compare(v, "NE") == Some([value, value]);
        let order = if nan(b) { a } else { Some(b).filter(|_| nan(a))? };
        let how = if self.compare(order, "GT") == Some([value, new_value]) {
            Combine::Max
        } else {
            (self.compare(order, "LT") == Some([value, new_value])).then_some(Combine::Min)?
        };
        let [a, b] = self.binary(first, Opcode::Or)?;
        let tie = if a == better { b } else { Some(a).filter(|_| b == better)? };
        let [a, b] = self.binary(tie, Opcode::And)?;
        let equal =
            |v: ValueId| self.compare(v, "EQ").is_some_and(|o| o == [value, new_value] || o == [new_value, value]);
        let lower = |v: ValueId| self.compare(v, "LT") == Some([index, new_index]);
        (equal(a) && lower(b) || equal(b) && lower(a)).then_some(how)
    }
}

/// The extremum that a reduction of values with their indices keeps, if it is argmax or argmin.
pub(super) fn extremum_of(op: &Op) -> Option<Combine> {
    match &op.regions[..] {
        [r] => Region { block: &r.block }.keeps(),
        _ => None,
    }
}

impl Builder<'_> {
    /// A reduction with two results.
    pub(super) fn reduce_with_index(
        &mut self,
        op: &Op,
        args: &[NodeId],
        t: &[Shape; 2],
        site: &(String, String),
    ) -> Result<Vec<NodeId>, LowerError> {
        let name = "reduce";
        let how = extremum_of(op);
        let dims = op.attrs.ints("dimensions").unwrap_or(&[]);
        let (Some(how), &[x, index, init, init_index], &[dim]) = (how, args, dims) else {
            let m = "of several operands is lowered for argmax and argmin over one dimension only";
            return Err(self.error(op.opcode.name(), op.loc, m));
        };
        let dim = dim as usize;
        let (dtype, counts) = (t[0].dtype, t[1].dtype);
        let is =
            |b: &Self, a: NodeId, bits: i32| b.splat_of(a).is_some_and(|v| register_bits(&v, b.node(a).dtype) == bits);
        let natural = is(self, init, how.identity(dtype)) && is(self, init_index, 0);
        let limit = Combine::Min.identity(counts);
        let fits = self.node(x).dims.get(dim).is_some_and(|&n| limit < 0 || n <= limit as u64);
        let iota = self.node(index).op == NodeOp::Iota(dim);
        if !natural || !iota || !fits || dtype == DType::I1 || !counts.is_int() {
            let m =
                "for argmax and argmin needs an iota of the reduced dimension as indices and neutral initial values";
            return Err(self.error(op.opcode.name(), op.loc, m));
        }
        if self.node(x).elements() == 0 {
            let [value, place] =
                [(init, &t[0]), (init_index, &t[1])].map(|(a, t)| self.broadcast(a, vec![], t, name, site.clone()));
            return Ok(vec![value, place]);
        }
        let best = self.reduce_dims(how, x, &[dim], dtype, name, site);
        let full = Shape { dims: self.node(x).dims.clone(), dtype };
        let keep = (0..full.dims.len()).filter(|&d| d != dim).collect();
        let wide = self.broadcast(best, keep, &full, name, site.clone());
        let flags = Shape { dims: full.dims.clone(), dtype: DType::I1 };
        let mut hit = self.map(MapOp::Compare(Direction::Eq, false), &[x, wide], &flags, name, site.clone());
        if dtype.is_float() {
            let nan = self.map(MapOp::Compare(Direction::Ne, false), &[x, x], &flags, name, site.clone());
            hit = self.map(MapOp::Or, &[hit, nan], &flags, name, site.clone());
        }
        let places = Shape { dims: full.dims.clone(), dtype: counts };
        let none = self.constant(bits_to_bytes(limit, counts), &places, name, site.clone());
        let place = self.map(MapOp::Select, &[hit, index, none], &places, name, site.clone());
        let first = self.reduce_dims(Combine::Min, place, &[dim], counts, name, site);
        Ok(vec![best, first])
    }
}
