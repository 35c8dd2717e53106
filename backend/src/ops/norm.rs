//! Batch normalisation, computed in double precision and rounded once.

use tpusim_isa::num::convert::encode_f64;

use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, rules};
use crate::eval::{EvalOptions, Fault, Tensor};
use crate::hlo::{Attr, Opcode, TensorType, Type};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::BatchNormInference, Arity::Exactly(5), Rule::Infer(inference_rule), Eval::Tensors(inference)),
    OpDef::new(Opcode::BatchNormTraining, Arity::Exactly(3), Rule::Infer(training_rule), Eval::Tensors(training)),
    OpDef::new(Opcode::BatchNormGrad, Arity::Exactly(5), Rule::Infer(grad_rule), Eval::Tensors(grad)),
];

/// Type of a tensor with one element per feature, after checking the operands from 1 up to `last` to be such.
fn per_feature(site: &Site<'_>, last: usize) -> Result<Type, RuleError> {
    let x = site.operand(0)?;
    let n = x.dims[site.dim("feature_index", x.rank())?];
    let ty = TensorType::new([n], x.dtype);
    for i in 1..=last {
        let t = site.operand(i)?;
        ensure(*t == ty, || format!("operand {i} should be {ty}, is {t}"))?;
    }
    ensure(x.dtype.is_float(), || format!("needs floats, got {x}"))?;
    Ok(Type::Tensor(ty))
}

fn inference_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    per_feature(site, 4)?;
    rules::same(site)
}

fn training_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let f = per_feature(site, 2)?;
    Ok(vec![site.operand_type(0)?.clone(), f.clone(), f])
}

fn grad_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let f = per_feature(site, 3)?;
    let (x, g) = (site.operand(0)?, site.operand(4)?);
    ensure(x == g, || format!("operand and gradient differ: {x} and {g}"))?;
    Ok(vec![site.operand_type(0)?.clone(), f.clone(), f])
}

fn epsilon(site: &Site<'_>) -> Result<f64, RuleError> {
    match site.op.attrs.get("epsilon") {
        Some(Attr::Float(v, _)) => Ok(*v),
        _ => Err(RuleError::new("needs the number `epsilon`")),
    }
}

/// Which feature each element of a tensor belongs to.
struct Features {
    count: usize,
    inner: usize,
}

impl Features {
    fn of(site: &Site<'_>, x: &Tensor) -> Result<Features, RuleError> {
        let d = site.dim("feature_index", x.dims().len())?;
        let shape = x.shape();
        Ok(Features { count: shape[d], inner: shape[d + 1..].iter().product() })
    }

    fn at(&self, i: usize) -> usize {
        i / self.inner % self.count
    }

    /// Sums `f(i)` over the elements of each feature.
    fn sum(&self, n: usize, f: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut out = vec![0.0; self.count];
        (0..n).for_each(|i| out[self.at(i)] += f(i));
        out
    }
}

fn tensor(ty: &TensorType, values: &[f64]) -> Tensor {
    Tensor::make(ty.clone(), encode_f64(ty.dtype, values))
}

/// `(x - mean) / sqrt(variance + epsilon) * scale + offset`.
fn normalized(f: &Features, x: &[f64], [scale, offset, mean, variance]: [&[f64]; 4], epsilon: f64) -> Vec<f64> {
    let value = |(i, x): (usize, &f64)| {
        let k = f.at(i);
        (x - mean[k]) / (variance[k] + epsilon).sqrt() * scale[k] + offset[k]
    };
    x.iter().enumerate().map(value).collect()
}

fn inference(site: &Site<'_>, operands: &[&Tensor], _: &EvalOptions) -> Result<Vec<Tensor>, Fault> {
    let f = Features::of(site, operands[0])?;
    let v: Vec<Vec<f64>> = operands.iter().map(|t| t.to_f64()).collect();
    let y = normalized(&f, &v[0], [&v[1], &v[2], &v[3], &v[4]], epsilon(site)?);
    Ok(vec![tensor(site.result(0)?, &y)])
}

fn training(site: &Site<'_>, operands: &[&Tensor], _: &EvalOptions) -> Result<Vec<Tensor>, Fault> {
    let f = Features::of(site, operands[0])?;
    let (x, scale, offset) = (operands[0].to_f64(), operands[1].to_f64(), operands[2].to_f64());
    let n = (x.len() / f.count.max(1)) as f64;
    let mean: Vec<f64> = f.sum(x.len(), |i| x[i]).iter().map(|s| s / n).collect();
    let variance: Vec<f64> = f.sum(x.len(), |i| (x[i] - mean[f.at(i)]).powi(2)).iter().map(|s| s / n).collect();
    let y = normalized(&f, &x, [&scale, &offset, &mean, &variance], epsilon(site)?);
    Ok(vec![tensor(site.result(0)?, &y), tensor(site.result(1)?, &mean), tensor(site.result(2)?, &variance)])
}

fn grad(site: &Site<'_>, operands: &[&Tensor], _: &EvalOptions) -> Result<Vec<Tensor>, Fault> {
    let (f, epsilon) = (Features::of(site, operands[0])?, epsilon(site)?);
    let v: Vec<Vec<f64>> = operands.iter().map(|t| t.to_f64()).collect();
    let [x, scale, mean, variance, g] = v.as_slice() else { return Err(Fault::invalid("needs five operands")) };
    let n = (x.len() / f.count.max(1)) as f64;
    let deviation: Vec<f64> = variance.iter().map(|v| (v + epsilon).sqrt()).collect();
    let centred = |i: usize| (x[i] - mean[f.at(i)]) / deviation[f.at(i)];
    let offset = f.sum(x.len(), |i| g[i]);
    let slope = f.sum(x.len(), |i| g[i] * centred(i));
    let dx = |i: usize| {
        let k = f.at(i);
        scale[k] / deviation[k] * (g[i] - offset[k] / n - centred(i) * slope[k] / n)
    };
    let dx: Vec<f64> = (0..x.len()).map(dx).collect();
    Ok(vec![tensor(site.result(0)?, &dx), tensor(site.result(1)?, &slope), tensor(site.result(2)?, &offset)])
}
