//! Attention and its gradient as single operations: the custom calls `tpusim.attention` and `tpusim.attention_gradient`.
//!
//! Queries are `(batch, queries, heads, dim)`, keys `(batch, keys, kv_heads, dim)`, values `(batch, keys, kv_heads, v_dim)`; consecutive
//! query heads share a key head. `backend_config` holds `causal`, a boolean, and `scale`, which scores are multiplied by; a causal
//! query sees the keys up to its own position.
//!
//! - `tpusim.attention` of queries, keys and values gives the output `(batch, queries, heads, v_dim)` and the logarithm of each query's
//!   sum of exponentials, `(batch, heads, queries)` in f32.
//! - `tpusim.attention_gradient` of those five and the gradient of the output gives the gradients of queries, keys and values.
//!
//! [`Attention::decomposition`] is what they mean, in StableHLO: the evaluator runs it, and so do chips without a kernel for it.

use tpusim_isa::num::DType;

use super::site::{RuleError, ensure};
use crate::hlo::{
    Attr, DotDims, FuncBuilder, Module, ModuleBuilder, Op, Opcode, ReduceKind, TensorType, Type, ValueId, Verified,
    VerifyError,
};

/// The call of attention itself.
pub const ATTENTION: &str = "tpusim.attention";
/// The call of its gradient.
pub const GRADIENT: &str = "tpusim.attention_gradient";

/// Score of a pair that the mask hides: `exp` of it is zero beside any other.
const HIDDEN: f64 = -1e30;

/// Sizes and form of an attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Sequences.
    pub batch: u64,
    /// Positions of queries.
    pub queries: u64,
    /// Positions of keys.
    pub keys: u64,
    /// Query heads.
    pub heads: u64,
    /// Key heads; divides `heads`.
    pub kv_heads: u64,
    /// Elements of a query and of a key.
    pub dim: u64,
    /// Elements of a value.
    pub v_dim: u64,
    /// Type of all but the logarithms.
    pub dtype: DType,
    /// Whether a query sees only the keys up to its own position.
    pub causal: bool,
    /// What scores are multiplied by.
    pub scale: f64,
    /// Whether it is the gradient.
    pub gradient: bool,
}

/// Whether a custom call is one of the two.
pub fn is_target(target: &str) -> bool {
    target == ATTENTION || target == GRADIENT
}

fn target(op: &Op) -> Option<&str> {
    op.attrs.text("call_target_name").filter(|t| op.opcode == Opcode::CustomCall && is_target(t))
}

impl Attention {
    /// What `op`, with these types of operands and results, computes; `None` if it is another op.
    ///
    /// # Errors
    /// Says what does not fit.
    pub fn of(op: &Op, operands: &[Type], results: &[Type]) -> Option<Result<Attention, RuleError>> {
        target(op).map(|t| Attention::parse(op, t == GRADIENT, operands, results))
    }

    fn parse(op: &Op, gradient: bool, operands: &[Type], results: &[Type]) -> Result<Attention, RuleError> {
        let tensor = |t: &Type| t.tensor().cloned().ok_or_else(|| RuleError::new("takes tensors"));
        let given = operands.iter().map(tensor).collect::<Result<Vec<_>, _>>()?;
        let results = results.iter().map(tensor).collect::<Result<Vec<_>, _>>()?;
        let config = match op.attrs.get("backend_config") {
            Some(Attr::Dict(d)) => d,
            _ => return Err(RuleError::new("needs `causal` and `scale` in a dictionary `backend_config`")),
        };
        let scale = match config.get("scale") {
            Some(Attr::Float(v, _)) if v.is_finite() => *v,
            _ => return Err(RuleError::new("needs a finite `scale` in `backend_config`")),
        };
        let causal = match config.get("causal") {
            Some(Attr::Bool(v)) => *v,
            _ => return Err(RuleError::new("needs a boolean `causal` in `backend_config`")),
        };
        let size = |i: usize, d: usize| -> Result<u64, RuleError> {
            let n = given.get(i).filter(|t| t.rank() == 4).and_then(|t| t.dims.get(d)).copied();
            n.and_then(|n| u64::try_from(n).ok())
                .ok_or_else(|| RuleError::new("queries, keys and values have four static dimensions"))
        };
        let s = Attention {
            batch: size(0, 0)?,
            queries: size(0, 1)?,
            keys: size(1, 1)?,
            heads: size(0, 2)?,
            kv_heads: size(1, 2)?,
            dim: size(0, 3)?,
            v_dim: size(2, 3)?,
            dtype: given.first().map_or(DType::F32, |t| t.dtype),
            causal,
            scale,
            gradient,
        };
        ensure(s.dtype.is_float(), || "needs floats".into())?;
        let divides = s.kv_heads > 0 && s.heads.is_multiple_of(s.kv_heads);
        ensure(divides, || format!("{} heads cannot share {} key heads", s.heads, s.kv_heads))?;
        let (want, out) = s.types();
        ensure(given == want && results == out, || {
            let list = |t: &[TensorType]| t.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ");
            format!("should be ({}) -> ({}), is ({}) -> ({})", list(&want), list(&out), list(&given), list(&results))
        })?;
        Ok(s)
    }

    /// Types of operands and results.
    pub fn types(&self) -> (Vec<TensorType>, Vec<TensorType>) {
        let t = |dims: [u64; 4]| TensorType::new(dims.map(|d| d as i64), self.dtype);
        let q = t([self.batch, self.queries, self.heads, self.dim]);
        let k = t([self.batch, self.keys, self.kv_heads, self.dim]);
        let v = t([self.batch, self.keys, self.kv_heads, self.v_dim]);
        let o = t([self.batch, self.queries, self.heads, self.v_dim]);
        let log = TensorType::new([self.batch, self.heads, self.queries].map(|d| d as i64), DType::F32);
        let given = vec![q.clone(), k.clone(), v.clone()];
        match self.gradient {
            false => (given, vec![o, log]),
            true => ([given, vec![o.clone(), log, o]].concat(), vec![q, k, v]),
        }
    }

    /// Appends the call; its operands say the sizes.
    pub fn call(f: &mut FuncBuilder<'_>, operands: &[ValueId], causal: bool, scale: f64) -> Vec<ValueId> {
        let types: Vec<TensorType> = operands.iter().map(|&v| f.ty(v)).collect();
        let size = |i: usize, d: usize| types.get(i).and_then(|t| t.dims.get(d)).map_or(0, |&n| n.max(0) as u64);
        let s = Attention {
            batch: size(0, 0),
            queries: size(0, 1),
            keys: size(1, 1),
            heads: size(0, 2),
            kv_heads: size(1, 2),
            dim: size(0, 3),
            v_dim: size(2, 3),
            dtype: types.first().map_or(DType::F32, |t| t.dtype),
            causal,
            scale,
            gradient: operands.len() > 3,
        };
        let config = [("causal", Attr::Bool(causal)), ("scale", Attr::Float(scale, Type::Scalar(DType::F64)))];
        let config = config.into_iter().map(|(n, a)| (n.to_owned(), a)).collect();
        let name = if s.gradient { GRADIENT } else { ATTENTION };
        let attrs = [("call_target_name", Attr::Str(name.to_owned())), ("backend_config", Attr::Dict(config))];
        f.op(Opcode::CustomCall, operands, &attrs, &s.types().1)
    }

    /// Pairs of a tile of queries and a tile of keys of one head that are not all hidden.
    pub fn tile_pairs(&self, tile: u64) -> u64 {
        let (q, k) = (self.queries.div_ceil(tile), self.keys.div_ceil(tile));
        if self.causal { (1..=q).map(|i| i.min(k)).sum() } else { q * k }
    }

    /// Multiply-adds of its products, twice, without what a causal mask hides and without scores that the gradient computes again.
    pub fn flops(&self) -> u64 {
        let pairs = if self.causal { self.queries * (self.queries + 1) / 2 } else { self.queries * self.keys };
        let width = (self.dim + self.v_dim) * if self.gradient { 2 } else { 1 };
        2 * self.batch * self.heads * pairs * width
    }

    /// A module whose function `main` computes the same.
    ///
    /// # Errors
    /// None if the sizes fit.
    pub fn decomposition(&self) -> Result<Verified<Module>, Vec<VerifyError>> {
        let mut m = ModuleBuilder::new("attention");
        self.define(&mut m, "main");
        m.finish()
    }

    /// Adds a function of `name` that computes the same.
    pub fn define(&self, m: &mut ModuleBuilder, name: &str) {
        let mut f = m.func(name);
        let params: Vec<ValueId> = self.types().0.into_iter().map(|t| f.param("", t)).collect();
        let results = match *params.as_slice() {
            [q, k, v] => self.forward(&mut f, q, k, v),
            [q, k, v, o, log, go] => self.backward(&mut f, [q, k, v, o, log, go]),
            _ => Vec::new(),
        };
        f.ret(&results);
    }

    fn d(&self, dims: &[u64]) -> Vec<i64> {
        dims.iter().map(|&d| d as i64).collect()
    }

    /// `(batch, queries, heads, n)` by key head: `(batch, queries, kv_heads, group, n)`.
    fn grouped(&self, f: &mut FuncBuilder<'_>, x: ValueId, n: u64) -> ValueId {
        let dims = self.d(&[self.batch, self.queries, self.kv_heads, self.heads / self.kv_heads, n]);
        f.reshape(x, &dims)
    }

    /// Scaled scores: `(batch, kv_heads, queries, group, keys)` in f32, and which of them are seen.
    fn scores(&self, f: &mut FuncBuilder<'_>, q: ValueId, k: ValueId) -> (ValueId, Option<ValueId>) {
        let q = self.grouped(f, q, self.dim);
        let s = contract(f, (q, k), ([0, 2], [0, 2]), (4, 3), DType::F32);
        let s = f.binary_scalar(Opcode::Multiply, s, self.scale);
        if !self.causal {
            return (s, None);
        }
        let dims = f.dims(s);
        let plane = TensorType::new(self.d(&[self.queries, self.keys]), DType::I32);
        let (query, key) = (f.iota(plane.clone(), 0), f.iota(plane, 1));
        let seen = f.compare("GE", query, key);
        (s, Some(f.broadcast_along(seen, &[2, 4], &dims)))
    }

    fn forward(&self, f: &mut FuncBuilder<'_>, q: ValueId, k: ValueId, v: ValueId) -> Vec<ValueId> {
        let (mut s, seen) = self.scores(f, q, k);
        let dims = f.dims(s);
        if let Some(seen) = seen {
            let hidden = f.splat(f.ty(s), HIDDEN);
            s = f.select(seen, s, hidden);
        }
        let max = f.reduce(ReduceKind::Max, s, &[4]);
        let wide = f.broadcast_along(max, &[0, 1, 2, 3], &dims);
        let p = f.binary(Opcode::Subtract, s, wide);
        let p = f.unary(Opcode::Exponential, p);
        let sum = f.reduce(ReduceKind::Sum, p, &[4]);
        let p = f.convert(p, self.dtype);
        let o = contract(f, (p, v), ([0, 1], [0, 2]), (4, 1), DType::F32);
        let wide = f.broadcast_along(sum, &[0, 1, 2, 3], &f.dims(o));
        let o = f.binary(Opcode::Divide, o, wide);
        let o = f.convert(o, self.dtype);
        let o = f.transpose(o, &[0, 2, 1, 3, 4]);
        let o = f.reshape(o, &self.d(&[self.batch, self.queries, self.heads, self.v_dim]));
        let log = f.unary(Opcode::Log, sum);
        let log = f.add(max, log);
        let log = f.transpose(log, &[0, 1, 3, 2]);
        vec![o, f.reshape(log, &self.d(&[self.batch, self.heads, self.queries]))]
    }

    fn backward(&self, f: &mut FuncBuilder<'_>, [q, k, v, o, log, go]: [ValueId; 6]) -> Vec<ValueId> {
        let (s, seen) = self.scores(f, q, k);
        let dims = f.dims(s);
        let group = self.heads / self.kv_heads;
        let log = f.reshape(log, &self.d(&[self.batch, self.kv_heads, group, self.queries]));
        let wide = f.broadcast_along(log, &[0, 1, 3, 2], &dims);
        let p = f.binary(Opcode::Subtract, s, wide);
        let mut p = f.unary(Opcode::Exponential, p);
        if let Some(seen) = seen {
            let zero = f.splat(f.ty(p), 0.0);
            p = f.select(seen, p, zero);
        }
        let delta = delta(f, o, go);
        let delta = self.grouped(f, delta, 1);
        let delta = f.reshape(delta, &self.d(&[self.batch, self.queries, self.kv_heads, group]));
        let delta = f.broadcast_along(delta, &[0, 2, 1, 3], &dims);
        let (q, go) = (self.grouped(f, q, self.dim), self.grouped(f, go, self.v_dim));
        let dp = contract(f, (go, v), ([0, 2], [0, 2]), (4, 3), DType::F32);
        let ds = f.binary(Opcode::Subtract, dp, delta);
        let ds = f.mul(ds, p);
        let (ds, p) = (f.convert(ds, self.dtype), f.convert(p, self.dtype));
        let by_query = contract(f, (ds, k), ([0, 1], [0, 2]), (4, 1), DType::F32);
        let by_query = f.transpose(by_query, &[0, 2, 1, 3, 4]);
        let dq = f.reshape(by_query, &self.d(&[self.batch, self.queries, self.heads, self.dim]));
        let by_key = |f: &mut FuncBuilder<'_>, a: ValueId, b: ValueId| {
            let dims = DotDims {
                lhs_batch: vec![0, 1],
                rhs_batch: vec![0, 2],
                lhs_contract: vec![2, 3],
                rhs_contract: vec![1, 3],
            };
            let x = f.dot_general(a, b, dims, DType::F32);
            f.transpose(x, &[0, 2, 1, 3])
        };
        let (dk, dv) = (by_key(f, ds, q), by_key(f, p, go));
        let scaled = |f: &mut FuncBuilder<'_>, x: ValueId, by: f64| {
            let x = f.binary_scalar(Opcode::Multiply, x, by);
            f.convert(x, self.dtype)
        };
        vec![scaled(f, dq, self.scale), scaled(f, dk, self.scale), scaled(f, dv, 1.0)]
    }
}

/// Sums over the last dimension of products of the output and its gradient, in f32.
fn delta(f: &mut FuncBuilder<'_>, o: ValueId, go: ValueId) -> ValueId {
    let (o, go) = (f.convert(o, DType::F32), f.convert(go, DType::F32));
    let x = f.mul(o, go);
    f.reduce(ReduceKind::Sum, x, &[3])
}

fn contract(
    f: &mut FuncBuilder<'_>,
    (a, b): (ValueId, ValueId),
    batch: ([i64; 2], [i64; 2]),
    over: (i64, i64),
    out: DType,
) -> ValueId {
    let dims = DotDims {
        lhs_batch: batch.0.to_vec(),
        rhs_batch: batch.1.to_vec(),
        lhs_contract: vec![over.0],
        rhs_contract: vec![over.1],
    };
    f.dot_general(a, b, dims, out)
}
