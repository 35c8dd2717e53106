//! The evaluator op by op. Oracles: values worked out by hand from the StableHLO specification, `i128` arithmetic for integers,
//! and plain loops.

use proptest::prelude::*;
use tpusim_backend::eval::{DotPrecision, EvalError, EvalOptions, Tensor, eval_module, eval_module_with};
use tpusim_backend::hlo::{Attr, DotDims, FuncBuilder, ModuleBuilder, Opcode, ReduceKind, TensorType, Type, ValueId};
use tpusim_backend::ops::{FAMILIES, lookup};
use tpusim_isa::num::DType;
use tpusim_isa::num::convert::{int_range, int_value, wrap};

/// Runs a program of one function on `inputs`.
fn run(inputs: &[Tensor], body: impl FnOnce(&mut FuncBuilder<'_>, &[ValueId]) -> Vec<ValueId>) -> Vec<Tensor> {
    run_with(inputs, &EvalOptions::default(), body).unwrap()
}

fn run_with(
    inputs: &[Tensor],
    options: &EvalOptions,
    body: impl FnOnce(&mut FuncBuilder<'_>, &[ValueId]) -> Vec<ValueId>,
) -> Result<Vec<Tensor>, EvalError> {
    let mut m = ModuleBuilder::new("test");
    let mut f = m.func("main");
    let params: Vec<ValueId> = inputs.iter().map(|t| f.param("x", t.ty().clone())).collect();
    let results = body(&mut f, &params);
    f.ret(&results);
    let module = m.finish().unwrap_or_else(|e| panic!("{}", e.iter().map(|e| format!("{e}\n")).collect::<String>()));
    eval_module_with(&module, inputs, options)
}

fn f32s(dims: &[i64], v: &[f32]) -> Tensor {
    Tensor::from_f32(dims, DType::F32, v).unwrap()
}

fn ints(dtype: DType, v: &[i64]) -> Tensor {
    Tensor::from_i64(&[v.len() as i64], dtype, v).unwrap()
}

fn unary(op: Opcode, x: &Tensor) -> Tensor {
    run(std::slice::from_ref(x), |f, p| vec![f.unary(op, p[0])]).remove(0)
}

fn binary(op: Opcode, a: &Tensor, b: &Tensor) -> Tensor {
    run(&[a.clone(), b.clone()], |f, p| vec![f.binary(op, p[0], p[1])]).remove(0)
}

fn iota(dims: &[i64]) -> Tensor {
    let n: i64 = dims.iter().product();
    Tensor::from_f32(dims, DType::F32, &(0..n).map(|i| i as f32).collect::<Vec<_>>()).unwrap()
}

#[test]
fn every_opcode_is_declared_once() {
    let mut seen = Vec::new();
    for def in FAMILIES.iter().flat_map(|f| f.ops) {
        assert!(!seen.contains(&def.opcode), "{} is declared twice", def.opcode);
        seen.push(def.opcode);
    }
    for &op in Opcode::ALL {
        assert!(op == Opcode::Return || lookup(op).is_some(), "{op} is in no family");
    }
}

#[test]
fn maximum_and_minimum_propagate_nan_and_order_zeros() {
    let (a, b) = (f32s(&[4], &[f32::NAN, 1.0, -0.0, 0.0]), f32s(&[4], &[1.0, f32::NAN, 0.0, -0.0]));
    let (max, min) = (binary(Opcode::Maximum, &a, &b).to_f32(), binary(Opcode::Minimum, &a, &b).to_f32());
    assert!(max[0].is_nan() && max[1].is_nan() && min[0].is_nan() && min[1].is_nan());
    assert!(max[2..].iter().all(|v| v.is_sign_positive()) && min[2..].iter().all(|v| v.is_sign_negative()));
}

#[test]
fn narrow_floats_round_once_per_op() {
    // 256 + 1 is a tie in bf16 (8 bits): to even, 256. In f32 it would be 257.
    let t = |v: &[f32]| Tensor::from_f32(&[v.len() as i64], DType::BF16, v).unwrap();
    assert_eq!(binary(Opcode::Add, &t(&[256.0, 258.0]), &t(&[1.0, 1.0])).to_f32(), [256.0, 260.0]);
}

#[test]
fn conversions_truncate_and_saturate() {
    let x = f32s(&[6], &[-1.9, 1.9, 3e9, -3e9, f32::NAN, f32::INFINITY]);
    let to = |d| run(std::slice::from_ref(&x), |f, p| vec![f.convert(p[0], d)]).remove(0).to_i64();
    assert_eq!(to(DType::I32), [-1, 1, i32::MAX.into(), i32::MIN.into(), 0, i32::MAX.into()]);
    assert_eq!(to(DType::U8), [0, 1, 255, 0, 0, 255]);
    assert_eq!(to(DType::I1), [1, 1, 1, 1, 1, 1]);
}

#[test]
fn compare_knows_total_order() {
    let (a, b) = (f32s(&[3], &[-0.0, f32::NAN, 1.0]), f32s(&[3], &[0.0, f32::INFINITY, f32::NAN]));
    let cmp = |kind: &str, dir: &str| {
        let attrs = [("comparison_direction", Attr::Enum(dir.into())), ("compare_type", Attr::Enum(kind.into()))];
        run(&[a.clone(), b.clone()], |f, p| vec![f.infer(Opcode::Compare, p, &attrs)]).remove(0).to_i64()
    };
    assert_eq!(cmp("TOTALORDER", "LT"), [1, 0, 1]);
    assert_eq!(cmp("FLOAT", "LT"), [0, 0, 0]);
    assert_eq!(cmp("FLOAT", "NE"), [0, 1, 1]);
}

#[test]
fn pad_takes_negative_and_interior_padding() {
    let attrs = [
        ("edge_padding_low", Attr::Ints(vec![-1])),
        ("edge_padding_high", Attr::Ints(vec![2])),
        ("interior_padding", Attr::Ints(vec![1])),
    ];
    let r = run(&[f32s(&[3], &[1.0, 2.0, 3.0])], |f, p| {
        let v = f.constant_f32(9.0);
        vec![f.infer(Opcode::Pad, &[p[0], v], &attrs)]
    });
    // Spread: 1 9 2 9 3; one off the left; two on the right.
    assert_eq!(r[0].to_f32(), [9.0, 2.0, 9.0, 3.0, 9.0, 9.0]);
}

#[test]
fn shape_ops_move_elements() {
    let x = iota(&[2, 3]);
    let r = run(std::slice::from_ref(&x), |f, p| {
        let t = f.transpose(p[0], &[1, 0]);
        let s = f.slice(p[0], &[0, 1], &[2, 3]);
        let rev = f.infer(Opcode::Reverse, &[p[0]], &[("dimensions", Attr::Ints(vec![1]))]);
        let c = f.concatenate(&[p[0], s], 1);
        let b = f.broadcast_along(p[0], &[0, 2], &[2, 2, 3]);
        vec![t, s, rev, c, b]
    });
    assert_eq!(r[0].to_f32(), [0., 3., 1., 4., 2., 5.]);
    assert_eq!(r[1].to_f32(), [1., 2., 4., 5.]);
    assert_eq!(r[2].to_f32(), [2., 1., 0., 5., 4., 3.]);
    assert_eq!(r[3].to_f32(), [0., 1., 2., 1., 2., 3., 4., 5., 4., 5.]);
    assert_eq!(r[4].to_f32(), [0., 1., 2., 0., 1., 2., 3., 4., 5., 3., 4., 5.]);
}

#[test]
fn dynamic_starts_are_clamped() {
    let start = |v| Tensor::from_i64(&[], DType::I32, &[v]).unwrap();
    let r = run(&[iota(&[5]), start(4), start(-3)], |f, p| {
        let s = f.dynamic_slice(p[0], &[p[1]], &[2]);
        vec![s, f.dynamic_update_slice(p[0], s, &[p[2]])]
    });
    assert_eq!(r[0].to_f32(), [3.0, 4.0]);
    assert_eq!(r[1].to_f32(), [3.0, 4.0, 2.0, 3.0, 4.0]);
}

#[test]
fn dots_contract_any_dimensions() {
    // (b, k, m) by (n, k, b): batch b, contract k.
    let (a, b) = (iota(&[2, 3, 4]), iota(&[5, 3, 2]));
    let dims = DotDims { lhs_batch: vec![0], rhs_batch: vec![2], lhs_contract: vec![1], rhs_contract: vec![1] };
    let got = run(&[a.clone(), b.clone()], |f, p| vec![f.dot_general(p[0], p[1], dims, DType::F32)]).remove(0);
    let (a, b) = (a.to_f32(), b.to_f32());
    let mut want = Vec::new();
    for batch in 0..2 {
        for m in 0..4 {
            for n in 0..5 {
                want.push((0..3).map(|k| a[batch * 12 + k * 4 + m] * b[n * 6 + k * 2 + batch]).sum::<f32>());
            }
        }
    }
    assert_eq!((got.dims(), got.to_f32()), ([2, 4, 5].as_slice(), want));
}

#[test]
fn dot_precision_rounds_operands_to_bf16() {
    let x = f32s(&[1, 1], &[1.0 + 2f32.powi(-10)]);
    let dot = |dot| {
        let o = EvalOptions { dot, ..EvalOptions::default() };
        let r = run_with(&[x.clone(), x.clone()], &o, |f, p| vec![f.matmul(p[0], p[1], DType::F32)]);
        r.unwrap().remove(0).to_f32()[0]
    };
    assert_eq!(dot(DotPrecision::Tpu), 1.0);
    assert_eq!(dot(DotPrecision::Exact), (1.0 + 2f64.powi(-10)).powi(2) as f32);
}

#[test]
fn reduce_folds_with_its_body() {
    let x = iota(&[3, 4]);
    let r = run(std::slice::from_ref(&x), |f, p| {
        let sum = f.reduce(ReduceKind::Sum, p[0], &[0]);
        let max = f.reduce(ReduceKind::Max, p[0], &[0, 1]);
        // A body that is no single op: acc * 0.5 + x.
        let s = TensorType::new([], DType::F32);
        let init = f.constant_f32(0.0);
        let body = f.region(&[s.clone(), s.clone()], |f, a| {
            let h = f.constant_f32(0.5);
            let m = f.mul(a[0], h);
            vec![f.add(m, a[1])]
        });
        let attrs = [("dimensions", Attr::Ints(vec![1]))];
        let ty = TensorType::new([3], DType::F32);
        let horner = f.op_with_regions(Opcode::Reduce, &[p[0], init], &attrs, vec![body], &[ty])[0];
        vec![sum, max, horner]
    });
    assert_eq!(r[0].to_f32(), [12.0, 15.0, 18.0, 21.0]);
    assert_eq!(r[1].to_f32(), [11.0]);
    let horner = |v: [f32; 4]| v.iter().fold(0.0, |a, x| a * 0.5 + x);
    assert_eq!(r[2].to_f32(), [horner([0., 1., 2., 3.]), horner([4., 5., 6., 7.]), horner([8., 9., 10., 11.])]);
}

#[test]
fn a_bf16_sum_is_wider_than_bf16() {
    let ones = Tensor::from_f32(&[1000], DType::BF16, &[1.0; 1000]).unwrap();
    let r = run(&[ones], |f, p| vec![f.reduce(ReduceKind::Sum, p[0], &[0])]);
    // A bf16 accumulator would stop at 256; 1000 itself is a bf16 number.
    assert_eq!(r[0].to_f32(), [1000.0]);
}

#[test]
fn loops_run_and_endless_ones_stop() {
    let n = Tensor::from_i64(&[], DType::I32, &[0]).unwrap();
    let count = |limit: f64| {
        move |f: &mut FuncBuilder<'_>, p: &[ValueId]| {
            f.while_loop(
                p,
                |f, s| {
                    let n = f.scalar(DType::I32, limit);
                    f.compare("LT", s[0], n)
                },
                |f, s| vec![f.binary_scalar(Opcode::Add, s[0], 1.0)],
            )
        }
    };
    assert_eq!(run(std::slice::from_ref(&n), count(10.0))[0].to_i64(), [10]);
    let o = EvalOptions { max_ops: 1000, ..EvalOptions::default() };
    let endless = run_with(&[n], &o, count(i32::MAX.into()));
    assert!(matches!(endless, Err(EvalError::TooLong { limit: 1000, .. })), "{endless:?}");
}

#[test]
fn huge_tensors_are_refused() {
    let r = run_with(&[], &EvalOptions::default(), |f, _| {
        let c = f.constant_f32(0.0);
        vec![f.broadcast_along(c, &[], &[1 << 20, 1 << 20])]
    });
    assert!(matches!(r, Err(EvalError::TooLarge { .. })), "{r:?}");
}

#[test]
fn inputs_are_checked() {
    let mut m = ModuleBuilder::new("id");
    let mut f = m.func("main");
    let x = f.param("x", TensorType::new([2], DType::F32));
    f.ret(&[x]);
    let module = m.finish().unwrap();
    assert!(matches!(eval_module(&module, &[]), Err(EvalError::InputCount { expected: 1, got: 0 })));
    assert!(matches!(eval_module(&module, &[iota(&[3])]), Err(EvalError::InputType { index: 0, .. })));
}

#[test]
fn chlo_functions_have_known_values() {
    let at = |op, v: f64| unary(op, &Tensor::from_f64(&[], DType::F64, &[v]).unwrap()).to_f64()[0];
    let close = |a: f64, b: f64| assert!((a - b).abs() <= 4e-15 * b.abs().max(1.0), "{a} is not {b}");
    for y in [-0.999, -0.5, 1e-10, 0.3, 0.9, 1.0 - 1e-9] {
        close(libm::erf(at(Opcode::ChloErfInv, y)), y);
    }
    close(at(Opcode::ChloDigamma, 1.0), -0.577_215_664_901_532_9);
    close(at(Opcode::ChloDigamma, 0.5), -1.963_510_026_021_423_5);
    close(at(Opcode::ChloLgamma, 0.5), std::f64::consts::PI.sqrt().ln());
    // exp(-1) I1(1), from I1(1) = 0.565159103992485.
    close(at(Opcode::ChloBesselI1e, 1.0), 0.565_159_103_992_485 * (-1f64).exp());
    let zeta = |s, q| {
        let t = |v| Tensor::from_f64(&[], DType::F64, &[v]).unwrap();
        binary(Opcode::ChloZeta, &t(s), &t(q)).to_f64()[0]
    };
    close(zeta(2.0, 1.0), std::f64::consts::PI.powi(2) / 6.0);
    close(zeta(4.0, 1.0), std::f64::consts::PI.powi(4) / 90.0);
}

#[test]
fn bitcast_reads_little_endian() {
    let x = Tensor::from_i64(&[], DType::U64, &[0x0123_4567_89ab_cdef]).unwrap();
    let r = run(&[x], |f, p| f.op(Opcode::BitcastConvert, p, &[], &[TensorType::new([4], DType::U16)]));
    assert_eq!(r[0].to_i64(), [0xcdef, 0x89ab, 0x4567, 0x0123]);
}

#[test]
fn quantized_and_unknown_ops_say_so() {
    let r = run_with(&[iota(&[4])], &EvalOptions::default(), |f, p| {
        f.op(
            Opcode::CustomCall,
            p,
            &[("call_target_name", Attr::Str("mystery".into()))],
            &[TensorType::new([4], DType::F32)],
        )
    });
    let message = r.unwrap_err().to_string();
    assert!(message.contains("stablehlo.custom_call to `mystery`"), "{message}");
}

fn int_type() -> impl Strategy<Value = DType> {
    prop::sample::select(DType::ALL.iter().copied().filter(|d| d.is_int()).collect::<Vec<_>>())
}

/// What the specification and XLA say, in arithmetic that cannot overflow.
fn exact(op: Opcode, d: DType, a: i128, b: i128) -> i128 {
    let (lo, hi) = int_range(d);
    let bits = i128::from(d.bits());
    let unsigned = |v: i128| v & ((1 << bits) - 1);
    let far = !(0..bits).contains(&unsigned(b));
    match op {
        Opcode::Add => a + b,
        Opcode::Subtract => a - b,
        Opcode::Multiply => a.wrapping_mul(b),
        Opcode::Divide if b == 0 => -1,
        Opcode::Divide if a == lo && b == -1 => lo,
        Opcode::Divide => a / b,
        Opcode::Remainder if b == 0 => a,
        Opcode::Remainder => a % b,
        Opcode::Maximum => a.max(b),
        Opcode::Minimum => a.min(b),
        Opcode::And => a & b,
        Opcode::Or => a | b,
        Opcode::Xor => a ^ b,
        Opcode::ShiftLeft => {
            if far {
                0
            } else {
                a << b
            }
        }
        Opcode::ShiftRightLogical => {
            if far {
                0
            } else {
                unsigned(a) >> b
            }
        }
        _ => {
            let negative = unsigned(a) >> (bits - 1) == 1;
            let signed = if negative && a > 0 { a - (hi + 1) } else { a };
            if far { if negative { -1 } else { 0 } } else { signed >> b }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Oracle: `i128` arithmetic, wrapped to the width.
    #[test]
    fn integers_wrap(d in int_type(), a: i64, b: i64, small in -70i64..70, use_small: bool) {
        let (a, b) = (wrap(d, a), wrap(d, if use_small { small } else { b }));
        for op in [
            Opcode::Add, Opcode::Subtract, Opcode::Multiply, Opcode::Divide, Opcode::Remainder, Opcode::Maximum,
            Opcode::Minimum, Opcode::And, Opcode::Or, Opcode::Xor, Opcode::ShiftLeft, Opcode::ShiftRightLogical,
            Opcode::ShiftRightArithmetic,
        ] {
            let got = binary(op, &ints(d, &[a]), &ints(d, &[b])).to_i64()[0];
            let want = wrap(d, exact(op, d, int_value(d, a), int_value(d, b)) as i64);
            prop_assert_eq!(got, want, "{} of {} and {} as {}", op, a, b, d);
        }
    }

    /// Oracle: bit counting of Rust on the zero-extended value.
    #[test]
    fn bits_are_counted(d in int_type(), a: i64) {
        let a = wrap(d, a);
        let field = int_value(d, a) & ((1i128 << d.bits()) - 1);
        prop_assert_eq!(unary(Opcode::Popcnt, &ints(d, &[a])).to_i64()[0], wrap(d, field.count_ones().into()));
        let zeros = i64::from(d.bits()) - i64::from(128 - field.leading_zeros());
        prop_assert_eq!(unary(Opcode::CountLeadingZeros, &ints(d, &[a])).to_i64()[0], wrap(d, zeros));
    }

    /// Oracle: a plain triple loop in i64.
    #[test]
    fn int8_dots_are_exact(a in prop::collection::vec(any::<i8>(), 12), b in prop::collection::vec(any::<i8>(), 20)) {
        let t = |v: &[i8], dims: &[i64]| Tensor::from_i64(dims, DType::I8, &v.iter().map(|&x| x.into()).collect::<Vec<_>>()).unwrap();
        let got = run(&[t(&a, &[3, 4]), t(&b, &[4, 5])], |f, p| vec![f.matmul(p[0], p[1], DType::I32)]).remove(0).to_i64();
        for m in 0..3 {
            for n in 0..5 {
                let want: i64 = (0..4).map(|k| i64::from(a[m * 4 + k]) * i64::from(b[k * 5 + n])).sum();
                prop_assert_eq!(got[m * 5 + n], want);
            }
        }
    }
}

#[test]
fn reduce_precision_has_no_subnormals() {
    let i32_attr = |v| Attr::Int(v, Type::Scalar(DType::I32));
    let x = Tensor::from_f64(&[5], DType::F64, &[f64::INFINITY, 5e-324, 0.0, 65519.0, 65520.0]).unwrap();
    let attrs = [("exponent_bits", i32_attr(5)), ("mantissa_bits", i32_attr(10))];
    let r = run(&[x], |f, p| vec![f.infer(Opcode::ReducePrecision, p, &attrs)]);
    // The example of the specification.
    assert_eq!(r[0].to_f64(), [f64::INFINITY, 0.0, 0.0, 65504.0, f64::INFINITY]);
}

#[test]
fn deep_calls_are_refused() {
    let mut m = ModuleBuilder::new("deep");
    let ty = TensorType::new([], DType::F32);
    for i in 0..2000 {
        let mut f = m.func(if i == 1999 { "main".to_owned() } else { format!("f{i}") });
        let x = f.param("x", ty.clone());
        let y = if i == 0 { vec![x] } else { f.call(&format!("f{}", i - 1), &[x]) };
        f.ret(&y);
    }
    let module = m.finish().unwrap();
    let x = Tensor::from_f32(&[], DType::F32, &[1.0]).unwrap();
    let r = eval_module(&module, &[x]);
    assert!(matches!(r, Err(EvalError::TooDeep { .. })), "{r:?}");
}

#[test]
fn neighbours_of_narrow_floats_are_their_own() {
    let t = |v: &[f32]| Tensor::from_f32(&[v.len() as i64], DType::BF16, v).unwrap();
    let got = binary(Opcode::ChloNextAfter, &t(&[1.0, 1.0, 0.0, -1.0, 2.0]), &t(&[2.0, 0.0, -1.0, 0.0, 2.0])).to_f32();
    // bf16 has 7 mantissa bits, and its least number is 2^-133.
    assert_eq!(got, [1.0 + 1.0 / 128.0, 1.0 - 1.0 / 256.0, -(2f32.powi(-133)), -1.0 + 1.0 / 256.0, 2.0]);
}
