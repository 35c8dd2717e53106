//! Sliding windows: reductions over them, and the gradient of max pooling.
//!
//! Positions in padding and between dilated elements are left out of a window. The specification fills them with the initial
//! value, which is the same for a neutral one, and the operation asks for that.

use tpusim_isa::num::DType;
use tpusim_isa::num::convert::{encode_f32, encode_f64};

use super::elementwise::Class;
use super::reduce::{inputs, reducer_rule};
use super::region::{Num, ScalarFn, apply, decode, encode, single_op};
use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, lookup};
use crate::eval::strided::next_index;
use crate::eval::{Fault, Frame, Tensor, Value};
use crate::hlo::{Opcode, TensorType, Type};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::ReduceWindow, Arity::AtLeast(2), Rule::Check(reduce_window_rule), Eval::Values(reduce_window))
        .regions(Arity::Exactly(1))
        .quantized(),
    OpDef::new(Opcode::SelectAndScatter, Arity::Exactly(3), Rule::Infer(select_rule), Eval::Values(select_and_scatter))
        .regions(Arity::Exactly(2))
        .quantized(),
];

/// One dimension of a sliding window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub size: i64,
    pub window: i64,
    pub stride: i64,
    pub low: i64,
    pub high: i64,
    pub base_dilation: i64,
    pub window_dilation: i64,
    pub reversed: bool,
}

impl Axis {
    /// Index of the input at offset `k` of window `o`; `None` in padding or between elements.
    pub(super) fn input(&self, o: usize, k: usize) -> Option<usize> {
        let k = if self.reversed { self.window - 1 - k as i64 } else { k as i64 };
        let at = o as i64 * self.stride + k * self.window_dilation - self.low;
        (at >= 0 && at % self.base_dilation == 0 && at / self.base_dilation < self.size)
            .then_some((at / self.base_dilation) as usize)
    }
}

/// How many windows fit.
pub(super) fn out_size(a: &Axis) -> Result<i64, RuleError> {
    let positive = a.window > 0 && a.stride > 0 && a.base_dilation > 0 && a.window_dilation > 0;
    ensure(positive, || "window sizes, strides and dilations should be positive".into())?;
    let sane = [a.low, a.high].iter().all(|p| p.unsigned_abs() < 1 << 48);
    ensure(sane, || "the padding is beyond all measure".into())?;
    let dilated = |n: i64, d: i64| if n == 0 { Some(0) } else { (n - 1).checked_mul(d)?.checked_add(1) };
    let total = dilated(a.size, a.base_dilation).and_then(|n| n.checked_add(a.low)?.checked_add(a.high));
    let (Some(total), Some(window)) = (total, dilated(a.window, a.window_dilation)) else {
        return Err(RuleError::new("the padded size overflows"));
    };
    Ok(if total == 0 || window > total { 0 } else { (total - window) / a.stride + 1 })
}

fn axes(site: &Site<'_>, x: &TensorType) -> Result<Vec<Axis>, RuleError> {
    let n = x.rank();
    let window = site.ints_or("window_dimensions", 1, n)?;
    let stride = site.ints_or("window_strides", 1, n)?;
    let base = site.ints_or("base_dilations", 1, n)?;
    let dilation = site.ints_or("window_dilations", 1, n)?;
    let padding = site.pairs_or_zero("padding", n)?;
    let axis = |d: usize| Axis {
        size: x.dims[d],
        window: window[d],
        stride: stride[d],
        low: padding[d][0],
        high: padding[d][1],
        base_dilation: base[d],
        window_dilation: dilation[d],
        reversed: false,
    };
    Ok((0..n).map(axis).collect())
}

fn reduce_window_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let n = inputs(site)?;
    let first = site.operand(0)?;
    let dims: Vec<i64> = axes(site, first)?.iter().map(out_size).collect::<Result<_, _>>()?;
    let mut dtypes = Vec::new();
    for i in 0..n {
        let (x, init, r) = (site.operand(i)?, site.operand(n + i)?, site.result(i)?);
        ensure(x.dims == first.dims, || format!("inputs differ: {first} and {x}"))?;
        ensure(init.rank() == 0, || format!("initial values are scalars, not {init}"))?;
        ensure(r.dims == dims && r.dtype == init.dtype, || {
            format!("result {i} should have dimensions {dims:?}, is {r}")
        })?;
        dtypes.push(init.dtype);
    }
    reducer_rule(site, site.block(0)?, &dtypes)
}

/// Calls `f` with the flat input index of every position of window `at` that holds an element, in row-major order.
fn visit(axes: &[Axis], at: &[usize], mut f: impl FnMut(usize) -> Result<(), Fault>) -> Result<(), Fault> {
    let window: Vec<usize> = axes.iter().map(|a| a.window as usize).collect();
    let mut k = vec![0; axes.len()];
    loop {
        let flat = axes
            .iter()
            .zip(at)
            .zip(&k)
            .try_fold(0, |flat, ((a, &o), &k)| Some(flat * a.size as usize + a.input(o, k)?));
        if let Some(i) = flat {
            f(i)?;
        }
        if !next_index(&mut k, &window) {
            return Ok(());
        }
    }
}

/// Calls `f` with every index of `dims` in row-major order.
pub(super) fn each_index(dims: &[usize], mut f: impl FnMut(&[usize]) -> Result<(), Fault>) -> Result<(), Fault> {
    if dims.contains(&0) {
        return Ok(());
    }
    let mut index = vec![0; dims.len()];
    loop {
        f(&index)?;
        if !next_index(&mut index, dims) {
            return Ok(());
        }
    }
}

fn shape(t: &TensorType) -> Vec<usize> {
    t.dims.iter().map(|&d| d as usize).collect()
}

fn reduce_window<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let tensors: Vec<&Tensor> = operands.iter().filter_map(Value::tensor).collect();
    let (n, ty, block) = (inputs(site)?, site.result(0)?, site.block(0)?);
    let axes = axes(site, tensors[0].ty())?;
    if let (1, Some(op)) = (n, single_op(site, block))
        && let Some(Eval::Binary(f)) = lookup(op.opcode).map(|d| d.eval)
    {
        return Ok(vec![fold_windows(&axes, tensors[0], tensors[1], f, op.opcode, ty)?.into()]);
    }
    let mut f = ScalarFn::new(frame, site, block)?;
    let values: Vec<Vec<Num>> = tensors[..n].iter().map(|t| decode(t)).collect();
    let init: Vec<Num> = tensors[n..].iter().filter_map(|t| decode(t).first().copied()).collect();
    let mut out: Vec<Vec<Num>> = vec![Vec::new(); n];
    let (mut args, mut acc) = (Vec::new(), Vec::new());
    each_index(&shape(ty), |at| {
        acc.clone_from(&init);
        visit(&axes, at, |i| {
            args.clone_from(&acc);
            args.extend(values.iter().map(|v| v[i]));
            f.call(frame, &args, &mut acc)
        })?;
        out.iter_mut().zip(&acc).for_each(|(o, v)| o.push(*v));
        Ok(())
    })?;
    out.iter().enumerate().map(|(i, v)| Ok(encode(site.result(i)?, v).into())).collect()
}

/// Folds every window with `f`. Accumulators are as wide as those of `reduce`.
fn fold_windows(
    axes: &[Axis],
    x: &Tensor,
    init: &Tensor,
    f: &super::BinaryFns,
    op: Opcode,
    ty: &TensorType,
) -> Result<Tensor, Fault> {
    let wide = matches!(op, Opcode::Add | Opcode::Multiply);
    match (Class::of(ty.dtype), f.f32, f.f64) {
        (Class::F32, Some(f), _) if !wide || ty.dtype != DType::F32 => {
            let v = folded(axes, &x.to_f32(), init.to_f32()[0], ty, f)?;
            Ok(Tensor::make(ty.clone(), encode_f32(ty.dtype, &v)))
        }
        (Class::F32 | Class::F64, _, Some(f)) => {
            let v = folded(axes, &x.to_f64(), init.to_f64()[0], ty, f)?;
            Ok(Tensor::make(ty.clone(), encode_f64(ty.dtype, &v)))
        }
        _ => {
            let init = decode(init)[0];
            let v = folded(axes, &decode(x), init, ty, |a, b| apply(f, ty.dtype, a, b))?;
            Ok(encode(ty, &v))
        }
    }
}

fn folded<T: Copy>(axes: &[Axis], x: &[T], init: T, ty: &TensorType, f: impl Fn(T, T) -> T) -> Result<Vec<T>, Fault> {
    let mut out = Vec::new();
    each_index(&shape(ty), |at| {
        let mut acc = init;
        visit(axes, at, |i| {
            acc = f(acc, x[i]);
            Ok(())
        })?;
        out.push(acc);
        Ok(())
    })?;
    Ok(out)
}

fn select_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let (x, source, init) = (site.operand(0)?, site.operand(1)?, site.operand(2)?);
    let dims: Vec<i64> = axes(site, x)?.iter().map(out_size).collect::<Result<_, _>>()?;
    ensure(source.dims == dims, || format!("the source should have dimensions {dims:?}, is {source}"))?;
    ensure(init.rank() == 0 && init.dtype == x.dtype, || format!("the initial value {init} does not fit {x}"))?;
    ensure(site.block(0)?.args.len() == 2, || "the selection compares two scalars".into())?;
    reducer_rule(site, site.block(1)?, &[x.dtype])?;
    Ok(vec![Type::Tensor(x.clone())])
}

fn select_and_scatter<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let tensors: Vec<&Tensor> = operands.iter().filter_map(Value::tensor).collect();
    let axes = axes(site, tensors[0].ty())?;
    let mut select = ScalarFn::new(frame, site, site.block(0)?)?;
    let mut scatter = ScalarFn::new(frame, site, site.block(1)?)?;
    let (x, source, init) = (decode(tensors[0]), decode(tensors[1]), decode(tensors[2]));
    let mut out = vec![init[0]; x.len()];
    let (mut next, mut result) = (source.iter(), Vec::new());
    each_index(&tensors[1].shape(), |at| {
        let mut chosen: Option<usize> = None;
        visit(&axes, at, |i| {
            if let Some(c) = chosen {
                select.call(frame, &[x[c], x[i]], &mut result)?;
                if result.first().is_some_and(|keep| keep.truth()) {
                    return Ok(());
                }
            }
            chosen = Some(i);
            Ok(())
        })?;
        if let (Some(c), Some(&s)) = (chosen, next.next()) {
            scatter.call(frame, &[out[c], s], &mut result)?;
            out[c] = result.first().copied().unwrap_or(out[c]);
        }
        Ok(())
    })?;
    Ok(vec![encode(tensors[0].ty(), &out).into()])
}
