//! One activation of a function.

use std::cell::Cell;

use crate::hlo::{Block, Func, Module, Op, Opcode, ValueId};
use crate::ops::{self, Eval, RuleError, Site};

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
    ops_left: &'m Cell<u64>,
    env: Vec<Option<Value>>,
}

/// Runs `func` on `args`, which must fit its parameters.
pub(super) fn run(
    module: &Module,
    func: &Func,
    args: Vec<Value>,
    options: &EvalOptions,
) -> Result<Vec<Value>, EvalError> {
    let ops_left = Cell::new(options.max_ops);
    call(module, func, args, options, &ops_left)
}

fn call(
    module: &Module,
    func: &Func,
    args: Vec<Value>,
    options: &EvalOptions,
    ops_left: &Cell<u64>,
) -> Result<Vec<Value>, EvalError> {
    let mut frame = Frame { module, func, options, ops_left, env: vec![None; func.values.len()] };
    for (p, v) in func.params.iter().zip(args) {
        frame.env[usize::from(p.value)] = Some(v);
    }
    frame.block(&func.body)
}

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
        Ok(call(self.module, func, args, self.options, self.ops_left)?)
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

    /// The value `v`, if it has been computed.
    pub fn value(&self, v: ValueId) -> Option<&Value> {
        self.env.get(usize::from(v))?.as_ref()
    }

    /// Takes one op from the budget.
    ///
    /// # Errors
    /// When there is none left.
    pub fn spend(&self, site: &Site<'_>) -> Result<(), EvalError> {
        match self.ops_left.get().checked_sub(1) {
            Some(n) => self.ops_left.set(n),
            None => return Err(EvalError::TooLong { loc: site.loc(), limit: self.options.max_ops }),
        }
        Ok(())
    }

    fn block(&mut self, block: &'m Block) -> Result<Vec<Value>, EvalError> {
        for op in &block.ops {
            let site = Site { module: self.module, func: self.func, op };
            let operands = self.operands(&site)?;
            if op.opcode == Opcode::Return {
                return Ok(operands);
            }
            let results = self.op(&site, operands)?;
            for (&r, v) in op.results.iter().zip(results) {
                self.env[usize::from(r)] = Some(v);
            }
        }
        Ok(Vec::new())
    }

    fn operands(&self, site: &Site<'_>) -> Result<Vec<Value>, EvalError> {
        let missing = |v: &ValueId| locate(site, Fault::invalid(format!("value {} is not defined", v.0)));
        site.op.operands.iter().map(|v| self.value(*v).cloned().ok_or_else(|| missing(v))).collect()
    }

    fn op(&mut self, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, EvalError> {
        self.spend(site)?;
        self.check_size(site)?;
        let results = self.dispatch(site, operands).map_err(|f| locate(site, f))?;
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
            return Err(Fault::Unsupported(" on quantized tensors".into()));
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
