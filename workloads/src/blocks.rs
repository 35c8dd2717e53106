//! Pieces that several workloads are made of, written as frameworks emit them: norms and softmax in f32, products in the model's type.

use tpusim_backend::hlo::{DotDims, FuncBuilder, Opcode, ReduceKind, TensorType, ValueId};
use tpusim_isa::num::DType;

/// All but the last dimension.
fn leading(dims: &[i64]) -> Vec<i64> {
    (0..dims.len() as i64 - 1).collect()
}

/// `x / sqrt(mean(x^2) + 1e-6) * weight` over the last dimension, computed in f32. `weight` is a vector of its size.
pub(crate) fn rms_norm(f: &mut FuncBuilder<'_>, x: ValueId, weight: ValueId) -> ValueId {
    let ty = f.ty(x);
    let last = ty.dims.len() as i64 - 1;
    let width = ty.dims.last().copied().unwrap_or(1);
    let wide = f.convert(x, DType::F32);
    let squares = f.mul(wide, wide);
    let sum = f.reduce(ReduceKind::Sum, squares, &[last]);
    let mean = f.binary_scalar(Opcode::Multiply, sum, 1.0 / width as f64);
    let shifted = f.binary_scalar(Opcode::Add, mean, 1e-6);
    let scale = f.unary(Opcode::Rsqrt, shifted);
    let scale = f.broadcast_along(scale, &leading(&ty.dims), &ty.dims);
    let normal = f.mul(wide, scale);
    let weight = f.convert(weight, DType::F32);
    let weight = f.broadcast_along(weight, &[last], &ty.dims);
    let y = f.mul(normal, weight);
    f.convert(y, ty.dtype)
}

/// Softmax over the last dimension in f32, converted to `out`.
pub(crate) fn softmax(f: &mut FuncBuilder<'_>, x: ValueId, out: DType) -> ValueId {
    let wide = f.convert(x, DType::F32);
    let dims = f.dims(wide);
    let (last, kept) = (dims.len() as i64 - 1, leading(&dims));
    let max = f.reduce(ReduceKind::Max, wide, &[last]);
    let max = f.broadcast_along(max, &kept, &dims);
    let shifted = f.binary(Opcode::Subtract, wide, max);
    let e = f.unary(Opcode::Exponential, shifted);
    let sum = f.reduce(ReduceKind::Sum, e, &[last]);
    let sum = f.broadcast_along(sum, &kept, &dims);
    let y = f.binary(Opcode::Divide, e, sum);
    f.convert(y, out)
}

/// `silu(x @ gate) * (x @ up) @ down`.
pub(crate) fn swiglu(f: &mut FuncBuilder<'_>, x: ValueId, gate: ValueId, up: ValueId, down: ValueId) -> ValueId {
    let dtype = f.ty(x).dtype;
    let g = f.matmul(x, gate, dtype);
    let u = f.matmul(x, up, dtype);
    let wide = f.convert(g, DType::F32);
    let sigmoid = f.unary(Opcode::Logistic, wide);
    let silu = f.mul(wide, sigmoid);
    let silu = f.convert(silu, dtype);
    let h = f.mul(silu, u);
    f.matmul(h, down, dtype)
}

/// Attention of queries `(heads, tokens, dim)` over keys and values `(kv_heads, context, dim)`; queries of consecutive heads share
/// keys and values. With `causal`, query `i` sees the keys up to the one at its own distance from the end.
pub(crate) fn attention(f: &mut FuncBuilder<'_>, q: ValueId, k: ValueId, v: ValueId, causal: bool) -> ValueId {
    let (qd, kd, dtype) = (f.dims(q), f.dims(k), f.ty(q).dtype);
    let size = |dims: &[i64], i: usize| dims.get(i).copied().unwrap_or(1).max(1);
    let (heads, tokens, dim) = (size(&qd, 0), size(&qd, 1), size(&qd, 2));
    let (kv_heads, context) = (size(&kd, 0), size(&kd, 1));
    let group = heads / kv_heads;
    let q = f.reshape(q, &[kv_heads, group * tokens, dim]);
    let over_dim = DotDims { lhs_batch: vec![0], rhs_batch: vec![0], lhs_contract: vec![2], rhs_contract: vec![2] };
    let scores = f.dot_general(q, k, over_dim, DType::F32);
    let scores = f.binary_scalar(Opcode::Multiply, scores, 1.0 / (dim as f64).sqrt());
    let mut scores = f.reshape(scores, &[heads, tokens, context]);
    if causal {
        let full = [heads, tokens, context];
        let query = f.iota(TensorType::new([tokens, context], DType::I32), 0);
        let query = f.binary_scalar(Opcode::Add, query, (context - tokens) as f64);
        let key = f.iota(TensorType::new([tokens, context], DType::I32), 1);
        let seen = f.compare("GE", query, key);
        let seen = f.broadcast_along(seen, &[1, 2], &full);
        let hidden = f.splat(TensorType::new(full, DType::F32), -1e30);
        scores = f.select(seen, scores, hidden);
    }
    let p = softmax(f, scores, dtype);
    let p = f.reshape(p, &[kv_heads, group * tokens, context]);
    let over_context = DotDims { lhs_batch: vec![0], rhs_batch: vec![0], lhs_contract: vec![2], rhs_contract: vec![1] };
    let o = f.dot_general(p, v, over_context, dtype);
    f.reshape(o, &[heads, tokens, dim])
}

/// Rotary position embedding of `x` `(heads, tokens, dim)`, halves rotated against each other, positions from 0, computed in f32.
pub(crate) fn rope(f: &mut FuncBuilder<'_>, x: ValueId, base: f64) -> ValueId {
    let ty = f.ty(x);
    let size = |i: usize| ty.dims.get(i).copied().unwrap_or(1);
    let (heads, tokens, dim) = (size(0), size(1), size(2));
    let half = dim / 2;
    let table = TensorType::new([tokens, half], DType::F32);
    let position = f.iota(table.clone(), 0);
    let channel = f.iota(table, 1);
    let exponent = f.binary_scalar(Opcode::Multiply, channel, -2.0 * base.ln() / dim as f64);
    let frequency = f.unary(Opcode::Exponential, exponent);
    let angle = f.mul(position, frequency);
    let (cos, sin) = (f.unary(Opcode::Cosine, angle), f.unary(Opcode::Sine, angle));
    let shape = [heads, tokens, half];
    let (cos, sin) = (f.broadcast_along(cos, &[1, 2], &shape), f.broadcast_along(sin, &[1, 2], &shape));
    let wide = f.convert(x, DType::F32);
    let a = f.slice(wide, &[0, 0, 0], &[heads, tokens, half]);
    let b = f.slice(wide, &[0, 0, half], &[heads, tokens, dim]);
    let (ac, bs) = (f.mul(a, cos), f.mul(b, sin));
    let (bc, az) = (f.mul(b, cos), f.mul(a, sin));
    let first = f.binary(Opcode::Subtract, ac, bs);
    let second = f.add(bc, az);
    let y = f.concatenate(&[first, second], 2);
    f.convert(y, ty.dtype)
}
