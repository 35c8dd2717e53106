//! ResNet-50 on a batch of images: the forward pass to logits, channels last, batch norms folded into the weights or as operations of
//! their own. The stride of a stage sits on its first 3 x 3 convolution (version 1.5).

use tpusim_backend::hlo::{
    Attr, ConvDims, FuncBuilder, Module, ModuleBuilder, Opcode, TensorType, Type, ValueId, Verified,
};
use tpusim_isa::num::DType;

use crate::draw::{Draw, drawn, scale, weight};
use crate::{ParamSpec, ParamValue, Params, Workload, WorkloadError};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "resnet50",
    about: "ResNet-50 on a batch of images, to logits",
    params: &[
        ParamSpec { name: "batch", default: ParamValue::Size(8), about: "images" },
        ParamSpec { name: "size", default: ParamValue::Size(224), about: "height and width of an image" },
        ParamSpec { name: "width", default: ParamValue::Size(64), about: "channels of the stem" },
        ParamSpec { name: "classes", default: ParamValue::Size(1000), about: "logits of an image" },
        ParamSpec { name: "folded", default: ParamValue::Bool(true), about: "batch norms are part of the weights" },
        ParamSpec { name: "dtype", default: ParamValue::Float(DType::BF16), about: "type of all arrays" },
    ],
    build,
};

/// Blocks of each stage.
const STAGES: [i64; 4] = [3, 4, 6, 3];

/// A bottleneck's output has this many times its inner channels.
const EXPANSION: i64 = 4;

struct Net<'f, 'm> {
    f: &'f mut FuncBuilder<'m>,
    dtype: DType,
    folded: bool,
}

fn build(p: &Params) -> Result<Verified<Module>, WorkloadError> {
    let (batch, size, width, classes) = (p.size("batch"), p.size("size"), p.size("width"), p.size("classes"));
    let dtype = p.float("dtype");
    let mut m = ModuleBuilder::new("resnet50");
    let mut f = m.func("main");
    let images = f.param("images", TensorType::new([batch, size, size, 3], dtype));
    let mut n = Net { f: &mut f, dtype, folded: p.flag("folded") };
    let x = n.conv(images, "stem", 7, 2, width);
    let x = n.relu(x);
    let mut x = n.max_pool(x);
    for (stage, blocks) in STAGES.into_iter().enumerate() {
        for b in 0..blocks {
            let stride = if stage > 0 && b == 0 { 2 } else { 1 };
            x = n.bottleneck(x, &format!("stage{stage}/block{b}"), width << stage, stride);
        }
    }
    f.name("pool");
    let dims = f.dims(x);
    let wide = f.convert(x, DType::F32);
    let sum = f.reduce(tpusim_backend::hlo::ReduceKind::Sum, wide, &[1, 2]);
    let mean = f.binary_scalar(Opcode::Multiply, sum, 1.0 / (dims[1] * dims[2]) as f64);
    let features = f.convert(mean, dtype);
    f.name("classifier");
    let w = weight(&mut f, "classifier/w", TensorType::new([dims[3], classes], dtype), dims[3]);
    let b = bias(&mut f, "classifier/b", classes, dtype);
    let y = f.matmul(features, w, dtype);
    let b = f.broadcast_along(b, &[1], &[batch, classes]);
    let y = f.add(y, b);
    f.ret(&[y]);
    Workload::finish("resnet50", m)
}

fn bias(f: &mut FuncBuilder<'_>, name: &str, n: i64, dtype: DType) -> ValueId {
    drawn(f, name, TensorType::new([n], dtype), Draw::Normal { mean: 0.0, deviation: 0.1 })
}

impl Net<'_, '_> {
    /// A convolution that keeps the size at stride one, with its batch norm.
    fn conv(&mut self, x: ValueId, name: &str, kernel: i64, stride: i64, out: i64) -> ValueId {
        let f = &mut *self.f;
        f.name(name);
        let dims = f.dims(x);
        let fan_in = kernel * kernel * dims[3];
        let w = TensorType::new([kernel, kernel, dims[3], out], self.dtype);
        let w = weight(f, &format!("{name}/w"), w, fan_in);
        let pad = kernel / 2;
        let conv = ConvDims {
            input_batch: 0,
            input_feature: 3,
            input_spatial: vec![1, 2],
            kernel_input_feature: 2,
            kernel_output_feature: 3,
            kernel_spatial: vec![0, 1],
            output_batch: 0,
            output_feature: 3,
            output_spatial: vec![1, 2],
        };
        let one = || Attr::Int(1, Type::Scalar(DType::I64));
        let attrs = [
            ("dimension_numbers", Attr::Conv(Box::new(conv))),
            ("window_strides", Attr::Ints(vec![stride, stride])),
            ("padding", Attr::Pairs(vec![[pad, pad]; 2])),
            ("feature_group_count", one()),
            ("batch_group_count", one()),
        ];
        let len = |n: i64| (n + 2 * pad - kernel).div_euclid(stride) + 1;
        let to = [dims[0], len(dims[1]), len(dims[2]), out];
        let result = TensorType::new(to, self.dtype);
        let y = f.op(Opcode::Convolution, &[x, w], &attrs, &[result]).first().copied().unwrap_or(x);
        f.name(format!("{name}/norm"));
        let vector = TensorType::new([out], self.dtype);
        if self.folded {
            let b = bias(f, &format!("{name}/b"), out, self.dtype);
            let b = f.broadcast_along(b, &[3], &to);
            return f.add(y, b);
        }
        let gamma = scale(f, &format!("{name}/gamma"), vector.clone());
        let beta = bias(f, &format!("{name}/beta"), out, self.dtype);
        let mean = bias(f, &format!("{name}/mean"), out, self.dtype);
        let variance = scale(f, &format!("{name}/variance"), vector);
        let attrs = [
            ("epsilon", Attr::Float(1e-5, Type::Scalar(DType::F32))),
            ("feature_index", Attr::Int(3, Type::Scalar(DType::I64))),
        ];
        f.infer(Opcode::BatchNormInference, &[y, gamma, beta, mean, variance], &attrs)
    }

    fn relu(&mut self, x: ValueId) -> ValueId {
        self.f.binary_scalar(Opcode::Maximum, x, 0.0)
    }

    /// The largest of each 3 x 3 window, every second one in each direction.
    fn max_pool(&mut self, x: ValueId) -> ValueId {
        let f = &mut *self.f;
        f.name("max_pool");
        let ty = f.ty(x);
        let init = f.scalar(ty.dtype, f64::NEG_INFINITY);
        let scalar = TensorType::new([], ty.dtype);
        let body = f.region(&[scalar.clone(), scalar], |f, a| vec![f.binary(Opcode::Maximum, a[0], a[1])]);
        let attrs = [
            ("window_dimensions", Attr::Ints(vec![1, 3, 3, 1])),
            ("window_strides", Attr::Ints(vec![1, 2, 2, 1])),
            ("padding", Attr::Pairs(vec![[0, 0], [1, 1], [1, 1], [0, 0]])),
        ];
        let half = |n: i64| (n - 1) / 2 + 1;
        let to = TensorType::new([ty.dims[0], half(ty.dims[1]), half(ty.dims[2]), ty.dims[3]], ty.dtype);
        f.op_with_regions(Opcode::ReduceWindow, &[x, init], &attrs, vec![body], &[to]).first().copied().unwrap_or(x)
    }

    /// 1 x 1, 3 x 3 and 1 x 1 convolutions beside a shortcut.
    fn bottleneck(&mut self, x: ValueId, name: &str, inner: i64, stride: i64) -> ValueId {
        let out = inner * EXPANSION;
        let y = self.conv(x, &format!("{name}/conv0"), 1, 1, inner);
        let y = self.relu(y);
        let y = self.conv(y, &format!("{name}/conv1"), 3, stride, inner);
        let y = self.relu(y);
        let y = self.conv(y, &format!("{name}/conv2"), 1, 1, out);
        let same = stride == 1 && self.f.dims(x).last() == Some(&out);
        let short = if same { x } else { self.conv(x, &format!("{name}/shortcut"), 1, stride, out) };
        self.f.name(format!("{name}/add"));
        let sum = self.f.add(y, short);
        self.relu(sum)
    }
}
