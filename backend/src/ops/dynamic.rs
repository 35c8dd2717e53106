//! Ops that take shapes as operands. After shape refinement their result types are fixed, and then these are their static forms.

use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, rules, shape};
use crate::eval::{Fault, Tensor};
use crate::hlo::Opcode;

const TWO: Arity = Arity::Exactly(2);

macro_rules! unsupported {
    ($op:ident, $n:expr) => {
        OpDef::new(Opcode::$op, $n, Rule::Check(rules::any), Eval::Unsupported)
    };
}

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::DynamicBroadcastInDim, TWO, Rule::Check(broadcast_rule), Eval::Tensor(broadcast)),
    OpDef::new(Opcode::DynamicIota, Arity::Exactly(1), Rule::Check(iota_rule), Eval::Tensor(iota)),
    OpDef::new(Opcode::DynamicReshape, TWO, Rule::Check(reshape_rule), Eval::Tensor(reshape)),
    OpDef::new(Opcode::GetDimensionSize, Arity::Exactly(1), Rule::Check(size_rule), Eval::Tensor(size)),
    unsupported!(DynamicConv, Arity::Exactly(3)),
    unsupported!(DynamicGather, Arity::Exactly(3)),
    unsupported!(DynamicPad, Arity::Exactly(5)),
    unsupported!(RealDynamicSlice, Arity::Exactly(4)),
    unsupported!(SetDimensionSize, TWO),
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
