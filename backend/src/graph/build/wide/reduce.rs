//! Reductions and products of pairs.
//!
//! Sums of 64-bit integers are sums of 16-bit pieces, extrema are found in the high words and then, among those that have them, in the
//! low ones: two or three ordinary reductions. What must combine whole elements, such as sums of doubles, halves the array until
//! one element is left, which also rounds less often than a running sum.

use super::super::contract::{elementwise, reducer};
use super::*;
use crate::lower::math::Combine;

/// Longest sum of 16-bit pieces that fits a word.
const MAX_PIECES: u64 = 1 << 16;

/// Parts of the neutral element.
pub(in super::super) fn identity(how: Combine, t: DType) -> [u32; 2] {
    let signed = t == DType::I64;
    let int = |v: i64| [v as u32, (v >> 32) as u32];
    let real = |v: f32| [v.to_bits(), 0];
    match (how, t) {
        (Combine::Mul, DType::F64 | DType::C64) => real(1.0),
        (Combine::Max, DType::F64) => real(f32::NEG_INFINITY),
        (Combine::Min, DType::F64) => real(f32::INFINITY),
        (Combine::Mul, _) => int(1),
        (Combine::Max, _) if signed => int(i64::MIN),
        (Combine::Min, _) if signed => int(i64::MAX),
        (Combine::And | Combine::Min, _) => int(-1),
        _ => int(0),
    }
}

/// `how` of two elements; `None` if the type has no such operation.
pub(in super::super) fn combine(c: &mut Chain<'_, '_>, how: Combine, t: DType, a: Parts, b: Parts) -> Option<Parts> {
    let m = elementwise(how);
    match t {
        DType::F64 => float::map(c, m, &[a, b]),
        DType::C64 => match complex::map(c, Opcode::Return, Some(m), &[a, b])? {
            Value::Pair(_, p) => Some(p),
            Value::One(_) => None,
        },
        _ => integer::map(c, m, t == DType::I64, &[a, b]),
    }
}

impl Builder<'_> {
    pub(super) fn wide_reduce_window(
        &mut self,
        op: &Op,
        args: &[Value],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<Value, LowerError> {
        let (Some(how), &[x @ Value::Pair(dtype, parts), init @ Value::Pair(_, start)]) = (reducer(op, t.dtype), args)
        else {
            let m = "of one operand by add, multiply, maximum, minimum, and, or, xor alone is lowered; this one";
            return Err(self.wide_error(op, args, m));
        };
        // Whether there is code for the function, before windows are made of it.
        let mut c = Chain { dims: self.node(parts[0]).dims.clone(), b: self, name, site: site.clone() };
        if combine(&mut c, how, dtype, parts, parts).is_none() {
            return Err(self.wide_error(op, args, "by this function"));
        }
        let part = self.node(parts[0]).dtype;
        let bits = identity(how, dtype);
        let scalar = Shape { dims: vec![], dtype: part };
        let neutral = bits.map(|v| self.constant(v.to_le_bytes().to_vec().into(), &scalar, name, site.clone()));
        let y = self.windows_of(op, how, x, Value::Pair(dtype, neutral), init, t, name, site)?;
        if start == neutral || self.node(parts[0]).elements() == 0 {
            return Ok(y);
        }
        Ok(self.join(how, y, init, name, site))
    }

    pub(super) fn wide_reduce(
        &mut self,
        op: &Op,
        args: &[Value],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<Value, LowerError> {
        let (Some(how), [Value::Pair(dtype, x), Value::Pair(_, init)]) = (reducer(op, t.dtype), args) else {
            let m = "of one operand by add, multiply, maximum, minimum, and, or, xor alone is lowered; this one";
            return Err(self.wide_error(op, args, m));
        };
        let mut dims: Vec<usize> = op.attrs.ints("dimensions").unwrap_or(&[]).iter().map(|&d| d as usize).collect();
        dims.sort_unstable();
        let part = self.node(x[0]).dtype;
        let t_part = Shape { dims: t.dims.clone(), dtype: part };
        let init = init.map(|i| self.broadcast(i, vec![], &t_part, name, site.clone()));
        if self.node(x[0]).elements() == 0 {
            return Ok(Value::Pair(*dtype, init));
        }
        let Some(y) = self.reduce_pair(how, *dtype, *x, &dims, name, site) else {
            return Err(self.wide_error(op, args, "by this function"));
        };
        let word =
            |b: &Self, n: NodeId| b.splat_of(n).and_then(|b| Some(u32::from_le_bytes(b.get(..4)?.try_into().ok()?)));
        let neutral = identity(how, *dtype);
        if [0, 1].iter().all(|&i| word(self, init[i]) == Some(neutral[i])) {
            return Ok(Value::Pair(*dtype, y));
        }
        let mut c = Chain { b: self, dims: t.dims.clone(), name, site: site.clone() };
        match combine(&mut c, how, *dtype, y, init) {
            Some(y) => Ok(Value::Pair(*dtype, y)),
            None => Err(self.wide_error(op, args, "by this function")),
        }
    }

    /// Reduces `dims` of a pair that is not empty.
    fn reduce_pair(
        &mut self,
        how: Combine,
        dtype: DType,
        x: Parts,
        dims: &[usize],
        name: &'static str,
        site: &(String, String),
    ) -> Option<Parts> {
        if dims.is_empty() {
            return Some(x);
        }
        let part = self.node(x[0]).dtype;
        match (how, dtype) {
            (Combine::And | Combine::Or | Combine::Xor, DType::I64 | DType::U64) | (Combine::Add, DType::C64) => {
                Some(x.map(|p| self.reduce_dims(how, p, dims, part, name, site)))
            }
            (Combine::Add, DType::I64 | DType::U64) => self.sum_words(dtype, x, dims, name, site),
            (Combine::Max | Combine::Min, DType::I64 | DType::U64 | DType::F64) => {
                Some(self.extremum(how, dtype, x, dims, name, site))
            }
            _ => self.halve(how, dtype, x, dims, 1, name, site),
        }
    }

    fn sum_words(
        &mut self,
        dtype: DType,
        x: Parts,
        dims: &[usize],
        name: &'static str,
        site: &(String, String),
    ) -> Option<Parts> {
        let x = self.halve_until(Combine::Add, dtype, x, dims, MAX_PIECES, name, site)?;
        let mut c = Chain { dims: self.node(x[0]).dims.clone(), b: self, name, site: site.clone() };
        let (mask, half) = (number(&mut c, 0xffff, DType::U32), number(&mut c, 16, DType::U32));
        let pieces = [
            c.typed(MapOp::And, &[x[0], mask], DType::U32),
            c.typed(MapOp::ShrLogical, &[x[0], half], DType::U32),
            x[1],
        ];
        let [low, middle, high] = pieces.map(|p| self.reduce_dims(Combine::Add, p, dims, DType::U32, name, site));
        let mut c = Chain { dims: self.node(low).dims.clone(), b: self, name, site: site.clone() };
        let half = number(&mut c, 16, DType::U32);
        let zero = number(&mut c, 0, DType::U32);
        let up = c.typed(MapOp::Shl, &[middle, half], DType::U32);
        let over = c.typed(MapOp::ShrLogical, &[middle, half], DType::U32);
        let sum = integer::add(&mut c, [low, zero], [up, over]);
        Some([sum[0], c.typed(MapOp::Add, &[sum[1], high], DType::U32)])
    }

    /// The extremum of the first-ranking parts, then of the other parts where it is reached.
    fn extremum(
        &mut self,
        how: Combine,
        dtype: DType,
        x: Parts,
        dims: &[usize],
        name: &'static str,
        site: &(String, String),
    ) -> Parts {
        let full = self.node(x[0]).dims.clone();
        let (first, second, rank) = match dtype {
            DType::F64 => (x[0], x[1], DType::F32),
            DType::I64 => (x[1], x[0], DType::I32),
            _ => (x[1], x[0], DType::U32),
        };
        let mut c = Chain { b: self, dims: full.clone(), name, site: site.clone() };
        let first = if rank == DType::I32 { c.typed(MapOp::Bitcast, &[first], rank) } else { first };
        let best = self.reduce_dims(how, first, dims, rank, name, site);
        let keep = (0..full.len()).filter(|d| !dims.contains(d)).collect();
        let wide = self.broadcast(best, keep, &Shape { dims: full.clone(), dtype: rank }, name, site.clone());
        let other = self.node(second).dtype;
        let mut c = Chain { b: self, dims: full, name, site: site.clone() };
        let hit = c.typed(MapOp::Compare(Direction::Eq, false), &[first, wide], DType::I1);
        let none = number(&mut c, how.identity(other) as u32, other);
        let second = c.typed(MapOp::Select, &[hit, second, none], other);
        let next = self.reduce_dims(how, second, dims, other, name, site);
        let mut c = Chain { dims: self.node(best).dims.clone(), b: self, name, site: site.clone() };
        match dtype {
            DType::F64 => {
                // Beside a NaN or an infinity stands a zero.
                let (finite, zero) = (c.typed(MapOp::IsFinite, &[best], DType::I1), number(&mut c, 0, DType::F32));
                [best, c.map(MapOp::Select, &[finite, next, zero])]
            }
            _ => [next, c.typed(MapOp::Bitcast, &[best], DType::U32)],
        }
    }

    /// Combines halves until `limit` elements are left of each reduced group.
    #[allow(clippy::too_many_arguments)]
    fn halve_until(
        &mut self,
        how: Combine,
        dtype: DType,
        x: Parts,
        dims: &[usize],
        limit: u64,
        name: &'static str,
        site: &(String, String),
    ) -> Option<Parts> {
        let mut x = x;
        loop {
            let sizes = self.node(x[0]).dims.clone();
            let left: u64 = dims.iter().map(|&d| sizes[d]).product();
            let d = dims.iter().copied().max_by_key(|&d| sizes[d]).filter(|_| left > limit);
            let Some(d) = d else { break };
            let (n, half) = (sizes[d], sizes[d] / 2);
            let [a, b] = [0, half].map(|at| x.map(|p| self.cut(p, d, [at, 1, half], name, site)));
            let rest = (n % 2 == 1).then(|| x.map(|p| self.cut(p, d, [n - 1, 1, 1], name, site)));
            let mut c = Chain { dims: self.node(a[0]).dims.clone(), b: self, name, site: site.clone() };
            x = combine(&mut c, how, dtype, a, b)?;
            // The last of an odd number joins the first of the halves.
            if let Some(r) = rest {
                let first = x.map(|p| self.cut(p, d, [0, 1, 1], name, site));
                let mut c = Chain { dims: self.node(r[0]).dims.clone(), b: self, name, site: site.clone() };
                let joined = combine(&mut c, how, dtype, first, r)?;
                if half == 1 {
                    x = joined;
                } else {
                    let behind = x.map(|p| self.cut(p, d, [1, 1, half - 1], name, site));
                    let t = Shape { dims: self.node(x[0]).dims.clone(), dtype: self.node(x[0]).dtype };
                    x = [0, 1]
                        .map(|i| self.push(NodeOp::Concat(d), vec![joined[i], behind[i]], &t, name, site.clone()));
                }
            }
        }
        Some(x)
    }

    #[allow(clippy::too_many_arguments)]
    fn halve(
        &mut self,
        how: Combine,
        dtype: DType,
        x: Parts,
        dims: &[usize],
        limit: u64,
        name: &'static str,
        site: &(String, String),
    ) -> Option<Parts> {
        let x = self.halve_until(how, dtype, x, dims, limit, name, site)?;
        let t = Shape {
            dims: self.node(x[0]).dims.iter().enumerate().filter(|(d, _)| !dims.contains(d)).map(|(_, &n)| n).collect(),
            dtype: self.node(x[0]).dtype,
        };
        Some(x.map(|p| self.reshape(p, &t, name, site.clone())))
    }

    /// Argmax and argmin with values or indices of 64 bits.
    pub(super) fn wide_reduce_with_index(
        &mut self,
        op: &Op,
        args: &[Value],
        t: [&Shape; 2],
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let &[x, index, init, init_index] = args else {
            return Err(self.wide_error(
                op,
                args,
                "of several operands is lowered for argmax and argmin only; this one",
            ));
        };
        // Indices are positions: their low words are enough if the high ones are zero.
        let zero = |b: &Self, n: NodeId| b.splat_of(n).is_some_and(|v| v.iter().all(|&b| b == 0));
        let low = |b: &Self, v: Value| match v {
            Value::One(n) => Some(n),
            Value::Pair(DType::I64 | DType::U64, p) if zero(b, p[1]) => Some(p[0]),
            Value::Pair(..) => None,
        };
        let wide_index = part_of(t[1].dtype).is_some();
        let counts = Shape { dims: t[1].dims.clone(), dtype: if wide_index { DType::U32 } else { t[1].dtype } };
        let (Some(places), Some(init_place)) = (low(self, index), low(self, init_index)) else {
            return Err(self.wide_error(op, args, "with indices that are no iota"));
        };
        let indexed = |b: &mut Self, place: NodeId| {
            if !wide_index {
                return Value::One(place);
            }
            let z = Shape { dims: t[1].dims.clone(), dtype: DType::U32 };
            let zero = b.constant(vec![0; 4].into(), &z, "reduce", site.clone());
            Value::Pair(t[1].dtype, [place, zero])
        };
        if let (Value::One(x), Value::One(init)) = (x, init) {
            let own = Shape { dims: t[0].dims.clone(), dtype: t[0].dtype };
            let out = self.reduce_with_index(op, &[x, places, init, init_place], &[own, counts], site)?;
            return match out[..] {
                [best, place] => Ok(vec![Value::One(best), indexed(self, place)]),
                _ => Ok(Vec::new()),
            };
        }
        let how = super::super::argmax::extremum_of(op);
        let dims = op.attrs.ints("dimensions").unwrap_or(&[]);
        let (Some(how), Value::Pair(dtype, x), Value::Pair(_, init), &[dim]) = (how, x, init, dims) else {
            return Err(self.wide_error(
                op,
                args,
                "of several operands is lowered for argmax and argmin only; this one",
            ));
        };
        let dim = dim as usize;
        let full = self.node(x[0]).dims.clone();
        let word =
            |b: &Self, n: NodeId| b.splat_of(n).and_then(|b| Some(u32::from_le_bytes(b.get(..4)?.try_into().ok()?)));
        let neutral = identity(how, dtype);
        let natural = [0, 1].iter().all(|&i| word(self, init[i]) == Some(neutral[i])) && zero(self, init_place);
        let empty = self.node(x[0]).elements() == 0;
        if !natural || empty || self.node(places).op != NodeOp::Iota(dim) {
            let m = "for argmax and argmin without an iota as indices and neutral initial values";
            return Err(self.wide_error(op, args, m));
        }
        let best = self.extremum(how, dtype, x, &[dim], "reduce", site);
        let keep: Vec<usize> = (0..full.len()).filter(|&d| d != dim).collect();
        let part = self.node(x[0]).dtype;
        let wide = best.map(|p| {
            self.broadcast(p, keep.clone(), &Shape { dims: full.clone(), dtype: part }, "reduce", site.clone())
        });
        let mut c = Chain { b: self, dims: full, name: "reduce", site: site.clone() };
        let mut hit = equal(&mut c, x, wide);
        if dtype == DType::F64 {
            let nan = c.typed(MapOp::Compare(Direction::Ne, false), &[x[0], x[0]], DType::I1);
            hit = c.typed(MapOp::Or, &[hit, nan], DType::I1);
        }
        let limit = number(&mut c, Combine::Min.identity(counts.dtype) as u32, counts.dtype);
        let place = c.typed(MapOp::Select, &[hit, places, limit], counts.dtype);
        let first = self.reduce_dims(Combine::Min, place, &[dim], counts.dtype, "reduce", site);
        let place = indexed(self, first);
        Ok(vec![Value::Pair(dtype, best), place])
    }

    /// Products: complex ones are four real ones; others multiply every pair of elements and reduce.
    pub(super) fn wide_dot(
        &mut self,
        op: &Op,
        args: &[Value],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<Value, LowerError> {
        if let [Value::Pair(DType::C64, a), Value::Pair(DType::C64, b)] = *args {
            let real = Shape { dims: t.dims.clone(), dtype: DType::F32 };
            let mut products = Vec::new();
            for (x, y) in [(a[0], b[0]), (a[1], b[1]), (a[0], b[1]), (a[1], b[0])] {
                products.push(self.dot(op, &[x, y], &real, name, site.clone())?);
            }
            let mut c = Chain { b: self, dims: t.dims.clone(), name, site: site.clone() };
            let (re, im) = (c.map(MapOp::Sub, &products[..2]), c.map(MapOp::Add, &products[2..]));
            return Ok(Value::Pair(t.dtype, [re, im]));
        }
        let dtype = t.dtype;
        let Some(part) = part_of(dtype).filter(|_| dtype != DType::C64) else {
            return Err(self.wide_error(op, args, "with a result of fewer bits"));
        };
        let ranks = [0, 1].map(|i| match args[i] {
            Value::One(n) => self.node(n).dims.clone(),
            Value::Pair(_, p) => self.node(p[0]).dims.clone(),
        });
        let spec = super::super::contract::dot_spec(op, ranks[0].len());
        let (batch, contracted) = (spec.batch[0].len(), spec.contract[0].len());
        let free = [0, 1].map(|side| spec.free(side, ranks[side].len()));
        let sizes: Vec<u64> = spec.contract[0].iter().map(|&d| ranks[0][d]).collect();
        let full = [&t.dims[..], &sizes].concat();
        if full.len() > MAX_RANK {
            return Err(self.wide_error(op, args, "with so many dimensions"));
        }
        let mut sides = Vec::new();
        for side in 0..2 {
            let own = Shape { dims: ranks[side].clone(), dtype };
            let Value::Pair(_, x) = self.wide_convert(args[side], &own, name, site) else {
                return Err(self.wide_error(op, args, "mixed with other types"));
            };
            // Where each dimension of the operand lies in batch, free of both sides, contracted.
            let mut map = vec![0; ranks[side].len()];
            let skip = if side == 0 { 0 } else { free[0].len() };
            spec.batch[side].iter().enumerate().for_each(|(i, &d)| map[d] = i);
            free[side].iter().enumerate().for_each(|(i, &d)| map[d] = batch + skip + i);
            spec.contract[side].iter().enumerate().for_each(|(i, &d)| map[d] = t.dims.len() + i);
            // Broadcasts keep the order of dimensions, so the operand is brought to it first.
            let mut perm: Vec<usize> = (0..map.len()).collect();
            perm.sort_by_key(|&d| map[d]);
            let moved: Vec<u64> = perm.iter().map(|&d| ranks[side][d]).collect();
            let to: Vec<usize> = perm.iter().map(|&d| map[d]).collect();
            sides.push(x.map(|p| {
                let y =
                    self.transpose(p, perm.clone(), &Shape { dims: moved.clone(), dtype: part }, name, site.clone());
                self.broadcast(y, to.clone(), &Shape { dims: full.clone(), dtype: part }, name, site.clone())
            }));
        }
        let mut c = Chain { b: self, dims: full.clone(), name, site: site.clone() };
        let Some(product) = combine(&mut c, Combine::Mul, dtype, sides[0], sides[1]) else {
            return Err(self.wide_error(op, args, "by this function"));
        };
        let dims: Vec<usize> = (t.dims.len()..t.dims.len() + contracted).collect();
        if self.node(product[0]).elements() == 0 {
            let zero =
                self.constant(vec![0; 4].into(), &Shape { dims: t.dims.clone(), dtype: part }, name, site.clone());
            return Ok(Value::Pair(dtype, [zero, zero]));
        }
        match self.reduce_pair(Combine::Add, dtype, product, &dims, name, site) {
            Some(y) => Ok(Value::Pair(dtype, y)),
            None => Err(self.wide_error(op, args, "by this function")),
        }
    }
}
