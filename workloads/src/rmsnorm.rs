//! Root-mean-square norm over rows.

use tpusim_backend::hlo::{Module, ModuleBuilder, TensorType, Verified};
use tpusim_isa::num::DType;

use crate::{ParamSpec, ParamValue, Params, Workload, WorkloadError, blocks};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "rmsnorm",
    about: "x / sqrt(mean(x^2) + 1e-6) * weight over the columns of x[rows,cols], in f32",
    params: &[
        ParamSpec { name: "rows", default: ParamValue::Size(2048), about: "rows of x" },
        ParamSpec { name: "cols", default: ParamValue::Size(2048), about: "columns of x" },
        ParamSpec { name: "dtype", default: ParamValue::Float(DType::BF16), about: "type of all arrays" },
    ],
    build,
};

fn build(p: &Params) -> Result<Verified<Module>, WorkloadError> {
    let mut m = ModuleBuilder::new("rmsnorm");
    let mut f = m.func("main");
    let x = f.param("x", TensorType::new([p.size("rows"), p.size("cols")], p.float("dtype")));
    let weight = f.param("weight", TensorType::new([p.size("cols")], p.float("dtype")));
    f.name("rmsnorm");
    let y = blocks::rms_norm(&mut f, x, weight);
    f.ret(&[y]);
    Workload::finish("rmsnorm", m)
}
