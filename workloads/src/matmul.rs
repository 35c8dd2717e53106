//! One matrix product.

use tpusim_backend::hlo::{Module, ModuleBuilder, TensorType, Verified};
use tpusim_isa::num::DType;

use crate::{ParamSpec, ParamValue, Params, Workload, WorkloadError};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "matmul",
    about: "x[m,k] @ w[k,n]",
    params: &[
        ParamSpec { name: "m", default: ParamValue::Size(1024), about: "rows of x" },
        ParamSpec { name: "n", default: ParamValue::Size(1024), about: "columns of w" },
        ParamSpec { name: "k", default: ParamValue::Size(1024), about: "contraction" },
        ParamSpec { name: "dtype", default: ParamValue::Float(DType::BF16), about: "type of x, w and the result" },
    ],
    build,
};

fn build(p: &Params) -> Result<Verified<Module>, WorkloadError> {
    let (rows, cols, depth, dtype) = (p.size("m"), p.size("n"), p.size("k"), p.float("dtype"));
    let mut m = ModuleBuilder::new("matmul");
    let mut f = m.func("main");
    let x = f.param("x", TensorType::new([rows, depth], dtype));
    let w = f.param("w", TensorType::new([depth, cols], dtype));
    f.name("matmul");
    let y = f.matmul(x, w, dtype);
    f.ret(&[y]);
    Workload::finish("matmul", m)
}
