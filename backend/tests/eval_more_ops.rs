//! Windows, gathers, scatters, convolutions, sorts, normalisation, solves, quantization, devices. Oracles: examples of the
//! StableHLO specification and values worked out by hand, plain loops, and the defining equations.

use tpusim_backend::eval::{EvalError, EvalOptions, Tensor, eval_module, eval_spmd};
use tpusim_backend::hlo::{
    Attr, ConvDims, FuncBuilder, GatherDims, Module, ModuleBuilder, Opcode, Quant, ReplicaGroups, ScatterDims,
    TensorType, Type, ValueId, Verified,
};
use tpusim_isa::num::DType;

fn build(
    types: &[TensorType],
    body: impl FnOnce(&mut FuncBuilder<'_>, &[ValueId]) -> Vec<ValueId>,
) -> Verified<Module> {
    let mut m = ModuleBuilder::new("test");
    let mut f = m.func("main");
    let params: Vec<ValueId> = types.iter().map(|t| f.param("x", t.clone())).collect();
    let results = body(&mut f, &params);
    f.ret(&results);
    m.finish().unwrap_or_else(|e| panic!("{}", e.iter().map(|e| format!("{e}\n")).collect::<String>()))
}

fn run(inputs: &[Tensor], body: impl FnOnce(&mut FuncBuilder<'_>, &[ValueId]) -> Vec<ValueId>) -> Vec<Tensor> {
    let types: Vec<TensorType> = inputs.iter().map(|t| t.ty().clone()).collect();
    eval_module(&build(&types, body), inputs).unwrap_or_else(|e| panic!("{e}"))
}

fn f32s(dims: &[i64], v: &[f32]) -> Tensor {
    Tensor::from_f32(dims, DType::F32, v).unwrap()
}

fn i64s(dims: &[i64], v: &[i64]) -> Tensor {
    Tensor::from_i64(dims, DType::I64, v).unwrap()
}

fn scalar(dtype: DType) -> TensorType {
    TensorType::new([], dtype)
}

fn int(v: i64) -> Attr {
    Attr::Int(v, Type::Scalar(DType::I64))
}

fn ints(v: &[i64]) -> Attr {
    Attr::Ints(v.to_vec())
}

/// The example of the specification: dilated base and window, padding.
#[test]
fn reduce_window_dilates() {
    let x = i64s(&[3, 2], &[1, 2, 3, 4, 5, 6]);
    let r = run(&[x, i64s(&[], &[0])], |f, p| {
        let s = scalar(DType::I64);
        let body = f.region(&[s.clone(), s], |f, a| vec![f.add(a[0], a[1])]);
        let attrs = [
            ("window_dimensions", ints(&[2, 1])),
            ("window_strides", ints(&[4, 1])),
            ("base_dilations", ints(&[2, 1])),
            ("window_dilations", ints(&[3, 1])),
            ("padding", Attr::Pairs(vec![[2, 1], [0, 0]])),
        ];
        f.op_with_regions(Opcode::ReduceWindow, p, &attrs, vec![body], &[TensorType::new([2, 2], DType::I64)])
    });
    assert_eq!(r[0].to_i64(), [0, 0, 3, 4]);
}

/// Oracle: the definition, index by index, for strides, padding, dilations of both sides and groups.
#[test]
fn convolutions_follow_the_definition() {
    for (fg, bg) in [(1, 1), (2, 1), (1, 2)] {
        let (n, c, o, size, k) = (2usize, 4usize, 6usize, 5usize, 3usize);
        let per = c / fg;
        let x: Vec<f32> = (0..n * size * c).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
        let w: Vec<f32> = (0..k * per * o).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
        let (stride, low, high, base, dil) = (2i64, 1i64, 2i64, 2i64, 1i64);
        let padded = (size as i64 - 1) * base + 1 + low + high;
        let out = (padded - ((k as i64 - 1) * dil + 1)) / stride + 1;
        let dims = ConvDims {
            input_batch: 0,
            input_spatial: vec![1],
            input_feature: 2,
            kernel_spatial: vec![0],
            kernel_input_feature: 1,
            kernel_output_feature: 2,
            output_batch: 0,
            output_feature: 1,
            output_spatial: vec![2],
        };
        let inputs = [f32s(&[n as i64, size as i64, c as i64], &x), f32s(&[k as i64, per as i64, o as i64], &w)];
        let batch = n / bg;
        let ty = TensorType::new([batch as i64, o as i64, out], DType::F32);
        let got = run(&inputs, |f, p| {
            let attrs = [
                ("dimension_numbers", Attr::Conv(Box::new(dims))),
                ("window_strides", ints(&[stride])),
                ("padding", Attr::Pairs(vec![[low, high]])),
                ("lhs_dilation", ints(&[base])),
                ("rhs_dilation", ints(&[dil])),
                ("feature_group_count", int(fg as i64)),
                ("batch_group_count", int(bg as i64)),
            ];
            f.op(Opcode::Convolution, p, &attrs, &[ty])
        })
        .remove(0)
        .to_f32();
        for b in 0..batch {
            for f in 0..o {
                for s in 0..out {
                    let mut sum = 0.0;
                    for j in 0..k {
                        let at = s * stride + j as i64 * dil - low;
                        if at < 0 || at % base != 0 || at / base >= size as i64 {
                            continue;
                        }
                        for i in 0..per {
                            let channel = f / (o / fg) * per + i;
                            let sample = if bg > 1 { f / (o / bg) * batch + b } else { b };
                            sum += x[(sample * size + (at / base) as usize) * c + channel] * w[(j * per + i) * o + f];
                        }
                    }
                    assert_eq!(got[(b * o + f) * out as usize + s as usize], sum, "groups {fg} {bg} at {b} {f} {s}");
                }
            }
        }
    }
}

/// Batching dimensions and clamped starts. Oracle: by hand.
#[test]
fn gather_batches_and_clamps() {
    let x = i64s(&[2, 4], &[0, 1, 2, 3, 10, 11, 12, 13]);
    let dims = GatherDims {
        offset_dims: vec![1],
        operand_batching_dims: vec![0],
        start_indices_batching_dims: vec![0],
        start_index_map: vec![1],
        index_vector_dim: 1,
        ..GatherDims::default()
    };
    let attrs = [("dimension_numbers", Attr::Gather(Box::new(dims))), ("slice_sizes", ints(&[1, 2]))];
    let r = run(&[x, i64s(&[2], &[1, 9])], |f, p| vec![f.infer(Opcode::Gather, p, &attrs)]);
    assert_eq!((r[0].dims(), r[0].to_i64()), ([2, 2].as_slice(), vec![1, 2, 12, 13]));
}

#[test]
fn scatter_adds_in_order_and_drops_what_is_outside() {
    let dims = ScatterDims {
        update_window_dims: vec![1],
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        index_vector_dim: 1,
        ..ScatterDims::default()
    };
    let inputs = [i64s(&[3, 2], &[0; 6]), i64s(&[4], &[2, 0, 2, 7]), i64s(&[4, 2], &[1, 2, 3, 4, 5, 6, 7, 8])];
    let r = run(&inputs, |f, p| {
        let s = scalar(DType::I64);
        let body = f.region(&[s.clone(), s], |f, a| vec![f.add(a[0], a[1])]);
        let attrs = [("scatter_dimension_numbers", Attr::Scatter(Box::new(dims)))];
        f.op_with_regions(Opcode::Scatter, p, &attrs, vec![body], &[inputs[0].ty().clone()])
    });
    assert_eq!(r[0].to_i64(), [3, 4, 0, 0, 6, 8]);
}

#[test]
fn sorts_are_stable_and_survive_any_comparator() {
    let keys = i64s(&[6], &[2, 1, 2, 0, 1, 2]);
    let by = |direction: Option<&'static str>| {
        run(&[keys.clone(), i64s(&[6], &[0, 1, 2, 3, 4, 5])], |f, p| {
            let s = scalar(DType::I64);
            let body = f.region(&[s.clone(), s.clone(), s.clone(), s], |f, a| match direction {
                Some(d) => vec![f.compare(d, a[0], a[1])],
                None => vec![f.scalar(DType::I1, 1.0)],
            });
            let ty = TensorType::new([6], DType::I64);
            f.op_with_regions(Opcode::Sort, p, &[("dimension", int(0))], vec![body], &[ty.clone(), ty])
        })
    };
    let r = by(Some("LT"));
    assert_eq!((r[0].to_i64(), r[1].to_i64()), (vec![0, 1, 1, 2, 2, 2], vec![3, 1, 4, 0, 2, 5]));
    let mut r = by(None)[1].to_i64();
    r.sort_unstable();
    assert_eq!(r, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn top_k_takes_the_first_of_equals() {
    let x = f32s(&[5], &[1.0, 3.0, 2.0, 3.0, f32::NEG_INFINITY]);
    let r = run(&[x], |f, p| {
        f.op(
            Opcode::ChloTopK,
            p,
            &[("k", int(3))],
            &[TensorType::new([3], DType::F32), TensorType::new([3], DType::I32)],
        )
    });
    assert_eq!((r[0].to_f32(), r[1].to_i64()), (vec![3.0, 3.0, 2.0], vec![1, 3, 2]));
}

/// Oracle: central differences of the training form.
#[test]
fn the_gradient_of_batch_norm_is_one() {
    let (dims, n) = ([3i64, 2], 6usize);
    let x: Vec<f64> = vec![1.0, -2.0, 0.5, 3.0, 2.5, -0.25];
    let g: Vec<f64> = vec![0.3, -1.0, 0.7, 0.2, -0.4, 0.9];
    let v = |d: &[i64], v: &[f64]| Tensor::from_f64(d, DType::F64, v).unwrap();
    let attrs = [("epsilon", Attr::Float(0.1, Type::Scalar(DType::F32))), ("feature_index", int(1))];
    let (scale, offset) = (v(&[2], &[1.5, -0.5]), v(&[2], &[0.1, 0.2]));
    let (t, s) = (TensorType::new(dims, DType::F64), TensorType::new([2], DType::F64));
    let train = |x: &[f64]| {
        run(&[v(&dims, x), scale.clone(), offset.clone()], |f, p| {
            f.op(Opcode::BatchNormTraining, p, &attrs, &[t.clone(), s.clone(), s.clone()])
        })
    };
    let forward = train(&x);
    let loss = |x: &[f64]| train(x)[0].to_f64().iter().zip(&g).map(|(y, g)| y * g).sum::<f64>();
    let inputs = [v(&dims, &x), scale.clone(), forward[1].clone(), forward[2].clone(), v(&dims, &g)];
    let got = run(&inputs, |f, p| f.op(Opcode::BatchNormGrad, p, &attrs, &[t.clone(), s.clone(), s.clone()]));
    for i in 0..n {
        let at = |d: f64| {
            let mut x = x.clone();
            x[i] += d;
            loss(&x)
        };
        let numeric = (at(1e-6) - at(-1e-6)) / 2e-6;
        assert!((got[0].to_f64()[i] - numeric).abs() < 1e-8, "{i}: {} and {numeric}", got[0].to_f64()[i]);
    }
    let inference = [v(&dims, &x), scale, offset, forward[1].clone(), forward[2].clone()];
    let same = run(&inference, |f, p| f.op(Opcode::BatchNormInference, p, &attrs, std::slice::from_ref(&t)));
    assert_eq!(same[0], forward[0]);
}

/// Oracle: multiplying back.
#[test]
fn triangular_systems_are_solved() {
    let a = [2.0, 9.0, 9.0, 1.0, 3.0, 9.0, -1.0, 0.5, 4.0];
    let b = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
    let t = |v: &[f64]| Tensor::from_f64(&[3, 3], DType::F64, v).unwrap();
    for (left, lower, transposed) in [
        (true, true, false),
        (true, false, false),
        (true, true, true),
        (false, true, false),
        (false, false, true),
        (false, false, false),
    ] {
        let attrs = [
            ("left_side", Attr::Bool(left)),
            ("lower", Attr::Bool(lower)),
            ("unit_diagonal", Attr::Bool(false)),
            ("transpose_a", Attr::Enum(if transposed { "TRANSPOSE" } else { "NO_TRANSPOSE" }.into())),
        ];
        let x = run(&[t(&a), t(&b)], |f, p| vec![f.infer(Opcode::TriangularSolve, p, &attrs)])[0].to_f64();
        let m = |i: usize, j: usize| {
            let (i, j) = if transposed { (j, i) } else { (i, j) };
            if (lower && j <= i) || (!lower && j >= i) { a[i * 3 + j] } else { 0.0 }
        };
        for i in 0..3 {
            for j in 0..3 {
                let back: f64 =
                    (0..3).map(|k| if left { m(i, k) * x[k * 3 + j] } else { x[i * 3 + k] * m(k, j) }).sum();
                assert!((back - b[i * 3 + j]).abs() < 1e-12, "{left} {lower} {transposed}: {back}");
            }
        }
    }
    let spd = t(&[4.0, 2.0, -2.0, 2.0, 10.0, 2.0, -2.0, 2.0, 5.0]);
    let l = run(&[spd], |f, p| vec![f.infer(Opcode::Cholesky, p, &[("lower", Attr::Bool(true))])])[0].to_f64();
    assert_eq!(l, [2.0, 0.0, 0.0, 1.0, 3.0, 0.0, -1.0, 1.0, 3f64.sqrt()]);
}

#[test]
fn quantization_rounds_and_clamps() {
    let q = Quant {
        storage: DType::I8,
        expressed: DType::F32,
        storage_min: -128,
        storage_max: 127,
        axis: None,
        scales: vec![0.5],
        zero_points: vec![10],
    };
    let ty = TensorType { dims: vec![4], dtype: DType::I8, quant: Some(Box::new(q)) };
    let r = run(&[f32s(&[4], &[0.25, 0.75, 100.0, -100.0])], |f, p| {
        let q = f.op(Opcode::UniformQuantize, p, &[], &[ty]);
        f.op(Opcode::UniformDequantize, &q, &[], &[TensorType::new([4], DType::F32)])
    });
    // 0.5 and 1.5 quanta round to even: 0 and 2; the ends are (127 - 10) / 2 and (-128 - 10) / 2.
    assert_eq!(r[0].to_f32(), [0.0, 1.0, 58.5, -69.0]);
}

fn all_reduce(f: &mut FuncBuilder<'_>, x: ValueId, groups: Vec<Vec<i64>>) -> Vec<ValueId> {
    let ty = f.ty(x);
    let s = scalar(ty.dtype);
    let body = f.region(&[s.clone(), s], |f, a| vec![f.add(a[0], a[1])]);
    let attrs = [("replica_groups", Attr::Groups(ReplicaGroups::Listed(groups)))];
    f.op_with_regions(Opcode::AllReduce, &[x], &attrs, vec![body], &[ty])
}

#[test]
fn devices_reduce_in_groups() {
    let ty = TensorType::new([1], DType::F32);
    let module = build(std::slice::from_ref(&ty), |f, p| all_reduce(f, p[0], vec![vec![0, 2], vec![1, 3]]));
    let inputs: Vec<Vec<Tensor>> = (0..4).map(|i| vec![f32s(&[1], &[10f32.powi(i)])]).collect();
    let r = eval_spmd(&module, &inputs, &EvalOptions::default()).unwrap();
    assert_eq!(r.iter().map(|r| r[0].to_f32()[0]).collect::<Vec<_>>(), [101.0, 1010.0, 101.0, 1010.0]);
}

#[test]
fn a_collective_that_not_all_reach_is_an_error() {
    let ty = TensorType::new([], DType::I32);
    // Device 0 alone takes the branch with the collective.
    let module = build(std::slice::from_ref(&ty), |f, p| {
        let meet = f.region(&[], |f, _| all_reduce(f, p[0], vec![vec![0, 1]]));
        let pass = f.region(&[], |_, _| vec![p[0]]);
        f.op_with_regions(Opcode::Case, &[p[0]], &[], vec![meet, pass], std::slice::from_ref(&ty))
    });
    let inputs: Vec<Vec<Tensor>> = (0..2).map(|i| vec![Tensor::from_i64(&[], DType::I32, &[i]).unwrap()]).collect();
    let r = eval_spmd(&module, &inputs, &EvalOptions::default());
    assert!(matches!(&r, Err(EvalError::Invalid { op: "stablehlo.all_reduce", .. })), "{r:?}");
}

/// Oracle: the defining sum, and that the inverse undoes the transform.
#[test]
fn fourier_transforms_follow_the_definition() {
    let (n, x) = (12usize, (0..12).map(|i| f64::from(i * i % 7) - 2.0).collect::<Vec<_>>());
    let (c, half) = (TensorType::new([2, 6], DType::C128), TensorType::new([2, 7], DType::C128));
    let rows = TensorType::new([2, 12], DType::F64);
    let two = [x.as_slice(), &x.iter().rev().copied().collect::<Vec<_>>()].concat();
    let attrs = |kind: &str, n: &[i64]| [("fft_type", Attr::Enum(kind.into())), ("fft_length", ints(n))];
    let r = run(&[Tensor::from_f64(&[2, 12], DType::F64, &two).unwrap()], |f, p| {
        let z = f.op(Opcode::Fft, p, &attrs("RFFT", &[2, 12]), std::slice::from_ref(&half));
        let back = f.op(Opcode::Fft, &z, &attrs("IRFFT", &[2, 12]), std::slice::from_ref(&rows));
        let line = f.op(Opcode::Fft, p, &attrs("RFFT", &[12]), std::slice::from_ref(&half));
        let part = f.slice(z[0], &[0, 0], &[2, 6]);
        let there = f.op(Opcode::Fft, &[part], &attrs("FFT", &[6]), std::slice::from_ref(&c));
        let again = f.op(Opcode::Fft, &there, &attrs("IFFT", &[6]), std::slice::from_ref(&c));
        let difference = f.binary(Opcode::Subtract, again[0], part);
        let re = f.op(Opcode::Real, &line, &[], &[TensorType::new([2, 7], DType::F64)]);
        let im = f.op(Opcode::Imag, &line, &[], &[TensorType::new([2, 7], DType::F64)]);
        let rest = f.op(Opcode::Abs, &[difference], &[], &[TensorType::new([2, 6], DType::F64)]);
        vec![back[0], re[0], im[0], rest[0]]
    });
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    r[0].to_f64().iter().zip(&two).for_each(|(a, b)| near(*a, *b));
    r[3].to_f64().iter().for_each(|d| near(*d, 0.0));
    for j in 0..7 {
        let angle = |k: usize| -2.0 * std::f64::consts::PI * (j * k) as f64 / n as f64;
        near(r[1].to_f64()[j], (0..n).map(|k| x[k] * angle(k).cos()).sum());
        near(r[2].to_f64()[j], (0..n).map(|k| x[k] * angle(k).sin()).sum());
    }
}

#[test]
fn quantized_arithmetic_works_on_the_numbers_behind() {
    let ty = |scale, zero| {
        let q = Quant {
            storage: DType::I8,
            expressed: DType::F32,
            storage_min: -128,
            storage_max: 127,
            axis: None,
            scales: vec![scale],
            zero_points: vec![zero],
        };
        TensorType { dims: vec![2], dtype: DType::I8, quant: Some(Box::new(q)) }
    };
    let r = run(&[f32s(&[2], &[1.0, 2.5]), f32s(&[2], &[3.0, 100.0])], |f, p| {
        let a = f.op(Opcode::UniformQuantize, &p[..1], &[], &[ty(0.25, 3)])[0];
        let b = f.op(Opcode::UniformQuantize, &p[1..], &[], &[ty(0.5, -4)])[0];
        let sum = f.op(Opcode::Add, &[a, b], &[], &[ty(1.0, 10)]);
        f.op(Opcode::BitcastConvert, &sum, &[], &[TensorType::new([2], DType::I8)])
    });
    // 1 + 3 = 4, stored 14; 2.5 + 65.5 (the largest that fits) = 68, stored 78.
    assert_eq!(r[0].to_i64(), [14, 78]);
}
