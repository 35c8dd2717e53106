//! One activation of a function.

use crate::hlo::{Block, Func, Module, Op, Opcode, ValueId};
use crate::ops::{self, Eval, RuleError, Site};

use super::devices::{Grid, Shared, run_devices};
use super::{EvalError, EvalOptions, Tensor, Value};

/// Why an op could not be evaluated; the frame adds which op it was.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The evaluator does not know this form of the op.
    Unsupported(String),
    /// The operands do not fit the op.
    Invalid(String),
    /// An op of a nested region failed.
    Nested(Box<EvalError>),
}

impl Fault {
    /// Something the verifier should have refused.
    pub fn invalid(message: impl Into<String>) -> Fault {
        Fault::Invalid(message.into())
    }

    /// What is wrong, for messages that say where.
    pub fn message(&self) -> String {
        match self {
            Fault::Unsupported(m) | Fault::Invalid(m) => m.trim().to_owned(),
            Fault::Nested(e) => e.to_string(),
        }
    }
}

impl From<RuleError> for Fault {
    fn from(e: RuleError) -> Fault {
        Fault::Invalid(e.0)
    }
}

impl From<EvalError> for Fault {
    fn from(e: EvalError) -> Fault {
        Fault::Nested(Box::new(e))
    }
}

/// A function being evaluated: its values so far.
pub struct Frame<'m> {
    /// The program.
    pub module: &'m Module,
    /// The function.
    pub func: &'m Func,
    /// Knobs.
    pub options: &'m EvalOptions,
    shared: &'m Shared<'m>,
    env: Vec<Option<Value>>,
}

/// Runs `func` on `args`, which must fit its parameters.
pub(super) fn run(
    module: &Module,
    func: &Func,
    args: Vec<Value>,
    options: &EvalOptions,
    shared: &Shared<'_>,
) -> Result<Vec<Value>, EvalError> {
    let mut frame = Frame { module, func, options, shared, env: vec![None; func.values.len()] };
    for (p, v) in func.params.iter().zip(args) {
        frame.env[usize::from(p.value)] = Some(v);
    }
    frame.ops(&func.body, Some(&last_uses(func)))
}

/// For each value, the op of the function's body that reads it last, itself or in a region.
fn last_uses(func: &Func) -> Vec<usize> {
    let mut last = vec![usize::MAX; func.values.len()];
    for (i, op) in func.body.ops.iter().enumerate() {
        reads(op, &mut |v| last[usize::from(v)] = i);
    }
    last
}

fn reads(op: &Op, f: &mut impl FnMut(ValueId)) {
    op.operands.iter().for_each(|&v| f(v));
    op.regions.iter().flat_map(|r| &r.block.ops).for_each(|op| reads(op, f));
}

/// Calls and regions inside one another, so that no program overflows the stack.
const MAX_DEPTH: u32 = 128;

impl<'m> Frame<'m> {
    /// Calls the function `name`.
    ///
    /// # Errors
    /// When there is no such function, or when it fails.
    pub fn call(&self, name: &str, args: Vec<Value>) -> Result<Vec<Value>, Fault> {
        let func = self.module.func(name).ok_or_else(|| EvalError::NoFunction(name.to_owned()))?;
        if func.params.len() != args.len() {
            return Err(Fault::invalid(format!("`{name}` takes {} arguments", func.params.len())));
        }
        Ok(run(self.module, func, args, self.options, self.shared)?)
    }

    /// Runs a region of the function on `args`.
    ///
    /// # Errors
    /// When the number of arguments is wrong, or when an op fails.
    pub fn region(&mut self, block: &'m Block, args: Vec<Value>) -> Result<Vec<Value>, Fault> {
        if block.args.len() != args.len() {
            return Err(Fault::invalid(format!("a region takes {} arguments, not {}", block.args.len(), args.len())));
        }
        for (&a, v) in block.args.iter().zip(args) {
            self.env[usize::from(a)] = Some(v);
        }
        Ok(self.block(block)?)
    }

    /// Runs a region that sees nothing of its surroundings on `n` devices, each on its own arguments.
    ///
    /// # Errors
    /// When arguments are missing, or when an op fails on a device.
    pub(crate) fn on_devices(
        &self,
        n: usize,
        block: &'m Block,
        args: impl Fn(usize) -> Result<Vec<Value>, Fault>,
    ) -> Result<Vec<Vec<Value>>, Fault> {
        let args: Vec<Vec<Value>> = (0..n).map(args).collect::<Result<_, _>>()?;
        let (module, func, options) = (self.module, self.func, self.options);
        let grid = Grid { replicas: 1, partitions: n };
        Ok(run_devices(grid, options, |shared, id| {
            let mut env = vec![None; func.values.len()];
            for (&a, v) in block.args.iter().zip(&args[id]) {
                env[usize::from(a)] = Some(v.clone());
            }
            Frame { module, func, options, shared, env }.block(block)
        })?)
    }

    /// Which device this is; `None` where the program runs on all of them as one.
    pub fn device(&self) -> Option<usize> {
        self.shared.device()
    }

    /// The devices there are.
    pub fn grid(&self) -> Grid {
        self.shared.grid()
    }

    /// Gives tensors to a group of devices at the collective `site`, and returns what all of them gave.
    pub(crate) fn exchange(
        &self,
        site: &Site<'_>,
        group: &[usize],
        tensors: Vec<Tensor>,
    ) -> Result<Vec<Vec<Tensor>>, Fault> {
        self.shared.exchange(site.op, group, tensors)
    }

    /// The value `v`, if it has been computed.
    pub fn value(&self, v: ValueId) -> Option<&Value> {
        self.env.get(usize::from(v))?.as_ref()
    }

    /// How many operations ran on this device so far.
    pub(crate) fn spent(&self) -> u64 {
        self.options.max_ops - self.shared.ops_left.get()
    }

    /// Takes one op from the budget.
    ///
    /// # Errors
    /// When there is none left.
    pub fn spend(&self, site: &Site<'_>) -> Result<(), EvalError> {
        match self.shared.ops_left.get().checked_sub(1) {
            Some(n) => self.shared.ops_left.set(n),
            None => return Err(EvalError::TooLong { loc: site.loc(), limit: self.options.max_ops }),
        }
        Ok(())
    }

    fn block(&mut self, block: &'m Block) -> Result<Vec<Value>, EvalError> {
        self.ops(block, None)
    }

    /// Runs the ops of a block. With `last`, values are dropped after their last use.
    fn ops(&mut self, block: &'m Block, last: Option<&[usize]>) -> Result<Vec<Value>, EvalError> {
        for (i, op) in block.ops.iter().enumerate() {
            let site = Site { module: self.module, func: self.func, op };
            let operands = self.operands(&site)?;
            if op.opcode == Opcode::Return {
                return Ok(operands);
            }
            // An op without regions reads nothing but its operands, which it has by now.
            if op.regions.is_empty() {
                self.forget(op, i, last);
            }
            let results = self.op(&site, operands)?;
            self.forget(op, i, last);
            for (&r, v) in op.results.iter().zip(results) {
                self.env[usize::from(r)] = Some(v);
            }
        }
        Ok(Vec::new())
    }

    /// Drops the values that op `i` of the body is the last to read.
    fn forget(&mut self, op: &Op, i: usize, last: Option<&[usize]>) {
        let Some(last) = last else { return };
        reads(op, &mut |v| {
            if last[usize::from(v)] == i {
                self.env[usize::from(v)] = None;
            }
        });
    }

    fn operands(&self, site: &Site<'_>) -> Result<Vec<Value>, EvalError> {
        let missing = |v: &ValueId| locate(site, Fault::invalid(format!("value {} is not defined", v.0)));
        site.op.operands.iter().map(|v| self.value(*v).cloned().ok_or_else(|| missing(v))).collect()
    }

    fn op(&mut self, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, EvalError> {
        self.spend(site)?;
        self.check_size(site)?;
        let depth = &self.shared.depth;
        if depth.get() >= MAX_DEPTH {
            return Err(EvalError::TooDeep { loc: site.loc(), limit: MAX_DEPTH });
        }
        depth.set(depth.get() + 1);
        let results = self.dispatch(site, operands).map_err(|f| locate(site, f));
        self.shared.depth.set(self.shared.depth.get() - 1);
        let results = results?;
        let fits = |(&r, v): (&ValueId, &Value)| v.has_type(self.func.ty(r));
        if results.len() != site.op.results.len() || !site.op.results.iter().zip(&results).all(fits) {
            return Err(locate(site, Fault::invalid("the evaluator's results do not have the declared types")));
        }
        Ok(results)
    }

    fn check_size(&self, site: &Site<'_>) -> Result<(), EvalError> {
        let limit = self.options.max_tensor_bytes;
        for r in &site.op.results {
            let Some(t) = self.func.ty(*r).tensor() else { continue };
            let bytes = t.bytes().unwrap_or(u64::MAX);
            if bytes > limit {
                return Err(EvalError::TooLarge { op: site.op.opcode.name(), loc: site.loc(), bytes, limit });
            }
        }
        Ok(())
    }

    fn dispatch(&mut self, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
        let def = ops::lookup(site.op.opcode).ok_or_else(|| Fault::Unsupported(String::new()))?;
        let quantized = |v: &ValueId| self.func.ty(*v).tensor().is_some_and(|t| t.quant.is_some());
        if !def.quantized && site.op.operands.iter().chain(&site.op.results).any(quantized) {
            let tensors: Vec<&Tensor> = operands.iter().filter_map(Value::tensor).collect();
            let results = ops::eval_quantized(site, &def.eval, &tensors, self.options)?;
            return Ok(results.into_iter().map(Value::Tensor).collect());
        }
        match def.eval {
            Eval::Values(f) => return f(self, site, operands),
            Eval::Unsupported => return Err(Fault::Unsupported(String::new())),
            _ => {}
        }
        let tensors: Option<Vec<&Tensor>> = operands.iter().map(Value::tensor).collect();
        let tensors = tensors.ok_or_else(|| Fault::invalid("an operand is not a tensor"))?;
        let results = match def.eval {
            Eval::Unary(f) => vec![ops::eval_unary(site, f, &tensors)?],
            Eval::Binary(f) => vec![ops::eval_binary(site, f, &tensors)?],
            Eval::Tensor(f) => vec![f(site, &tensors)?],
            Eval::Tensors(f) => f(site, &tensors, self.options)?,
            Eval::Values(_) | Eval::Unsupported => Vec::new(),
        };
        Ok(results.into_iter().map(Value::Tensor).collect())
    }
}

fn locate(site: &Site<'_>, fault: Fault) -> EvalError {
    let (op, loc) = (site.op.opcode.name(), site.loc());
    match fault {
        Fault::Unsupported(what) => EvalError::Unsupported { op, loc, what },
        Fault::Invalid(message) => EvalError::Invalid { op, loc, message },
        Fault::Nested(e) => *e,
    }
}

/// The op that ends a block and what it returns, for code that looks into regions.
pub(crate) fn terminator(block: &Block) -> Option<&Op> {
    block.ops.last().filter(|op| op.opcode == Opcode::Return)
}
