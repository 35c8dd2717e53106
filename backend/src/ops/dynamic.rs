//! Ops that take shapes as operands. After shape refinement their result types are fixed, and then these are their static forms.

use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, rules, shape};
use crate::eval::strided::{read, strides};
use crate::eval::{EvalOptions, Fault, Tensor};
use crate::hlo::{Opcode, Type};

const TWO: Arity = Arity::Exactly(2);

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::DynamicBroadcastInDim, TWO, Rule::Check(broadcast_rule), Eval::Tensor(broadcast)),
    OpDef::new(Opcode::DynamicIota, Arity::Exactly(1), Rule::Check(iota_rule), Eval::Tensor(iota)),
    OpDef::new(Opcode::DynamicReshape, TWO, Rule::Check(reshape_rule), Eval::Tensor(reshape)),
    OpDef::new(Opcode::GetDimensionSize, Arity::Exactly(1), Rule::Check(size_rule), Eval::Tensor(size)),
    OpDef::new(Opcode::DynamicConv, Arity::Exactly(3), Rule::Check(rules::any), Eval::Tensors(conv)),
    OpDef::new(Opcode::DynamicGather, Arity::Exactly(3), Rule::Check(rules::any), Eval::Tensor(gather)),
    OpDef::new(Opcode::DynamicPad, Arity::Exactly(5), Rule::Check(pad_rule), Eval::Tensor(pad)),
    OpDef::new(Opcode::RealDynamicSlice, Arity::Exactly(4), Rule::Check(slice_rule), Eval::Tensor(slice)).quantized(),
    OpDef::new(Opcode::SetDimensionSize, TWO, Rule::Infer(set_size_rule), Eval::Tensor(set_size)).quantized(),
];

fn broadcast_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (x, r) = (site.operand(0)?, site.result(0)?);
    ensure(x.dtype == r.dtype, || format!("cannot broadcast {x} to {r}"))?;
    shape::broadcast_fits(&x.dims, site.ints("broadcast_dimensions")?, &r.dims)
}

fn broadcast(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let ty = site.result(0)?;
    declared(operands[1], &ty.dims)?;
    Ok(shape::broadcast_to(operands[0], site.ints("broadcast_dimensions")?, &ty.dims))
}

/// The operand that gives the shape must agree with the declared type.
fn declared(operand: &Tensor, dims: &[i64]) -> Result<(), Fault> {
    if operand.to_i64() == dims { Ok(()) } else { Err(Fault::invalid("the computed shape is not the declared one")) }
}

fn iota_rule(site: &Site<'_>) -> Result<(), RuleError> {
    site.dim("iota_dimension", site.result(0)?.rank()).map(|_| ())
}

fn iota(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let ty = site.result(0)?;
    declared(operands[0], &ty.dims)?;
    Ok(shape::iota_along(ty, site.dim("iota_dimension", ty.rank())?))
}

fn reshape_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (x, r) = (site.operand(0)?, site.result(0)?);
    ensure(x.dtype == r.dtype && x.elements() == r.elements(), || format!("cannot reshape {x} to {r}"))
}

fn reshape(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let ty = site.result(0)?;
    declared(operands[1], &ty.dims)?;
    Ok(operands[0].with_type(ty.clone()))
}

/// The slice sizes are known only now, and so is whether they fit.
fn gather(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let sizes = operands[2].to_i64();
    let ty = super::gather::shape_rule(site, &sizes)?;
    if ty != site.result_types() {
        return Err(Fault::invalid("the computed shape is not the declared one"));
    }
    super::gather::gather_slices(site, operands, &sizes)
}

fn pad_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (x, v, r) = (site.operand(0)?, site.operand(1)?, site.result(0)?);
    ensure(v.rank() == 0 && v.dtype == x.dtype && r.dtype == x.dtype, || format!("cannot pad {x} with {v}"))?;
    let vectors = (2..5).all(|i| site.operand(i).is_ok_and(|t| t.dims == [x.rank() as i64] && t.dtype.is_int()));
    ensure(vectors && r.rank() == x.rank(), || format!("needs one padding per dimension of {x}"))
}

fn pad(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (x, ty) = (operands[0], site.result(0)?);
    let [low, high, interior] = [2, 3, 4].map(|i| operands[i].to_i64());
    for (d, &n) in x.dims().iter().enumerate() {
        let (low, high, gap) = (i128::from(low[d]), i128::from(high[d]), i128::from(interior[d]));
        let size = i128::from(n) + low + high + i128::from((n - 1).max(0)) * gap;
        if gap < 0 || low.abs() >= 1 << 48 || size != i128::from(ty.dims[d]) {
            return Err(Fault::invalid(format!("the padding of dimension {d} does not give {ty}")));
        }
    }
    Ok(super::slice::pad_with(x, operands[1].bytes(), &low, &interior, &ty.dims))
}

fn size_rule(site: &Site<'_>) -> Result<(), RuleError> {
    site.dim("dimension", site.operand(0)?.rank())?;
    ensure(site.result(0)?.rank() == 0, || "the result should be a scalar".into())
}

fn size(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let d = site.dim("dimension", operands[0].dims().len())?;
    let ty = site.result(0)?;
    let bytes = tpusim_isa::num::convert::encode_i64(ty.dtype, &[operands[0].dims()[d]]);
    Ok(Tensor::make(ty.clone(), bytes))
}

/// The padding is known only now, and so is whether the result fits.
fn conv(site: &Site<'_>, operands: &[&Tensor], options: &EvalOptions) -> Result<Vec<Tensor>, Fault> {
    let padding = operands[2].to_i64();
    if operands[2].dims().last() != Some(&2) {
        return Err(Fault::invalid(format!("the padding should be pairs, not {}", operands[2].ty())));
    }
    let padding: Vec<[i64; 2]> = padding.as_chunks::<2>().0.to_vec();
    super::convolution::rule_with(site, &padding)?;
    super::convolution::evaluate(site, operands, &padding, options)
}

fn slice_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (x, r) = (site.operand(0)?, site.result(0)?);
    let vectors = (1..4).all(|i| site.operand(i).is_ok_and(|t| t.dims == [x.rank() as i64] && t.dtype.is_int()));
    ensure(vectors && r.rank() == x.rank() && r.dtype == x.dtype, || {
        format!("needs a start, a limit and a stride per dimension of {x}")
    })
}

fn slice(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (x, ty) = (operands[0], site.result(0)?);
    let [start, limit, step] = [1, 2, 3].map(|i| operands[i].to_i64());
    let own = strides(&x.shape());
    let (mut base, mut stride) = (0, Vec::new());
    for (d, &n) in x.dims().iter().enumerate() {
        let inside = 0 <= start[d] && start[d] <= limit[d] && limit[d] <= n && step[d] > 0;
        if !inside || (limit[d] - start[d] + step[d].min(n + 1) - 1) / step[d].min(n + 1) != ty.dims[d] {
            return Err(Fault::invalid(format!(
                "{}:{}:{} of dimension {d} of {} does not give {ty}",
                start[d],
                limit[d],
                step[d],
                x.ty()
            )));
        }
        base += own[d] * start[d] as isize;
        stride.push(own[d] * step[d].min(n) as isize);
    }
    let out: Vec<usize> = ty.dims.iter().map(|&d| d as usize).collect();
    Ok(Tensor::make(ty.clone(), read(x.bytes(), x.dtype().bytes(), &out, &stride, base)))
}

fn set_size_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let (x, n) = (site.operand(0)?, site.operand(1)?);
    site.dim("dimension", x.rank())?;
    ensure(n.rank() == 0 && n.dtype.is_int(), || format!("the size should be an integer scalar, is {n}"))?;
    Ok(vec![Type::Tensor(x.clone())])
}

/// Only the size that the dimension has: any other would make it dynamic.
fn set_size(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (x, n) = (operands[0], operands[1].to_i64());
    let d = site.dim("dimension", x.dims().len())?;
    if n.first() != Some(&x.dims()[d]) {
        return Err(Fault::Unsupported(" to another size than that of the type: shapes are fixed".into()));
    }
    Ok(x.clone())
}
