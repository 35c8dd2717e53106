//! The gated feed-forward layer of most language models.

use tpusim_backend::hlo::{Module, ModuleBuilder, TensorType, Verified};
use tpusim_isa::num::DType;

use crate::blocks::swiglu;
use crate::{ParamSpec, ParamValue, Params, Workload, WorkloadError};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "mlp",
    about: "silu(x @ gate) * (x @ up) @ down",
    params: &[
        ParamSpec { name: "tokens", default: ParamValue::Size(512), about: "rows of x" },
        ParamSpec { name: "d", default: ParamValue::Size(1024), about: "model width" },
        ParamSpec { name: "ff", default: ParamValue::Size(3072), about: "hidden width" },
        ParamSpec { name: "dtype", default: ParamValue::Float(DType::BF16), about: "type of all arrays" },
    ],
    build,
};

fn build(p: &Params) -> Result<Verified<Module>, WorkloadError> {
    let (tokens, d, ff, dtype) = (p.size("tokens"), p.size("d"), p.size("ff"), p.float("dtype"));
    let mut m = ModuleBuilder::new("mlp");
    let mut f = m.func("main");
    let x = f.param("x", TensorType::new([tokens, d], dtype));
    let gate = f.param("gate", TensorType::new([d, ff], dtype));
    let up = f.param("up", TensorType::new([d, ff], dtype));
    let down = f.param("down", TensorType::new([ff, d], dtype));
    f.name("mlp");
    let y = swiglu(&mut f, x, gate, up, down);
    f.ret(&[y]);
    Workload::finish("mlp", m)
}
