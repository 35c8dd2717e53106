//! Attention and its gradient as single operations: the custom calls `tpusim.attention` and `tpusim.attention_gradient`.
//!
//! Queries are `(batch, queries, heads, dim)`, keys `(batch, keys, kv_heads, dim)`, values `(batch, keys, kv_heads, v_dim)`; consecutive
//! query heads share a key head. `backend_config` is a [`Form`]: `causal`, a boolean, and `scale`, which scores are multiplied by; a causal
//! query sees the keys up to its own position. It may also hold `window`, how many keys a causal query sees, the last of them its own;
//! `offset`, positions that queries are behind the keys of the same index; and `softcap`, which bounds scores: `c tanh(x / c)`.
//!
//! - `tpusim.attention` of queries, keys and values gives the output `(batch, queries, heads, v_dim)` and the logarithm of each query's
//!   sum of exponentials, `(batch, heads, queries)` in f32.
//! - `tpusim.attention_gradient` of those five and the gradient of the output gives the gradients of queries, keys and values.
//!
//! [`Attention::decomposition`] is what they mean, in StableHLO: the evaluator runs it, and so do chips without a kernel for it.

use tpusim_isa::num::DType;

use super::site::{RuleError, ensure};
use crate::hlo::{
    Attr, AttrList, DotDims, FuncBuilder, Module, ModuleBuilder, Op, Opcode, ReduceKind, TensorType, Type, ValueId,
    Verified, VerifyError,
};

/// The call of attention itself.
pub const ATTENTION: &str = "tpusim.attention";
/// The call of its gradient.
pub const GRADIENT: &str = "tpusim.attention_gradient";

/// Score of a pair that the mask hides: `exp` of it is zero beside any other.
const HIDDEN: f64 = -1e30;

/// Which keys a query sees, and what becomes of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    /// Whether a query sees only the keys up to its own position.
    pub causal: bool,
    /// How many keys a causal query sees at most, the last of them at its own position.
    pub window: Option<u64>,
    /// Position of the first query of a causal attention, whose first key is at position zero.
    pub offset: u64,
    /// What scores are multiplied by.
    pub scale: f64,
    /// Bound `c` of scaled scores `x`, which become `c tanh(x / c)`.
    pub softcap: Option<f64>,
}

impl Form {
    /// All keys, or those up to each query's own position.
    pub fn new(causal: bool, scale: f64) -> Form {
        Form { causal, window: None, offset: 0, scale, softcap: None }
    }

    /// The keys that query `i` sees, of `keys`.
    pub fn seen(&self, i: u64, keys: u64) -> std::ops::Range<u64> {
        if !self.causal {
            return 0..keys;
        }
        let end = i.saturating_add(self.offset).saturating_add(1);
        let first = self.window.map_or(0, |w| end.saturating_sub(w));
        first.min(keys)..end.min(keys)
    }

    fn parse(config: &AttrList) -> Result<Form, RuleError> {
        let scale = match config.get("scale") {
            Some(Attr::Float(v, _)) if v.is_finite() => *v,
            _ => return Err(RuleError::new("needs a finite `scale` in `backend_config`")),
        };
        let causal = match config.get("causal") {
            Some(Attr::Bool(v)) => *v,
            _ => return Err(RuleError::new("needs a boolean `causal` in `backend_config`")),
        };
        let count = |name: &str, least: u64| match config.get(name) {
            None => Ok(None),
            Some(Attr::Int(v, _)) if causal => match u64::try_from(*v) {
                Ok(n) if n >= least && n <= u64::from(u32::MAX) => Ok(Some(n)),
                _ => Err(RuleError::new(format!("`{name}` is {v}, should be from {least} to {}", u32::MAX))),
            },
            Some(_) => Err(RuleError::new(format!("`{name}` is an integer of a causal attention"))),
        };
        let softcap = match config.get("softcap") {
            None => None,
            Some(Attr::Float(v, _)) if v.is_finite() && *v > 0.0 => Some(*v),
            Some(_) => return Err(RuleError::new("needs a positive `softcap` in `backend_config`")),
        };
        let offset = count("offset", 0)?.unwrap_or(0);
        Ok(Form { causal, window: count("window", 1)?, offset, scale, softcap })
    }

    fn config(&self) -> AttrList {
        let float = |v| Attr::Float(v, Type::Scalar(DType::F64));
        let int = |v: u64| Attr::Int(v as i64, Type::Scalar(DType::I64));
        let mut list = vec![("causal", Attr::Bool(self.causal)), ("scale", float(self.scale))];
        list.extend(self.window.map(|w| ("window", int(w))));
        list.extend((self.offset > 0).then(|| ("offset", int(self.offset))));
        list.extend(self.softcap.map(|c| ("softcap", float(c))));
        list.into_iter().map(|(n, a)| (n.to_owned(), a)).collect()
    }
}

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
    /// Which keys are seen, and what becomes of scores.
    pub form: Form,
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
        let form = Form::parse(config)?;
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
            form,
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
    pub fn call(f: &mut FuncBuilder<'_>, operands: &[ValueId], form: Form) -> Vec<ValueId> {
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
            form,
            gradient: operands.len() > 3,
        };
        let config = form.config();
        let name = if s.gradient { GRADIENT } else { ATTENTION };
        let attrs = [("call_target_name", Attr::Str(name.to_owned())), ("backend_config", Attr::Dict(config))];
        f.op(Opcode::CustomCall, operands, &attrs, &s.types().1)
    }

    /// Pairs of a tile of queries and a tile of keys of one head that are not all hidden.
    pub fn tile_pairs(&self, tile: u64) -> u64 {
        let tiles = |first: u64| {
            let last = (first + tile).min(self.queries).saturating_sub(1);
            let (from, to) = (self.form.seen(first, self.keys).start, self.form.seen(last, self.keys).end);
            if from < to { to.div_ceil(tile) - from / tile } else { 0 }
        };
        (0..self.queries.div_ceil(tile)).map(|i| tiles(i * tile)).sum()
    }

    /// Pairs of a query and a key it sees, of one head.
    pub fn seen(&self) -> u64 {
        if !self.form.causal {
            return self.queries * self.keys;
        }
        (0..self.queries).map(|i| self.form.seen(i, self.keys)).map(|r| r.end.saturating_sub(r.start)).sum()
    }

    /// Multiply-adds of its products, twice, without what masks hide and without scores that the gradient computes again.
    pub fn flops(&self) -> u64 {
        let pairs = self.seen();
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

    /// Scores as they are exponentiated: `(batch, kv_heads, queries, group, keys)` in f32; what they change by with scaled scores, if that is
    /// not one; and which of them are seen.
    fn scores(&self, f: &mut FuncBuilder<'_>, q: ValueId, k: ValueId) -> (ValueId, Option<ValueId>, Option<ValueId>) {
        let q = self.grouped(f, q, self.dim);
        let s = contract(f, (q, k), ([0, 2], [0, 2]), (4, 3), DType::F32);
        let mut s = f.binary_scalar(Opcode::Multiply, s, self.form.scale / self.form.softcap.unwrap_or(1.0));
        let mut slope = None;
        if let Some(cap) = self.form.softcap {
            let t = f.unary(Opcode::Tanh, s);
            let square = f.mul(t, t);
            let one = f.splat(f.ty(t), 1.0);
            slope = Some(f.binary(Opcode::Subtract, one, square));
            s = f.binary_scalar(Opcode::Multiply, t, cap);
        }
        if !self.form.causal {
            return (s, slope, None);
        }
        let dims = f.dims(s);
        let plane = TensorType::new(self.d(&[self.queries, self.keys]), DType::I32);
        let (mut query, key) = (f.iota(plane.clone(), 0), f.iota(plane, 1));
        if self.form.offset > 0 {
            query = f.binary_scalar(Opcode::Add, query, self.form.offset as f64);
        }
        let mut seen = f.compare("GE", query, key);
        if let Some(window) = self.form.window {
            let first = f.binary_scalar(Opcode::Subtract, query, window as f64);
            let late = f.compare("GT", key, first);
            seen = f.binary(Opcode::And, seen, late);
        }
        (s, slope, Some(f.broadcast_along(seen, &[2, 4], &dims)))
    }

    fn forward(&self, f: &mut FuncBuilder<'_>, q: ValueId, k: ValueId, v: ValueId) -> Vec<ValueId> {
        let (mut s, _, seen) = self.scores(f, q, k);
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
        let (s, slope, seen) = self.scores(f, q, k);
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
        let mut ds = f.mul(ds, p);
        if let Some(slope) = slope {
            ds = f.mul(ds, slope);
        }
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
        let scale = self.form.scale;
        vec![scaled(f, dq, scale), scaled(f, dk, scale), scaled(f, dv, 1.0)]
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
