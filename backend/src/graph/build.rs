//! From a verified module to the flat graph.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tpusim_isa::num::{DType, DTypeKind};

use super::{DotSpec, Graph, Node, NodeId, NodeOp};
use crate::hlo::{Attr, Block, Func, Literal, LocId, Module, Op, Opcode, TensorType, ValueId, Verified};
use crate::lower::math::{Combine, Direction, MapOp, holds};

/// Something the code generator has no code for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} at {place}: {message}")]
pub struct LowerError {
    /// Operation, e.g. `stablehlo.sort`.
    pub op: String,
    /// Source position, or `unknown location`.
    pub place: String,
    /// What is not supported and what is.
    pub message: String,
}

/// What padded contracted dimensions are a multiple of: whole passes of every MXU.
pub const K_MULTIPLE: u64 = 1024;

/// Sets of dimensions are 32-bit masks, and kernels add a dimension or two.
const MAX_RANK: usize = 24;

/// Calls may nest this deep.
const MAX_CALLS: usize = 200;

/// Inlines everything into one graph of the entry function `main`.
///
/// # Errors
/// The first operation or type without code.
pub fn from_module(module: &Verified<Module>) -> Result<Graph, LowerError> {
    from_module_with(module, false)
}

/// As [`from_module`]; `pad_contraction` pads long contracted dimensions of products with zeros to a multiple of [`K_MULTIPLE`], so that
/// blocks divide them.
///
/// # Errors
/// As [`from_module`].
pub fn from_module_with(module: &Verified<Module>, pad_contraction: bool) -> Result<Graph, LowerError> {
    let module: &Module = module;
    let main = module.func("main").or_else(|| module.funcs.iter().find(|f| f.public)).ok_or_else(|| LowerError {
        op: "module".into(),
        place: module.name.clone(),
        message: "there is no function `main`".into(),
    })?;
    let graph = Graph { name: module.name.clone(), ..Graph::default() };
    let mut b = Builder { module, graph, seen: FxHashMap::default(), pad_contraction };
    let mut env = Env::default();
    for (i, p) in main.params.iter().enumerate() {
        let t = b.tensor(main, p.value, "parameter", p.loc)?;
        let name = module.locs.name(p.loc).unwrap_or("").to_owned();
        let id = b.push(NodeOp::Param(i as u32), vec![], &t, "parameter", (name, String::new()));
        b.graph.params.push(id);
        env.insert(p.value, id);
    }
    b.graph.outputs = b.block(main, &main.body, &mut env, 0, None)?;
    b.separate_outputs();
    b.prune();
    Ok(b.graph)
}

type Env = FxHashMap<ValueId, NodeId>;

#[derive(PartialEq, Eq, Hash)]
struct Key {
    op: String,
    args: Vec<NodeId>,
    dims: Vec<u64>,
    dtype: DType,
}

struct Builder<'m> {
    module: &'m Module,
    graph: Graph,
    /// Nodes by what they compute, to share equal ones.
    seen: FxHashMap<Key, NodeId>,
    pad_contraction: bool,
}

/// Shape of a node to be.
struct Shape {
    dims: Vec<u64>,
    dtype: DType,
}

impl Builder<'_> {
    fn error(&self, op: &str, loc: LocId, message: impl Into<String>) -> LowerError {
        let place = match self.module.locs.file_line(loc) {
            Some((f, l)) => format!("{f}:{l}"),
            None => self.module.locs.name(loc).unwrap_or("unknown location").to_owned(),
        };
        LowerError { op: op.to_owned(), place, message: message.into() }
    }

    /// An op without a position of its own, as in JAX's helper functions, is placed where it is called.
    fn placed(&self, e: LowerError, op: &Op, outer: Option<&(String, String)>) -> LowerError {
        let called = matches!(op.opcode, Opcode::Call | Opcode::Composite);
        match outer {
            Some((_, at)) if !called && !at.is_empty() && self.module.locs.file_line(op.loc).is_none() => {
                LowerError { place: at.clone(), ..e }
            }
            _ => e,
        }
    }

    fn tensor(&self, f: &Func, v: ValueId, op: &str, loc: LocId) -> Result<Shape, LowerError> {
        let Some(t) = f.ty(v).tensor() else {
            return Err(self.error(op, loc, format!("values of type {} are not lowered", f.ty(v))));
        };
        if t.quant.is_some() || !holds(t.dtype) {
            return Err(self.error(op, loc, format!("element type of {t} is not lowered to vector code yet")));
        }
        let dims = t.dims.iter().map(|&d| u64::try_from(d)).collect::<Result<Vec<_>, _>>();
        let dims = dims.map_err(|_| self.error(op, loc, format!("{t} has a dynamic dimension")))?;
        if dims.len() > MAX_RANK {
            return Err(self.error(op, loc, format!("{t} has more than {MAX_RANK} dimensions")));
        }
        // Offsets inside a tensor are 64-bit byte counts, block indices 32-bit.
        if t.bytes().is_none_or(|b| b > 1 << 46) || dims.iter().any(|&d| d > i32::MAX as u64) {
            return Err(self.error(op, loc, format!("{t} is too large for any chip")));
        }
        Ok(Shape { dims, dtype: t.dtype })
    }

    fn push(&mut self, op: NodeOp, args: Vec<NodeId>, t: &Shape, name: &'static str, site: (String, String)) -> NodeId {
        let key = match &op {
            NodeOp::Param(_) => None,
            NodeOp::Const(l) if !l.is_splat() => None,
            _ => Some(Key { op: format!("{op:?}"), args: args.clone(), dims: t.dims.clone(), dtype: t.dtype }),
        };
        if let Some(id) = key.as_ref().and_then(|k| self.seen.get(k)) {
            return *id;
        }
        let id = NodeId(self.graph.nodes.len() as u32);
        self.graph.nodes.push(Node {
            op,
            args,
            dims: t.dims.clone(),
            dtype: t.dtype,
            source: site.0,
            location: site.1,
            name,
        });
        if let Some(k) = key {
            self.seen.insert(k, id);
        }
        id
    }

    /// Every result gets a node of its own: parameters, constants and results given twice are copied.
    fn separate_outputs(&mut self) {
        let mut taken = std::collections::BTreeSet::new();
        for i in 0..self.graph.outputs.len() {
            let id = self.graph.outputs[i];
            let n = self.graph.node(id).clone();
            if taken.insert(id) && !matches!(n.op, NodeOp::Param(_) | NodeOp::Const(_)) {
                continue;
            }
            let copy = NodeId(self.graph.nodes.len() as u32);
            let op = NodeOp::Map(MapOp::Copy);
            self.graph.nodes.push(Node { op, args: vec![id], name: "copy", ..n });
            self.graph.outputs[i] = copy;
        }
    }

    /// Drops what no output needs.
    fn prune(&mut self) {
        let mut need = vec![false; self.graph.nodes.len()];
        let mut work: Vec<NodeId> = self.graph.outputs.clone();
        work.extend(&self.graph.params);
        while let Some(n) = work.pop() {
            if !std::mem::replace(&mut need[n.ix()], true) {
                work.extend(&self.graph.nodes[n.ix()].args);
            }
        }
        let mut renumber = vec![NodeId(0); need.len()];
        let mut nodes = Vec::new();
        for (ix, node) in std::mem::take(&mut self.graph.nodes).into_iter().enumerate() {
            if need[ix] {
                renumber[ix] = NodeId(nodes.len() as u32);
                nodes.push(node);
            }
        }
        for n in &mut nodes {
            for a in &mut n.args {
                *a = renumber[a.ix()];
            }
        }
        self.graph.nodes = nodes;
        for n in self.graph.outputs.iter_mut().chain(&mut self.graph.params) {
            *n = renumber[n.ix()];
        }
    }

    fn block(
        &mut self,
        f: &Func,
        block: &Block,
        env: &mut Env,
        depth: usize,
        site: Option<&(String, String)>,
    ) -> Result<Vec<NodeId>, LowerError> {
        for op in &block.ops {
            let args: Vec<NodeId> = op.operands.iter().filter_map(|v| env.get(v).copied()).collect();
            if args.len() != op.operands.len() {
                return Err(self.error(op.opcode.name(), op.loc, "an operand has no value"));
            }
            if op.opcode == Opcode::Return {
                return Ok(args);
            }
            let results = self.op(f, op, args, depth, site).map_err(|e| self.placed(e, op, site))?;
            for (r, id) in op.results.iter().zip(results) {
                env.insert(*r, id);
            }
        }
        Ok(Vec::new())
    }

    fn site(&self, op: &Op, outer: Option<&(String, String)>) -> (String, String) {
        let name = self.module.locs.name(op.loc).unwrap_or("").to_owned();
        let at = self.module.locs.file_line(op.loc).map(|(f, l)| format!("{f}:{l}")).unwrap_or_default();
        match outer {
            // JAX's helper functions carry short names without positions; the call's say more.
            Some((n, l)) if at.is_empty() => {
                (if name.is_empty() { n.clone() } else { format!("{n}/{name}") }, l.clone())
            }
            _ => (name, at),
        }
    }

    fn call(
        &mut self,
        op: &Op,
        name: &str,
        args: Vec<NodeId>,
        depth: usize,
        site: (String, String),
    ) -> Result<Vec<NodeId>, LowerError> {
        if depth >= MAX_CALLS {
            return Err(self.error(op.opcode.name(), op.loc, "calls nest too deep"));
        }
        let module = self.module;
        let Some(callee) = module.func(name) else {
            return Err(self.error(op.opcode.name(), op.loc, format!("no function @{name}")));
        };
        let mut env: Env = callee.params.iter().map(|p| p.value).zip(args).collect();
        self.block(callee, &callee.body, &mut env, depth + 1, Some(&site))
    }

    fn op(
        &mut self,
        f: &Func,
        op: &Op,
        args: Vec<NodeId>,
        depth: usize,
        outer: Option<&(String, String)>,
    ) -> Result<Vec<NodeId>, LowerError> {
        let site = self.site(op, outer);
        match op.opcode {
            Opcode::Call => {
                let callee = op.attrs.text("callee").unwrap_or("").to_owned();
                return self.call(op, &callee, args, depth, site);
            }
            Opcode::Composite => {
                let callee = op.attrs.text("decomposition").unwrap_or("").to_owned();
                return self.call(op, &callee, args, depth, site);
            }
            Opcode::OptimizationBarrier => return Ok(args),
            _ => {}
        }
        let [result] = op.results[..] else {
            return Err(self.error(op.opcode.name(), op.loc, "operations with several results are not lowered yet"));
        };
        let t = self.tensor(f, result, op.opcode.name(), op.loc)?;
        let id = self.single(op, &args, &t, site)?;
        Ok(vec![id])
    }

    fn node(&self, id: NodeId) -> &Node {
        self.graph.node(id)
    }

    fn single(&mut self, op: &Op, args: &[NodeId], t: &Shape, site: (String, String)) -> Result<NodeId, LowerError> {
        let name = op.opcode.name().rsplit('.').next().unwrap_or("op");
        if let Some(m) = self.map_of(op) {
            return Ok(self.map(m, args, t, name, site));
        }
        let ints = |n: &str| -> Vec<i64> { op.attrs.ints(n).map(<[i64]>::to_vec).unwrap_or_default() };
        let dims_of = |n: &str| -> Vec<usize> { ints(n).iter().map(|&d| d as usize).collect() };
        let out = match op.opcode {
            Opcode::Constant => match op.attrs.get("value") {
                Some(Attr::Dense(l)) => NodeOp::Const((**l).clone()),
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
            Opcode::DotGeneral | Opcode::Dot => return self.dot(op, args, t, name, site),
            Opcode::BitcastConvert if self.node(args[0]).dims == t.dims => {
                let same = self.node(args[0]).dtype == t.dtype;
                return Ok(if same { args[0] } else { self.map(MapOp::Bitcast, args, t, name, site) });
            }
            Opcode::BitcastConvert => {
                let m = "only bitcasts between types of one width are lowered yet";
                return Err(self.error(op.opcode.name(), op.loc, m));
            }
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
                    "is not lowered yet; elementwise operations, reductions with one operand, dot_general and data movement with static shapes are",
                ));
            }
        };
        Ok(self.push(out, args.to_vec(), t, name, site))
    }

    fn map_of(&self, op: &Op) -> Option<MapOp> {
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

    fn map(&mut self, m: MapOp, args: &[NodeId], t: &Shape, name: &'static str, site: (String, String)) -> NodeId {
        if m == MapOp::Convert && self.node(args[0]).dtype == t.dtype {
            return args[0];
        }
        // A scalar predicate selects whole tensors: broadcast it.
        let mut args = args.to_vec();
        for a in &mut args {
            if self.node(*a).dims.is_empty() && !t.dims.is_empty() {
                let s = Shape { dims: t.dims.clone(), dtype: self.node(*a).dtype };
                *a = self.broadcast(*a, vec![], &s, name, site.clone());
            }
        }
        self.push(NodeOp::Map(m), args, t, name, site)
    }

    fn splat_of(&self, a: NodeId) -> Option<Arc<[u8]>> {
        match &self.node(a).op {
            NodeOp::Const(l) if l.is_splat() => Some(l.bytes.clone()),
            _ => None,
        }
    }

    fn constant(&mut self, bytes: Arc<[u8]>, t: &Shape, name: &'static str, site: (String, String)) -> NodeId {
        let ty = TensorType::new(t.dims.iter().map(|&d| d as i64).collect::<Vec<_>>(), t.dtype);
        self.push(NodeOp::Const(Literal { ty, bytes }), vec![], t, name, site)
    }

    fn broadcast(
        &mut self,
        a: NodeId,
        map: Vec<usize>,
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        if let Some(bytes) = self.splat_of(a) {
            return self.constant(bytes, t, name, site);
        }
        if self.node(a).dims == t.dims && map.iter().enumerate().all(|(i, &d)| i == d) {
            return a;
        }
        self.push(NodeOp::Broadcast(map), vec![a], t, name, site)
    }

    fn reshape(&mut self, a: NodeId, t: &Shape, name: &'static str, site: (String, String)) -> NodeId {
        if self.node(a).dims == t.dims {
            return a;
        }
        if let Some(bytes) = self.splat_of(a) {
            return self.constant(bytes, t, name, site);
        }
        self.push(NodeOp::Reshape, vec![a], t, name, site)
    }

    fn transpose(
        &mut self,
        a: NodeId,
        perm: Vec<usize>,
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        if let Some(bytes) = self.splat_of(a) {
            return self.constant(bytes, t, name, site);
        }
        if perm.iter().enumerate().all(|(i, &d)| i == d) {
            return a;
        }
        self.push(NodeOp::Transpose(perm), vec![a], t, name, site)
    }

    fn slice(
        &mut self,
        a: NodeId,
        start: Vec<u64>,
        step: Vec<i64>,
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        if let Some(bytes) = self.splat_of(a) {
            return self.constant(bytes, t, name, site);
        }
        if self.node(a).dims == t.dims && step.iter().all(|&s| s == 1) {
            return a;
        }
        self.push(NodeOp::Slice { start, step }, vec![a], t, name, site)
    }

    fn pad(&mut self, op: &Op, args: &[NodeId], t: &Shape, name: &'static str, site: (String, String)) -> NodeId {
        let rank = t.dims.len();
        let list = |n: &str| op.attrs.ints(n).map(<[i64]>::to_vec).unwrap_or_else(|| vec![0; rank]);
        let (low, high, interior) = (list("edge_padding_low"), list("edge_padding_high"), list("interior_padding"));
        // Negative padding cuts: keep the elements that stay, then pad with what is not negative.
        let x = self.node(args[0]);
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
            let _ = high;
        }
        let inner = Shape { dims: kept, dtype: t.dtype };
        let x = self.slice(args[0], start, vec![1; rank], &inner, name, site.clone());
        if inner.dims == t.dims {
            return x;
        }
        let interior = interior.iter().map(|&i| i as u64).collect();
        self.push(NodeOp::Pad { low: lead, interior }, vec![x, args[1]], t, name, site)
    }

    /// `x` with zeros at the end of dimension `d`, up to a multiple of [`K_MULTIPLE`].
    fn pad_end(&mut self, x: NodeId, d: usize, name: &'static str, site: &(String, String)) -> NodeId {
        let (mut dims, dtype) = (self.node(x).dims.clone(), self.node(x).dtype);
        dims[d] = dims[d].next_multiple_of(K_MULTIPLE);
        let zero = self.constant(bits_to_bytes(0, dtype), &Shape { dims: vec![], dtype }, name, site.clone());
        let none = vec![0; dims.len()];
        let pad = NodeOp::Pad { low: none.clone(), interior: none };
        self.push(pad, vec![x, zero], &Shape { dims, dtype }, name, site.clone())
    }

    fn reduce(
        &mut self,
        op: &Op,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> Result<NodeId, LowerError> {
        let how = match &op.regions[..] {
            [r] => match &r.block.ops[..] {
                [body, ret]
                    if ret.operands == body.results
                        && body.operands.len() == 2
                        && body.operands.iter().all(|a| r.block.args.contains(a))
                        && body.operands[0] != body.operands[1] =>
                {
                    combine_of(body.opcode)
                }
                _ => None,
            },
            _ => None,
        };
        let Some(how) = how.filter(|_| args.len() == 2) else {
            let m = "only reductions of one operand by add, multiply, maximum, minimum, and, or, xor are lowered yet";
            return Err(self.error(op.opcode.name(), op.loc, m));
        };
        let how = match (how, t.dtype) {
            (Combine::Add | Combine::Max, DType::I1) => Combine::Or,
            (Combine::Mul | Combine::Min, DType::I1) => Combine::And,
            (h, _) => h,
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
        let m = match how {
            Combine::Add => MapOp::Add,
            Combine::Mul => MapOp::Mul,
            Combine::Max => MapOp::Max,
            Combine::Min => MapOp::Min,
            Combine::And => MapOp::And,
            Combine::Or => MapOp::Or,
            Combine::Xor => MapOp::Xor,
        };
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
    fn reduce_dims(
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

    /// Brings a product to exactly one contracted dimension: several are moved to the end and joined, none becomes one of size 1.
    fn one_contracted(
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
        for side in 0..2 {
            let n = self.node(args[side]);
            let (dims, dtype) = (n.dims.clone(), n.dtype);
            let free = spec.free(side, dims.len());
            let perm: Vec<usize> = [&spec.batch[side][..], &free[..], &spec.contract[side][..]].concat();
            let moved: Vec<u64> = perm.iter().map(|&d| dims[d]).collect();
            let x = self.transpose(args[side], perm, &Shape { dims: moved.clone(), dtype }, name, site.clone());
            let keep = dims.len() - spec.contract[side].len();
            let mut joined = moved[..keep].to_vec();
            joined.push(moved[keep..].iter().product());
            out.push(self.reshape(x, &Shape { dims: joined, dtype }, name, site.clone()));
            spec.batch[side] = (0..spec.batch[side].len()).collect();
            spec.contract[side] = vec![keep];
        }
        (spec, out)
    }

    fn dot(
        &mut self,
        op: &Op,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> Result<NodeId, LowerError> {
        let usizes = |v: &[i64]| v.iter().map(|&d| d as usize).collect::<Vec<_>>();
        let spec = match op.attrs.get("dot_dimension_numbers") {
            Some(Attr::Dot(d)) => DotSpec {
                batch: [usizes(&d.lhs_batch), usizes(&d.rhs_batch)],
                contract: [usizes(&d.lhs_contract), usizes(&d.rhs_contract)],
                passes: 1,
            },
            _ => DotSpec {
                batch: [vec![], vec![]],
                contract: [vec![self.node(args[0]).dims.len() - 1], vec![0]],
                passes: 1,
            },
        };
        let kinds = args.iter().map(|&a| self.node(a).dtype.kind()).collect::<Vec<_>>();
        let (float, int) = (kinds.iter().all(|k| *k == DTypeKind::Float), t.dtype.is_int());
        let narrow = args.iter().all(|&a| self.node(a).dtype.bits() == 8);
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
        let padded;
        let args = if self.pad_contraction && size(0) > K_MULTIPLE && !size(0).is_multiple_of(K_MULTIPLE) {
            padded = [0, 1].map(|side| self.pad_end(args[side], spec.contract[side][0], name, &site));
            &padded[..]
        } else {
            args
        };
        // The array adds in f32 (or i32); a narrower result is rounded once.
        let wide = if t.dtype.is_float() { DType::F32 } else { DType::I32 };
        let product = self.push(
            NodeOp::Dot(spec),
            args.to_vec(),
            &Shape { dims: t.dims.clone(), dtype: wide },
            name,
            site.clone(),
        );
        if t.dtype == wide || t.dtype.is_int() {
            return Ok(product);
        }
        Ok(self.map(MapOp::Convert, &[product], t, name, site))
    }
}

fn combine_of(op: Opcode) -> Option<Combine> {
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

/// Bits of a constant element as registers hold it: narrow floats as f32, narrow integers extended, `i1` as 0 or 1.
pub fn register_bits(bytes: &[u8], dtype: DType) -> i32 {
    use tpusim_isa::num::convert;
    match dtype.kind() {
        DTypeKind::Bool => i32::from(bytes.first().is_some_and(|b| *b != 0)),
        DTypeKind::Float => (convert::to_f64(dtype, bytes) as f32).to_bits() as i32,
        _ => {
            let mut raw = [0u8; 8];
            let n = bytes.len().min(8);
            raw[..n].copy_from_slice(&bytes[..n]);
            let v = u64::from_le_bytes(raw);
            let shift = 64 - 8 * n as u32;
            if dtype.is_signed() { ((v << shift) as i64 >> shift) as i32 } else { v as i32 }
        }
    }
}

fn identity_bits(bytes: &[u8], dtype: DType) -> Option<i32> {
    Some(register_bits(bytes, dtype))
}

/// Bytes of the element whose register form is `bits`.
fn bits_to_bytes(bits: i32, dtype: DType) -> Arc<[u8]> {
    use tpusim_isa::num::convert;
    if dtype.is_float() {
        return convert::from_f64(dtype, f64::from(f32::from_bits(bits as u32)))[..dtype.bytes()].to_vec().into();
    }
    bits.to_le_bytes()[..dtype.bytes()].to_vec().into()
}
