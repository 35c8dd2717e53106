//! Operations with several results, and custom calls.

use super::super::{DotSpec, NodeId, NodeOp, Special};
use super::special::Chain;
use super::wide::{Value, part_of};
use super::*;
use crate::hlo::{Attr, Op, Opcode};
use crate::lower::math::{Combine, Direction, MapOp};
use crate::ops::attention::Attention;

/// Custom calls that only carry annotations.
const MARKERS: [&str; 10] = [
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "annotate_device_placement",
    "MoveToHost",
    "MoveToDevice",
    "LayoutConstraint",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
];

type Nodes = Option<Result<Vec<Value>, LowerError>>;

fn ones(r: Result<Vec<NodeId>, LowerError>) -> Result<Vec<Value>, LowerError> {
    r.map(|v| v.into_iter().map(Value::One).collect())
}

impl Builder<'_> {
    pub(super) fn several(&mut self, f: &Func, op: &Op, args: &[Value], site: &(String, String)) -> Nodes {
        if let (Some((k, largest)), [Value::One(x)]) = (self.selection(op), args) {
            let dims = &self.node(*x).dims;
            let fits = dims.last().is_some_and(|&n| k <= n);
            let mut wanted: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
            wanted.pop();
            wanted.push(k as i64);
            let is =
                |r: &ValueId, t: DType| f.ty(*r).tensor().is_some_and(|r| r.dims[..] == wanted[..] && r.dtype == t);
            let fits = fits && matches!(&op.results[..], [v, i] if is(v, self.node(*x).dtype) && is(i, DType::I32));
            if !fits && op.opcode == Opcode::CustomCall {
                let m = "to `mhlo.topk` should give the largest elements of rows and their i32 places";
                return Some(Err(self.error(op.opcode.name(), op.loc, m)));
            }
            return fits.then(|| ones(self.top_k(*x, k, largest, "top_k", site)));
        }
        let nodes: Option<Vec<NodeId>> = args.iter().map(|v| v.one()).collect();
        match (op.opcode, nodes.as_deref()) {
            (Opcode::CustomCall, _) => Some(self.custom_call(f, op, args, site)),
            (Opcode::BatchNormTraining, Some(a)) => Some(ones(self.batch_norm_training(op, a, site))),
            (Opcode::BatchNormGrad, Some(a)) => Some(ones(self.batch_norm_grad(op, a, site))),
            (Opcode::RngBitGenerator, _) => Some(self.random_bits(f, op, args, site)),
            (Opcode::Rng, _) => {
                let m = "has no seed that a compiled program could keep; use rng_bit_generator with a state";
                Some(Err(self.error(op.opcode.name(), op.loc, m)))
            }
            (Opcode::Cholesky, Some(&[a])) => Some(ones(self.cholesky(op, a, site).map(|n| vec![n]))),
            (Opcode::TriangularSolve, Some(&[a, b])) => {
                Some(ones(self.triangular_solve(op, a, b, site).map(|n| vec![n])))
            }
            (Opcode::ChloRaggedDot, None) if matches!(args, [Value::One(_), Value::One(_), Value::Pair(..)]) => {
                let &[Value::One(a), Value::One(b), Value::Pair(t, sizes)] = args else { return None };
                let sizes = self.saturated(sizes, t == DType::I64, "ragged_dot", site);
                Some(ones(self.ragged_dot(f, op, [a, b, sizes], site).map(|n| vec![n])))
            }
            (Opcode::ChloRaggedDot, Some(&[a, b, sizes])) => {
                Some(ones(self.ragged_dot(f, op, [a, b, sizes], site).map(|n| vec![n])))
            }
            _ => None,
        }
    }

    fn custom_call(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let target = op.attrs.text("call_target_name").unwrap_or_default();
        let types = |v: &[ValueId]| v.iter().map(|&v| f.ty(v).clone()).collect::<Vec<_>>();
        if MARKERS.contains(&target) {
            if types(&op.operands) == types(&op.results) {
                return Ok(args.to_vec());
            }
            let m = format!(
                "`{target}` between a whole value and a device's part is not lowered; write the manual part as `sdy.manual_computation`"
            );
            return Err(self.error(op.opcode.name(), op.loc, m));
        }
        if let Some(a) = super::super::attention::attention(f, op) {
            return self.attention(a, op, args, site);
        }
        if target == "ApproxTopK" {
            return self.approximate_top_k(f, op, args, site);
        }
        if target == "AllocateBuffer" {
            let mut out = Vec::new();
            for &r in &op.results {
                let t = self.tensor(f, r, op.opcode.name(), op.loc)?;
                let mut zero = |dtype| {
                    let t = Shape { dims: t.dims.clone(), dtype };
                    self.constant(vec![0; dtype.bytes()].into(), &t, "custom_call", site.clone())
                };
                out.push(match part_of(t.dtype) {
                    Some(p) => Value::Pair(t.dtype, [zero(p); 2]),
                    None => Value::One(zero(t.dtype)),
                });
            }
            return Ok(out);
        }
        // MHLO's functions that are StableHLO's or CHLO's by now.
        if let Some(name) = target.strip_prefix("mhlo.")
            && let Some(opcode) =
                Opcode::from_name(&format!("chlo.{name}")).or_else(|| Opcode::from_name(&format!("stablehlo.{name}")))
            && op.regions.is_empty()
            && matches!(opcode.name(), n if elementwise_name(n))
        {
            let same = Op { opcode, ..op.clone() };
            return self.op(f, &same, args.to_vec(), 0, Some(site));
        }
        let m = format!(
            "to `{target}`: its meaning is not known here; export the program with the operations that it stands for, or keep the call on the host"
        );
        Err(self.error(op.opcode.name(), op.loc, m))
    }

    /// Attention as a node of its own. The gradient takes the sums of products of the output and its gradient instead of the output.
    fn attention(
        &mut self,
        a: Attention,
        op: &Op,
        args: &[Value],
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let args: Option<Vec<NodeId>> = args.iter().map(|v| v.one()).collect();
        let name = if a.gradient { "attention_gradient" } else { "attention" };
        let mut args = args.ok_or_else(|| self.error(op.opcode.name(), op.loc, "takes arrays of one part"))?;
        if let &[q, k, v, o, log, go] = &args[..] {
            let dims = self.node(o).dims.clone();
            let mut c = chain_of(self, &dims, name, site);
            let [x, y] = [o, go].map(|v| c.map(MapOp::Convert, &[v]));
            let product = c.map(MapOp::Mul, &[x, y]);
            let delta = self.reduce_dims(Combine::Add, product, &[3], DType::F32, name, site);
            let t = Shape { dims: vec![a.batch, a.heads, a.queries], dtype: DType::F32 };
            let delta = self.transpose(delta, vec![0, 2, 1], &t, name, site.clone());
            args = vec![q, k, v, go, log, delta];
        }
        let args = args.into_iter().map(|x| self.stored(x, name, site)).collect();
        let types = a.types().1;
        let node = self.special_node(Special::Attention(Box::new(a)), args, name, site);
        let result = |(i, t): (usize, &crate::hlo::TensorType)| {
            let t = Shape { dims: t.dims.iter().map(|&d| d as u64).collect(), dtype: t.dtype };
            Value::One(self.push(NodeOp::Result(i), vec![node], &t, name, site.clone()))
        };
        Ok(types.iter().enumerate().map(result).collect())
    }

    /// Sums over all dimensions but the feature's, over their number.
    fn feature_mean(&mut self, x: NodeId, feature: usize, name: &'static str, site: &(String, String)) -> NodeId {
        let dims = self.node(x).dims.clone();
        let others: Vec<usize> = (0..dims.len()).filter(|&d| d != feature).collect();
        let count: u64 = others.iter().map(|&d| dims[d]).product();
        let t = Shape { dims: vec![dims[feature]], dtype: DType::F32 };
        let sum = if dims.contains(&0) {
            self.constant(0f32.to_le_bytes().to_vec().into(), &t, name, site.clone())
        } else {
            self.reduce_dims(Combine::Add, x, &others, DType::F32, name, site)
        };
        let mut c = chain_of(self, &t.dims, name, site);
        let n = c.value(count as f32);
        c.map(MapOp::Div, &[sum, n])
    }

    fn norm_of(&self, op: &Op, x: NodeId) -> Result<(usize, f32), LowerError> {
        let epsilon = match op.attrs.get("epsilon") {
            Some(Attr::Float(v, _)) => *v as f32,
            _ => 0.0,
        };
        let feature = op.attrs.int("feature_index").and_then(|d| usize::try_from(d).ok());
        match feature.filter(|&d| d < self.node(x).dims.len()) {
            Some(d) => Ok((d, epsilon)),
            None => Err(self.error(op.opcode.name(), op.loc, "needs a feature index")),
        }
    }

    /// The normalised operand, its mean and its variance, per feature.
    fn batch_norm_training(
        &mut self,
        op: &Op,
        args: &[NodeId],
        site: &(String, String),
    ) -> Result<Vec<NodeId>, LowerError> {
        let name = "batch_norm_training";
        let &[x, scale, offset] = args else {
            return Err(self.error(op.opcode.name(), op.loc, "needs three operands"));
        };
        let (feature, epsilon) = self.norm_of(op, x)?;
        let (dims, dtype) = (self.node(x).dims.clone(), self.node(x).dtype);
        let full = Shape { dims: dims.clone(), dtype: DType::F32 };
        let per = vec![dims[feature]];
        let wide = self.map(MapOp::Convert, &[x], &full, name, site.clone());
        let mean = self.feature_mean(wide, feature, name, site);
        let spread = |b: &mut Self, v| b.broadcast(v, vec![feature], &full, name, site.clone());
        let all = spread(self, mean);
        let mut c = chain_of(self, &dims, name, site);
        let centred = c.map(MapOp::Sub, &[wide, all]);
        let square = c.map(MapOp::Mul, &[centred, centred]);
        let variance = self.feature_mean(square, feature, name, site);
        let mut c = chain_of(self, &per, name, site);
        let [scale, offset] = [scale, offset].map(|v| c.map(MapOp::Convert, &[v]));
        let v = c.with(MapOp::Add, variance, epsilon);
        let r = c.map(MapOp::Rsqrt, &[v]);
        let factor = c.map(MapOp::Mul, &[scale, r]);
        let out = [mean, variance].map(|v| c.typed(MapOp::Convert, &[v], dtype));
        let [factor, offset] = [factor, offset].map(|v| spread(self, v));
        let mut c = chain_of(self, &dims, name, site);
        let y = c.map(MapOp::Mul, &[centred, factor]);
        let y = c.map(MapOp::Add, &[y, offset]);
        let y = c.typed(MapOp::Convert, &[y], dtype);
        Ok(vec![y, out[0], out[1]])
    }

    /// Gradients of the operand, the scale and the offset.
    fn batch_norm_grad(
        &mut self,
        op: &Op,
        args: &[NodeId],
        site: &(String, String),
    ) -> Result<Vec<NodeId>, LowerError> {
        let name = "batch_norm_grad";
        let &[x, scale, mean, variance, gradient] = args else {
            return Err(self.error(op.opcode.name(), op.loc, "needs five operands"));
        };
        let (feature, epsilon) = self.norm_of(op, x)?;
        let (dims, dtype) = (self.node(x).dims.clone(), self.node(x).dtype);
        let full = Shape { dims: dims.clone(), dtype: DType::F32 };
        let (per, count) = (vec![dims[feature]], dims.iter().product::<u64>() / dims[feature].max(1));
        let spread = |b: &mut Self, v| b.broadcast(v, vec![feature], &full, name, site.clone());
        let mut c = chain_of(self, &per, name, site);
        let [scale, mean, variance] = [scale, mean, variance].map(|v| c.map(MapOp::Convert, &[v]));
        let v = c.with(MapOp::Add, variance, epsilon);
        let r = c.map(MapOp::Rsqrt, &[v]);
        let factor = c.map(MapOp::Mul, &[scale, r]);
        let [r_all, factor, mean] = [r, factor, mean].map(|v| spread(self, v));
        let mut c = chain_of(self, &dims, name, site);
        let [x, g] = [x, gradient].map(|v| c.map(MapOp::Convert, &[v]));
        let centred = c.map(MapOp::Sub, &[x, mean]);
        let centred = c.map(MapOp::Mul, &[centred, r_all]);
        let product = c.map(MapOp::Mul, &[g, centred]);
        let [offset_mean, slope_mean] = [g, product].map(|v| self.feature_mean(v, feature, name, site));
        let [offset_all, slope_all] = [offset_mean, slope_mean].map(|v| spread(self, v));
        let mut c = chain_of(self, &dims, name, site);
        let lean = c.map(MapOp::Mul, &[centred, slope_all]);
        let y = c.map(MapOp::Sub, &[g, offset_all]);
        let y = c.map(MapOp::Sub, &[y, lean]);
        let y = c.map(MapOp::Mul, &[y, factor]);
        let y = c.typed(MapOp::Convert, &[y], dtype);
        let mut c = chain_of(self, &per, name, site);
        let n = c.value(count as f32);
        let sums = [slope_mean, offset_mean].map(|v| {
            let sum = c.map(MapOp::Mul, &[v, n]);
            c.typed(MapOp::Convert, &[sum], dtype)
        });
        Ok(vec![y, sums[0], sums[1]])
    }

    /// Rows in groups, each group times its own matrix: one product per group, of the rows that are its own.
    fn ragged_dot(
        &mut self,
        f: &Func,
        op: &Op,
        [a, b, sizes]: [NodeId; 3],
        site: &(String, String),
    ) -> Result<NodeId, LowerError> {
        let name = "ragged_dot";
        let fail = |s: &Self| {
            let m = "is lowered for a matrix of ragged rows, a matrix for each group, and a list of sizes of 32 bits";
            Err(s.error(op.opcode.name(), op.loc, m))
        };
        let Some(Attr::Opaque(text)) = op.attrs.get("ragged_dot_dimension_numbers") else { return fail(self) };
        let one = |name: &str| -> Option<i64> {
            let (_, rest) = text.split_once(&format!("{name} = ["))?;
            rest.split(']').next()?.trim().parse().ok()
        };
        let batch = |name: &str| text.split_once(&format!("{name} = [")).is_some_and(|(_, r)| !r.starts_with(']'));
        let (Some(k), Some(1..=2), Some(rows), Some(0)) = (
            one("lhs_contracting_dimensions"),
            one("rhs_contracting_dimensions"),
            one("lhs_ragged_dimensions"),
            one("rhs_group_dimensions"),
        ) else {
            return fail(self);
        };
        let shape = |s: &Self, n: NodeId| (s.node(n).dims.clone(), s.node(n).dtype);
        let ((da, ta), (db, tb), (ds, ts)) = (shape(self, a), shape(self, b), shape(self, sizes));
        let plain = !batch("lhs_batching_dimensions") && da.len() == 2 && db.len() == 3 && ds.len() == 1;
        if !plain || k + rows != 1 || ts.bits() != 32 || !ts.is_int() || !ta.is_float() || !tb.is_float() {
            return fail(self);
        }
        let contract_b = one("rhs_contracting_dimensions").unwrap_or(1) as usize - 1;
        let Some(&r) = op.results.first() else { return fail(self) };
        let t = self.tensor(f, r, op.opcode.name(), op.loc)?;
        let wide = Shape { dims: t.dims.clone(), dtype: DType::F32 };
        let groups = ds[0];
        let scalar = Shape { dims: vec![], dtype: ts };
        let number =
            |b: &mut Self, v: i32, t: &Shape| b.constant(v.to_le_bytes().to_vec().into(), t, name, site.clone());
        let ints = Shape { dims: da.clone(), dtype: ts };
        let row = self.push(NodeOp::Iota(rows as usize), vec![], &ints, name, site.clone());
        let zero =
            self.constant(vec![0; ta.bytes()].into(), &Shape { dims: da.clone(), dtype: ta }, name, site.clone());
        let mut from = number(self, 0, &scalar);
        let least = number(self, 0, &scalar);
        let mut sum: Option<NodeId> = None;
        for g in 0..groups {
            let size = self.cut(sizes, 0, [g, 1, 1], name, site);
            let size = self.reshape(size, &scalar, name, site.clone());
            let size = self.map(MapOp::Max, &[size, least], &scalar, name, site.clone());
            let to = self.map(MapOp::Add, &[from, size], &scalar, name, site.clone());
            let [low, high] = [from, to].map(|v| self.broadcast(v, vec![], &ints, name, site.clone()));
            let flags = Shape { dims: da.clone(), dtype: DType::I1 };
            let p = self.map(MapOp::Compare(Direction::Ge, false), &[row, low], &flags, name, site.clone());
            let q = self.map(MapOp::Compare(Direction::Lt, false), &[row, high], &flags, name, site.clone());
            let mine = self.map(MapOp::And, &[p, q], &flags, name, site.clone());
            let full = Shape { dims: da.clone(), dtype: ta };
            let own = self.map(MapOp::Select, &[mine, a, zero], &full, name, site.clone());
            let matrix = self.cut(b, 0, [g, 1, 1], name, site);
            let matrix = self.reshape(matrix, &Shape { dims: db[1..].to_vec(), dtype: tb }, name, site.clone());
            let spec =
                DotSpec { batch: [vec![], vec![]], contract: [vec![k as usize], vec![contract_b]], useful: g == 0 };
            let y = self.product(spec, &[own, matrix], &wide, name, site);
            sum = Some(match sum {
                Some(s) => self.map(MapOp::Add, &[s, y], &wide, name, site.clone()),
                None => y,
            });
            from = to;
        }
        let y = match sum {
            Some(y) => y,
            None => self.constant(0f32.to_le_bytes().to_vec().into(), &wide, name, site.clone()),
        };
        Ok(self.map(MapOp::Convert, &[y], &t, name, site.clone()))
    }
}

/// Whether an operation's attributes do not matter: functions of one or two elements.
fn elementwise_name(name: &str) -> bool {
    let plain = name.rsplit('.').next().unwrap_or(name);
    const NAMES: [&str; 24] = [
        "erf",
        "erfc",
        "erf_inv",
        "tan",
        "sinh",
        "cosh",
        "asin",
        "acos",
        "atan",
        "asinh",
        "acosh",
        "atanh",
        "square",
        "add",
        "subtract",
        "multiply",
        "divide",
        "maximum",
        "minimum",
        "tanh",
        "exponential",
        "log",
        "sqrt",
        "negate",
    ];
    NAMES.contains(&plain)
}

fn chain_of<'a, 'm>(
    b: &'a mut Builder<'m>,
    dims: &[u64],
    name: &'static str,
    site: &(String, String),
) -> Chain<'a, 'm> {
    Chain { b, dims: dims.to_vec(), name, site: site.clone() }
}
