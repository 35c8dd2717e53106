//! Control flow, calls, tuples, tokens, and ops that pass their operands on.

use super::rules::types_agree;
use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, elementwise, rules, special};
use crate::eval::{Fault, Frame, Value, terminator};
use crate::hlo::{Block, Opcode, Type, ValueId};

const ANY: Arity = Arity::AtLeast(0);
const ONE: Arity = Arity::Exactly(1);

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::Call, ANY, Rule::Check(call_rule), Eval::Values(call)).quantized(),
    OpDef::new(Opcode::Composite, ANY, Rule::Check(composite_rule), Eval::Values(composite)).quantized(),
    OpDef::new(Opcode::If, ONE, Rule::Check(if_rule), Eval::Values(if_)).regions(Arity::Exactly(2)).quantized(),
    OpDef::new(Opcode::Case, ONE, Rule::Check(case_rule), Eval::Values(case)).regions(Arity::AtLeast(1)).quantized(),
    OpDef::new(Opcode::While, ANY, Rule::Check(while_rule), Eval::Values(while_))
        .regions(Arity::Exactly(2))
        .quantized(),
    OpDef::new(Opcode::OptimizationBarrier, ANY, Rule::Infer(rules::same_all), Eval::Values(identity)).quantized(),
    OpDef::new(Opcode::Tuple, ANY, Rule::Infer(tuple_rule), Eval::Values(tuple)).quantized(),
    OpDef::new(Opcode::GetTupleElement, ONE, Rule::Infer(element_rule), Eval::Values(element)).quantized(),
    OpDef::new(Opcode::AfterAll, ANY, Rule::Infer(token_rule), Eval::Values(token)),
    OpDef::new(Opcode::CreateToken, ANY, Rule::Infer(token_rule), Eval::Values(token)),
    OpDef::new(Opcode::Trace, ANY, Rule::Check(rules::any), Eval::Values(nothing)),
    OpDef::new(Opcode::SdyShardingConstraint, ONE, Rule::Infer(rules::same), Eval::Values(identity)),
    OpDef::new(Opcode::SdyReshard, ONE, Rule::Infer(rules::same), Eval::Values(identity)),
    OpDef::new(Opcode::SdyPropagationBarrier, ONE, Rule::Infer(rules::same), Eval::Values(identity)),
    OpDef::new(Opcode::SdyDataFlowEdge, ONE, Rule::Infer(rules::same), Eval::Values(identity)),
    OpDef::new(Opcode::SdyShardingGroup, ONE, Rule::Check(rules::any), Eval::Values(nothing)),
    OpDef::new(Opcode::SdyNamedComputation, ANY, Rule::Check(region_rule), Eval::Values(inline))
        .regions(Arity::Exactly(1)),
];

fn agree(what: &str, a: &[Type], b: &[Type]) -> Result<(), RuleError> {
    let ok = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| types_agree(a, b));
    let list = |t: &[Type]| t.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
    ensure(ok, || format!("{what}: ({}) and ({}) differ", list(a), list(b)))
}

fn callee_rule(site: &Site<'_>, attr: &str) -> Result<(), RuleError> {
    let name = site.op.attrs.text(attr).ok_or_else(|| RuleError(format!("needs the symbol `{attr}`")))?;
    let f = site.module.func(name).ok_or_else(|| RuleError(format!("there is no function `{name}`")))?;
    let params: Vec<Type> = f.params.iter().map(|p| f.ty(p.value).clone()).collect();
    let results: Vec<Type> = f.results.iter().map(|r| r.ty.clone()).collect();
    agree(&format!("arguments of `{name}`"), &params, &site.operand_types())?;
    agree(&format!("results of `{name}`"), &results, &site.result_types())
}

fn call_rule(site: &Site<'_>) -> Result<(), RuleError> {
    callee_rule(site, "callee")
}

fn composite_rule(site: &Site<'_>) -> Result<(), RuleError> {
    callee_rule(site, "decomposition")
}

fn call<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    frame.call(site.op.attrs.text("callee").unwrap_or_default(), operands)
}

/// A composite of a CHLO function is that function; any other is its decomposition.
fn composite<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let native = site.op.attrs.text("name").and_then(special::native_composite);
    if let (Some(f), [Value::Tensor(x)]) = (native, operands.as_slice())
        && x.dtype().is_float()
    {
        return Ok(vec![elementwise::unary(f, x, site.result(0)?.clone())?.into()]);
    }
    frame.call(site.op.attrs.text("decomposition").unwrap_or_default(), operands)
}

fn types(site: &Site<'_>, values: &[ValueId]) -> Vec<Type> {
    values.iter().map(|v| site.func.ty(*v).clone()).collect()
}

/// What the block returns.
fn returned(site: &Site<'_>, block: &Block) -> Vec<Type> {
    terminator(block).map(|op| types(site, &op.operands)).unwrap_or_default()
}

fn branches_rule(site: &Site<'_>) -> Result<(), RuleError> {
    for (i, r) in site.op.regions.iter().enumerate() {
        ensure(r.block.args.is_empty(), || format!("region {i} should take no arguments"))?;
        agree(&format!("results of region {i}"), &returned(site, &r.block), &site.result_types())?;
    }
    Ok(())
}

fn if_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let p = site.operand(0)?;
    ensure(p.rank() == 0 && p.dtype.bits() == 1, || format!("the predicate should be tensor<i1>, is {p}"))?;
    branches_rule(site)
}

fn case_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let p = site.operand(0)?;
    ensure(p.rank() == 0 && p.dtype.is_int(), || format!("the index should be an integer scalar, is {p}"))?;
    branches_rule(site)
}

fn index(operands: &[Value]) -> Result<i64, Fault> {
    let t = operands.first().and_then(Value::tensor).ok_or_else(|| Fault::invalid("needs a tensor"))?;
    t.to_i64().first().copied().ok_or_else(|| Fault::invalid("needs a scalar"))
}

fn if_<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let taken = usize::from(index(&operands)? == 0);
    frame.region(site.block(taken)?, Vec::new())
}

/// An index out of range takes the last branch.
fn case<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let last = site.op.regions.len().saturating_sub(1);
    let taken = usize::try_from(index(&operands)?).map_or(last, |i| i.min(last));
    frame.region(site.block(taken)?, Vec::new())
}

fn while_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let state = site.operand_types();
    agree("operands and results", &state, &site.result_types())?;
    let (cond, body) = (site.block(0)?, site.block(1)?);
    agree("arguments of the condition", &types(site, &cond.args), &state)?;
    agree("arguments of the body", &types(site, &body.args), &state)?;
    agree("results of the body", &returned(site, body), &state)?;
    let bool_scalar = [rules::tensor(&[], tpusim_isa::num::DType::I1)];
    agree("results of the condition", &returned(site, cond), &bool_scalar)
}

fn while_<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let (cond, body) = (site.block(0)?, site.block(1)?);
    let mut state = operands;
    // Each round costs at least one op, so that a loop of nothing ends when the budget does.
    while index(&frame.region(cond, state.clone())?)? != 0 {
        frame.spend(site)?;
        state = frame.region(body, state)?;
    }
    Ok(state)
}

fn identity<'m>(_: &mut Frame<'m>, _: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    Ok(operands)
}

fn nothing<'m>(_: &mut Frame<'m>, _: &Site<'m>, _: Vec<Value>) -> Result<Vec<Value>, Fault> {
    Ok(Vec::new())
}

fn tuple_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    Ok(vec![Type::Tuple(site.operand_types())])
}

fn tuple<'m>(_: &mut Frame<'m>, _: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    Ok(vec![Value::Tuple(operands)])
}

fn element_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let Type::Tuple(parts) = site.operand_type(0)? else { return Err(RuleError::new("the operand should be a tuple")) };
    Ok(vec![parts[site.dim("index", parts.len())?].clone()])
}

fn element<'m>(_: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let Some(Value::Tuple(parts)) = operands.into_iter().next() else { return Err(Fault::invalid("needs a tuple")) };
    let i = site.dim("index", parts.len())?;
    Ok(parts.into_iter().skip(i).take(1).collect())
}

fn token_rule(_: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    Ok(vec![Type::Token])
}

fn token<'m>(_: &mut Frame<'m>, _: &Site<'m>, _: Vec<Value>) -> Result<Vec<Value>, Fault> {
    Ok(vec![Value::Token])
}

fn region_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let block = site.block(0)?;
    agree("arguments of the region", &types(site, &block.args), &site.operand_types())?;
    agree("results of the region", &returned(site, block), &site.result_types())
}

fn inline<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    frame.region(site.block(0)?, operands)
}
