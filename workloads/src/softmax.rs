//! Softmax over rows.

use tpusim_backend::hlo::{Module, ModuleBuilder, TensorType, Verified};
use tpusim_isa::num::DType;

use crate::{ParamSpec, ParamValue, Params, Workload, WorkloadError, blocks};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "softmax",
    about: "softmax of x[rows,cols] over its columns, in f32",
    params: &[
        ParamSpec { name: "rows", default: ParamValue::Size(2048), about: "rows of x" },
        ParamSpec { name: "cols", default: ParamValue::Size(2048), about: "columns of x" },
        ParamSpec { name: "dtype", default: ParamValue::Float(DType::BF16), about: "type of x and the result" },
    ],
    build,
};

fn build(p: &Params) -> Result<Verified<Module>, WorkloadError> {
    let mut m = ModuleBuilder::new("softmax");
    let mut f = m.func("main");
    let x = f.param("x", TensorType::new([p.size("rows"), p.size("cols")], p.float("dtype")));
    f.name("softmax");
    let y = blocks::softmax(&mut f, x, p.float("dtype"));
    f.ret(&[y]);
    Workload::finish("softmax", m)
}
