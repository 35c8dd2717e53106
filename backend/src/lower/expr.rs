//! Expressions of a kernel: the values a fusion computes, over the kernel's canonical dimensions.
//!
//! A kernel iterates over canonical dimensions `0 .. n`; the last two are rows (sublanes) and columns (lanes). Each value says which
//! dimensions it *varies* over. A value that does not vary over columns is the same in all lanes of a register, one that does
//! not vary over rows the same in all sublanes, so broadcasts cost nothing inside a kernel.

use tpusim_isa::num::DType;

use crate::graph::Counter;

use super::emit::{EmitError, Emitter};
use super::math::{Combine, MapOp, Types, Val, map};
use super::scalar::ScalarIx;
use super::vcode::Code;

/// Index of a value in its kernel's list.
pub type NodeIx = usize;

/// A strided view of an HBM buffer over the kernel's canonical dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Buffer, as the planner numbers them.
    pub buffer: usize,
    /// Byte offset of the element at index zero.
    pub offset: i64,
    /// Bytes per step of each canonical dimension; 0 where the view does not vary.
    pub strides: Vec<i64>,
    /// What moves it, known when the kernel starts.
    pub shifts: Vec<Shift>,
}

/// A scalar that moves an access: `min(max(scalar, 0), limit) * stride` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shift {
    /// Which of the kernel's scalars.
    pub scalar: ScalarIx,
    /// The largest index.
    pub limit: i32,
    /// Bytes per step of the index.
    pub stride: i64,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Read from HBM.
    Load(Access),
    /// The accumulated result of the kernel's matrix product.
    Product,
    /// The same bits everywhere (booleans are 0 or 1).
    Splat(i32),
    /// The index along a canonical dimension.
    Iota(usize),
    /// A value that follows the iterations of a loop around the kernel.
    Counter(Counter),
    /// An elementwise operation; the type is that of its first operand that is not a predicate.
    Map(MapOp, DType),
    /// Reduction over the columns.
    RowReduce(Combine),
    /// Reduction over rows and other dimensions but the columns; the mask of dimensions that disappear.
    ColReduce(Combine, u32),
}

/// A value of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// Operands.
    pub args: Vec<NodeIx>,
    /// Element type.
    pub dtype: DType,
    /// Bit `d` is set if the value varies over canonical dimension `d`.
    pub varies: u32,
}

/// Registers of one value in one cell: one per 8 rows, or a single one if the value does not vary over rows.
pub type Parts = Vec<Val>;

/// Computes an elementwise node from its operands' parts.
pub fn map_parts(c: &mut Code, nodes: &[Node], n: NodeIx, args: &[Parts]) -> Parts {
    let node = &nodes[n];
    let Kind::Map(op, operand) = node.kind else { return args.first().cloned().unwrap_or_default() };
    let len = args.iter().map(Vec::len).max().unwrap_or(1);
    let types = Types { operand, result: node.dtype };
    (0..len)
        .map(|i| {
            let row: Vec<Val> = args.iter().map(|a| a[i % a.len()]).collect();
            map(c, op, types, &row)
        })
        .collect()
}

/// A splat constant as registers hold it.
pub fn splat(c: &mut Code, bits: i32, dtype: DType) -> Val {
    if dtype == DType::I1 {
        let (x, zero) = (c.imm(bits), c.imm(0));
        return Val::M(c.cmp(tpusim_isa::op::Op::VNeI, x, zero));
    }
    Val::V(c.imm(bits))
}

/// A counter as registers hold it.
///
/// # Errors
/// [`EmitError::Scalars`].
pub fn counter(e: &mut Emitter<'_>, c: Counter) -> Result<Val, EmitError> {
    let r = e.counter(c)?;
    let v = e.code.bcast(r);
    e.free(r);
    Ok(Val::V(v))
}
