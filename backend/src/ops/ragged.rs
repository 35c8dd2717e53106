//! CHLO's `ragged_dot`: a matrix product whose left operand is cut into groups along one dimension.
//!
//! Groups lie one behind another; `group_sizes` says how long each is. Where the ragged dimension is one of the rows, each group of
//! rows meets its own matrix, and rows behind the last group give zeros. Where it is summed over, each group has a product of its
//! own. Where it is a batching dimension, the groups change nothing.

use tpusim_isa::num::convert::int_value;

use super::dot::{Roles, product_of, split_dims};
use super::site::{ensure, in_range};
use super::{Arity, Eval, OpDef, Rule, RuleError, Site};
use crate::eval::strided::{next_index, read, strides};
use crate::eval::{EvalOptions, Fault, Tensor};
use crate::hlo::{Attr, DotDims, Opcode, TensorType};

pub(super) static OPS: &[OpDef] =
    &[OpDef::new(Opcode::ChloRaggedDot, Arity::Exactly(3), Rule::Check(rule), Eval::Tensors(ragged_dot))];

/// What the ragged dimension is to the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Rows,
    Summed,
    Batch,
}

struct Ragged {
    dims: DotDims,
    /// Ragged dimension of the left operand.
    along: usize,
    /// Group dimension of the right operand.
    group: Option<usize>,
    mode: Mode,
    groups: usize,
    /// Dimensions of the left operand that `group_sizes` runs along before the groups.
    outer: Vec<usize>,
}

/// The list `name` of `#chlo.ragged_dot<...>`.
fn list(text: &str, name: &str) -> Vec<i64> {
    let Some((_, rest)) = text.split_once(&format!("{name} = [")) else { return Vec::new() };
    let inner = rest.split(']').next().unwrap_or_default();
    inner.split(',').filter_map(|d| d.trim().parse().ok()).collect()
}

fn parse(site: &Site<'_>) -> Result<Ragged, RuleError> {
    let Some(Attr::Opaque(text)) = site.op.attrs.get("ragged_dot_dimension_numbers") else {
        return Err(RuleError::new("needs `ragged_dot_dimension_numbers`"));
    };
    let dims = DotDims {
        lhs_batch: list(text, "lhs_batching_dimensions"),
        rhs_batch: list(text, "rhs_batching_dimensions"),
        lhs_contract: list(text, "lhs_contracting_dimensions"),
        rhs_contract: list(text, "rhs_contracting_dimensions"),
    };
    let (a, b, sizes) = (site.operand(0)?, site.operand(1)?, site.operand(2)?);
    let [along] = *list(text, "lhs_ragged_dimensions").as_slice() else {
        return Err(RuleError::new("needs one of `lhs_ragged_dimensions`"));
    };
    let mode = match () {
        () if dims.lhs_batch.contains(&along) => Mode::Batch,
        () if dims.lhs_contract.contains(&along) => Mode::Summed,
        () => Mode::Rows,
    };
    let along = in_range(along, a.rank()).ok_or_else(|| RuleError::new("`lhs_ragged_dimensions` is out of range"))?;
    let group = match (list(text, "rhs_group_dimensions").as_slice(), mode) {
        ([d], Mode::Rows) => Some(in_range(*d, b.rank()).ok_or_else(|| RuleError::new("no such group dimension"))?),
        ([], Mode::Summed | Mode::Batch) => None,
        _ => return Err(RuleError::new("needs one of `rhs_group_dimensions` where rows are ragged, else none")),
    };
    let bare = rank_free(b, group);
    let (batch, contract, free) = split_dims("left", &dims.lhs_batch, &dims.lhs_contract, a.rank())?;
    // The right operand's dimensions are counted with its group dimension.
    let shift = |d: &i64| d - i64::from(group.is_some_and(|g| (g as i64) < *d));
    let rhs = DotDims {
        rhs_batch: dims.rhs_batch.iter().map(shift).collect(),
        rhs_contract: dims.rhs_contract.iter().map(shift).collect(),
        ..dims
    };
    Roles::new(&rhs, a, &bare)?;
    ensure(sizes.dtype.is_int() && sizes.rank() > 0, || format!("group sizes should be integers, not {sizes}"))?;
    let groups = sizes.dims.last().map_or(0, |&g| g as usize);
    let before = |l: &[usize]| l.iter().copied().filter(|&d| d < along).collect::<Vec<_>>();
    let candidates = match mode {
        Mode::Rows => [batch, before(&free)].concat(),
        Mode::Summed => [batch, before(&contract)].concat(),
        Mode::Batch => before(&batch),
    };
    let outer: Vec<usize> = if sizes.rank() == 1 { Vec::new() } else { candidates };
    let wanted: Vec<i64> = outer.iter().map(|&d| a.dims[d]).collect();
    ensure(sizes.dims[..sizes.rank() - 1] == wanted, || format!("group sizes {sizes} should run along {wanted:?}"))?;
    ensure(group.is_none_or(|g| b.dims[g] == groups as i64), || format!("{b} should hold {groups} groups"))?;
    Ok(Ragged { dims: rhs, along, group, mode, groups, outer })
}

/// The type of one group of `b`.
fn rank_free(b: &TensorType, group: Option<usize>) -> TensorType {
    let dims: Vec<i64> = (0..b.rank()).filter(|d| Some(*d) != group).map(|d| b.dims[d]).collect();
    TensorType::new(dims, b.dtype)
}

fn rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (r, result) = (parse(site)?, site.result(0)?);
    let (a, b) = (site.operand(0)?, rank_free(site.operand(1)?, r.group));
    let mut dims = Roles::new(&r.dims, a, &b)?.result_dims(a, &b);
    if r.mode == Mode::Summed {
        dims.insert(0, r.groups as i64);
    }
    ensure(dims == result.dims, || format!("the result should have dimensions {dims:?}, is {result}"))
}

/// For each place along the outer dimensions: where each group begins and ends.
fn bounds(r: &Ragged, sizes: &Tensor, length: i128) -> Vec<Vec<(i128, i128)>> {
    let values = sizes.to_i64();
    let rows = values.chunks_exact(r.groups.max(1));
    let row = |row: &[i64]| {
        let mut at = 0i128;
        let mut one = |&n: &i64| {
            let from = at;
            at = (at + int_value(sizes.dtype(), n).max(0)).min(length);
            (from, at)
        };
        row.iter().map(&mut one).collect()
    };
    rows.map(row).collect()
}

fn ragged_dot(site: &Site<'_>, operands: &[&Tensor], options: &EvalOptions) -> Result<Vec<Tensor>, Fault> {
    let (a, b, ty) = (operands[0], operands[1], site.result(0)?);
    let r = parse(site)?;
    if r.mode == Mode::Batch {
        return Ok(vec![product_of(site, &r.dims, a, b, ty, options)?]);
    }
    let bounds = bounds(&r, operands[2], i128::from(a.dims()[r.along]));
    let part = TensorType::new(if r.mode == Mode::Summed { ty.dims[1..].to_vec() } else { ty.dims.clone() }, ty.dtype);
    let mut out = vec![0; ty.bytes().unwrap_or(0) as usize];
    let share = part.bytes().unwrap_or(0) as usize;
    for g in 0..r.groups {
        match r.mode {
            Mode::Summed => {
                let along = r.dims.lhs_contract.iter().position(|&d| d == r.along as i64).unwrap_or(0);
                let (mine, theirs) = (r.along, r.dims.rhs_contract[along] as usize);
                // Both are cleared, so that what is beside the group cannot make NaNs.
                let x = cleared(a, mine, &r.outer, &bounds, g);
                let outer: Vec<usize> = r.outer.iter().filter_map(|d| partner(&r.dims, *d)).collect();
                let y = cleared(b, theirs, &outer, &bounds, g);
                let p = product_of(site, &r.dims, &x, &y, &part, options)?;
                out[g * share..(g + 1) * share].copy_from_slice(p.bytes());
            }
            _ => {
                let p = product_of(site, &r.dims, a, &group(b, r.group.unwrap_or(0), g), &part, options)?;
                keep_rows(&r, a.ty(), &p, &bounds, g, &mut out);
            }
        }
    }
    Ok(vec![Tensor::make(ty.clone(), out)])
}

/// The dimension of the right operand that meets dimension `d` of the left one.
fn partner(dims: &DotDims, d: usize) -> Option<usize> {
    let find = |l: &[i64], r: &[i64]| l.iter().position(|&x| x == d as i64).and_then(|i| usize::try_from(r[i]).ok());
    find(&dims.lhs_batch, &dims.rhs_batch).or_else(|| find(&dims.lhs_contract, &dims.rhs_contract))
}

/// Matrix `g` of `b`.
fn group(b: &Tensor, d: usize, g: usize) -> Tensor {
    let shape = b.shape();
    let mut stride = strides(&shape);
    let base = stride[d] * g as isize;
    stride.remove(d);
    let dims: Vec<usize> = (0..shape.len()).filter(|k| *k != d).map(|k| shape[k]).collect();
    Tensor::make(rank_free(b.ty(), Some(d)), read(b.bytes(), b.dtype().bytes(), &dims, &stride, base))
}

/// Index into the groups' bounds of the place `index`.
fn place(index: &[usize], outer: &[usize], shape: &[usize]) -> usize {
    outer.iter().fold(0, |at, &d| at * shape[d] + index[d])
}

/// `x` with zeros outside of group `g` along dimension `d`.
fn cleared(x: &Tensor, d: usize, outer: &[usize], bounds: &[Vec<(i128, i128)>], g: usize) -> Tensor {
    let (shape, w) = (x.shape(), x.dtype().bytes());
    let mut bytes = x.bytes().to_vec();
    if !bytes.is_empty() {
        let mut index = vec![0; shape.len()];
        for e in bytes.chunks_exact_mut(w) {
            let (from, to) = bounds[place(&index, outer, &shape)][g];
            if !(from..to).contains(&(index[d] as i128)) {
                e.fill(0);
            }
            next_index(&mut index, &shape);
        }
    }
    Tensor::make(x.ty().clone(), bytes)
}

/// Copies those rows of the product `p` to `out` that group `g` owns.
fn keep_rows(r: &Ragged, a: &TensorType, p: &Tensor, bounds: &[Vec<(i128, i128)>], g: usize, out: &mut [u8]) {
    let (shape, w) = (p.shape(), p.dtype().bytes());
    // Dimensions of the result: batching ones, then the left operand's own, in order.
    let own = (0..a.rank() as i64).filter(|d| !r.dims.lhs_batch.contains(d) && !r.dims.lhs_contract.contains(d));
    let order: Vec<usize> = r.dims.lhs_batch.iter().copied().chain(own).map(|d| d as usize).collect();
    let at = |d: usize| order.iter().position(|&o| o == d).unwrap_or(0);
    let outer: Vec<usize> = r.outer.iter().map(|&d| at(d)).collect();
    let along = at(r.along);
    let mut index = vec![0; shape.len()];
    for (to, from) in out.chunks_exact_mut(w).zip(p.bytes().chunks_exact(w)) {
        let (low, high) = bounds[place(&index, &outer, &shape)][g];
        if (low..high).contains(&(index[along] as i128)) {
            to.copy_from_slice(from);
        }
        next_index(&mut index, &shape);
    }
}
