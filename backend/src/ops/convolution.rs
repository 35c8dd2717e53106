//! Convolutions with strides, dilations, groups.

use rayon::prelude::*;
use tpusim_isa::num::DType;
use tpusim_isa::num::convert::{encode_f32, encode_f64, encode_i64, round_bf16, wrap};

use super::dot::rounds_to_bf16;
use super::elementwise::{C, Class, decode_complex};
use super::rules::part;
use super::site::{distinct, ensure};
use super::window::{Axis, out_size};
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, shape};
use crate::eval::{EvalOptions, Fault, Tensor};
use crate::hlo::{Attr, Opcode, TensorType};

pub(super) static OPS: &[OpDef] =
    &[OpDef::new(Opcode::Convolution, Arity::Exactly(2), Rule::Check(rule), Eval::Tensors(convolution))];

/// A convolution in standard order: input (batch, spatial, feature), kernel (spatial, input feature, output feature).
struct Conv {
    /// Dimensions of the operands and the result in standard order.
    input: Vec<usize>,
    kernel: Vec<usize>,
    output: Vec<usize>,
    axes: Vec<Axis>,
    feature_groups: usize,
    batch_groups: usize,
}

fn order(name: &str, first: &[i64], spatial: &[i64], last: &[i64], rank: usize) -> Result<Vec<usize>, RuleError> {
    let all = distinct(name, &[first, spatial, last].concat(), rank)?;
    ensure(all.len() == rank, || format!("`dimension_numbers` should name all {rank} dimensions of the {name}"))?;
    Ok(all)
}

fn parse(
    site: &Site<'_>,
    padding: &[[i64; 2]],
    x: &TensorType,
    w: &TensorType,
    r: &TensorType,
) -> Result<Conv, RuleError> {
    let Some(Attr::Conv(d)) = site.op.attrs.get("dimension_numbers") else {
        return Err(RuleError::new("needs `dimension_numbers`"));
    };
    let n = d.input_spatial.len();
    ensure(d.kernel_spatial.len() == n && d.output_spatial.len() == n, || "spatial ranks differ".into())?;
    let input = order("input", &[d.input_batch], &d.input_spatial, &[d.input_feature], x.rank())?;
    let kernel = order("kernel", &[], &d.kernel_spatial, &[d.kernel_input_feature, d.kernel_output_feature], w.rank())?;
    let output = order("output", &[d.output_batch], &d.output_spatial, &[d.output_feature], r.rank())?;
    let stride = site.ints_or("window_strides", 1, n)?;
    ensure(padding.len() == n, || format!("needs {n} pairs of padding"))?;
    let base = site.ints_or("lhs_dilation", 1, n)?;
    let dilation = site.ints_or("rhs_dilation", 1, n)?;
    let reversal = site.bools_or_false("window_reversal", n)?;
    let axes: Vec<Axis> = (0..n)
        .map(|i| Axis {
            size: x.dims[input[i + 1]],
            window: w.dims[kernel[i]],
            stride: stride[i],
            low: padding[i][0],
            high: padding[i][1],
            base_dilation: base[i],
            window_dilation: dilation[i],
            reversed: reversal[i],
        })
        .collect();
    let group = |name: &str| {
        let g = site.op.attrs.int(name).unwrap_or(1);
        usize::try_from(g).ok().filter(|&g| g > 0).ok_or_else(|| RuleError(format!("`{name}` should be positive")))
    };
    let (feature_groups, batch_groups) = (group("feature_group_count")?, group("batch_group_count")?);
    Ok(Conv { input, kernel, output, axes, feature_groups, batch_groups })
}

/// The padding that the op's attributes say.
fn padding(site: &Site<'_>) -> Result<Vec<[i64; 2]>, RuleError> {
    site.pairs_or_zero("padding", site.operand(0)?.rank().saturating_sub(2))
}

fn rule(site: &Site<'_>) -> Result<(), RuleError> {
    rule_with(site, &padding(site)?)
}

/// The shape rule where the padding is `padding`.
pub(super) fn rule_with(site: &Site<'_>, padding: &[[i64; 2]]) -> Result<(), RuleError> {
    let (x, w, r) = (site.operand(0)?, site.operand(1)?, site.result(0)?);
    ensure(x.rank() >= 2 && x.rank() == w.rank() && x.rank() == r.rank(), || format!("ranks of {x}, {w}, {r} differ"))?;
    let c = parse(site, padding, x, w, r)?;
    let n = c.axes.len();
    let (fg, bg) = (c.feature_groups as i64, c.batch_groups as i64);
    let (batch, features) = (x.dims[c.input[0]], x.dims[c.input[n + 1]]);
    let (per_group, outputs) = (w.dims[c.kernel[n]], w.dims[c.kernel[n + 1]]);
    ensure(fg == 1 || bg == 1, || "cannot have feature groups and batch groups".into())?;
    ensure(features % fg == 0 && features / fg == per_group, || {
        format!("{features} features are not {fg} groups of {per_group}")
    })?;
    ensure(outputs % (fg * bg) == 0 && batch % bg == 0, || "groups do not divide batch or output features".into())?;
    let mut dims = vec![0; r.rank()];
    dims[c.output[0]] = batch / bg;
    dims[c.output[n + 1]] = outputs;
    for (axis, &d) in c.axes.iter().zip(&c.output[1..]) {
        dims[d] = out_size(axis)?;
    }
    ensure(dims == r.dims, || format!("the result should have dimensions {dims:?}, is {r}"))
}

fn convolution(site: &Site<'_>, operands: &[&Tensor], options: &EvalOptions) -> Result<Vec<Tensor>, Fault> {
    evaluate(site, operands, &padding(site)?, options)
}

/// The convolution of the first two operands with `padding`.
pub(super) fn evaluate(
    site: &Site<'_>,
    operands: &[&Tensor],
    padding: &[[i64; 2]],
    options: &EvalOptions,
) -> Result<Vec<Tensor>, Fault> {
    let (x, w, ty) = (operands[0], operands[1], site.result(0)?);
    let c = parse(site, padding, x.ty(), w.ty(), ty)?;
    let (a, b) = (shape::permute(x, &c.input), shape::permute(w, &c.kernel));
    let out: Vec<usize> = c.output.iter().map(|&d| ty.dims[d] as usize).collect();
    let wide = |d: DType| matches!(d, DType::F32 | DType::F64) || !d.is_float();
    let bytes = match (Class::of(a.dtype()), Class::of(b.dtype())) {
        (Class::Complex, Class::Complex) => {
            let f = |c: C, a: C, b: C| (c.0 + (a.0 * b.0 - a.1 * b.1), c.1 + (a.0 * b.1 + a.1 * b.0));
            let v = run(&c, &decode_complex(&a), &decode_complex(&b), &a, &b, &out, f);
            let parts: Vec<f64> = v.iter().flat_map(|v| [v.0, v.1]).collect();
            encode_f64(part(ty.dtype), &parts)
        }
        (Class::Complex, _) | (_, Class::Complex) => {
            return Err(Fault::Unsupported(format!(" of {} by {}", a.ty(), b.ty())));
        }
        (Class::Int, Class::Int) if !ty.dtype.is_float() => {
            let v = run(&c, &a.to_i64(), &b.to_i64(), &a, &b, &out, |c: i64, a, b| c.wrapping_add(a.wrapping_mul(b)));
            encode_i64(ty.dtype, &v.into_iter().map(|v| wrap(ty.dtype, v)).collect::<Vec<_>>())
        }
        _ if rounds_to_bf16(site, options) && a.dtype() == DType::F32 && b.dtype() == DType::F32 => {
            let round = |t: &Tensor| t.to_f32().into_iter().map(round_bf16).collect::<Vec<_>>();
            encode_f32(ty.dtype, &run(&c, &round(&a), &round(&b), &a, &b, &out, |c: f32, a, b| c + a * b))
        }
        _ if wide(a.dtype()) || wide(b.dtype()) => {
            encode_f64(ty.dtype, &run(&c, &a.to_f64(), &b.to_f64(), &a, &b, &out, |c: f64, a, b| c + a * b))
        }
        _ => encode_f32(ty.dtype, &run(&c, &a.to_f32(), &b.to_f32(), &a, &b, &out, |c: f32, a, b| c + a * b)),
    };
    let standard = TensorType::new(out.iter().map(|&d| d as i64).collect::<Vec<_>>(), ty.dtype);
    let mut back = vec![0; c.output.len()];
    c.output.iter().enumerate().for_each(|(i, &d)| back[d] = i);
    Ok(vec![shape::permute(&Tensor::make(standard, bytes), &back)])
}

/// The elements of the result in standard order. Each is summed in the order of the window's positions, then of input features.
fn run<T: Copy + Default + Send + Sync>(
    c: &Conv,
    x: &[T],
    w: &[T],
    input: &Tensor,
    kernel: &Tensor,
    out: &[usize],
    f: impl Fn(T, T, T) -> T + Sync,
) -> Vec<T> {
    let (xs, ws, n) = (input.shape(), kernel.shape(), c.axes.len());
    let (features, per_group, outputs) = (xs[n + 1], ws[n], ws[n + 1]);
    let positions: usize = out[1..=n].iter().product();
    let window: usize = ws[..n].iter().product();
    let mut result = vec![T::default(); out.iter().product()];
    if result.is_empty() || features == 0 || outputs == 0 {
        return result;
    }
    let share = outputs / (c.feature_groups * c.batch_groups);
    let row = |r: usize, acc: &mut [T]| {
        let (batch, at) = (r / positions, unflatten(r % positions, &out[1..=n]));
        for k in 0..window {
            let offset = unflatten(k, &ws[..n]);
            let Some(place) = place(&c.axes, &at, &offset) else { continue };
            for g in 0..c.feature_groups * c.batch_groups {
                // With batch groups, group g reads its own part of the batch, else its own part of the features.
                let (b, first) = if c.batch_groups > 1 { (g * out[0] + batch, 0) } else { (batch, g * per_group) };
                let pixel = (b * xs[1..=n].iter().product::<usize>() + place) * features + first;
                let acc = &mut acc[g * share..(g + 1) * share];
                for (i, &v) in x[pixel..pixel + per_group].iter().enumerate() {
                    let weights = &w[(k * per_group + i) * outputs + g * share..][..share];
                    acc.iter_mut().zip(weights).for_each(|(a, &w)| *a = f(*a, v, w));
                }
            }
        }
    };
    result.par_chunks_exact_mut(outputs).enumerate().for_each(|(r, acc)| row(r, acc));
    result
}

/// Flat spatial position of the input that the output at `at` sees at window offset `offset`; `None` in padding.
fn place(axes: &[Axis], at: &[usize], offset: &[usize]) -> Option<usize> {
    axes.iter()
        .zip(at)
        .zip(offset)
        .try_fold(0, |flat, ((axis, &o), &k)| Some(flat * axis.size as usize + axis.input(o, k)?))
}

fn unflatten(mut i: usize, dims: &[usize]) -> Vec<usize> {
    let mut out = vec![0; dims.len()];
    for (o, &d) in out.iter_mut().zip(dims).rev() {
        *o = i % d;
        i /= d;
    }
    out
}
