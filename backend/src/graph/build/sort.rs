//! Sorts and selections of the largest elements.
//!
//! Words are 32 bits: narrow operands are widened, which kernels around the sort do in passing. A comparator that compares the same
//! function of both elements becomes an integer key, computed once for every element; any other one is evaluated in the network. An
//! operand that numbers the elements is the network's own index.

use super::super::{NodeId, NodeOp, Special};
use super::function::Bound;
use super::order::ordered;
use super::wide::Value;
use super::*;
use crate::hlo::{Attr, Op, Opcode};
use crate::lower::math::{Direction, MapOp};
use crate::lower::sort::{Order, SortSpec, Step, StepKind, prefers_columns};

/// Longest comparator, in operations on registers.
const LONGEST: usize = 200;

/// Where an operand is after the sort.
enum From {
    Word(usize),
    /// It numbers the elements.
    Index,
    /// The same everywhere.
    Constant,
}

/// What is sorted.
struct Input<'a> {
    operands: &'a [NodeId],
    dim: usize,
    keep: u64,
}

impl Builder<'_> {
    /// `stablehlo.sort`.
    pub(super) fn sort(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        env: &Env,
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let name = "sort";
        let nodes: Vec<NodeId> = args.iter().flat_map(|v| v.nodes()).collect();
        let dims = nodes.first().map(|&n| self.node(n).dims.clone()).unwrap_or_default();
        let rank = dims.len() as i64;
        let d = op.attrs.int("dimension").unwrap_or(-1);
        let d = if d < 0 { d + rank } else { d };
        let (Ok(dim), true) = (usize::try_from(d), d < rank) else {
            return Err(self.error(op.opcode.name(), op.loc, "needs a dimension of its operands"));
        };
        let (before, after): (u64, u64) = (dims[..dim].iter().product(), dims[dim + 1..].iter().product());
        if before.max(after) > i32::MAX as u64 {
            return Err(self.error(op.opcode.name(), op.loc, "of more than 2^31 arrays is too large for any chip"));
        }
        let steps = self.comparator(f, op, args, env, site)?;
        let sorted = self.sorted(&Input { operands: &nodes, dim, keep: dims[dim] }, steps, name, site)?;
        let mut sorted = sorted.into_iter();
        Ok(args.iter().map(|v| v.map(|n| sorted.next().unwrap_or(n))).collect())
    }

    /// The `k` largest of the last dimension and where they are, by the total order of floats; of equal ones the first.
    pub(super) fn top_k(
        &mut self,
        x: NodeId,
        k: u64,
        largest: bool,
        name: &'static str,
        site: &(String, String),
    ) -> Result<Vec<NodeId>, LowerError> {
        let (dims, dtype) = (self.node(x).dims.clone(), self.node(x).dtype);
        let dim = dims.len().saturating_sub(1);
        let index = Shape { dims, dtype: DType::I32 };
        let iota = self.push(NodeOp::Iota(dim), vec![], &index, name, site.clone());
        let word = |word, second| Step { what: StepKind::Word { word, second }, args: vec![], dtype };
        let direction = if largest { Direction::Gt } else { Direction::Lt };
        let compare = StepKind::Map(MapOp::Compare(direction, true), dtype);
        let last = Step { what: compare, args: vec![0, 1], dtype: DType::I1 };
        let steps = vec![word(0, false), word(0, true), last];
        self.sorted(&Input { operands: &[x, iota], dim, keep: k }, steps, name, site)
    }

    /// `k` and whether the largest are wanted, if `op` selects.
    pub(super) fn selection(&self, op: &Op) -> Option<(u64, bool)> {
        let dict = |name: &str, key: &str| match op.attrs.get(name) {
            Some(Attr::Dict(d)) => d.get(key).cloned(),
            _ => None,
        };
        let attr = match op.opcode {
            Opcode::ChloTopK => return Some((u64::try_from(op.attrs.int("k")?).ok()?, true)),
            Opcode::Composite if op.attrs.text("name") == Some("chlo.top_k") => "composite_attributes",
            Opcode::CustomCall if op.attrs.text("call_target_name") == Some("mhlo.topk") => "mhlo.attributes",
            _ => return None,
        };
        let Some(Attr::Int(k, _)) = dict(attr, "k") else { return None };
        let largest = !matches!(dict(attr, "largest"), Some(Attr::Bool(false)));
        Some((u64::try_from(k).ok()?, largest))
    }

    /// The custom call `ApproxTopK`: what comes first by a comparator, exactly. Operands are arrays, then a start value for each.
    pub(super) fn approximate_top_k(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let fail = |b: &Self| {
            b.error(op.opcode.name(), op.loc, "to `ApproxTopK` needs operands, a `reduction_dim` and a comparator")
        };
        let dim = ["mhlo.backend_config", "backend_config"].iter().find_map(|n| match op.attrs.get(n) {
            Some(Attr::Dict(d)) => d.int("reduction_dim"),
            _ => None,
        });
        let called = match op.attrs.get("called_computations") {
            Some(Attr::Array(a)) => {
                a.iter().find_map(|a| if let Attr::Symbol(s) = a { Some(s.as_str()) } else { None })
            }
            _ => None,
        };
        let module = self.module;
        let arrays = args.get(..op.results.len()).unwrap_or_default();
        let nodes: Option<Vec<NodeId>> = arrays.iter().map(|v| v.one()).collect();
        let (Some(nodes), Some(less), Some(&r)) = (nodes, called.and_then(|c| module.func(c)), op.results.first())
        else {
            return Err(fail(self));
        };
        let t = self.tensor(f, r, op.opcode.name(), op.loc)?;
        let sizes = nodes.first().map(|&n| self.node(n).dims.clone()).unwrap_or_default();
        let mut cut = sizes.clone();
        let rank = sizes.len() as i64;
        let dim = dim.map_or(-1, |d| if d < 0 { d + rank } else { d });
        let Some(dim) = usize::try_from(dim).ok().filter(|&d| d < sizes.len() && t.dims.get(d) <= sizes.get(d)) else {
            return Err(fail(self));
        };
        cut[dim] = t.dims[dim];
        let same = |b: &Self, (&n, &r): (&NodeId, &ValueId)| {
            let is = f.ty(r).tensor().is_some_and(|t| {
                t.dims.iter().map(|&d| d as u64).eq(cut.iter().copied()) && t.dtype == b.node(n).dtype
            });
            is && b.node(n).dims == sizes
        };
        if !nodes.iter().zip(&op.results).all(|pair| same(self, pair)) {
            return Err(fail(self));
        }
        let block = Block { args: less.params.iter().map(|p| p.value).collect(), ops: less.body.ops.clone() };
        let steps = self.steps_of(less, op, &block, arrays, &Env::default(), site)?;
        let input = Input { operands: &nodes, dim, keep: t.dims[dim] };
        Ok(self.sorted(&input, steps, "top_k", site)?.into_iter().map(Value::One).collect())
    }

    fn comparator(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        env: &Env,
        site: &(String, String),
    ) -> Result<Vec<Step>, LowerError> {
        let [region] = &op.regions[..] else {
            return Err(self.error(op.opcode.name(), op.loc, "needs one comparator"));
        };
        self.steps_of(f, op, &region.block, args, env, site)
    }

    /// A comparator as steps, over the words of the operands.
    fn steps_of(
        &mut self,
        f: &Func,
        op: &Op,
        block: &Block,
        args: &[Value],
        env: &Env,
        site: &(String, String),
    ) -> Result<Vec<Step>, LowerError> {
        let name = op.opcode.name();
        if block.args.len() != 2 * args.len() {
            return Err(self.error(name, op.loc, "needs a comparator of two elements of each operand"));
        }
        let s = self.scalars(f, op, block, env, site)?;
        let mut first = Vec::new();
        let mut words = 0;
        for v in args {
            first.push(words);
            words += v.nodes().count();
        }
        let mut steps: Vec<Step> = Vec::new();
        for n in &s.nodes {
            let what = match &n.op {
                NodeOp::Param(k) => match s.binds[*k as usize] {
                    Bound::Arg(i, part) => StepKind::Word { word: first[i / 2] + part, second: i % 2 == 1 },
                    Bound::Outer(_) => {
                        let m = "compares with a value from outside; elementwise functions of the elements and constants are lowered";
                        return Err(self.error(name, op.loc, m));
                    }
                },
                NodeOp::Const(l) => StepKind::Splat(register_bits(l.element(0), n.dtype)),
                NodeOp::Map(m) => {
                    let of = n.args.get(usize::from(*m == MapOp::Select)).map_or(0, |a| a.ix());
                    StepKind::Map(*m, s.nodes[of].dtype)
                }
                _ => StepKind::Map(MapOp::Copy, n.dtype),
            };
            steps.push(Step { what, args: n.args.iter().map(|a| a.ix()).collect(), dtype: n.dtype });
        }
        let [Value::One(result)] = s.results[..] else {
            return Err(self.error(name, op.loc, "a comparator should return one scalar"));
        };
        let dtype = s.nodes[result.ix()].dtype;
        // The last step is the result.
        steps.push(Step { what: StepKind::Map(MapOp::Copy, dtype), args: vec![result.ix()], dtype });
        if steps.len() > LONGEST {
            return Err(self.error(name, op.loc, "a comparator of more than 200 operations is not lowered"));
        }
        Ok(steps)
    }

    fn sorted(
        &mut self,
        input: &Input<'_>,
        steps: Vec<Step>,
        name: &'static str,
        site: &(String, String),
    ) -> Result<Vec<NodeId>, LowerError> {
        let &Input { operands, dim, keep } = input;
        let dims = self.node(operands[0]).dims.clone();
        let (n, mut kept) = (dims[dim], dims.clone());
        kept[dim] = keep;
        if n <= 1 || kept.contains(&0) {
            let none = vec![0; dims.len()];
            let cut = |b: &mut Self, &x: &NodeId| {
                let t = Shape { dims: kept.clone(), dtype: b.node(x).dtype };
                b.slice(x, none.clone(), vec![1; dims.len()], &t, name, site.clone())
            };
            return Ok(operands.iter().map(|x| cut(self, x)).collect());
        }
        let mut steps = steps;
        let ordered = ordered(&steps);
        let mut words: Vec<NodeId> = Vec::new();
        let mut key_type = None;
        if let Some(o) = &ordered {
            words.push(self.key(&steps, o, operands, &dims, name, site));
            if let StepKind::Word { word, .. } = steps[o.step].what {
                key_type = Some((word, o.descending));
            }
        }
        let compared = |w: usize| {
            let reads = |s: &Step| matches!(s.what, StepKind::Word { word, .. } if word == w);
            ordered.is_none() && steps.iter().any(reads)
        };
        let fits = |t: DType| t.is_int() && (t.bits() >= 32 || n <= 1 << (t.bits() - 1));
        let mut of: Vec<From> = Vec::new();
        for (i, &x) in operands.iter().enumerate() {
            let (free, dtype) = (!compared(i), self.node(x).dtype);
            of.push(if key_type.is_some_and(|(w, _)| w == i) {
                From::Word(0)
            } else if free && self.splat_of(x).is_some() {
                From::Constant
            } else if free && self.node(x).op == NodeOp::Iota(dim) && fits(dtype) {
                From::Index
            } else {
                let t = Shape { dims: dims.clone(), dtype: word_type(dtype) };
                words.push(self.map(MapOp::Convert, &[x], &t, name, site.clone()));
                From::Word(words.len() - 1)
            });
        }
        for s in &mut steps {
            if let (StepKind::Word { word, .. }, None) = (&mut s.what, &ordered)
                && let From::Word(w) = of[*word]
            {
                *word = w;
            }
        }
        let order = match ordered {
            Some(_) => Order::Key,
            None => Order::By(steps),
        };
        let loads = words.len();
        let word_of = |f: &From| match *f {
            From::Word(w) => Some(w),
            From::Index => Some(loads),
            From::Constant => None,
        };
        let mut results: Vec<usize> = of.iter().filter_map(word_of).collect();
        results.sort_unstable();
        results.dedup();
        // Equal keys are the same bits: without other words nobody can tell them apart.
        let alone = order == Order::Key && key_type.is_some() && results == [0];
        let product = |d: &[u64]| d.iter().product::<u64>();
        let (outer, inner) = (product(&dims[..dim]), product(&dims[dim + 1..]));
        let batch = outer * inner;
        let natural = inner > 1 && (inner >= 64 || outer == 1 && batch >= 32);
        let columns = natural || prefers_columns(batch, n, keep, loads as u64, results.len() as u64);
        // Which dimensions come first, and the sizes the kernel sees.
        let rank = dims.len();
        let (perm, sizes): (Vec<usize>, [u64; 3]) = if natural {
            ((0..rank).collect(), [outer, n, inner])
        } else if columns {
            (std::iter::once(dim).chain((0..rank).filter(|&d| d != dim)).collect(), [1, n, batch])
        } else {
            ((0..rank).filter(|&d| d != dim).chain([dim]).collect(), [batch, n, 1])
        };
        let moved: Vec<u64> = perm.iter().map(|&d| dims[d]).collect();
        for w in &mut words {
            let t = Shape { dims: moved.clone(), dtype: self.node(*w).dtype };
            *w = self.transpose(*w, perm.clone(), &t, name, site.clone());
            *w = self.stored(*w, name, site);
        }
        let types: Vec<DType> = words.iter().map(|&w| self.node(w).dtype).chain([DType::I32]).collect();
        let spec = SortSpec { dims: sizes, keep, loads, order, index: !alone, results: results.clone() };
        let nothing = Shape { dims: vec![0], dtype: DType::I32 };
        let special = self.push(NodeOp::Special(Special::Sort(spec)), words, &nothing, name, site.clone());
        let mut back = vec![0; rank];
        perm.iter().enumerate().for_each(|(i, &d)| back[d] = i);
        let moved: Vec<u64> = perm.iter().map(|&d| kept[d]).collect();
        let mut out = Vec::new();
        for (&x, from) in operands.iter().zip(&of) {
            let Some(place) = word_of(from) else {
                out.push(self.resized(x, &kept, name, site));
                continue;
            };
            let k = results.iter().position(|&r| r == place).unwrap_or(0);
            let t = Shape { dims: moved.clone(), dtype: types[place] };
            let r = self.push(NodeOp::Result(k), vec![special], &t, name, site.clone());
            let t = Shape { dims: kept.clone(), dtype: t.dtype };
            let mut r = self.transpose(r, back.clone(), &t, name, site.clone());
            let dtype = self.node(x).dtype;
            if let (0, Some((_, descending))) = (place, key_type) {
                r = self.behind_key(r, dtype, descending, &kept, name, site);
            }
            out.push(self.map(MapOp::Convert, &[r], &Shape { dims: kept.clone(), dtype }, name, site.clone()));
        }
        Ok(out)
    }

    /// A constant of other sizes.
    fn resized(&mut self, x: NodeId, dims: &[u64], name: &'static str, site: &(String, String)) -> NodeId {
        let t = Shape { dims: dims.to_vec(), dtype: self.node(x).dtype };
        match self.splat_of(x) {
            Some(bytes) => self.constant(bytes, &t, name, site.clone()),
            None => x,
        }
    }

    /// A node that is an array of its own: constants are copied.
    pub(super) fn stored(&mut self, x: NodeId, name: &'static str, site: &(String, String)) -> NodeId {
        if self.splat_of(x).is_none() {
            return x;
        }
        let t = Shape { dims: self.node(x).dims.clone(), dtype: self.node(x).dtype };
        self.map(MapOp::Copy, &[x], &t, name, site.clone())
    }
}

/// The 32-bit type that holds every value of `t`.
fn word_type(t: DType) -> DType {
    match t.kind() {
        DTypeKind::Float => DType::F32,
        DTypeKind::Signed => DType::I32,
        _ => DType::U32,
    }
}
