//! An operation in its surroundings, with checked access to its parts.

use crate::hlo::{Attr, Block, Func, Module, Op, TensorType, Type};

/// An operation does not follow its shape rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RuleError(pub String);

impl RuleError {
    pub(crate) fn new(message: impl Into<String>) -> RuleError {
        RuleError(message.into())
    }
}

/// Fails with `message` unless `ok`.
pub(crate) fn ensure(ok: bool, message: impl FnOnce() -> String) -> Result<(), RuleError> {
    if ok { Ok(()) } else { Err(RuleError(message())) }
}

/// An operation, its function and its module.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The module.
    pub module: &'a Module,
    /// The function.
    pub func: &'a Func,
    /// The operation.
    pub op: &'a Op,
}

impl<'a> Site<'a> {
    /// Type of operand `i`.
    ///
    /// # Errors
    /// When there is no such operand.
    pub fn operand_type(&self, i: usize) -> Result<&'a Type, RuleError> {
        let v = self.op.operands.get(i).ok_or_else(|| RuleError(format!("operand {i} is missing")))?;
        Ok(self.func.ty(*v))
    }

    /// Type of operand `i`, a tensor.
    ///
    /// # Errors
    /// When there is no such operand, or when it is no tensor.
    pub fn operand(&self, i: usize) -> Result<&'a TensorType, RuleError> {
        let ty = self.operand_type(i)?;
        ty.tensor().ok_or_else(|| RuleError(format!("operand {i} should be a tensor, is {ty}")))
    }

    /// Type of result `i`, a tensor.
    ///
    /// # Errors
    /// When there is no such result, or when it is no tensor.
    pub fn result(&self, i: usize) -> Result<&'a TensorType, RuleError> {
        let v = self.op.results.get(i).ok_or_else(|| RuleError(format!("result {i} is missing")))?;
        let ty = self.func.ty(*v);
        ty.tensor().ok_or_else(|| RuleError(format!("result {i} should be a tensor, is {ty}")))
    }

    /// Types of all operands.
    pub fn operand_types(&self) -> Vec<Type> {
        self.op.operands.iter().map(|v| self.func.ty(*v).clone()).collect()
    }

    /// Types of all results.
    pub fn result_types(&self) -> Vec<Type> {
        self.op.results.iter().map(|v| self.func.ty(*v).clone()).collect()
    }

    /// The integers `name`.
    ///
    /// # Errors
    /// When there is no such attribute.
    pub fn ints(&self, name: &str) -> Result<&'a [i64], RuleError> {
        self.op.attrs.ints(name).ok_or_else(|| RuleError(format!("needs the integer list `{name}`")))
    }

    /// The `n` integers `name`, or `n` times `default`.
    ///
    /// # Errors
    /// When their number is not `n`.
    pub fn ints_or(&self, name: &str, default: i64, n: usize) -> Result<Vec<i64>, RuleError> {
        match self.op.attrs.ints(name) {
            None => Ok(vec![default; n]),
            Some(v) if v.len() == n => Ok(v.to_vec()),
            Some(v) => Err(RuleError(format!("`{name}` should have {n} entries, has {}", v.len()))),
        }
    }

    /// The `n` booleans `name`, all `false` if absent.
    ///
    /// # Errors
    /// When their number is not `n`.
    pub fn bools_or_false(&self, name: &str, n: usize) -> Result<Vec<bool>, RuleError> {
        match self.op.attrs.get(name) {
            None => Ok(vec![false; n]),
            Some(Attr::Bools(v)) if v.len() == n => Ok(v.clone()),
            Some(_) => Err(RuleError(format!("`{name}` should be a list of {n} booleans"))),
        }
    }

    /// The `n` pairs `name`, all zero if absent.
    ///
    /// # Errors
    /// When their number is not `n`.
    pub fn pairs_or_zero(&self, name: &str, n: usize) -> Result<Vec<[i64; 2]>, RuleError> {
        match self.op.attrs.get(name) {
            None => Ok(vec![[0, 0]; n]),
            Some(Attr::Pairs(v)) if v.len() == n => Ok(v.clone()),
            Some(_) => Err(RuleError(format!("`{name}` should be {n} pairs"))),
        }
    }

    /// The integer `name`.
    ///
    /// # Errors
    /// When there is no such attribute.
    pub fn int(&self, name: &str) -> Result<i64, RuleError> {
        self.op.attrs.int(name).ok_or_else(|| RuleError(format!("needs the integer `{name}`")))
    }

    /// The dimension `name` of a tensor of rank `rank`.
    ///
    /// # Errors
    /// When there is no such attribute, or when it is out of range.
    pub fn dim(&self, name: &str, rank: usize) -> Result<usize, RuleError> {
        in_range(self.int(name)?, rank).ok_or_else(|| RuleError(format!("`{name}` is out of range for rank {rank}")))
    }

    /// The dimensions `name` of a tensor of rank `rank`, which must differ.
    ///
    /// # Errors
    /// When there is no such attribute, when one is out of range or occurs twice.
    pub fn dims(&self, name: &str, rank: usize) -> Result<Vec<usize>, RuleError> {
        distinct(name, self.ints(name)?, rank)
    }

    /// Block of region `i`.
    ///
    /// # Errors
    /// When there is no such region.
    pub fn block(&self, i: usize) -> Result<&'a Block, RuleError> {
        self.op.regions.get(i).map(|r| &r.block).ok_or_else(|| RuleError(format!("region {i} is missing")))
    }

    /// Where the op comes from, for messages: `file:line`, the name, or the function.
    pub fn loc(&self) -> String {
        match (self.module.locs.file_line(self.op.loc), self.module.locs.name(self.op.loc)) {
            (Some((file, line)), _) => format!("{file}:{line}"),
            (None, Some(name)) => name.to_owned(),
            (None, None) => format!("@{}", self.func.name),
        }
    }
}

/// `d` as an index below `rank`.
pub(crate) fn in_range(d: i64, rank: usize) -> Option<usize> {
    usize::try_from(d).ok().filter(|&d| d < rank)
}

/// `dims` as distinct indices below `rank`.
pub(crate) fn distinct(name: &str, dims: &[i64], rank: usize) -> Result<Vec<usize>, RuleError> {
    let mut out = Vec::with_capacity(dims.len());
    for &d in dims {
        let i = in_range(d, rank).ok_or_else(|| RuleError(format!("`{name}`: {d} is out of range for rank {rank}")))?;
        ensure(!out.contains(&i), || format!("`{name}` names dimension {d} twice"))?;
        out.push(i);
    }
    Ok(out)
}
