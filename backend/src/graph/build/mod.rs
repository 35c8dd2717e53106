//! From a verified module to the flat graph.

mod argmax;
mod collective;
mod contract;
mod conv_window;
mod convolution;
mod dynamic;
mod few_rows;
mod function;
mod gamma;
mod gather;
mod implicit;
mod linalg;
mod lookup;
mod make;
mod one_hot;
mod ops;
mod order;
mod quantized;
mod random;
mod region;
mod scatter;
mod select_scatter;
mod several;
mod sort;
mod special;
mod trip;
mod wide;
mod window;

use rustc_hash::FxHashMap;
use tpusim_isa::num::{DType, DTypeKind};

use super::attention::Fused;
use super::narrow::narrow_operands;
use super::{Graph, Node, NodeId, own_operands};
use crate::hlo::{Block, Func, LocId, Module, Op, Opcode, ValueId, Verified};
use crate::lower::math::{MapOp, holds};

use contract::bits_to_bytes;
pub(crate) use contract::elementwise;
use wide::Value;

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

/// Sets of dimensions are 32-bit masks, and kernels add a dimension or two.
const MAX_RANK: usize = 24;

/// Calls may nest this deep.
const MAX_CALLS: usize = 200;

/// What padded contracted dimensions are a multiple of: whole passes of every MXU.
pub const K_MULTIPLE: u64 = 1024;

/// Inlines everything into one graph of the entry function `main`.
///
/// # Errors
/// The first operation or type without code.
pub fn from_module(module: &Verified<Module>) -> Result<Graph, LowerError> {
    from_module_with(module, GraphOptions::default())
}

/// How to build a graph.
#[derive(Clone, Copy, Debug)]
pub struct GraphOptions<'c> {
    /// Pads long contracted dimensions of products with zeros to a multiple of [`K_MULTIPLE`], so that blocks divide them.
    pub pad_contraction: bool,
    /// Which attentions are kernels.
    pub attention: Fused<'c>,
}

impl Default for GraphOptions<'_> {
    fn default() -> Self {
        GraphOptions { pad_contraction: false, attention: Fused::Always }
    }
}

/// As [`from_module`], in another way.
///
/// # Errors
/// As [`from_module`].
pub fn from_module_with(module: &Verified<Module>, options: GraphOptions<'_>) -> Result<Graph, LowerError> {
    let module: &Module = module;
    let main = module.func("main").or_else(|| module.funcs.iter().find(|f| f.public)).ok_or_else(|| LowerError {
        op: "module".into(),
        place: module.name.clone(),
        message: "there is no function `main`".into(),
    })?;
    let opened = super::attention::decomposed(module, options.attention);
    let module = opened.as_ref().unwrap_or(module);
    let expanded = super::expand::expand(module, &main.name)?;
    let module = expanded.as_ref().unwrap_or(module);
    let main = module.func(&main.name).unwrap_or(main);
    let graph = Graph { name: module.name.clone(), ..Graph::default() };
    let mut b = Builder {
        module,
        graph,
        seen: FxHashMap::default(),
        pad_contraction: options.pad_contraction,
        imports: FxHashMap::default(),
        binds: Vec::new(),
        outer: Vec::new(),
        rebuilt: 0,
        selections: 0,
    };
    let mut env = Env::default();
    for (i, p) in main.params.iter().enumerate() {
        let t = b.tensor(main, p.value, "parameter", p.loc)?;
        let name = module.locs.name(p.loc).unwrap_or("").to_owned();
        let value = b.parameter(i as u32, &t, name);
        if p.attrs.get("tf.aliasing_output").is_some() || p.attrs.flag("jax.buffer_donor") {
            b.graph.donated.extend(b.graph.params.last().copied());
        }
        env.insert(p.value, value);
    }
    let outputs = b.block(main, &main.body, &mut env, 0, None)?;
    b.graph.outputs = outputs.into_iter().map(|v| b.output(v)).collect();
    b.graph.prune(true);
    b.graph.separate_outputs();
    narrow_operands(&mut b.graph);
    own_operands(&mut b.graph, false);
    Ok(b.graph)
}

type Env = FxHashMap<ValueId, Value>;

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
    /// In a region: nodes of the graph around, and what stands for them here.
    imports: FxHashMap<NodeId, NodeId>,
    /// In a region: what its parameters stand for.
    binds: Vec<region::Bind>,
    /// The graphs around this one, the next one last.
    outer: Vec<region::Frame>,
    /// Regions that were built more than once.
    rebuilt: usize,
    /// Choices that became selections.
    selections: usize,
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
        if !holds(t.dtype) && wide::part_of(t.dtype).is_none() {
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

    fn block(
        &mut self,
        f: &Func,
        block: &Block,
        env: &mut Env,
        depth: usize,
        site: Option<&(String, String)>,
    ) -> Result<Vec<Value>, LowerError> {
        for op in &block.ops {
            let args: Vec<Value> = op.operands.iter().filter_map(|v| env.get(v).copied()).collect();
            if args.len() != op.operands.len() {
                return Err(self.error(op.opcode.name(), op.loc, "an operand has no value"));
            }
            if op.opcode == Opcode::Return {
                return Ok(args);
            }
            let results = match op.opcode {
                Opcode::While | Opcode::If | Opcode::Case => self.control(f, op, &args, env, depth, site),
                _ => match self.with_quantized(f, op, &args, site) {
                    Some(r) => r,
                    None => match self.with_function(f, op, &args, env, site) {
                        Some(r) => r,
                        None => self.op(f, op, args, depth, site),
                    },
                },
            };
            let results = results.map_err(|e| self.placed(e, op, site))?;
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
        args: Vec<Value>,
        depth: usize,
        site: (String, String),
    ) -> Result<Vec<Value>, LowerError> {
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
        args: Vec<Value>,
        depth: usize,
        outer: Option<&(String, String)>,
    ) -> Result<Vec<Value>, LowerError> {
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
            Opcode::GetDimensionSize if matches!(&op.results[..], [_]) => {
                let t = self.tensor(f, op.results[0], op.opcode.name(), op.loc)?;
                let d = op.attrs.int("dimension").and_then(|d| usize::try_from(d).ok());
                let dims = args.first().and_then(|v| v.nodes().next()).map(|n| self.node(n).dims.clone());
                let whole = op.operands.first().and_then(|&v| f.ty(v).tensor()).map(|t| t.dims.len());
                let size = d.filter(|&d| whole.is_some_and(|r| d < r)).and_then(|d| dims?.get(d).copied());
                let Some(size) = size.and_then(|n| i32::try_from(n).ok()) else {
                    return Err(self.error(op.opcode.name(), op.loc, "names a dimension that its operand lacks"));
                };
                return Ok(vec![Value::One(self.constant(bits_to_bytes(size, t.dtype), &t, "constant", site))]);
            }
            // Shapes are static by now, so operands that give them say nothing new.
            Opcode::DynamicBroadcastInDim | Opcode::DynamicReshape | Opcode::DynamicIota => {
                let (opcode, data) = match op.opcode {
                    Opcode::DynamicBroadcastInDim => (Opcode::BroadcastInDim, 1),
                    Opcode::DynamicReshape => (Opcode::Reshape, 1),
                    _ => (Opcode::Iota, 0),
                };
                let same = Op { opcode, operands: op.operands[..data.min(op.operands.len())].to_vec(), ..op.clone() };
                return self.op(f, &same, args[..data.min(args.len())].to_vec(), depth, outer);
            }
            Opcode::Gather => return self.gather(f, op, &args, &site),
            Opcode::Scatter => return self.scatter(f, op, &args, &site),
            Opcode::GetDimensionSize => {
                let dims =
                    op.operands.first().and_then(|&x| f.ty(x).tensor()).map(|t| t.dims.clone()).unwrap_or_default();
                let at = op.attrs.int("dimension").and_then(|d| usize::try_from(d).ok());
                let size = at.and_then(|d| dims.get(d)).and_then(|&n| i32::try_from(n).ok());
                let Some(size) = size else { return Err(self.error(op.opcode.name(), op.loc, "is more than an i32")) };
                let scalar = Shape { dims: vec![], dtype: DType::I32 };
                let id = self.constant(size.to_le_bytes().to_vec().into(), &scalar, "get_dimension_size", site);
                return Ok(vec![Value::One(id)]);
            }
            _ => {}
        }
        if let Some(plain) = implicit::without_broadcast(op.opcode) {
            let args = self.alike(f, op, &args, &site)?;
            return self.op(f, &Op { opcode: plain, ..op.clone() }, args, depth, outer);
        }
        let pair = |v: &ValueId| f.ty(*v).tensor().is_some_and(|t| wide::part_of(t.dtype).is_some());
        let single: Option<Vec<NodeId>> = args.iter().map(|v| v.one()).collect();
        let Some(args) = single.filter(|_| !op.results.iter().any(pair)) else {
            return self.wide(f, op, &args, site);
        };
        self.narrow(f, op, args, site).map(|ids| ids.into_iter().map(Value::One).collect())
    }

    /// An operation whose operands and results are one array each.
    fn narrow(
        &mut self,
        f: &Func,
        op: &Op,
        args: Vec<NodeId>,
        site: (String, String),
    ) -> Result<Vec<NodeId>, LowerError> {
        if let Some(r) = self.communication(f, op, &args, &site) {
            return r;
        }
        if let (Opcode::Reduce, &[a, b]) = (op.opcode, &op.results[..]) {
            let t = [self.tensor(f, a, op.opcode.name(), op.loc)?, self.tensor(f, b, op.opcode.name(), op.loc)?];
            return self.reduce_with_index(op, &args, &t, &site);
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
