//! Products that name their dimensions with letters.

use super::dot::{Sizes, matmul, rounds_to_bf16};
use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, shape};
use crate::eval::strided::{read, strides};
use crate::eval::{EvalOptions, Fault, Tensor};
use crate::hlo::{Opcode, TensorType};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::Einsum, Arity::Exactly(2), Rule::Check(rule), Eval::Tensors(einsum)),
    OpDef::new(Opcode::UnaryEinsum, Arity::Exactly(1), Rule::Check(rule), Eval::Tensors(einsum)),
];

/// A dimension of the product: a letter, or one that `...` stands for, counted from the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Letter(char),
    Other(usize),
}

struct Spec {
    operands: Vec<Vec<Label>>,
    result: Vec<Label>,
    sizes: Vec<(Label, i64)>,
}

/// The labels of `text` for a tensor of rank `rank`; of a rank not known, `...` stands for `others` dimensions.
fn labels(text: &str, rank: Option<usize>, others: usize) -> Result<Vec<Label>, RuleError> {
    let text = text.trim();
    let letters = text.chars().filter(|c| c.is_ascii_alphabetic()).count();
    let dots = text.matches("...").count();
    let known = text.chars().all(|c| c.is_ascii_alphabetic() || c == '.') && text.matches('.').count() == 3 * dots;
    ensure(known && dots <= 1, || format!("`{text}` should be letters and at most one `...`"))?;
    let hidden = match rank {
        Some(r) => r.checked_sub(letters).filter(|&n| n == 0 || dots == 1),
        None => Some(if dots == 1 { others } else { 0 }),
    };
    let hidden = hidden.ok_or_else(|| RuleError(format!("`{text}` does not name {} dimensions", rank.unwrap_or(0))))?;
    let mut out = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '.' {
            out.extend((0..hidden).rev().map(Label::Other));
            while chars.next_if_eq(&'.').is_some() {}
        } else {
            out.push(Label::Letter(c));
        }
    }
    Ok(out)
}

fn spec(site: &Site<'_>) -> Result<Spec, RuleError> {
    let text = site.op.attrs.text("einsum_config").ok_or_else(|| RuleError::new("needs the string `einsum_config`"))?;
    let (from, to) = text.split_once("->").ok_or_else(|| RuleError(format!("`{text}` should have a `->`")))?;
    let parts: Vec<&str> = from.split(',').collect();
    let n = site.op.operands.len();
    ensure(parts.len() == n, || format!("`{text}` should name {n} operands"))?;
    let mut sizes: Vec<(Label, i64)> = Vec::new();
    let mut operands = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let t = site.operand(i)?;
        let l = labels(part, Some(t.rank()), 0)?;
        for (&label, &size) in l.iter().zip(&t.dims) {
            match sizes.iter_mut().find(|(l, _)| *l == label) {
                None => sizes.push((label, size)),
                Some((_, s)) if *s == 1 => *s = size,
                Some((_, s)) => {
                    ensure(*s == size || size == 1, || format!("`{text}`: a dimension is {s} and {size}"))?;
                }
            }
        }
        operands.push(l);
    }
    let others = sizes.iter().filter(|(l, _)| matches!(l, Label::Other(_))).count();
    let result = labels(to, None, others)?;
    for (i, l) in result.iter().enumerate() {
        let known = sizes.iter().any(|(k, _)| k == l) && !result[..i].contains(l);
        ensure(known, || format!("`{text}`: each dimension of the result should be one of the operands', once"))?;
    }
    Ok(Spec { operands, result, sizes })
}

impl Spec {
    fn size(&self, l: Label) -> i64 {
        self.sizes.iter().find(|(k, _)| *k == l).map_or(1, |(_, s)| *s)
    }

    fn dims(&self, l: &[Label]) -> Vec<i64> {
        l.iter().map(|&l| self.size(l)).collect()
    }
}

fn rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (s, r) = (spec(site)?, site.result(0)?);
    let dims = s.dims(&s.result);
    ensure(dims == r.dims, || format!("the result should have dimensions {dims:?}, is {r}"))
}

/// `x`, whose dimensions are `own`, with the dimensions `wanted`: diagonals where a label repeats, copies where one is missing.
fn arranged(s: &Spec, x: &Tensor, own: &[Label], wanted: &[Label]) -> Tensor {
    let shape = x.shape();
    let stride = strides(&shape);
    let step = |l: &Label| -> isize {
        own.iter().zip(&shape).zip(&stride).filter(|((o, n), _)| *o == l && **n != 1).map(|(_, s)| *s).sum()
    };
    let steps: Vec<isize> = wanted.iter().map(step).collect();
    let dims = s.dims(wanted);
    let out: Vec<usize> = dims.iter().map(|&d| d as usize).collect();
    Tensor::make(TensorType::new(dims, x.dtype()), read(x.bytes(), x.dtype().bytes(), &out, &steps, 0))
}

/// As a matrix product: labels of the result that both operands have are batching, those that one has are its rows, and the others
/// are summed over.
fn einsum(site: &Site<'_>, operands: &[&Tensor], options: &EvalOptions) -> Result<Vec<Tensor>, Fault> {
    let (s, ty) = (spec(site)?, site.result(0)?);
    let (left, nothing) = (&s.operands[0], Vec::new());
    let right = s.operands.get(1).unwrap_or(&nothing);
    let pick = |f: &dyn Fn(&Label) -> bool| s.sizes.iter().map(|(l, _)| *l).filter(f).collect::<Vec<_>>();
    let kept = |l: &Label| s.result.contains(l);
    let batch = pick(&|l| kept(l) && left.contains(l) && right.contains(l));
    let rows = pick(&|l| kept(l) && left.contains(l) && !right.contains(l));
    let columns = pick(&|l| kept(l) && !left.contains(l));
    let summed = pick(&|l| !kept(l));
    let a = arranged(&s, operands[0], left, &[batch.as_slice(), &rows, &summed].concat());
    let b = match operands.get(1) {
        Some(x) => arranged(&s, x, right, &[batch.as_slice(), &summed, &columns].concat()),
        None => shape::filled(&TensorType::new(s.dims(&summed), a.dtype()), 1),
    };
    let count = |l: &[Label]| s.dims(l).iter().map(|&d| d as usize).product::<usize>();
    let sizes = Sizes { batch: count(&batch), m: count(&rows), k: count(&summed), n: count(&columns) };
    // Ones are the same in bf16, but the operand must not be rounded for a sum.
    let bf16 = operands.len() == 2 && rounds_to_bf16(site, options);
    let order = [batch, rows, columns].concat();
    let product = matmul(&a, &b, sizes, &TensorType::new(s.dims(&order), ty.dtype), bf16)?;
    let place = |l: &Label| order.iter().position(|o| o == l).unwrap_or(0);
    Ok(vec![shape::permute(&product, &s.result.iter().map(place).collect::<Vec<_>>())])
}
