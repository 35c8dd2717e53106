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
    OpDef::new(Opcode::DynamicGather, Arity::Exactly(3), Rule::Check(rules::any), Eval::Tensor(gather)),
    OpDef::new(Opcode::DynamicPad, Arity::Exactly(5), Rule::Check(pad_rule), Eval::Tensor(pad)),
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
