//! One function: calls, composites and named computations are replaced by what they do, so that every use of a function can be
//! sharded its own way.

use rustc_hash::FxHashMap;

use super::PartitionError;
use crate::hlo::{Attr, Block, Func, LocId, Module, Op, Opcode, Region, Type, ValueId};

/// Most operations after inlining.
const MAX_OPS: usize = 4_000_000;
/// Most calls and regions inside one another.
const MAX_DEPTH: usize = 200;

struct Inliner<'m> {
    module: &'m Module,
    out: Func,
    count: usize,
}

type Map = FxHashMap<ValueId, ValueId>;

/// The function `main` of `module` without calls.
pub(super) fn inline(module: &Module) -> Result<Func, PartitionError> {
    let main = module.func("main").or_else(|| module.funcs.iter().find(|f| f.public)).or(module.funcs.first());
    let main = main.ok_or_else(|| PartitionError::program("the module has no function"))?;
    let mut i = Inliner { module, out: main.clone_signature(), count: 0 };
    let mut map = Map::default();
    for p in &main.params {
        let value = i.out.new_value(main.ty(p.value).clone());
        map.insert(p.value, value);
        i.out.params.push(crate::hlo::Param { value, ..p.clone() });
    }
    i.out.results.clone_from(&main.results);
    i.out.attrs = main.attrs.clone();
    let mut ops = Vec::new();
    let results = i.block(main, &main.body, &mut map, &mut ops, 0)?;
    ops.push(ret(results, main.loc));
    i.out.body.ops = ops;
    Ok(i.out)
}

fn ret(operands: Vec<ValueId>, loc: LocId) -> Op {
    Op { opcode: Opcode::Return, operands, results: Vec::new(), attrs: Default::default(), regions: Vec::new(), loc }
}

impl Inliner<'_> {
    /// Appends the ops of `block` but for its return, whose operands it gives.
    fn block(
        &mut self,
        from: &Func,
        block: &Block,
        map: &mut Map,
        ops: &mut Vec<Op>,
        depth: usize,
    ) -> Result<Vec<ValueId>, PartitionError> {
        if depth > MAX_DEPTH {
            return Err(PartitionError::program(format!("more than {MAX_DEPTH} calls and regions inside one another")));
        }
        for op in &block.ops {
            let operands: Vec<ValueId> = op.operands.iter().filter_map(|v| map.get(v).copied()).collect();
            self.count += 1;
            if self.count > MAX_OPS {
                return Err(PartitionError::program(format!(
                    "more than {MAX_OPS} operations after inlining its calls"
                )));
            }
            let results = match op.opcode {
                Opcode::Return => return Ok(operands),
                Opcode::Call | Opcode::Composite => {
                    let name = if op.opcode == Opcode::Call { "callee" } else { "decomposition" };
                    let callee = op.attrs.text(name).and_then(|n| self.module.func(n));
                    let callee = callee.ok_or_else(|| PartitionError::program(format!("{} of nothing", op.opcode)))?;
                    let mut inner: Map = callee.params.iter().map(|p| p.value).zip(operands).collect();
                    self.block(callee, &callee.body, &mut inner, ops, depth + 1)?
                }
                Opcode::SdyNamedComputation => {
                    let Some(r) = op.regions.first() else { continue };
                    map.extend(r.block.args.iter().copied().zip(operands));
                    self.block(from, &r.block, map, ops, depth + 1)?
                }
                Opcode::SdyDataFlowEdge | Opcode::SdyPropagationBarrier => operands,
                Opcode::SdyShardingGroup => Vec::new(),
                _ => self.copy(from, op, operands, map, ops, depth)?,
            };
            map.extend(op.results.iter().copied().zip(results));
        }
        Ok(Vec::new())
    }

    fn copy(
        &mut self,
        from: &Func,
        op: &Op,
        operands: Vec<ValueId>,
        map: &mut Map,
        ops: &mut Vec<Op>,
        depth: usize,
    ) -> Result<Vec<ValueId>, PartitionError> {
        let mut regions = Vec::new();
        for r in &op.regions {
            let args: Vec<ValueId> = r.block.args.iter().map(|&a| self.out.new_value(from.ty(a).clone())).collect();
            map.extend(r.block.args.iter().copied().zip(args.iter().copied()));
            let mut inner = Vec::new();
            let results = self.block(from, &r.block, map, &mut inner, depth + 1)?;
            inner.push(ret(results, op.loc));
            regions.push(Region { block: Block { args, ops: inner } });
        }
        let results: Vec<ValueId> = op.results.iter().map(|&v| self.out.new_value(from.ty(v).clone())).collect();
        let copy =
            Op { opcode: op.opcode, operands, results: results.clone(), attrs: op.attrs.clone(), regions, loc: op.loc };
        ops.push(copy);
        Ok(results)
    }
}

/// Gives every use of a value that costs nothing to make its own copy, so that one use does not decide how another is cut.
pub(super) fn split_free(func: &mut Func) {
    let mut free: FxHashMap<ValueId, Op> = FxHashMap::default();
    let mut body = std::mem::take(&mut func.body);
    split_block(func, &mut body, &mut free);
    func.body = body;
}

/// Whether `op` makes its result from nothing.
fn is_free(func: &Func, op: &Op) -> bool {
    let rank = |v: &ValueId| func.ty(*v).tensor().map_or(0, |t| t.rank());
    match op.opcode {
        Opcode::Iota => true,
        Opcode::Constant => matches!(op.attrs.get("value"), Some(Attr::Dense(l)) if l.is_splat()),
        Opcode::BroadcastInDim => op.operands.iter().all(|v| rank(v) == 0),
        _ => false,
    }
}

fn split_block(func: &mut Func, block: &mut Block, free: &mut FxHashMap<ValueId, Op>) {
    let mut ops = Vec::with_capacity(block.ops.len());
    for mut op in std::mem::take(&mut block.ops) {
        for v in &mut op.operands {
            let Some(def) = free.get(v) else { continue };
            let mut def = def.clone();
            let Type::Tensor(ty) = func.ty(*v).clone() else { continue };
            let copy = func.new_value(Type::Tensor(ty));
            def.results = vec![copy];
            ops.push(def);
            *v = copy;
        }
        for r in &mut op.regions {
            split_block(func, &mut r.block, free);
        }
        let scalar = |func: &Func, v: &ValueId| func.ty(*v).tensor().is_none_or(|t| t.rank() == 0);
        if is_free(func, &op) && op.results.iter().all(|v| !scalar(func, v)) {
            // The original goes: every use has a copy.
            free.insert(op.results[0], op);
            continue;
        }
        ops.push(op);
    }
    block.ops = ops;
}
