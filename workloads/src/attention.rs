//! Attention without its projections.

use tpusim_backend::hlo::{Module, ModuleBuilder, TensorType, Verified};
use tpusim_isa::num::DType;

use crate::{ParamSpec, ParamValue, Params, Workload, WorkloadError, blocks};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "attention",
    about: "softmax(q @ k^T / sqrt(dim)) @ v for each head; heads share keys and values in groups",
    params: &[
        ParamSpec { name: "heads", default: ParamValue::Size(8), about: "query heads" },
        ParamSpec { name: "kv_heads", default: ParamValue::Size(4), about: "key and value heads; divides heads" },
        ParamSpec { name: "tokens", default: ParamValue::Size(512), about: "queries" },
        ParamSpec { name: "context", default: ParamValue::Size(512), about: "keys and values" },
        ParamSpec { name: "dim", default: ParamValue::Size(128), about: "size of a head" },
        ParamSpec { name: "causal", default: ParamValue::Bool(true), about: "hide later keys" },
        ParamSpec { name: "dtype", default: ParamValue::Float(DType::BF16), about: "type of all arrays" },
    ],
    build,
};

fn build(p: &Params) -> Result<Verified<Module>, WorkloadError> {
    let (heads, kv_heads) = (p.size("heads"), p.size("kv_heads"));
    if heads % kv_heads != 0 {
        return Err(WorkloadError::Combination(format!("kv_heads={kv_heads} does not divide heads={heads}")));
    }
    let (tokens, context) = (p.size("tokens"), p.size("context"));
    if p.flag("causal") && context < tokens {
        let text = format!("causal attention needs a context of at least tokens={tokens}, context={context}");
        return Err(WorkloadError::Combination(text));
    }
    let (dim, dtype) = (p.size("dim"), p.float("dtype"));
    let mut m = ModuleBuilder::new("attention");
    let mut f = m.func("main");
    let q = f.param("q", TensorType::new([heads, tokens, dim], dtype));
    let k = f.param("k", TensorType::new([kv_heads, context, dim], dtype));
    let v = f.param("v", TensorType::new([kv_heads, context, dim], dtype));
    f.name("attention");
    let o = blocks::attention(&mut f, q, k, v, p.flag("causal"));
    f.ret(&[o]);
    Workload::finish("attention", m)
}
