//! A decoder block of Qwen3: grouped-query attention with normalised queries and keys, rotary positions, and a gated MLP. The defaults
//! are the widths of Qwen3-0.6B.

use tpusim_backend::hlo::{FuncBuilder, Module, ModuleBuilder, TensorType, ValueId, Verified};
use tpusim_isa::num::DType;

use crate::blocks::{attention, rms_norm, rope, swiglu};
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
    if heads % kv_heads != 0 {
        return Err(WorkloadError::Combination(format!("kv_heads={kv_heads} does not divide heads={heads}")));
    }
    if dim % 2 != 0 {
        return Err(WorkloadError::Combination(format!("dim={dim} is odd; rotary positions need pairs")));
    }
    let mut m = ModuleBuilder::new("qwen3-block");
    let mut f = m.func("main");
    let param = |f: &mut FuncBuilder<'_>, name: &str, dims: &[i64]| f.param(name, TensorType::new(dims, dtype));
    let x = param(&mut f, "x", &[tokens, d]);
    let input_norm = param(&mut f, "input_norm", &[d]);
    let wq = param(&mut f, "wq", &[d, heads * dim]);
    let wk = param(&mut f, "wk", &[d, kv_heads * dim]);
    let wv = param(&mut f, "wv", &[d, kv_heads * dim]);
    let q_norm = param(&mut f, "q_norm", &[dim]);
    let k_norm = param(&mut f, "k_norm", &[dim]);
    let wo = param(&mut f, "wo", &[heads * dim, d]);
    let post_norm = param(&mut f, "post_norm", &[d]);
    let gate = param(&mut f, "gate", &[d, ff]);
    let up = param(&mut f, "up", &[d, ff]);
    let down = param(&mut f, "down", &[ff, d]);

    f.name("input_norm");
    let h = rms_norm(&mut f, x, input_norm);
    let split = |f: &mut FuncBuilder<'_>, w: ValueId, n: i64| {
        let y = f.matmul(h, w, dtype);
        f.reshape(y, &[tokens, n, dim])
    };
    f.name("attention/qkv");
    let (q, k, v) = (split(&mut f, wq, heads), split(&mut f, wk, kv_heads), split(&mut f, wv, kv_heads));
    f.name("attention/qk_norm");
    let (q, k) = (rms_norm(&mut f, q, q_norm), rms_norm(&mut f, k, k_norm));
    let (q, k) = (f.transpose(q, &[1, 0, 2]), f.transpose(k, &[1, 0, 2]));
    let v = f.transpose(v, &[1, 0, 2]);
    f.name("attention/rope");
    let (q, k) = (rope(&mut f, q, ROPE_BASE), rope(&mut f, k, ROPE_BASE));
    f.name("attention/core");
    let o = attention(&mut f, q, k, v, true);
    let o = f.transpose(o, &[1, 0, 2]);
    let o = f.reshape(o, &[tokens, heads * dim]);
    f.name("attention/out");
    let o = f.matmul(o, wo, dtype);
    let x = f.add(x, o);
    f.name("post_norm");
    let h = rms_norm(&mut f, x, post_norm);
    f.name("mlp");
    let y = swiglu(&mut f, h, gate, up, down);
    let y = f.add(x, y);
    f.ret(&[y]);
    Workload::finish("qwen3-block", m)
}
