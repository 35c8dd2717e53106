//! Reductions and matrix products, brought to the forms that kernels have.

use std::sync::Arc;

use tpusim_isa::num::{DType, DTypeKind};

use super::super::{DotSpec, NodeId, NodeOp};
use super::*;
use crate::hlo::{Attr, Op, Opcode};
use crate::lower::math::{Combine, MapOp};

/// Contracted elements, rows and columns from which on transposing an operand costs less than its blocks do.
const TURNED_K: u64 = 512;
const TURNED_ROWS: u64 = 128;
const TURNED_COLS: u64 = 1024;

pub(super) fn combine_of(op: Opcode) -> Option<Combine> {
    Some(match op {
        Opcode::Add => Combine::Add,
        Opcode::Multiply => Combine::Mul,
        Opcode::Maximum => Combine::Max,
        Opcode::Minimum => Combine::Min,
        Opcode::And => Combine::And,
        Opcode::Or => Combine::Or,
        Opcode::Xor => Combine::Xor,
        _ => return None,
    })
}

/// What the region of a reduction of `dtype` does, if it is a single combining operation.
pub(super) fn reducer(op: &Op, dtype: DType) -> Option<Combine> {
    let [region] = &op.regions[..] else { return None };
    combination(&region.block, dtype)
}

/// As [`reducer`], of a region itself.
pub(super) fn combination(block: &Block, dtype: DType) -> Option<Combine> {
    let [body, ret] = &block.ops[..] else { return None };
    let &[a, b] = &body.operands[..] else { return None };
    let plain = ret.operands == body.results && a != b && block.args.contains(&a) && block.args.contains(&b);
    let how = combine_of(body.opcode).filter(|_| plain)?;
    Some(match (how, dtype) {
        (Combine::Add | Combine::Max, DType::I1) => Combine::Or,
        (Combine::Mul | Combine::Min, DType::I1) => Combine::And,
        (h, _) => h,
    })
}

/// The elementwise operation of a reduction.
pub(crate) fn elementwise(how: Combine) -> MapOp {
    match how {
        Combine::Add => MapOp::Add,
        Combine::Mul => MapOp::Mul,
        Combine::Max => MapOp::Max,
        Combine::Min => MapOp::Min,
        Combine::And => MapOp::And,
        Combine::Or => MapOp::Or,
        Combine::Xor => MapOp::Xor,
    }
}

pub(super) fn identity_bits(bytes: &[u8], dtype: DType) -> Option<i32> {
    Some(register_bits(bytes, dtype))
}

/// Bytes of the element whose register form is `bits`.
pub(super) fn bits_to_bytes(bits: i32, dtype: DType) -> Arc<[u8]> {
    use tpusim_isa::num::convert;
    if dtype.is_float() {
        return convert::from_f64(dtype, f64::from(f32::from_bits(bits as u32)))[..dtype.bytes()].to_vec().into();
    }
    bits.to_le_bytes()[..dtype.bytes()].to_vec().into()
}

/// bf16 numbers an f32 operand is cut into: one at DEFAULT, two at HIGH, three at HIGHEST precision.
pub(super) fn precision_parts(op: &Op) -> usize {
    let asked = |a: &Attr| match a {
        Attr::Enum(e) if e == "HIGHEST" => 3,
        Attr::Enum(e) if e == "HIGH" => 2,
        _ => 1,
    };
    match op.attrs.get("precision_config") {
        Some(Attr::Array(list)) => list.iter().map(asked).max().unwrap_or(1),
        _ => 1,
    }
}

/// Dimensions of a product whose left operand has `rank` dimensions; a plain `dot` contracts the last with the first.
pub(super) fn dot_spec(op: &Op, rank: usize) -> DotSpec {
    let usizes = |v: &[i64]| v.iter().map(|&d| d as usize).collect::<Vec<_>>();
    match op.attrs.get("dot_dimension_numbers") {
        Some(Attr::Dot(d)) => DotSpec {
            batch: [usizes(&d.lhs_batch), usizes(&d.rhs_batch)],
            contract: [usizes(&d.lhs_contract), usizes(&d.rhs_contract)],
            useful: true,
        },
        _ => DotSpec { batch: [vec![], vec![]], contract: [vec![rank.saturating_sub(1)], vec![0]], useful: true },
    }
}

impl Builder<'_> {
    pub(super) fn reduce(
        &mut self,
        op: &Op,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> Result<NodeId, LowerError> {
        let Some(how) = reducer(op, t.dtype).filter(|_| args.len() == 2) else {
            let m = "only reductions of one operand by add, multiply, maximum, minimum, and, or, xor are lowered yet";
            return Err(self.error(op.opcode.name(), op.loc, m));
        };
        let mut dims: Vec<usize> = op.attrs.ints("dimensions").unwrap_or(&[]).iter().map(|&d| d as usize).collect();
        dims.sort_unstable();
        let init = args[1];
        if self.node(args[0]).elements() == 0 {
            return Ok(self.broadcast(init, vec![], t, name, site));
        }
        let neutral = self.splat_of(init).is_some_and(|b| identity_bits(&b, t.dtype) == Some(how.identity(t.dtype)));
        if neutral {
            return Ok(self.reduce_dims(how, args[0], &dims, t.dtype, name, &site));
        }
        let m = elementwise(how);
        // The initial value takes part before narrow floats are rounded.
        let wide = if t.dtype.is_float() { DType::F32 } else { t.dtype };
        let widen = |b: &mut Self, a: NodeId| {
            let dims = b.node(a).dims.clone();
            b.map(MapOp::Convert, &[a], &Shape { dims, dtype: wide }, name, site.clone())
        };
        let (x, init) = (widen(self, args[0]), widen(self, init));
        let x = self.reduce_dims(how, x, &dims, wide, name, &site);
        let y = self.map(m, &[x, init], &Shape { dims: t.dims.clone(), dtype: wide }, name, site.clone());
        Ok(self.map(MapOp::Convert, &[y], t, name, site))
    }

    /// Reduces the last dimension by itself (along lanes), then all others together (along rows and blocks). Narrow floats are
    /// summed in f32 throughout.
    pub(super) fn reduce_dims(
        &mut self,
        how: Combine,
        x: NodeId,
        dims: &[usize],
        dtype: DType,
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let shape = self.node(x).dims.clone();
        if dims.is_empty() {
            return x;
        }
        // Sizes of one need no work.
        let ones: Vec<usize> = dims.iter().copied().filter(|&d| shape[d] == 1).collect();
        if !ones.is_empty() {
            let out: Vec<u64> = (0..shape.len()).filter(|d| !ones.contains(d)).map(|d| shape[d]).collect();
            let squeezed = self.reshape(x, &Shape { dims: out, dtype }, name, site.clone());
            let rest: Vec<usize> = dims
                .iter()
                .filter(|d| !ones.contains(d))
                .map(|&d| d - ones.iter().filter(|&&o| o < d).count())
                .collect();
            return if rest.is_empty() { squeezed } else { self.reduce_dims(how, squeezed, &rest, dtype, name, site) };
        }
        let last = shape.len() - 1;
        let out: Vec<u64> = (0..shape.len()).filter(|d| !dims.contains(d)).map(|d| shape[d]).collect();
        // Only dimensions of one behind the reduced ones: without them the reduction runs along lanes.
        let tail = dims.last().map_or(shape.len(), |&d| d + 1);
        if tail < shape.len() && shape[tail..].iter().all(|&d| d == 1) {
            let x = self.reshape(x, &Shape { dims: shape[..tail].to_vec(), dtype }, name, site.clone());
            let y = self.reduce_dims(how, x, dims, dtype, name, site);
            return self.reshape(y, &Shape { dims: out, dtype }, name, site.clone());
        }
        if let &[d] = dims
            && let Some(y) = self.few_rows(how, x, d, name, site)
        {
            return y;
        }
        if dims.len() == 1 || !dims.contains(&last) {
            return self.push(
                NodeOp::Reduce(how, dims.to_vec()),
                vec![x],
                &Shape { dims: out, dtype },
                name,
                site.clone(),
            );
        }
        let wide = dtype.is_float() && dtype.bits() < 32;
        let t = if wide { DType::F32 } else { dtype };
        let x = self.map(MapOp::Convert, &[x], &Shape { dims: shape.clone(), dtype: t }, name, site.clone());
        let inner = self.reduce_dims(how, x, &[last], t, name, site);
        let rest: Vec<usize> = dims.iter().copied().filter(|&d| d != last).collect();
        let outer = self.reduce_dims(how, inner, &rest, t, name, site);
        let out = self.node(outer).dims.clone();
        self.map(MapOp::Convert, &[outer], &Shape { dims: out, dtype }, name, site.clone())
    }

    /// Brings a product to exactly one contracted dimension: several are joined, at the end if they are no neighbours, and none
    /// becomes one of size 1.
    pub(super) fn one_contracted(
        &mut self,
        mut spec: DotSpec,
        args: &[NodeId],
        name: &'static str,
        site: &(String, String),
    ) -> (DotSpec, Vec<NodeId>) {
        if spec.contract[0].len() == 1 {
            return (spec, args.to_vec());
        }
        let mut out = Vec::new();
        for (side, &arg) in args.iter().enumerate().take(2) {
            let n = self.node(arg);
            let (dims, dtype) = (n.dims.clone(), n.dtype);
            // Neighbours join where they are, which moves nothing.
            if let Some(&first) = spec.contract[side].first()
                && spec.contract[side].iter().enumerate().all(|(i, &d)| d == first + i)
            {
                let (count, end) = (spec.contract[side].len(), first + spec.contract[side].len());
                let joined = dims[first..end].iter().product();
                let shape = [&dims[..first], &[joined], &dims[end..]].concat();
                out.push(self.reshape(arg, &Shape { dims: shape, dtype }, name, site.clone()));
                spec.batch[side].iter_mut().filter(|d| **d >= end).for_each(|d| *d -= count - 1);
                spec.contract[side] = vec![first];
                continue;
            }
            let free = spec.free(side, dims.len());
            let perm: Vec<usize> = [&spec.batch[side][..], &free[..], &spec.contract[side][..]].concat();
            let moved: Vec<u64> = perm.iter().map(|&d| dims[d]).collect();
            let x = self.transpose(arg, perm, &Shape { dims: moved.clone(), dtype }, name, site.clone());
            let keep = dims.len() - spec.contract[side].len();
            let mut joined = moved[..keep].to_vec();
            joined.push(moved[keep..].iter().product());
            out.push(self.reshape(x, &Shape { dims: joined, dtype }, name, site.clone()));
            spec.batch[side] = (0..spec.batch[side].len()).collect();
            spec.contract[side] = vec![keep];
        }
        (spec, out)
    }

    pub(super) fn dot(
        &mut self,
        op: &Op,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> Result<NodeId, LowerError> {
        let spec = dot_spec(op, self.node(args[0]).dims.len());
        let kinds = args.iter().map(|&a| self.node(a).dtype.kind()).collect::<Vec<_>>();
        let (float, int) = (kinds.iter().all(|k| *k == DTypeKind::Float), t.dtype.is_int());
        let narrow = args.iter().all(|&a| self.node(a).dtype.bits() == 8);
        if kinds.iter().all(|k| matches!(k, DTypeKind::Signed | DTypeKind::Unsigned))
            && int
            && !(narrow && t.dtype.bits() == 32)
        {
            return self.integer_product(op, &spec, args, t, name, &site);
        }
        if !(float && t.dtype.is_float() || int && narrow && t.dtype.bits() == 32) {
            let m = "products of these types are not lowered yet; floats, and 8-bit integers to 32 bits, are";
            return Err(self.error(op.opcode.name(), op.loc, m));
        }
        let (spec, args) = self.one_contracted(spec, args, name, &site);
        let args = &args[..];
        let size =
            |side: usize| -> u64 { spec.contract[side].iter().map(|&d| self.node(args[side]).dims[d]).product() };
        if t.dims.iter().product::<u64>() > 0 && size(0) == 0 {
            return Ok(self.constant(bits_to_bytes(0, t.dtype), t, name, site));
        }
        // The array adds in f32 (or i32); a narrower result is rounded once.
        let wide = if t.dtype.is_float() { DType::F32 } else { DType::I32 };
        let t_wide = Shape { dims: t.dims.clone(), dtype: wide };
        let product = match precision_parts(op) {
            1 => self.product(spec, args, &t_wide, name, &site),
            parts => self.precise_product(spec, args, parts, &t_wide, name, &site),
        };
        if t.dtype == wide || t.dtype.is_int() {
            return Ok(product);
        }
        Ok(self.map(MapOp::Convert, &[product], t, name, site))
    }

    /// A product of integers that no MXU multiplies: elementwise, then summed, wrapping.
    fn integer_product(
        &mut self,
        op: &Op,
        spec: &DotSpec,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<NodeId, LowerError> {
        let dims = [0, 1].map(|side| self.node(args[side]).dims.clone());
        let free = [0, 1].map(|side| spec.free(side, dims[side].len()));
        let sizes: Vec<u64> = spec.contract[0].iter().map(|&d| dims[0][d]).collect();
        let full = [&t.dims[..], &sizes].concat();
        if full.len() > MAX_RANK {
            return Err(self.error(op.opcode.name(), op.loc, "has too many dimensions to be lowered"));
        }
        if full.contains(&0) {
            return Ok(self.constant(bits_to_bytes(0, t.dtype), t, name, site.clone()));
        }
        let word = if t.dtype.is_signed() { DType::I32 } else { DType::U32 };
        let sides = [0, 1].map(|side| {
            let mut to = vec![0; dims[side].len()];
            let skip = spec.batch[0].len() + if side == 0 { 0 } else { free[0].len() };
            spec.batch[side].iter().enumerate().for_each(|(i, &d)| to[d] = i);
            free[side].iter().enumerate().for_each(|(i, &d)| to[d] = skip + i);
            spec.contract[side].iter().enumerate().for_each(|(i, &d)| to[d] = t.dims.len() + i);
            // Broadcasts keep the order of dimensions, so the operand is brought to it first.
            let mut perm: Vec<usize> = (0..to.len()).collect();
            perm.sort_by_key(|&d| to[d]);
            let own = Shape { dims: dims[side].clone(), dtype: word };
            let x = self.map(MapOp::Convert, &[args[side]], &own, name, site.clone());
            let x = self.ordered(x, &perm, name, site);
            let to = perm.iter().map(|&d| to[d]).collect();
            self.broadcast(x, to, &Shape { dims: full.clone(), dtype: word }, name, site.clone())
        });
        let all = self.map(MapOp::Mul, &sides, &Shape { dims: full.clone(), dtype: word }, name, site.clone());
        let summed: Vec<usize> = (t.dims.len()..full.len()).collect();
        let sum = self.reduce_dims(Combine::Add, all, &summed, word, name, site);
        Ok(self.map(MapOp::Convert, &[sum], t, name, site.clone()))
    }

    /// A product of f32 operands in several bf16 passes: operands are cut into `parts` bf16 numbers, and the products of parts that
    /// matter are added from the smallest up. Two parts give the three passes of HIGH, three the six of HIGHEST.
    pub(super) fn precise_product(
        &mut self,
        spec: DotSpec,
        args: &[NodeId],
        parts: usize,
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let cut = [0, 1].map(|side| self.bf16_parts(args[side], parts, name, site));
        let mut sum: Option<NodeId> = None;
        // Parts `i` and `j` give products of order 2^-8(i + j).
        for order in (0..parts).rev() {
            for i in 0..=order {
                let (Some(&a), Some(&b)) = (cut[0].get(i), cut[1].get(order - i)) else { continue };
                let pass = DotSpec { useful: order == 0, ..spec.clone() };
                let product = self.product(pass, &[a, b], t, name, site);
                sum = Some(match sum {
                    None => product,
                    Some(s) => self.map(MapOp::Add, &[s, product], t, name, site.clone()),
                });
            }
        }
        // Part zero of both is always there.
        sum.unwrap_or(args[0])
    }

    /// An f32 array as a sum of bf16 ones, largest first; other types are one part. Infinities and NaNs stay in the first.
    pub(super) fn bf16_parts(
        &mut self,
        x: NodeId,
        parts: usize,
        name: &'static str,
        site: &(String, String),
    ) -> Vec<NodeId> {
        let (dims, dtype) = (self.node(x).dims.clone(), self.node(x).dtype);
        if dtype != DType::F32 {
            return vec![x];
        }
        let shape = |dtype| Shape { dims: dims.clone(), dtype };
        let zero = self.constant(bits_to_bytes(0, dtype), &shape(dtype), name, site.clone());
        let mut out = Vec::new();
        let mut rest = x;
        for part in 0..parts {
            let narrow = self.map(MapOp::Convert, &[rest], &shape(DType::BF16), name, site.clone());
            out.push(narrow);
            if part + 1 < parts {
                let wide = self.map(MapOp::Convert, &[narrow], &shape(dtype), name, site.clone());
                let finite = self.map(MapOp::IsFinite, &[wide], &shape(DType::I1), name, site.clone());
                let left = self.map(MapOp::Sub, &[rest, wide], &shape(dtype), name, site.clone());
                rest = self.map(MapOp::Select, &[finite, left, zero], &shape(dtype), name, site.clone());
            }
        }
        out
    }

    /// A product with one contracted dimension that is not empty, padded if that lets blocks divide it.
    pub(super) fn product(
        &mut self,
        spec: DotSpec,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let k = self.node(args[0]).dims[spec.contract[0][0]];
        let mut args = args.to_vec();
        if self.pad_contraction && k > K_MULTIPLE && !k.is_multiple_of(K_MULTIPLE) {
            args = [0, 1].map(|side| self.pad_end(args[side], spec.contract[side][0], name, site)).to_vec();
        }
        let spec = self.turned(spec, &mut args, name, site);
        self.push(NodeOp::Dot(spec), args, t, name, site.clone())
    }

    /// Where neither operand of a large product has its contracted dimension last, as in gradients of weights, the left one is transposed
    /// once, for all products that read it, instead of block by block for each block of columns.
    fn turned(
        &mut self,
        mut spec: DotSpec,
        args: &mut [NodeId],
        name: &'static str,
        site: &(String, String),
    ) -> DotSpec {
        let &[a, b] = &args[..] else { return spec };
        let shape = |n: NodeId| (self.node(n).dims.clone(), self.node(n).dtype);
        let ((dims, dtype), (other, _)) = (shape(a), shape(b));
        let last = |side: usize, rank: usize| spec.contract[side][0] + 1 == rank;
        if !spec.batch[0].is_empty() || last(0, dims.len()) || last(1, other.len()) {
            return spec;
        }
        let k = dims[spec.contract[0][0]];
        let free = |d: &[u64]| d.iter().product::<u64>() / k.max(1);
        if k < TURNED_K || free(&dims) < TURNED_ROWS || free(&other) < TURNED_COLS {
            return spec;
        }
        let perm = [spec.free(0, dims.len()), spec.contract[0].clone()].concat();
        let turned = Shape { dims: perm.iter().map(|&d| dims[d]).collect(), dtype };
        let x = self.transpose(a, perm, &turned, name, site.clone());
        args[0] = self.map(MapOp::Copy, &[x], &turned, name, site.clone());
        spec.contract[0] = vec![dims.len() - 1];
        spec
    }
}
