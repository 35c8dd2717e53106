//! Regions that are functions of scalars, applied to whole arrays.
//!
//! Such a region is built once as a graph of scalars, and then again over arrays for every use: the combinations of a reduction are a tree
//! of them over slices.

use super::super::{NodeId, NodeOp};
use super::wide::{Value, part_of};
use super::*;
use crate::hlo::{Block, Op, Opcode};
use crate::lower::math::{Combine, MapOp};

/// Scalar nodes that one region may have.
const LONGEST: usize = 2000;

/// What a parameter of a region's graph stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Argument of the region, and which of its parts.
    Arg(usize, usize),
    /// A scalar of the graph around.
    Outer(NodeId),
}

/// A region as a graph of scalars.
pub(super) struct Scalars {
    pub nodes: Vec<Node>,
    pub binds: Vec<Bound>,
    pub results: Vec<Value>,
}

/// A node of the graph around, its type, and its bytes if it is a constant.
type Captured = (NodeId, DType, Option<std::sync::Arc<[u8]>>);

impl Builder<'_> {
    /// The region `block` as scalars.
    pub(super) fn scalars(
        &mut self,
        f: &Func,
        op: &Op,
        block: &Block,
        env: &Env,
        site: &(String, String),
    ) -> Result<Scalars, LowerError> {
        let mut outer: Vec<(ValueId, Value)> = Vec::new();
        let mut read: Vec<&Op> = block.ops.iter().collect();
        while let Some(o) = read.pop() {
            read.extend(o.regions.iter().flat_map(|r| &r.block.ops));
            for v in &o.operands {
                if let Some(&value) = env.get(v).filter(|_| !outer.iter().any(|(o, _)| o == v)) {
                    outer.push((*v, value));
                }
            }
        }
        let known: Vec<Vec<Captured>> =
            outer.iter().map(|(_, v)| v.nodes().map(|n| (n, self.node(n).dtype, self.splat_of(n))).collect()).collect();
        if let Some(n) = known.iter().flatten().find(|n| !self.node(n.0).dims.is_empty()) {
            let m =
                format!("reads an array of {} elements in its region; scalars are lowered", self.node(n.0).elements());
            return Err(self.error(op.opcode.name(), op.loc, m));
        }
        let mut types = Vec::new();
        for &a in &block.args {
            types.push(self.tensor(f, a, op.opcode.name(), op.loc)?);
        }
        let saved = (std::mem::take(&mut self.graph), std::mem::take(&mut self.seen));
        let mut binds = Vec::new();
        let mut param = |b: &mut Self, bound: Bound, dtype: DType| {
            binds.push(bound);
            let op = NodeOp::Param(binds.len() as u32 - 1);
            b.push(op, vec![], &Shape { dims: vec![], dtype }, "parameter", site.clone())
        };
        let mut inner = Env::default();
        for (i, (&a, t)) in block.args.iter().zip(&types).enumerate() {
            let value = match part_of(t.dtype) {
                Some(part) => Value::Pair(t.dtype, [0, 1].map(|k| param(self, Bound::Arg(i, k), part))),
                None => Value::One(param(self, Bound::Arg(i, 0), t.dtype)),
            };
            inner.insert(a, value);
        }
        for ((v, value), nodes) in outer.into_iter().zip(known) {
            let mut nodes = nodes.into_iter();
            let value = value.map(|old| match nodes.next() {
                Some((_, dtype, Some(bytes))) => {
                    self.constant(bytes, &Shape { dims: vec![], dtype }, "constant", site.clone())
                }
                Some((n, dtype, None)) => param(self, Bound::Outer(n), dtype),
                None => old,
            });
            inner.insert(v, value);
        }
        let results = self.block(f, block, &mut inner, 0, Some(site));
        let graph = std::mem::replace(&mut self.graph, saved.0);
        self.seen = saved.1;
        let results = results?;
        let strange = graph.nodes.iter().find(|n| match &n.op {
            NodeOp::Param(_) | NodeOp::Map(_) | NodeOp::Const(_) => !n.dims.is_empty(),
            NodeOp::Reshape | NodeOp::Broadcast(_) | NodeOp::Transpose(_) => !n.dims.is_empty(),
            _ => true,
        });
        if let Some(n) = strange {
            let m = format!("has {} in its region; elementwise functions of scalars are lowered", n.name);
            return Err(self.error(op.opcode.name(), op.loc, m));
        }
        if graph.nodes.len() > LONGEST {
            return Err(self.error(op.opcode.name(), op.loc, "has too long a region to be lowered"));
        }
        Ok(Scalars { nodes: graph.nodes, binds, results })
    }

    /// The region applied to every element of arrays of shape `dims`.
    pub(super) fn apply(
        &mut self,
        s: &Scalars,
        args: &[Value],
        dims: &[u64],
        name: &'static str,
        site: &(String, String),
    ) -> Vec<Value> {
        let mut made: Vec<NodeId> = Vec::with_capacity(s.nodes.len());
        for n in &s.nodes {
            let t = Shape { dims: dims.to_vec(), dtype: n.dtype };
            let args: Vec<NodeId> = match &n.op {
                NodeOp::Param(k) => match s.binds[*k as usize] {
                    Bound::Arg(i, part) => args[i].nodes().nth(part).into_iter().collect(),
                    Bound::Outer(x) => vec![self.broadcast(x, vec![], &t, name, site.clone())],
                },
                _ => n.args.iter().map(|a| made[a.ix()]).collect(),
            };
            made.push(match &n.op {
                NodeOp::Map(m) => self.map(*m, &args, &t, name, site.clone()),
                NodeOp::Const(l) => self.constant(l.bytes.clone(), &t, name, site.clone()),
                // Of scalars they do nothing.
                _ => args.first().copied().unwrap_or(NodeId(0)),
            });
        }
        s.results.iter().map(|v| v.map(|n| made[n.ix()])).collect()
    }

    /// Operations whose regions are functions of scalars, and some with several results; `None` is lowered elsewhere.
    pub(super) fn with_function(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        env: &Env,
        outer: Option<&(String, String)>,
    ) -> Option<Result<Vec<Value>, LowerError>> {
        let site = self.site(op, outer);
        let ty = op.results.first().and_then(|&r| f.ty(r).tensor());
        // Stored integers are ordered as what they stand for, but added otherwise.
        let single = op.results.len() == 1
            && ty.is_some_and(|t| match contract::reducer(op, t.dtype) {
                Some(Combine::Max | Combine::Min) => true,
                how => how.is_some() && t.quant.is_none(),
            });
        match op.opcode {
            Opcode::Sort => Some(self.sort(f, op, args, env, &site)),
            Opcode::Reduce if single => None,
            Opcode::Reduce => {
                // Maxima with their places are two plain reductions.
                if let (2, Ok(done)) = (op.results.len(), self.op(f, op, args.to_vec(), 0, outer)) {
                    return Some(Ok(done));
                }
                Some(self.reduce_by(f, op, args, env, &site))
            }
            Opcode::ReduceWindow if single => None,
            Opcode::ReduceWindow => Some(self.windows_by(f, op, args, env, &site)),
            Opcode::Map => Some(self.mapped(f, op, args, env, &site)),
            _ => self.several(f, op, args, &site),
        }
    }

    fn mapped(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        env: &Env,
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let (Some(&r), [region]) = (op.results.first(), &op.regions[..]) else {
            return Err(self.error(op.opcode.name(), op.loc, "needs a region and a result"));
        };
        let t = self.tensor(f, r, op.opcode.name(), op.loc)?;
        let s = self.scalars(f, op, &region.block, env, site)?;
        Ok(self.apply(&s, args, &t.dims, "map", site))
    }

    /// The region of a reduction, its inputs brought to the types it works on, and their initial values.
    #[allow(clippy::type_complexity)]
    fn reducer_of(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        env: &Env,
        site: &(String, String),
    ) -> Result<(Scalars, Vec<Value>, Vec<Value>), LowerError> {
        let n = args.len() / 2;
        let [region] = &op.regions[..] else {
            return Err(self.error(op.opcode.name(), op.loc, "needs a region"));
        };
        let block = &region.block;
        if block.args.len() != 2 * n || n == 0 {
            return Err(self.error(op.opcode.name(), op.loc, "needs a region of two arguments for each operand"));
        }
        let s = self.scalars(f, op, block, env, site)?;
        let mut all = Vec::new();
        for (i, &v) in args.iter().enumerate() {
            let t = self.tensor(f, block.args[i % n], op.opcode.name(), op.loc)?;
            all.push(match v {
                Value::One(x) if part_of(t.dtype).is_none() => {
                    let t = Shape { dims: self.node(x).dims.clone(), dtype: t.dtype };
                    Value::One(self.map(MapOp::Convert, &[x], &t, "reduce", site.clone()))
                }
                Value::Pair(d, _) if d == t.dtype => v,
                _ => {
                    return Err(self.error(
                        op.opcode.name(),
                        op.loc,
                        "that changes the width of elements is not lowered",
                    ));
                }
            });
        }
        let init = all.split_off(n);
        Ok((s, all, init))
    }

    fn first_dims(&self, v: &[Value]) -> Vec<u64> {
        v.iter().flat_map(|v| v.nodes()).next().map(|n| self.node(n).dims.clone()).unwrap_or_default()
    }

    /// A reduction by any region: neighbours are combined until one element is left, which keeps their order.
    fn reduce_by(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        env: &Env,
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let name = "reduce";
        let (s, inputs, init) = self.reducer_of(f, op, args, env, site)?;
        let dims = self.first_dims(&inputs);
        let mut reduced: Vec<usize> = op.attrs.ints("dimensions").unwrap_or(&[]).iter().map(|&d| d as usize).collect();
        reduced.sort_unstable();
        let kept: Vec<usize> = (0..dims.len()).filter(|d| !reduced.contains(d)).collect();
        let perm: Vec<usize> = reduced.iter().chain(&kept).copied().collect();
        let rest: Vec<u64> = kept.iter().map(|&d| dims[d]).collect();
        let count: u64 = reduced.iter().map(|&d| dims[d]).product();
        let start: Vec<Value> = init.iter().map(|v| v.map(|n| self.spread_to(n, &rest, name, site))).collect();
        if count == 0 || rest.contains(&0) {
            return Ok(start);
        }
        // The reduced dimensions first: slices of them are whole rows.
        let moved: Vec<u64> = perm.iter().map(|&d| dims[d]).collect();
        let flat: Vec<u64> = std::iter::once(count).chain(rest.iter().copied()).collect();
        let all: Vec<Value> = inputs
            .iter()
            .map(|v| {
                v.map(|n| {
                    let dtype = self.node(n).dtype;
                    let t = Shape { dims: moved.clone(), dtype };
                    let n = self.transpose(n, perm.clone(), &t, name, site.clone());
                    self.reshape(n, &Shape { dims: flat.clone(), dtype }, name, site.clone())
                })
            })
            .collect();
        let one = self.folded(&s, all, 0, name, site);
        let done: Vec<Value> = one.iter().map(|v| v.map(|n| self.reshaped(n, rest.clone(), name, site))).collect();
        Ok(self.apply(&s, &[start, done].concat(), &rest, name, site))
    }

    fn spread_to(&mut self, n: NodeId, dims: &[u64], name: &'static str, site: &(String, String)) -> NodeId {
        let t = Shape { dims: dims.to_vec(), dtype: self.node(n).dtype };
        self.broadcast(n, vec![], &t, name, site.clone())
    }

    /// `start`, `step` and number of elements along dimension `d` of every node.
    fn parts(
        &mut self,
        v: &[Value],
        d: usize,
        part: [u64; 3],
        name: &'static str,
        site: &(String, String),
    ) -> Vec<Value> {
        v.iter().map(|v| v.map(|n| self.cut(n, d, part, name, site))).collect()
    }

    /// Combines all elements along dimension `d`, which stays with size one.
    fn folded(
        &mut self,
        s: &Scalars,
        mut all: Vec<Value>,
        d: usize,
        name: &'static str,
        site: &(String, String),
    ) -> Vec<Value> {
        let mut tail: Option<Vec<Value>> = None;
        loop {
            let mut dims = self.first_dims(&all);
            let n = dims[d];
            if n == 1 {
                break;
            }
            if n % 2 == 1 {
                let last = self.parts(&all, d, [n - 1, 1, 1], name, site);
                let mut one = dims.clone();
                one[d] = 1;
                tail = Some(match tail {
                    Some(t) => self.apply(s, &[last, t].concat(), &one, name, site),
                    None => last,
                });
            }
            let even = self.parts(&all, d, [0, 2, n / 2], name, site);
            let odd = self.parts(&all, d, [1, 2, n / 2], name, site);
            dims[d] = n / 2;
            all = self.apply(s, &[even, odd].concat(), &dims, name, site);
        }
        match tail {
            Some(t) => {
                let dims = self.first_dims(&all);
                self.apply(s, &[all, t].concat(), &dims, name, site)
            }
            None => all,
        }
    }

    /// Windows reduced by any region, one dimension after the other, the last first.
    fn windows_by(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        env: &Env,
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let name = "reduce_window";
        let (s, inputs, init) = self.reducer_of(f, op, args, env, site)?;
        let Some(&r) = op.results.first() else {
            return Err(self.error(op.opcode.name(), op.loc, "needs a result"));
        };
        let out = self.tensor(f, r, op.opcode.name(), op.loc)?.dims;
        let sizes = self.first_dims(&inputs);
        let start: Vec<Value> = init.iter().map(|v| v.map(|n| self.spread_to(n, &out, name, site))).collect();
        if out.contains(&0) || sizes.contains(&0) {
            return Ok(start);
        }
        let positions: Vec<u64> = match op.attrs.ints("window_dimensions") {
            Some(v) => v.iter().map(|&v| v.max(1) as u64).collect(),
            None => vec![1; sizes.len()],
        };
        let names = window::Names { base: "base_dilations", dilation: "window_dilations" };
        let windows = self.windows(op, &names, &sizes, &positions, &out)?;
        let mut all = Vec::new();
        for (x, i) in inputs.iter().zip(&init) {
            let mut padded = Vec::new();
            for (n, value) in x.nodes().zip(i.nodes()) {
                padded.push(self.padded(op, n, value, &windows, name, site)?);
            }
            let mut padded = padded.into_iter();
            all.push(x.map(|n| padded.next().unwrap_or(n)));
        }
        for (d, w) in windows.iter().enumerate().rev() {
            all = self.slid(&s, all, d, w, name, site);
        }
        Ok(self.apply(&s, &[start, all].concat(), &out, name, site))
    }

    /// Windows along dimension `d`: put together from powers of two of neighbours, in order.
    fn slid(
        &mut self,
        s: &Scalars,
        all: Vec<Value>,
        d: usize,
        w: &window::Window,
        name: &'static str,
        site: &(String, String),
    ) -> Vec<Value> {
        let join = |b: &mut Self, p: Vec<Value>, q: Vec<Value>| {
            let dims = b.first_dims(&q);
            b.apply(s, &[p, q].concat(), &dims, name, site)
        };
        let mut sum: Option<Vec<Value>> = None;
        let (mut level, mut covers, mut done) = (all, 1, 0);
        while done < w.size {
            if w.size & covers != 0 {
                let part = self.parts(&level, d, [done * w.dilation, w.stride, w.count], name, site);
                sum = Some(match sum {
                    Some(p) => join(self, p, part),
                    None => part,
                });
                done += covers;
            }
            if done < w.size {
                let rest = self.first_dims(&level)[d] - covers * w.dilation;
                let near = self.parts(&level, d, [0, 1, rest], name, site);
                let far = self.parts(&level, d, [covers * w.dilation, 1, rest], name, site);
                level = join(self, near, far);
                covers *= 2;
            }
        }
        sum.unwrap_or(level)
    }
}
