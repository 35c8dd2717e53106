//! `while`, `if` and `case`: their regions become graphs of their own.
//!
//! A loop carries only what changes: values that every iteration passes on are read from where they are. Constants, indices and data
//! movement of outer values are made again inside, everything else that a region reads of the graph around it becomes an operand.

use rustc_hash::FxHashSet;

use super::super::{Case, Counter, NodeId, NodeOp, Region, Special, While};
use super::trip::trip_count;
use super::wide::{Value, part_of};
use super::*;
use crate::hlo::{Block, Op, Opcode, ValueId};
use crate::lower::math::Direction;

/// Regions may nest this deep: each loop takes a scalar register for its counter.
const MAX_REGIONS: usize = 12;
/// Data movement of an outer value that is done again inside.
const MAX_MOVED: usize = 16;
/// Regions that are built again with what was found to stay the same.
const MAX_REBUILT: usize = 32;

/// Branches that cost this much together, per element, are all computed.
const MAX_COST: u32 = 200;
/// How often that is done: their operations are built again, and those of choices inside them again and again.
const MAX_SELECTIONS: usize = 1000;
/// Elements that such branches may have as results.
const MAX_SELECTED: u64 = 8192;

/// Vector instructions of a graph of elementwise operations, per element; without limit if there are others.
fn cost(g: &Graph) -> u32 {
    let of = |n: &Node| match &n.op {
        NodeOp::Param(_) | NodeOp::Iota(_) | NodeOp::Counter(_) | NodeOp::Broadcast(_) => 0,
        NodeOp::Const(l) if l.is_splat() => 0,
        NodeOp::Map(op) if n.elements() <= MAX_SELECTED => op.cost() + 1,
        _ => u32::MAX,
    };
    g.nodes.iter().map(of).fold(0, u32::saturating_add)
}

/// What a parameter of a region stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bind {
    /// Carried value of the loop.
    Carried(usize),
    /// Node of the graph around.
    Outer(NodeId),
}

/// What an argument of a region becomes inside.
#[derive(Clone, Copy, Debug)]
enum Arg {
    Bind(Bind),
    Counter(Counter),
    Zero,
}

/// A graph under construction.
#[derive(Default)]
pub(super) struct Frame {
    graph: Graph,
    seen: FxHashMap<Key, NodeId>,
    /// Nodes of the graph around, and what stands for them here.
    imports: FxHashMap<NodeId, NodeId>,
    /// What each parameter stands for.
    binds: Vec<Bind>,
}

/// A finished graph, its parameters not yet bound to operands.
#[derive(Default)]
struct Built {
    graph: Graph,
    binds: Vec<Bind>,
}

/// The nodes of some values, one after the other.
fn flat(values: &[Value]) -> Vec<NodeId> {
    values.iter().flat_map(|v| v.nodes()).collect()
}

/// Adds every value that `block` reads or defines.
fn values(block: &Block, read: &mut Vec<ValueId>, defined: &mut FxHashSet<ValueId>) {
    defined.extend(&block.args);
    for op in &block.ops {
        read.extend(&op.operands);
        defined.extend(&op.results);
        op.regions.iter().for_each(|r| values(&r.block, read, defined));
    }
}

/// The operands after the `carried` first ones, and the regions bound to them.
fn bound(carried: usize, built: Vec<Built>) -> (Vec<NodeId>, Vec<Region>) {
    let mut captures: Vec<NodeId> = Vec::new();
    let mut place: FxHashMap<NodeId, usize> = FxHashMap::default();
    let regions = built.into_iter().map(|b| {
        let bind = |b: Bind| match b {
            Bind::Carried(k) => k,
            Bind::Outer(id) => *place.entry(id).or_insert_with(|| {
                captures.push(id);
                carried + captures.len() - 1
            }),
        };
        Region { binds: b.binds.into_iter().map(bind).collect(), graph: b.graph }
    });
    let regions = regions.collect();
    (captures, regions)
}

impl Builder<'_> {
    fn swap(&mut self, f: &mut Frame) {
        std::mem::swap(&mut self.graph, &mut f.graph);
        std::mem::swap(&mut self.seen, &mut f.seen);
        std::mem::swap(&mut self.imports, &mut f.imports);
        std::mem::swap(&mut self.binds, &mut f.binds);
    }

    /// Starts an empty graph inside this one.
    fn enter(&mut self, mut f: Frame) {
        self.swap(&mut f);
        self.outer.push(f);
    }

    /// Goes back to the graph around and gives the inner one.
    fn leave(&mut self) -> Frame {
        let mut f = self.outer.pop().unwrap_or_default();
        self.swap(&mut f);
        f
    }

    fn param(&mut self, bind: Bind, like: Node) -> NodeId {
        let id = NodeId(self.graph.nodes.len() as u32);
        self.graph.nodes.push(Node {
            op: NodeOp::Param(self.binds.len() as u32),
            args: Vec::new(),
            name: "parameter",
            ..like
        });
        self.graph.params.push(id);
        self.binds.push(bind);
        id
    }

    /// What stands for node `id` of the graph around in the one at hand.
    fn import(&mut self, id: NodeId) -> NodeId {
        self.import_moved(id, MAX_MOVED)
    }

    fn import_moved(&mut self, id: NodeId, moves: usize) -> NodeId {
        if let Some(here) = self.imports.get(&id) {
            return *here;
        }
        let Some(n) = self.outer.last().map(|f| f.graph.node(id).clone()) else { return id };
        let shape = Shape { dims: n.dims.clone(), dtype: n.dtype };
        let site = (n.source.clone(), n.location.clone());
        let here = match &n.op {
            NodeOp::Const(l) if l.is_splat() => self.push(n.op.clone(), vec![], &shape, n.name, site),
            NodeOp::Iota(_) | NodeOp::Counter(_) => self.push(n.op.clone(), vec![], &shape, n.name, site),
            NodeOp::Broadcast(_) | NodeOp::Reshape | NodeOp::Slice { .. } if moves > 0 => {
                let a = self.import_moved(n.args[0], moves - 1);
                self.push(n.op.clone(), vec![a], &shape, n.name, site)
            }
            NodeOp::DynSlice(_) if moves > 0 => {
                let args = n.args.iter().map(|a| self.import_moved(*a, moves - 1)).collect();
                self.push(n.op.clone(), args, &shape, n.name, site)
            }
            _ => self.param(Bind::Outer(id), n),
        };
        self.imports.insert(id, here);
        here
    }

    /// Makes a node in the outermost graph and gives what stands for it here: constant data lies in memory once.
    pub(super) fn hoist(
        &mut self,
        op: NodeOp,
        args: Vec<NodeId>,
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> NodeId {
        let inner = self.leave();
        let id = self.push(op, args, t, name, site);
        self.enter(inner);
        self.import(id)
    }

    /// The graph of `block`, its arguments standing for `args`.
    fn region(
        &mut self,
        f: &Func,
        block: &Block,
        args: &[(Value, Vec<Arg>)],
        env: &Env,
        depth: usize,
        site: &(String, String),
    ) -> Result<Built, LowerError> {
        let name = self.graph.name.clone();
        let like = |n: NodeId| Node { source: String::new(), location: String::new(), ..self.node(n).clone() };
        let likes: Vec<Vec<Node>> = args.iter().map(|(v, _)| v.nodes().map(like).collect()).collect();
        self.enter(Frame { graph: Graph { name, ..Graph::default() }, ..Frame::default() });
        let mut inner = Env::default();
        for ((v, (outside, binds)), likes) in block.args.iter().zip(args).zip(likes) {
            let mut parts = binds.iter().zip(likes).map(|(arg, like)| match *arg {
                Arg::Bind(Bind::Outer(id)) => self.import(id),
                Arg::Bind(bind) => self.param(bind, like),
                Arg::Counter(c) => self.scalar(NodeOp::Counter(c), like.dtype, "counter", site),
                Arg::Zero => self.number(0, like.dtype, "counter", site),
            });
            let here = outside.map(|n| parts.next().unwrap_or(n));
            inner.insert(*v, here);
        }
        let (mut read, mut defined) = (Vec::new(), FxHashSet::default());
        values(block, &mut read, &mut defined);
        for v in read {
            if let Some(outer) = env.get(&v)
                && !defined.contains(&v)
                && !inner.contains_key(&v)
            {
                let here = outer.map(|n| self.import(n));
                inner.insert(v, here);
            }
        }
        let outputs = self.block(f, block, &mut inner, depth + 1, Some(site));
        let frame = self.leave();
        Ok(Built { graph: Graph { outputs: flat(&outputs?), ..frame.graph }, binds: frame.binds })
    }

    fn scalar(&mut self, op: NodeOp, dtype: DType, name: &'static str, site: &(String, String)) -> NodeId {
        self.push(op, vec![], &Shape { dims: Vec::new(), dtype }, name, site.clone())
    }

    fn number(&mut self, bits: u32, dtype: DType, name: &'static str, site: &(String, String)) -> NodeId {
        self.constant(bits.to_le_bytes().to_vec().into(), &Shape { dims: Vec::new(), dtype }, name, site.clone())
    }

    fn block_of<'o>(&self, op: &'o Op, n: usize) -> Result<&'o Block, LowerError> {
        let e = || self.error(op.opcode.name(), op.loc, format!("has no region {n}"));
        op.regions.get(n).map(|r| &r.block).ok_or_else(e)
    }

    /// The results of a `while`, `if` or `case`.
    pub(super) fn control(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        env: &Env,
        depth: usize,
        outer: Option<&(String, String)>,
    ) -> Result<Vec<Value>, LowerError> {
        let site = self.site(op, outer);
        if self.outer.len() >= MAX_REGIONS || depth >= MAX_CALLS {
            let m = format!("loops and branches nest more than {MAX_REGIONS} deep");
            return Err(self.error(op.opcode.name(), op.loc, m));
        }
        for r in &op.results {
            self.tensor(f, *r, op.opcode.name(), op.loc)?;
        }
        match op.opcode {
            Opcode::While => self.while_loop(f, op, args, env, depth, &site),
            _ => self.choice(f, op, args, env, depth, &site),
        }
    }

    fn while_loop(
        &mut self,
        f: &Func,
        op: &Op,
        values: &[Value],
        env: &Env,
        depth: usize,
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let (cond, body) = (self.block_of(op, 0)?, self.block_of(op, 1)?);
        let returned = body.ops.last().map(|o| &o.operands[..]).unwrap_or_default();
        let inits = flat(values);
        let counted = self.counted(f, (cond, body), values, env);
        if counted.is_some_and(|c| c.trip == 0) {
            return Ok(values.to_vec());
        }
        // What is known of each node: that it stays the same, or how it counts.
        let mut constant: Vec<bool> = Vec::new();
        let mut counters: Vec<(usize, Arg, NodeId)> = Vec::new();
        let level = self.outer.len() as u32;
        for (k, v) in values.iter().enumerate() {
            if let Some(c) = counted.filter(|c| c.arg == k)
                && let Some((start, step, end)) = c.words(v)
            {
                for (part, n) in v.nodes().enumerate() {
                    let (arg, end) =
                        if part == 0 { (Arg::Counter(Counter { level, start, step }), end) } else { (Arg::Zero, 0) };
                    let end = self.number(end as u32, self.node(n).dtype, "counter", site);
                    counters.push((constant.len() + part, arg, end));
                }
                constant.extend(v.nodes().map(|_| true));
                continue;
            }
            constant.extend(v.nodes().map(|_| returned.get(k) == body.args.get(k)));
        }
        // The values made of these nodes.
        let shaped = |nodes: Vec<NodeId>| {
            let mut nodes = nodes.into_iter();
            values.iter().map(|v| v.map(|n| nodes.next().unwrap_or(n))).collect::<Vec<_>>()
        };
        loop {
            let carried: Vec<usize> = (0..inits.len()).filter(|k| !constant[*k]).collect();
            let bind = |k: usize| carried.iter().position(|c| *c == k).map_or(Bind::Outer(inits[k]), Bind::Carried);
            let mut k = 0..;
            let arg = |k: usize| counters.iter().find(|c| c.0 == k).map_or(Arg::Bind(bind(k)), |c| c.1);
            let binds = |v: &Value| v.nodes().zip(&mut k).map(|(_, k)| arg(k)).collect::<Vec<_>>();
            let args: Vec<(Value, Vec<Arg>)> = values.iter().copied().zip(values.iter().map(binds)).collect();
            let cond = match counted {
                None => self.region(f, cond, &args, env, depth, site)?,
                Some(_) => Built::default(),
            };
            let mut body = self.region(f, body, &args, env, depth, site)?;
            if counted.is_none() && cond.graph.outputs.len() != 1 || body.graph.outputs.len() != inits.len() {
                return Err(self.error(op.opcode.name(), op.loc, "regions give the wrong number of values"));
            }
            // Some values turn out to be passed on only when calls are looked into.
            let passed = |k: usize| {
                let out = body.graph.outputs[k];
                let at = body.graph.params.iter().position(|p| *p == out);
                at.is_some_and(|at| body.binds[at] == bind(k))
            };
            let found: Vec<usize> = carried.iter().copied().filter(|k| passed(*k)).collect();
            if !found.is_empty() && self.rebuilt < MAX_REBUILT {
                self.rebuilt += 1;
                found.into_iter().for_each(|k| constant[k] = true);
                continue;
            }
            body.graph.outputs = carried.iter().map(|k| body.graph.outputs[*k]).collect();
            let mut operands: Vec<NodeId> = carried.iter().map(|k| inits[*k]).collect();
            let (captures, mut regions) = bound(carried.len(), vec![body, cond]);
            operands.extend(captures);
            let (Some(cond), Some(body)) = (regions.pop(), regions.pop()) else { return Ok(values.to_vec()) };
            let trip = match counted {
                Some(c) => Some(c.trip),
                None => trip_count(&self.graph, &operands, &cond, &body),
            };
            let mut out = inits.clone();
            counters.iter().for_each(|(k, _, end)| out[*k] = *end);
            if trip == Some(0) || carried.is_empty() {
                return Ok(shaped(out));
            }
            let what = Special::While(Box::new(While { body, cond, trip }));
            let results = self.with_results(
                what,
                operands,
                &carried.iter().map(|k| inits[*k]).collect::<Vec<_>>(),
                "while",
                site,
            );
            carried.iter().zip(results).for_each(|(k, r)| out[*k] = r);
            return Ok(shaped(out));
        }
    }

    /// A special node whose results look like `like`; its result nodes.
    fn with_results(
        &mut self,
        what: Special,
        operands: Vec<NodeId>,
        like: &[NodeId],
        name: &'static str,
        site: &(String, String),
    ) -> Vec<NodeId> {
        let node = self.special_node(what, operands, name, site);
        let shapes: Vec<Shape> =
            like.iter().map(|l| Shape { dims: self.node(*l).dims.clone(), dtype: self.node(*l).dtype }).collect();
        let result = |(k, t): (usize, &Shape)| self.push(NodeOp::Result(k), vec![node], t, name, site.clone());
        shapes.iter().enumerate().map(result).collect()
    }

    fn choice(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        env: &Env,
        depth: usize,
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let selector =
            args.first().and_then(|v| v.one()).ok_or_else(|| self.error(op.opcode.name(), op.loc, "has no operand"))?;
        // The true branch of an `if` comes first, but a selector of 0 is false.
        let order: Vec<usize> = match op.opcode {
            Opcode::If => vec![1, 0],
            _ => (0..op.regions.len()).collect(),
        };
        if let Some(known) = super::trip::integer(&self.graph, selector) {
            let last = order.len().saturating_sub(1);
            let taken = usize::try_from(known).map_or(last, |i| i.min(last));
            let block = self.block_of(op, order[taken])?;
            return self.block(f, block, &mut env.clone(), depth + 1, Some(site));
        }
        let mut built = Vec::new();
        for &n in &order {
            let block = self.block_of(op, n)?;
            built.push(self.region(f, block, &[], env, depth, site)?);
        }
        let results = op.results.iter().map(|r| self.tensor(f, *r, op.opcode.name(), op.loc));
        let types = results.collect::<Result<Vec<_>, _>>()?;
        let parts = |t: &Shape| match part_of(t.dtype) {
            Some(dtype) => vec![Shape { dims: t.dims.clone(), dtype }, Shape { dims: t.dims.clone(), dtype }],
            None => vec![Shape { dims: t.dims.clone(), dtype: t.dtype }],
        };
        let results: Vec<Shape> = types.iter().flat_map(parts).collect();
        if built.iter().any(|b| b.graph.outputs.len() != results.len()) {
            return Err(self.error(op.opcode.name(), op.loc, "regions give the wrong number of values"));
        }
        let elements: u64 = results.iter().map(|t| t.dims.iter().product::<u64>()).sum();
        if self.selections < MAX_SELECTIONS
            && elements <= MAX_SELECTED
            && built.iter().fold(0, |c, b| cost(&b.graph).saturating_add(c)) <= MAX_COST
        {
            self.selections += 1;
            let blocks = order.iter().map(|n| self.block_of(op, *n)).collect::<Result<Vec<_>, _>>()?;
            return self.selected(f, &blocks, selector, op.opcode == Opcode::If, env, depth, site);
        }
        let (captures, branches) = bound(1, built);
        let mut operands = vec![selector];
        operands.extend(captures);
        let name = if op.opcode == Opcode::If { "if" } else { "case" };
        let what = Special::Case(Box::new(Case { branches }));
        let node = self.special_node(what, operands, name, site);
        let result = |(k, t): (usize, &Shape)| self.push(NodeOp::Result(k), vec![node], t, name, site.clone());
        let mut nodes = results.iter().enumerate().map(result).collect::<Vec<_>>().into_iter();
        let mut next = || nodes.next().unwrap_or(node);
        let value = |t: &Shape| match part_of(t.dtype) {
            Some(_) => Value::Pair(t.dtype, [next(), next()]),
            None => Value::One(next()),
        };
        Ok(types.iter().map(value).collect())
    }

    /// The results of short branches: all are computed, and elements selected. That costs less than deciding which to run.
    #[allow(clippy::too_many_arguments)]
    fn selected(
        &mut self,
        f: &Func,
        blocks: &[&Block],
        selector: NodeId,
        is_if: bool,
        env: &Env,
        depth: usize,
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let mut out: Vec<Value> = Vec::new();
        for (i, block) in blocks.iter().enumerate().rev() {
            let values = self.block(f, block, &mut env.clone(), depth + 1, Some(site))?;
            if out.is_empty() {
                out = values;
                continue;
            }
            let taken = if is_if {
                // What is there already is the true branch.
                self.map(MapOp::Not, &[selector], &Shape { dims: Vec::new(), dtype: DType::I1 }, "not", site.clone())
            } else {
                let number = self.number(i as u32, self.node(selector).dtype, "case", site);
                let t = Shape { dims: Vec::new(), dtype: DType::I1 };
                self.map(MapOp::Compare(Direction::Eq, false), &[selector, number], &t, "compare", site.clone())
            };
            for (o, v) in out.iter_mut().zip(values) {
                let mut mine = v.nodes();
                *o = o.map(|other| {
                    let own = mine.next().unwrap_or(other);
                    let t = Shape { dims: self.node(own).dims.clone(), dtype: self.node(own).dtype };
                    if own == other {
                        own
                    } else {
                        self.map(MapOp::Select, &[taken, own, other], &t, "select", site.clone())
                    }
                });
            }
        }
        Ok(out)
    }
}
