//! A decoder block of Qwen3: grouped-query attention with normalised queries and keys, rotary positions, and a gated MLP. The defaults
//! are the widths of Qwen3-0.6B.

use tpusim_backend::hlo::{FuncBuilder, Module, ModuleBuilder, TensorType, ValueId, Verified};
use tpusim_isa::num::DType;

use crate::blocks::{attention, rms_norm, rope, swiglu};
use crate::draw::{scale, weight};
use crate::{ParamSpec, ParamValue, Params, Workload, WorkloadError};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "qwen3-block",
    about: "one decoder block of Qwen3 (norms, attention, MLP) on a prompt",
    params: &[
        ParamSpec { name: "tokens", default: ParamValue::Size(256), about: "tokens of the prompt" },
        ParamSpec { name: "d", default: ParamValue::Size(1024), about: "model width" },
        ParamSpec { name: "heads", default: ParamValue::Size(16), about: "query heads" },
        ParamSpec { name: "kv_heads", default: ParamValue::Size(8), about: "key and value heads; divides heads" },
        ParamSpec { name: "dim", default: ParamValue::Size(128), about: "size of a head, even" },
        ParamSpec { name: "ff", default: ParamValue::Size(3072), about: "hidden width of the MLP" },
        ParamSpec { name: "dtype", default: ParamValue::Float(DType::BF16), about: "type of all arrays" },
    ],
    build,
};

/// Base of Qwen3's rotary frequencies.
const ROPE_BASE: f64 = 1_000_000.0;

fn build(p: &Params) -> Result<Verified<Module>, WorkloadError> {
    let (tokens, d, ff, dtype) = (p.size("tokens"), p.size("d"), p.size("ff"), p.float("dtype"));
    let (heads, kv_heads, dim) = (p.size("heads"), p.size("kv_heads"), p.size("dim"));
    let shape = Shape { d, ff, heads, kv_heads, dim };
    shape.check()?;
    let mut m = ModuleBuilder::new("qwen3-block");
    let mut f = m.func("main");
    let x = f.param("x", TensorType::new([tokens, d], dtype));
    let y = block(&mut f, x, &shape, "");
    f.ret(&[y]);
    Workload::finish("qwen3-block", m)
}

/// Widths of a decoder block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) d: i64,
    pub(crate) ff: i64,
    pub(crate) heads: i64,
    pub(crate) kv_heads: i64,
    pub(crate) dim: i64,
}

impl Shape {
    /// Sizes that go together.
    pub(crate) fn check(&self) -> Result<(), WorkloadError> {
        let Shape { heads, kv_heads, dim, .. } = *self;
        if heads % kv_heads != 0 {
            return Err(WorkloadError::Combination(format!("kv_heads={kv_heads} does not divide heads={heads}")));
        }
        if dim % 2 != 0 {
            return Err(WorkloadError::Combination(format!("dim={dim} is odd; rotary positions need pairs")));
        }
        Ok(())
    }
}

/// A decoder block on `x` (tokens, d). Its weights become parameters, their names and those of its operations after `prefix`.
pub(crate) fn block(f: &mut FuncBuilder<'_>, x: ValueId, s: &Shape, prefix: &str) -> ValueId {
    let ty = f.ty(x);
    let (tokens, dtype) = (ty.dims.first().copied().unwrap_or(1), ty.dtype);
    let Shape { d, ff, heads, kv_heads, dim } = *s;
    let weights = |f: &mut FuncBuilder<'_>, name: &str, k: i64, n: i64| {
        weight(f, &format!("{prefix}{name}"), TensorType::new([k, n], dtype), k)
    };
    let norm =
        |f: &mut FuncBuilder<'_>, name: &str, n: i64| scale(f, &format!("{prefix}{name}"), TensorType::new([n], dtype));
    let input_norm = norm(f, "input_norm", d);
    let wq = weights(f, "wq", d, heads * dim);
    let wk = weights(f, "wk", d, kv_heads * dim);
    let wv = weights(f, "wv", d, kv_heads * dim);
    let q_norm = norm(f, "q_norm", dim);
    let k_norm = norm(f, "k_norm", dim);
    let wo = weights(f, "wo", heads * dim, d);
    let post_norm = norm(f, "post_norm", d);
    let gate = weights(f, "gate", d, ff);
    let up = weights(f, "up", d, ff);
    let down = weights(f, "down", ff, d);

    f.name(format!("{prefix}input_norm"));
    let h = rms_norm(f, x, input_norm);
    let split = |f: &mut FuncBuilder<'_>, w: ValueId, n: i64| {
        let y = f.matmul(h, w, dtype);
        f.reshape(y, &[tokens, n, dim])
    };
    f.name(format!("{prefix}attention/qkv"));
    let (q, k, v) = (split(f, wq, heads), split(f, wk, kv_heads), split(f, wv, kv_heads));
    f.name(format!("{prefix}attention/qk_norm"));
    let (q, k) = (rms_norm(f, q, q_norm), rms_norm(f, k, k_norm));
    let (q, k) = (f.transpose(q, &[1, 0, 2]), f.transpose(k, &[1, 0, 2]));
    let v = f.transpose(v, &[1, 0, 2]);
    f.name(format!("{prefix}attention/rope"));
    let (q, k) = (rope(f, q, ROPE_BASE), rope(f, k, ROPE_BASE));
    f.name(format!("{prefix}attention/core"));
    let o = attention(f, q, k, v, true);
    let o = f.transpose(o, &[1, 0, 2]);
    let o = f.reshape(o, &[tokens, heads * dim]);
    f.name(format!("{prefix}attention/out"));
    let o = f.matmul(o, wo, dtype);
    let x = f.add(x, o);
    f.name(format!("{prefix}post_norm"));
    let h = rms_norm(f, x, post_norm);
    f.name(format!("{prefix}mlp"));
    let y = swiglu(f, h, gate, up, down);
    f.add(x, y)
}
