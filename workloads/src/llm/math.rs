//! Norms, rotary positions and activations, each with its gradient. All compute in f32 and give the type of their input.

use tpusim_backend::hlo::{DotDims, FuncBuilder, Opcode, ReduceKind, TensorType, ValueId};
use tpusim_isa::num::DType;

use super::models::{Mlp, Norm};

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

/// `a` contracted with `b` over the given dimensions.
pub(super) fn contract(f: F<'_, '_>, a: ValueId, b: ValueId, over: (&[i64], &[i64]), out: DType) -> ValueId {
    let dims = DotDims { lhs_contract: over.0.to_vec(), rhs_contract: over.1.to_vec(), ..DotDims::default() };
    f.dot_general(a, b, dims, out)
}

/// `x` summed over `dims` in f32.
pub(super) fn sum_wide(f: F<'_, '_>, x: ValueId, dims: &[i64]) -> ValueId {
    let x = f.convert(x, DType::F32);
    f.reduce(ReduceKind::Sum, x, dims)
}

fn all_but_last(dims: &[i64]) -> Vec<i64> {
    (0..dims.len() as i64 - 1).collect()
}

/// A vector along the last dimension of `dims`, in f32.
fn along_last(f: F<'_, '_>, v: ValueId, dims: &[i64]) -> ValueId {
    let v = f.convert(v, DType::F32);
    f.broadcast_along(v, &[dims.len() as i64 - 1], dims)
}

/// The mean over the last dimension, at every element of it.
fn mean(f: F<'_, '_>, x: ValueId) -> ValueId {
    let dims = f.dims(x);
    let last = dims.len() as i64 - 1;
    let sum = f.reduce(ReduceKind::Sum, x, &[last]);
    let mean = f.binary_scalar(Opcode::Multiply, sum, 1.0 / dims.last().copied().unwrap_or(1) as f64);
    f.broadcast_along(mean, &all_but_last(&dims), &dims)
}

/// `x` in f32, centred for a layer norm, and the factor that gives each row variance or mean square one.
fn normalised(f: F<'_, '_>, norm: Norm, x: ValueId, epsilon: f64) -> (ValueId, ValueId) {
    let mut wide = f.convert(x, DType::F32);
    if norm == Norm::Layer {
        let centre = mean(f, wide);
        wide = f.binary(Opcode::Subtract, wide, centre);
    }
    let dims = f.dims(wide);
    let squares = f.mul(wide, wide);
    let sum = f.reduce(ReduceKind::Sum, squares, &[dims.len() as i64 - 1]);
    let mean = f.binary_scalar(Opcode::Multiply, sum, 1.0 / dims.last().copied().unwrap_or(1) as f64);
    let shifted = f.binary_scalar(Opcode::Add, mean, epsilon);
    let factor = f.unary(Opcode::Rsqrt, shifted);
    let factor = f.broadcast_along(factor, &all_but_last(&dims), &dims);
    (wide, factor)
}

/// A norm over the last dimension.
pub(super) fn norm(
    f: F<'_, '_>,
    kind: Norm,
    x: ValueId,
    weight: ValueId,
    bias: Option<ValueId>,
    epsilon: f64,
) -> ValueId {
    let ty = f.ty(x);
    let (wide, factor) = normalised(f, kind, x, epsilon);
    let unit = f.mul(wide, factor);
    let weight = along_last(f, weight, &ty.dims);
    let mut y = f.mul(unit, weight);
    if let Some(bias) = bias {
        let bias = along_last(f, bias, &ty.dims);
        y = f.add(y, bias);
    }
    f.convert(y, ty.dtype)
}

/// Gradients of a norm: of `x` in its type, of the weight and of the bias in f32.
pub(super) fn norm_gradient(
    f: F<'_, '_>,
    kind: Norm,
    x: ValueId,
    weight: ValueId,
    dy: ValueId,
    epsilon: f64,
) -> (ValueId, ValueId, ValueId) {
    let ty = f.ty(x);
    let rows = all_but_last(&ty.dims);
    let (wide, factor) = normalised(f, kind, x, epsilon);
    let unit = f.mul(wide, factor);
    let dy = f.convert(dy, DType::F32);
    let weight = along_last(f, weight, &ty.dims);
    let du = f.mul(dy, weight);
    let product = f.mul(du, unit);
    let along = mean(f, product);
    let along = f.mul(unit, along);
    let mut across = f.binary(Opcode::Subtract, du, along);
    if kind == Norm::Layer {
        let centre = mean(f, du);
        across = f.binary(Opcode::Subtract, across, centre);
    }
    let dx = f.mul(factor, across);
    let dx = f.convert(dx, ty.dtype);
    let dw = f.mul(dy, unit);
    let dw = f.reduce(ReduceKind::Sum, dw, &rows);
    let db = f.reduce(ReduceKind::Sum, dy, &rows);
    (dx, dw, db)
}

/// Cosines and sines of rotary positions, from positions `(seq, dim / 2)` in f32.
pub(super) fn rope_tables(f: F<'_, '_>, position: ValueId, dim: i64, base: f64) -> (ValueId, ValueId) {
    let channel = f.iota(f.ty(position), 1);
    let exponent = f.binary_scalar(Opcode::Multiply, channel, -2.0 * base.ln() / dim as f64);
    let frequency = f.unary(Opcode::Exponential, exponent);
    let angle = f.mul(position, frequency);
    (f.unary(Opcode::Cosine, angle), f.unary(Opcode::Sine, angle))
}

/// `x` `(batch, seq, heads, dim)` with the halves of each head rotated against each other; `back` rotates the other way, which is the
/// gradient.
pub(super) fn rope(f: F<'_, '_>, x: ValueId, (cos, sin): (ValueId, ValueId), back: bool) -> ValueId {
    let ty = f.ty(x);
    let size = |i: usize| ty.dims.get(i).copied().unwrap_or(1);
    let (outer, dim) = ([size(0), size(1), size(2)], size(3));
    let shape = [outer[0], outer[1], outer[2], dim / 2];
    let (cos, sin) = (f.broadcast_along(cos, &[1, 3], &shape), f.broadcast_along(sin, &[1, 3], &shape));
    let wide = f.convert(x, DType::F32);
    let a = f.slice(wide, &[0; 4], &shape);
    let b = f.slice(wide, &[0, 0, 0, dim / 2], &[outer[0], outer[1], outer[2], dim]);
    let (ac, bs) = (f.mul(a, cos), f.mul(b, sin));
    let (bc, az) = (f.mul(b, cos), f.mul(a, sin));
    let (one, two) = if back { (Opcode::Add, Opcode::Subtract) } else { (Opcode::Subtract, Opcode::Add) };
    let (first, second) = (f.binary(one, ac, bs), f.binary(two, bc, az));
    let y = f.concatenate(&[first, second], 3);
    f.convert(y, ty.dtype)
}

/// `silu(gate) * up`.
pub(super) fn swiglu(f: F<'_, '_>, gate: ValueId, up: ValueId) -> ValueId {
    let dtype = f.ty(gate).dtype;
    let (g, u) = (f.convert(gate, DType::F32), f.convert(up, DType::F32));
    let sigmoid = f.unary(Opcode::Logistic, g);
    let silu = f.mul(g, sigmoid);
    let y = f.mul(silu, u);
    f.convert(y, dtype)
}

/// Gradients of `gate` and `up` in [`swiglu`].
pub(super) fn swiglu_gradient(f: F<'_, '_>, gate: ValueId, up: ValueId, dy: ValueId) -> (ValueId, ValueId) {
    let dtype = f.ty(gate).dtype;
    let (g, u, dy) = (f.convert(gate, DType::F32), f.convert(up, DType::F32), f.convert(dy, DType::F32));
    let sigmoid = f.unary(Opcode::Logistic, g);
    let silu = f.mul(g, sigmoid);
    let du = f.mul(dy, silu);
    // silu' = s + silu (1 - s)
    let product = f.mul(silu, sigmoid);
    let slope = f.add(sigmoid, silu);
    let slope = f.binary(Opcode::Subtract, slope, product);
    let dg = f.mul(dy, u);
    let dg = f.mul(dg, slope);
    (f.convert(dg, dtype), f.convert(du, dtype))
}

/// `sqrt(2 / pi)` and the cubic's factor in the usual approximation of GELU by a tanh.
const GELU: (f64, f64) = (0.797_884_560_802_865_4, 0.044_715);

/// `u` in f32, its square, and the tanh of GELU.
fn gelu_parts(f: F<'_, '_>, up: ValueId) -> (ValueId, ValueId, ValueId) {
    let u = f.convert(up, DType::F32);
    let square = f.mul(u, u);
    let inner = f.binary_scalar(Opcode::Multiply, square, GELU.0 * GELU.1);
    let inner = f.binary_scalar(Opcode::Add, inner, GELU.0);
    let inner = f.mul(inner, u);
    (u, square, f.unary(Opcode::Tanh, inner))
}

/// `gelu(up)`.
pub(super) fn gelu(f: F<'_, '_>, up: ValueId) -> ValueId {
    let dtype = f.ty(up).dtype;
    let (u, _, tanh) = gelu_parts(f, up);
    let shifted = f.binary_scalar(Opcode::Add, tanh, 1.0);
    let half = f.binary_scalar(Opcode::Multiply, u, 0.5);
    let y = f.mul(half, shifted);
    f.convert(y, dtype)
}

/// Gradient of `up` in [`gelu`].
pub(super) fn gelu_gradient(f: F<'_, '_>, up: ValueId, dy: ValueId) -> ValueId {
    let dtype = f.ty(up).dtype;
    let (u, square, tanh) = gelu_parts(f, up);
    let dy = f.convert(dy, DType::F32);
    // 2 gelu' = 1 + t + u (1 - t^2) (c + 3 c a u^2)
    let slope = f.binary_scalar(Opcode::Multiply, square, 3.0 * GELU.0 * GELU.1);
    let slope = f.binary_scalar(Opcode::Add, slope, GELU.0);
    let slope = f.mul(slope, u);
    let curved = f.mul(tanh, tanh);
    let curved = f.mul(slope, curved);
    let slope = f.binary(Opcode::Subtract, slope, curved);
    let slope = f.add(slope, tanh);
    let slope = f.binary_scalar(Opcode::Add, slope, 1.0);
    let slope = f.binary_scalar(Opcode::Multiply, slope, 0.5);
    let dx = f.mul(dy, slope);
    f.convert(dx, dtype)
}

/// What the MLP computes between its products.
pub(super) fn activation(f: F<'_, '_>, kind: Mlp, gate: Option<ValueId>, up: ValueId) -> ValueId {
    match (kind, gate) {
        (Mlp::Silu, Some(g)) => swiglu(f, g, up),
        (Mlp::GatedGelu, Some(g)) => {
            let (dtype, g) = (f.ty(up).dtype, f.convert(g, DType::F32));
            let (a, u) = (gelu(f, g), f.convert(up, DType::F32));
            let y = f.mul(a, u);
            f.convert(y, dtype)
        }
        (Mlp::Relu, _) => f.binary_scalar(Opcode::Maximum, up, 0.0),
        (Mlp::Gelu | Mlp::Silu | Mlp::GatedGelu, _) => gelu(f, up),
    }
}

/// Gradients of the gate, if there is one, and of `up` in [`activation`].
pub(super) fn activation_gradient(
    f: F<'_, '_>,
    kind: Mlp,
    gate: Option<ValueId>,
    up: ValueId,
    dy: ValueId,
) -> (Option<ValueId>, ValueId) {
    match (kind, gate) {
        (Mlp::Silu, Some(g)) => {
            let (dg, du) = swiglu_gradient(f, g, up, dy);
            (Some(dg), du)
        }
        (Mlp::GatedGelu, Some(g)) => {
            let dtype = f.ty(up).dtype;
            let [g, u, dy] = [g, up, dy].map(|x| f.convert(x, DType::F32));
            let (a, da) = (gelu(f, g), f.mul(dy, u));
            let du = f.mul(dy, a);
            let dg = gelu_gradient(f, g, da);
            (Some(f.convert(dg, dtype)), f.convert(du, dtype))
        }
        (Mlp::Relu, _) => {
            let dims = f.dims(up);
            let zero = f.splat(TensorType::new(dims, f.ty(up).dtype), 0.0);
            let positive = f.compare("GT", up, zero);
            (None, f.select(positive, dy, zero))
        }
        (Mlp::Gelu | Mlp::Silu | Mlp::GatedGelu, _) => (None, gelu_gradient(f, up, dy)),
    }
}
