//! Parts of tensors: slices at fixed and computed places, updates, padding.

use tpusim_isa::num::convert::int_value;

use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, rules};
use crate::eval::strided::{read, strides, write};
use crate::eval::{Fault, Tensor};
use crate::hlo::{Opcode, TensorType, Type};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::Slice, Arity::Exactly(1), Rule::Infer(slice_rule), Eval::Tensor(slice)).quantized(),
    OpDef::new(Opcode::Pad, Arity::Exactly(2), Rule::Infer(pad_rule), Eval::Tensor(pad)).quantized(),
    OpDef::new(Opcode::DynamicSlice, Arity::AtLeast(1), Rule::Infer(dynamic_slice_rule), Eval::Tensor(dynamic_slice))
        .quantized(),
    OpDef::new(
        Opcode::DynamicUpdateSlice,
        Arity::AtLeast(2),
        Rule::Infer(dynamic_update_slice_rule),
        Eval::Tensor(dynamic_update_slice),
    )
    .quantized(),
];

struct Bounds {
    start: Vec<i64>,
    stride: Vec<i64>,
    size: Vec<i64>,
}

fn bounds(site: &Site<'_>, x: &TensorType) -> Result<Bounds, RuleError> {
    let (start, limit) = (site.ints("start_indices")?, site.ints("limit_indices")?);
    let stride = site.ints_or("strides", 1, x.rank())?;
    ensure(start.len() == x.rank() && limit.len() == x.rank(), || format!("needs {} starts and limits", x.rank()))?;
    let mut size = Vec::new();
    for d in 0..x.rank() {
        let ok = 0 <= start[d] && start[d] <= limit[d] && limit[d] <= x.dims[d] && stride[d] > 0;
        ensure(ok, || format!("{}:{}:{} is no slice of dimension {d} of {x}", start[d], limit[d], stride[d]))?;
        let length = limit[d] - start[d];
        size.push(length / stride[d] + i64::from(length % stride[d] != 0));
    }
    Ok(Bounds { start: start.to_vec(), stride, size })
}

fn slice_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let x = site.operand(0)?;
    Ok(vec![rules::reshaped(x, bounds(site, x)?.size)])
}

fn slice(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let x = operands[0];
    let b = bounds(site, x.ty())?;
    let own = strides(&x.shape());
    let out: Vec<usize> = b.size.iter().map(|&n| n as usize).collect();
    let base = own.iter().zip(&b.start).map(|(s, &i)| s * i as isize).sum();
    // A step beyond the dimension is never taken.
    let step = |d: usize| b.stride[d].min(x.dims()[d]) as isize;
    let stride: Vec<isize> = own.iter().enumerate().map(|(d, s)| s * step(d)).collect();
    Ok(Tensor::make(site.result(0)?.clone(), read(x.bytes(), x.dtype().bytes(), &out, &stride, base)))
}

struct Padding {
    low: Vec<i64>,
    interior: Vec<i64>,
    size: Vec<i64>,
}

fn padding(site: &Site<'_>, x: &TensorType) -> Result<Padding, RuleError> {
    let n = x.rank();
    let low = site.ints_or("edge_padding_low", 0, n)?;
    let high = site.ints_or("edge_padding_high", 0, n)?;
    let interior = site.ints_or("interior_padding", 0, n)?;
    let mut size = Vec::new();
    for d in 0..n {
        ensure(interior[d] >= 0, || format!("negative interior padding of dimension {d}"))?;
        let sane = [low[d], high[d], interior[d]].iter().all(|p| p.unsigned_abs() < 1 << 48);
        ensure(sane, || format!("the padding of dimension {d} is beyond all measure"))?;
        let gaps = (x.dims[d] - 1).max(0).checked_mul(interior[d]);
        let total = gaps.and_then(|g| g.checked_add(x.dims[d])?.checked_add(low[d])?.checked_add(high[d]));
        let total = total.filter(|&t| t >= 0);
        size.push(total.ok_or_else(|| RuleError(format!("the padding leaves dimension {d} without a size")))?);
    }
    Ok(Padding { low, interior, size })
}

fn pad_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let (x, v) = (site.operand(0)?, site.operand(1)?);
    ensure(v.rank() == 0 && v.dtype == x.dtype, || format!("cannot pad {x} with {v}"))?;
    Ok(vec![rules::reshaped(x, padding(site, x)?.size)])
}

fn pad(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (x, value) = (operands[0], operands[1]);
    let p = padding(site, x.ty())?;
    Ok(pad_with(x, value.bytes(), &p.low, &p.interior, &p.size).with_type(site.result(0)?.clone()))
}

/// `x` in a tensor of shape `size` filled with `value`: its element `i` at `low + i * (interior + 1)` where that is inside.
pub(super) fn pad_with(x: &Tensor, value: &[u8], low: &[i64], interior: &[i64], size: &[i64]) -> Tensor {
    let (shape, w) = (x.shape(), x.dtype().bytes());
    let out: Vec<usize> = size.iter().map(|&n| n as usize).collect();
    let (src, dst) = (strides(&shape), strides(&out));
    let mut bytes = value.repeat(out.iter().product());
    // Of each dimension the elements `first..last` land inside.
    let (mut from, mut to, mut kept, mut stride) = (0isize, 0isize, Vec::new(), Vec::new());
    for d in 0..shape.len() {
        let step = interior[d] + 1;
        let first = if low[d] < 0 { (-low[d] + step - 1) / step } else { 0 };
        let last = if size[d] > low[d] { (size[d] - low[d] - 1) / step + 1 } else { 0 };
        let last = last.min(shape[d] as i64).max(first);
        kept.push((last - first) as usize);
        from += src[d] * first as isize;
        to += dst[d] * (low[d] + first * step) as isize;
        stride.push(dst[d] * step as isize);
    }
    if !kept.contains(&0) {
        let part = read(x.bytes(), w, &kept, &src, from);
        write(&mut bytes, &part, w, &kept, &stride, to);
    }
    Tensor::make(TensorType::new(size, x.dtype()), bytes)
}

/// The operands from `first` on are one integer scalar per dimension of `x`.
fn starts_rule(site: &Site<'_>, first: usize, x: &TensorType) -> Result<(), RuleError> {
    let n = site.op.operands.len() - first;
    ensure(n == x.rank(), || format!("needs {} start indices, has {n}", x.rank()))?;
    for i in first..site.op.operands.len() {
        let t = site.operand(i)?;
        ensure(t.rank() == 0 && t.dtype.is_int(), || format!("start indices are integer scalars, operand {i} is {t}"))?;
    }
    Ok(())
}

fn dynamic_slice_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let x = site.operand(0)?;
    starts_rule(site, 1, x)?;
    let size = site.ints("slice_sizes")?;
    let fits = size.len() == x.rank() && size.iter().zip(&x.dims).all(|(&s, &d)| 0 <= s && s <= d);
    ensure(fits, || format!("no slice of sizes {size:?} fits into {x}"))?;
    Ok(vec![rules::reshaped(x, size.to_vec())])
}

/// Offset of a part of shape `size` of `x` that starts at `starts`, moved so that it is inside.
fn clamped_base(x: &Tensor, starts: &[&Tensor], size: &[i64]) -> isize {
    let mut base = 0;
    for (d, (s, stride)) in starts.iter().zip(strides(&x.shape())).enumerate() {
        let at = s.to_i64().first().map_or(0, |&v| int_value(s.dtype(), v));
        base += stride * at.clamp(0, i128::from(x.dims()[d] - size[d])) as isize;
    }
    base
}

fn dynamic_slice(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (x, ty) = (operands[0], site.result(0)?);
    let out: Vec<usize> = ty.dims.iter().map(|&d| d as usize).collect();
    let base = clamped_base(x, &operands[1..], &ty.dims);
    Ok(Tensor::make(ty.clone(), read(x.bytes(), x.dtype().bytes(), &out, &strides(&x.shape()), base)))
}

fn dynamic_update_slice_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let (x, u) = (site.operand(0)?, site.operand(1)?);
    starts_rule(site, 2, x)?;
    let fits = u.dtype == x.dtype && u.rank() == x.rank() && u.dims.iter().zip(&x.dims).all(|(u, d)| u <= d);
    ensure(fits, || format!("the update {u} does not fit into {x}"))?;
    Ok(vec![Type::Tensor(x.clone())])
}

fn dynamic_update_slice(_: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (x, u) = (operands[0], operands[1]);
    let base = clamped_base(x, &operands[2..], u.dims());
    let mut bytes = x.bytes().to_vec();
    write(&mut bytes, u.bytes(), x.dtype().bytes(), &u.shape(), &strides(&x.shape()), base);
    Ok(Tensor::make(x.ty().clone(), bytes))
}
