//! StableHLO operations as nodes.

use super::super::{NodeId, NodeOp};
use super::*;
use crate::hlo::{Attr, Literal, Op, Opcode, TensorType};
use crate::lower::math::{Direction, MapOp};

impl Builder<'_> {
    pub(super) fn single(
        &mut self,
        op: &Op,
        args: &[NodeId],
        t: &Shape,
        site: (String, String),
    ) -> Result<NodeId, LowerError> {
        let name = op.opcode.name().rsplit('.').next().unwrap_or("op");
        if let Some(m) = self.map_of(op) {
            return Ok(self.map(m, args, t, name, site));
        }
        if let Some(out) = self.special(op, args, t, name, &site) {
            return out;
        }
        let ints = |n: &str| -> Vec<i64> { op.attrs.ints(n).map(<[i64]>::to_vec).unwrap_or_default() };
        let dims_of = |n: &str| -> Vec<usize> { ints(n).iter().map(|&d| d as usize).collect() };
        let out = match op.opcode {
            Opcode::Constant => match op.attrs.get("value") {
                Some(Attr::Dense(l)) => {
                    let ty = TensorType { quant: None, ..l.ty.clone() };
                    NodeOp::Const(Literal { ty, bytes: l.bytes.clone() })
                }
                _ => return Err(self.error(op.opcode.name(), op.loc, "constant without a dense value")),
            },
            Opcode::Iota => NodeOp::Iota(op.attrs.int("iota_dimension").unwrap_or(0) as usize),
            Opcode::BroadcastInDim => {
                return Ok(self.broadcast(args[0], dims_of("broadcast_dimensions"), t, name, site));
            }
            Opcode::Broadcast => {
                let lead = t.dims.len() - self.node(args[0]).dims.len();
                let map = (lead..t.dims.len()).collect();
                return Ok(self.broadcast(args[0], map, t, name, site));
            }
            Opcode::Reshape => return Ok(self.reshape(args[0], t, name, site)),
            Opcode::Transpose => return Ok(self.transpose(args[0], dims_of("permutation"), t, name, site)),
            Opcode::Slice => {
                let start = ints("start_indices").iter().map(|&x| x as u64).collect();
                let strides = ints("strides");
                let step = if strides.is_empty() { vec![1; t.dims.len()] } else { strides };
                return Ok(self.slice(args[0], start, step, t, name, site));
            }
            Opcode::DynamicSlice => return Ok(self.dynamic_slice(args, t, name, site)),
            Opcode::DynamicUpdateSlice => return Ok(self.dynamic_update_slice(args, t, name, site)),
            Opcode::Reverse => {
                let dims = dims_of("dimensions");
                let size = |d: usize| self.node(args[0]).dims[d];
                let start =
                    (0..t.dims.len()).map(|d| if dims.contains(&d) { size(d).saturating_sub(1) } else { 0 }).collect();
                let step = (0..t.dims.len()).map(|d| if dims.contains(&d) { -1 } else { 1 }).collect();
                return Ok(self.slice(args[0], start, step, t, name, site));
            }
            Opcode::Concatenate => {
                let full: Vec<NodeId> = args.iter().copied().filter(|&a| self.node(a).elements() > 0).collect();
                match full[..] {
                    [one] if self.node(one).dims == t.dims => return Ok(one),
                    _ => {
                        let d = op.attrs.int("dimension").unwrap_or(0) as usize;
                        return Ok(self.push(NodeOp::Concat(d), full, t, name, site));
                    }
                }
            }
            Opcode::Pad => return Ok(self.pad(op, args, t, name, site)),
            Opcode::Reduce => return self.reduce(op, args, t, name, site),
            Opcode::ReduceWindow => return self.reduce_window(op, args, t, name, site),
            Opcode::Convolution => return self.convolution(op, args, t, name, &site),
            Opcode::SelectAndScatter => return self.select_and_scatter(op, args, t, name, &site),
            Opcode::DotGeneral | Opcode::Dot => return self.dot(op, args, t, name, site),
            Opcode::BitcastConvert => return self.bitcast(op, args[0], t, name, &site),
            Opcode::Clamp => {
                let full = |b: &mut Self, a: NodeId| -> NodeId {
                    if b.node(a).dims.is_empty() { b.broadcast(a, vec![], t, name, site.clone()) } else { a }
                };
                let (lo, hi) = (full(self, args[0]), full(self, args[2]));
                let x = self.map(MapOp::Max, &[lo, args[1]], t, name, site.clone());
                return Ok(self.map(MapOp::Min, &[x, hi], t, name, site));
            }
            _ => {
                return Err(self.error(
                    op.opcode.name(),
                    op.loc,
                    "is not lowered yet; elementwise operations, reductions, windows, convolutions, dot_general and data movement with static shapes are",
                ));
            }
        };
        Ok(self.push(out, args.to_vec(), t, name, site))
    }

    pub(super) fn map_of(&self, op: &Op) -> Option<MapOp> {
        use Opcode as O;
        Some(match op.opcode {
            O::Add => MapOp::Add,
            O::Subtract => MapOp::Sub,
            O::Multiply => MapOp::Mul,
            O::Divide => MapOp::Div,
            O::Remainder => MapOp::Rem,
            O::Maximum => MapOp::Max,
            O::Minimum => MapOp::Min,
            O::Power => MapOp::Pow,
            O::Atan2 => MapOp::Atan2,
            O::And => MapOp::And,
            O::Or => MapOp::Or,
            O::Xor => MapOp::Xor,
            O::ShiftLeft => MapOp::Shl,
            O::ShiftRightLogical => MapOp::ShrLogical,
            O::ShiftRightArithmetic => MapOp::ShrArith,
            O::Select => MapOp::Select,
            O::Abs => MapOp::Abs,
            O::Negate => MapOp::Neg,
            O::Sign => MapOp::Sign,
            O::Exponential => MapOp::Exp,
            O::ExponentialMinusOne => MapOp::Expm1,
            O::Log => MapOp::Log,
            O::LogPlusOne => MapOp::Log1p,
            O::Tanh => MapOp::Tanh,
            O::Logistic => MapOp::Logistic,
            O::Sqrt => MapOp::Sqrt,
            O::Rsqrt => MapOp::Rsqrt,
            O::Cbrt => MapOp::Cbrt,
            O::Sine => MapOp::Sin,
            O::Cosine => MapOp::Cos,
            O::Tan => MapOp::Tan,
            O::Floor => MapOp::Floor,
            O::Ceil => MapOp::Ceil,
            O::RoundNearestEven => MapOp::RoundEven,
            O::RoundNearestAfz => MapOp::RoundAway,
            O::Not => MapOp::Not,
            O::Popcnt => MapOp::Popcnt,
            O::CountLeadingZeros => MapOp::Clz,
            O::IsFinite => MapOp::IsFinite,
            O::Convert => MapOp::Convert,
            O::Compare => {
                let d = match op.attrs.text("comparison_direction")? {
                    "EQ" => Direction::Eq,
                    "NE" => Direction::Ne,
                    "LT" => Direction::Lt,
                    "LE" => Direction::Le,
                    "GT" => Direction::Gt,
                    _ => Direction::Ge,
                };
                MapOp::Compare(d, op.attrs.text("compare_type") == Some("TOTALORDER"))
            }
            _ => return None,
        })
    }

    pub(super) fn pad(
        &mut self,
        op: &Op,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        let rank = t.dims.len();
        let list = |n: &str| op.attrs.ints(n).map(<[i64]>::to_vec).unwrap_or_else(|| vec![0; rank]);
        let (low, interior) = (list("edge_padding_low"), list("interior_padding"));
        self.pad_with(args[0], args[1], &low, &interior, t, name, site)
    }

    /// `x` at `low` with `interior` elements between two, in a tensor `t` of `value`s. What falls outside is cut.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn pad_with(
        &mut self,
        arg: NodeId,
        value: NodeId,
        low: &[i64],
        interior: &[i64],
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        let rank = t.dims.len();
        // Negative padding cuts: keep the elements that stay, then pad with what is not negative.
        let x = self.node(arg);
        let mut start = vec![0u64; rank];
        let mut kept = x.dims.clone();
        let mut lead = vec![0u64; rank];
        for d in 0..rank {
            let gap = interior[d] + 1;
            let size = x.dims[d] as i64;
            // Element i lands at low + i * gap; it stays if that is inside the result.
            let first = if low[d] < 0 { (-low[d] + gap - 1) / gap } else { 0 };
            let end = t.dims[d] as i64;
            let past = (end - low[d] + gap - 1).div_euclid(gap).clamp(0, size);
            let first = first.min(past);
            start[d] = first as u64;
            kept[d] = (past - first) as u64;
            lead[d] = if past > first { (low[d] + first * gap) as u64 } else { 0 };
        }
        let inner = Shape { dims: kept, dtype: t.dtype };
        let x = self.slice(arg, start, vec![1; rank], &inner, name, site.clone());
        if inner.dims == t.dims {
            return x;
        }
        let interior = interior.iter().map(|&i| i as u64).collect();
        self.push(NodeOp::Pad { low: lead, interior }, vec![x, value], t, name, site)
    }

    /// `x` with zeros at the end of dimension `d`, up to a multiple of [`K_MULTIPLE`].
    pub(super) fn pad_end(&mut self, x: NodeId, d: usize, name: &'static str, site: &(String, String)) -> NodeId {
        let (mut dims, dtype) = (self.node(x).dims.clone(), self.node(x).dtype);
        dims[d] = dims[d].next_multiple_of(K_MULTIPLE);
        let zero = self.constant(bits_to_bytes(0, dtype), &Shape { dims: vec![], dtype }, name, site.clone());
        let none = vec![0; dims.len()];
        let pad = NodeOp::Pad { low: none.clone(), interior: none };
        self.push(pad, vec![x, zero], &Shape { dims, dtype }, name, site.clone())
    }
}
