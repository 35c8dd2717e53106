//! The operations: each is declared once, with its arity, its shape rule and its reference semantics.
//!
//! One file per family; a family is a static slice of [`OpDef`]s, one line an op, and [`FAMILIES`] lists the families. To add
//! an op, add a line to its family. An op that the evaluator does not know says so with [`Eval::Unsupported`].

mod site;

mod math;
mod region;
mod rules;

pub mod attention;
mod attention_parts;
mod binary;
mod collective;
mod compare;
mod complex;
mod complex_log;
mod control;
mod convolution;
mod custom;
mod dot;
mod dynamic;
mod einsum;
mod elementwise;
mod fft;
mod gather;
mod linalg;
mod norm;
mod quant;
mod ragged;
mod reduce;
mod rng;
mod scan;
mod scatter;
mod shape;
mod slice;
mod sort;
mod special;
mod unary;
mod window;

pub(crate) use collective::{groups_of, pairs_of};

pub use elementwise::{BinaryFns, UnaryFns};
pub(crate) use elementwise::{eval_binary, eval_unary};
pub(crate) use quant::eval_quantized;
pub(crate) use rules::types_agree;
pub use site::{RuleError, Site};

use crate::eval::{EvalOptions, Fault, Frame, Tensor, Value};
use crate::hlo::{Opcode, Type};

/// How many operands or regions an op has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// Just so many.
    Exactly(usize),
    /// So many or more.
    AtLeast(usize),
}

impl Arity {
    /// Whether `n` is such a number.
    pub fn fits(self, n: usize) -> bool {
        match self {
            Arity::Exactly(k) => n == k,
            Arity::AtLeast(k) => n >= k,
        }
    }
}

/// Shape rule of an op.
#[derive(Clone, Copy)]
pub enum Rule {
    /// The types of the results follow from operands and attributes.
    Infer(fn(&Site<'_>) -> Result<Vec<Type>, RuleError>),
    /// The declared types of the results are checked.
    Check(fn(&Site<'_>) -> Result<(), RuleError>),
}

/// An evaluation that may run regions and call functions.
pub type EvalValues = for<'m> fn(&mut Frame<'m>, &Site<'m>, Vec<Value>) -> Result<Vec<Value>, Fault>;

/// An evaluation of tensors with one result.
pub type EvalTensor = fn(&Site<'_>, &[&Tensor]) -> Result<Tensor, Fault>;

/// An evaluation of tensors that heeds the evaluator's options.
pub type EvalTensors = fn(&Site<'_>, &[&Tensor], &EvalOptions) -> Result<Vec<Tensor>, Fault>;

/// Reference semantics of an op.
#[derive(Clone, Copy)]
pub enum Eval {
    /// One element at a time, of one operand.
    Unary(&'static UnaryFns),
    /// One element at a time, of two operands.
    Binary(&'static BinaryFns),
    /// A function of tensors with one result.
    Tensor(EvalTensor),
    /// A function of tensors and the evaluator's options.
    Tensors(EvalTensors),
    /// Anything else.
    Values(EvalValues),
    /// The evaluator does not know it.
    Unsupported,
}

/// What there is to know about an op.
pub struct OpDef {
    /// Which op.
    pub opcode: Opcode,
    /// Operands it takes.
    pub operands: Arity,
    /// Regions it has.
    pub regions: Arity,
    /// Shape rule.
    pub rule: Rule,
    /// Reference semantics.
    pub eval: Eval,
    /// Whether `eval` handles quantized tensors.
    pub quantized: bool,
}

impl OpDef {
    const fn new(opcode: Opcode, operands: Arity, rule: Rule, eval: Eval) -> OpDef {
        OpDef { opcode, operands, regions: Arity::Exactly(0), rule, eval, quantized: false }
    }

    const fn regions(mut self, regions: Arity) -> OpDef {
        self.regions = regions;
        self
    }

    const fn quantized(mut self) -> OpDef {
        self.quantized = true;
        self
    }
}

/// Ops that belong together.
pub struct Family {
    /// Name of the family, that of its file.
    pub name: &'static str,
    /// Its ops.
    pub ops: &'static [OpDef],
}

/// All families. Every opcode is in one of them.
pub static FAMILIES: &[Family] = &[
    Family { name: "unary", ops: unary::OPS },
    Family { name: "binary", ops: binary::OPS },
    Family { name: "special", ops: special::OPS },
    Family { name: "compare", ops: compare::OPS },
    Family { name: "complex", ops: complex::OPS },
    Family { name: "shape", ops: shape::OPS },
    Family { name: "slice", ops: slice::OPS },
    Family { name: "dynamic", ops: dynamic::OPS },
    Family { name: "dot", ops: dot::OPS },
    Family { name: "einsum", ops: einsum::OPS },
    Family { name: "ragged", ops: ragged::OPS },
    Family { name: "convolution", ops: convolution::OPS },
    Family { name: "reduce", ops: reduce::OPS },
    Family { name: "scan", ops: scan::OPS },
    Family { name: "window", ops: window::OPS },
    Family { name: "gather", ops: gather::OPS },
    Family { name: "scatter", ops: scatter::OPS },
    Family { name: "sort", ops: sort::OPS },
    Family { name: "rng", ops: rng::OPS },
    Family { name: "norm", ops: norm::OPS },
    Family { name: "linalg", ops: linalg::OPS },
    Family { name: "fft", ops: fft::OPS },
    Family { name: "quant", ops: quant::OPS },
    Family { name: "control", ops: control::OPS },
    Family { name: "custom", ops: custom::OPS },
    Family { name: "collective", ops: collective::OPS },
];

/// The definition of `opcode`; `None` only for [`Opcode::Return`], which is part of its block.
pub fn lookup(opcode: Opcode) -> Option<&'static OpDef> {
    static TABLE: std::sync::OnceLock<Vec<Option<&'static OpDef>>> = std::sync::OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = vec![None; Opcode::ALL.len()];
        for def in FAMILIES.iter().flat_map(|f| f.ops) {
            table[def.opcode as usize] = Some(def);
        }
        table
    });
    table[opcode as usize]
}
