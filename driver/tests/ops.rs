//! Every elementwise operation on special values of every type it takes: NaN, infinities, zeros of both signs, subnormals, extremes.
//!
//! Oracle: the reference evaluator. What the vector unit computes by itself is exact, the sign of zero included; what goes through
//! EUP and polynomials agrees within the error that `backend::lower::math` states, and exactly in NaNs and infinities.

mod common;

use tpusim_backend::eval::Tensor;
use tpusim_backend::hlo::{Attr, Literal, Module, ModuleBuilder, Opcode, TensorType, Verified};
use tpusim_isa::num::{DType, FloatFormat, convert};

const FLOATS: [DType; 10] = [
    DType::F32,
    DType::BF16,
    DType::F16,
    DType::F8E5M2,
    DType::F8E4M3FN,
    DType::F8E4M3,
    DType::F8E3M4,
    DType::F8E4M3B11FNUZ,
    DType::F8E4M3FNUZ,
    DType::F8E5M2FNUZ,
];
const INTS: [DType; 6] = [DType::I8, DType::I16, DType::I32, DType::U8, DType::U16, DType::U32];

/// Special and ordinary values of a type; every code of an 8-bit float.
fn values(t: DType) -> Vec<u8> {
    if t == DType::I1 {
        return vec![0, 1];
    }
    if t.is_int() {
        let (lo, hi) = convert::int_range(t);
        let mut v: Vec<i64> = vec![lo as i64, lo as i64 + 1, hi as i64, hi as i64 - 1, (hi / 2) as i64];
        v.extend([0, 1, 2, 3, 7, 8, 10, 15, 16, 31, 32, 33, 100]);
        if t.is_signed() {
            v.extend([-1, -2, -3, -8, -31, -100]);
        }
        return convert::encode_i64(t, &v);
    }
    if t.bits() == 8 {
        return (0..=255).collect();
    }
    let tiny = FloatFormat::of(t).map_or(1e-45, |f| f.decode(1));
    let normal = FloatFormat::of(t).map_or(f64::from(f32::MIN_POSITIVE), |f| f.decode(1 << f.mantissa_bits));
    let big = FloatFormat::of(t)
        .map_or(f64::from(f32::MAX), |f| f.decode((((1 << f.exponent_bits) - 1) << f.mantissa_bits) - 1));
    let mut v = vec![0.0, tiny, normal, big, big / 2.0, f64::INFINITY, f64::NAN];
    v.extend([1.0, 0.5, 1.5, 2.5, 2.0, 3.0, 0.1, 10.0, 0.75, 1e-3, 100.0, 0.499_999_97, 8_388_609.0, 88.0, 1e-8]);
    let signed: Vec<f64> = v.iter().flat_map(|&x| [x, -x]).collect();
    convert::encode_f64(t, &signed)
}

/// All pairs of `values`, or of every third where there are many.
fn pairs(t: DType) -> (Vec<u8>, Vec<u8>) {
    let v = values(t);
    let all: Vec<&[u8]> = v.chunks_exact(t.bytes()).collect();
    let some: Vec<&[u8]> = if all.len() > 100 { all.iter().step_by(5).copied().collect() } else { all };
    let a = some.iter().flat_map(|x| some.iter().flat_map(|_| x.to_vec())).collect();
    let b = some.iter().flat_map(|_| some.iter().flat_map(|y| y.to_vec())).collect();
    (a, b)
}

fn run(module: &Verified<Module>, inputs: &[Tensor], chip: &str) -> (Vec<Vec<u8>>, Vec<Tensor>) {
    let chip = common::chip(chip);
    let program = common::compiled(module, &chip).unwrap_or_else(|e| panic!("{e}"));
    let bytes: Vec<Vec<u8>> = inputs.iter().map(|t| t.bytes().to_vec()).collect();
    let got = common::run(&program, &chip, &bytes).unwrap_or_else(|e| panic!("{e}"));
    (got, common::reference(module, inputs))
}

fn tensor(t: DType, bytes: Vec<u8>) -> Tensor {
    let n = (bytes.len() / t.bytes()) as i64;
    Tensor::new(TensorType::new([n], t), bytes).unwrap_or_else(|e| panic!("{e}"))
}

/// Wrong elements of one result. Finite results of inexact ops may be off by `rel` of their size plus `abs`, infinities and NaNs may
/// not; exact ops (`rel` negative) keep the sign of zero.
fn wrong(name: &str, inputs: &[Tensor], got: &[u8], want: &Tensor, rel: f64, abs: f64, errors: &mut Vec<String>) {
    let t = want.dtype();
    let (g, w) = (common::numbers(t, got), common::numbers(t, want.bytes()));
    let top = if t == DType::F32 {
        f64::from(f32::MAX)
    } else {
        FloatFormat::of(t).map_or(f64::MAX, |_| common::magnitude(&common::numbers(t, &values(t))))
    };
    let ulp = FloatFormat::of(t).map_or(0.0, |f| 2f64.powi(-(f.mantissa_bits as i32)));
    let step = FloatFormat::of(t).map_or(0.0, |f| 2f64.powi(1 - f.bias - f.mantissa_bits as i32));
    let mut bad = Vec::new();
    let args: Vec<Vec<f64>> = inputs.iter().map(|x| common::numbers(x.dtype(), x.bytes())).collect();
    for i in 0..w.len() {
        let (a, b) = (g[i], w[i]);
        // EUP takes reciprocals, and that of a subnormal overflows.
        if rel >= 0.0 && args.iter().any(|x| x[i] != 0.0 && x[i].abs() < f64::from(f32::MIN_POSITIVE)) {
            continue;
        }
        // Angles are reduced in single precision.
        if ["sine", "cosine", "tan"].iter().any(|n| name.ends_with(n)) && args[0][i].abs() > 1e4 {
            continue;
        }
        // Remainders of long quotients lose bits.
        if name.ends_with("remainder") && (args[0][i] / args[1][i]).abs() > 1e3 {
            continue;
        }
        let ok = if a.is_nan() || b.is_nan() {
            a.is_nan() && b.is_nan()
        } else if rel < 0.0 {
            a == b && (!t.is_float() || a.is_sign_negative() == b.is_sign_negative())
        } else {
            // Where rounding overflows is a matter of one unit, too.
            let near_top = a.abs().max(b.abs()) >= top * 0.99 && a.abs().min(b.abs()) >= top * 0.99 * (1.0 - ulp);
            a == b || near_top && a.signum() == b.signum() || (a - b).abs() <= (rel + ulp) * b.abs() + abs + step
        };
        if !ok {
            let args: Vec<String> = args.iter().map(|x| format!("{:?}", x[i])).collect();
            bad.push(format!("{}({}) = {a:?}, not {b:?}", name, args.join(", ")));
        }
    }
    if !bad.is_empty() {
        errors.push(format!(
            "{name} of {}: {} wrong, such as {}",
            inputs[inputs.len() - 1].ty(),
            bad.len(),
            bad[..bad.len().min(6)].join("; ")
        ));
    }
}

fn unary(types: &[DType], ops: &[(Opcode, f64, f64)], errors: &mut Vec<String>) {
    for &t in types {
        let x = tensor(t, values(t));
        let mut m = ModuleBuilder::new("ops");
        let mut f = m.func("main");
        let p = f.param("x", x.ty().clone());
        let results: Vec<_> = ops.iter().map(|o| f.unary(o.0, p)).collect();
        f.ret(&results);
        let module = m.finish().unwrap_or_else(|e| panic!("{e:?}"));
        let inputs = [x];
        let (got, want) = run(&module, &inputs, "v5e");
        for (i, o) in ops.iter().enumerate() {
            wrong(o.0.name(), &inputs, &got[i], &want[i], o.1, o.2, errors);
        }
    }
}

fn binary(types: &[DType], ops: &[(Opcode, f64, f64)], errors: &mut Vec<String>) {
    for &t in types {
        let (a, b) = pairs(t);
        let inputs = [tensor(t, a), tensor(t, b)];
        let mut m = ModuleBuilder::new("ops");
        let mut f = m.func("main");
        let (p, q) = (f.param("x", inputs[0].ty().clone()), f.param("y", inputs[1].ty().clone()));
        let results: Vec<_> = ops.iter().map(|o| f.binary(o.0, p, q)).collect();
        f.ret(&results);
        let module = m.finish().unwrap_or_else(|e| panic!("{e:?}"));
        let (got, want) = run(&module, &inputs, "v6e");
        for (i, o) in ops.iter().enumerate() {
            wrong(o.0.name(), &inputs, &got[i], &want[i], o.1, o.2, errors);
        }
    }
}

fn none(errors: Vec<String>) {
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

const EXACT: f64 = -1.0;
const U: f64 = 1.0 / (1u64 << 24) as f64;

#[test]
fn exact_float_ops() {
    use Opcode::*;
    let mut e = Vec::new();
    let ops = [Abs, Negate, Sign, Floor, Ceil, RoundNearestEven, RoundNearestAfz, IsFinite];
    unary(&FLOATS, &ops.map(|o| (o, EXACT, 0.0)), &mut e);
    binary(&FLOATS, &[Add, Subtract, Multiply, Maximum, Minimum].map(|o| (o, EXACT, 0.0)), &mut e);
    none(e);
}

#[test]
fn transcendental_float_ops() {
    use Opcode::*;
    let mut e = Vec::new();
    let ops = [
        (Exponential, 256.0 * U, 1e-37),
        (ExponentialMinusOne, 256.0 * U, 1e-37),
        (Log, 8.0 * U, 8.0 * U),
        (LogPlusOne, 16.0 * U, 1e-37),
        (Tanh, 8.0 * U, 1e-37),
        (Logistic, 256.0 * U, 1e-37),
        (Sqrt, 8.0 * U, 1e-22),
        (Rsqrt, 8.0 * U, 0.0),
        (Cbrt, 16.0 * U, 1e-14),
        (Sine, 16.0 * U, 1e-6),
        (Cosine, 16.0 * U, 1e-6),
        (Tan, 256.0 * U, 1e-6),
    ];
    unary(&FLOATS, &ops, &mut e);
    binary(
        &FLOATS,
        &[(Divide, 8.0 * U, 1e-37), (Atan2, 16.0 * U, 1e-37), (Power, 2048.0 * U, 1e-37), (Remainder, 0.0, 1e-3)],
        &mut e,
    );
    none(e);
}

#[test]
fn integer_ops() {
    use Opcode::*;
    let mut e = Vec::new();
    unary(&INTS, &[Abs, Negate, Sign, Not, Popcnt, CountLeadingZeros].map(|o| (o, EXACT, 0.0)), &mut e);
    let ops = [
        Add,
        Subtract,
        Multiply,
        Divide,
        Remainder,
        Maximum,
        Minimum,
        Power,
        And,
        Or,
        Xor,
        ShiftLeft,
        ShiftRightLogical,
        ShiftRightArithmetic,
    ];
    binary(&INTS, &ops.map(|o| (o, EXACT, 0.0)), &mut e);
    unary(&[DType::I1], &[(Not, EXACT, 0.0)], &mut e);
    binary(&[DType::I1], &[And, Or, Xor, Maximum, Minimum, Add, Multiply].map(|o| (o, EXACT, 0.0)), &mut e);
    none(e);
}

#[test]
fn comparisons() {
    let mut e = Vec::new();
    let all = [&FLOATS[..], &INTS[..], &[DType::I1]].concat();
    for t in all {
        let (a, b) = pairs(t);
        let inputs = [tensor(t, a), tensor(t, b)];
        let mut m = ModuleBuilder::new("ops");
        let mut f = m.func("main");
        let (p, q) = (f.param("x", inputs[0].ty().clone()), f.param("y", inputs[1].ty().clone()));
        let kinds = if t.is_float() { vec!["FLOAT", "TOTALORDER"] } else { vec![""] };
        let mut names = Vec::new();
        let mut results = Vec::new();
        for kind in kinds {
            for d in ["EQ", "NE", "LT", "LE", "GT", "GE"] {
                let mut attrs = vec![("comparison_direction", Attr::Enum(d.into()))];
                if !kind.is_empty() {
                    attrs.push(("compare_type", Attr::Enum(kind.into())));
                }
                results.push(f.infer(Opcode::Compare, &[p, q], &attrs));
                names.push(format!("compare {d} {kind}"));
            }
        }
        f.ret(&results);
        let module = m.finish().unwrap_or_else(|e| panic!("{e:?}"));
        let (got, want) = run(&module, &inputs, "v7x");
        for (i, name) in names.iter().enumerate() {
            wrong(name, &inputs, &got[i], &want[i], EXACT, 0.0, &mut e);
        }
    }
    none(e);
}

#[test]
fn conversions() {
    let mut e = Vec::new();
    let all = [&FLOATS[..], &INTS[..], &[DType::I1]].concat();
    for &from in &all {
        let x = tensor(from, values(from));
        let mut m = ModuleBuilder::new("ops");
        let mut f = m.func("main");
        let p = f.param("x", x.ty().clone());
        let results: Vec<_> = all.iter().filter(|t| **t != from).map(|&t| f.convert(p, t)).collect();
        f.ret(&results);
        let module = m.finish().unwrap_or_else(|e| panic!("{e:?}"));
        let inputs = [x];
        let (got, want) = run(&module, &inputs, "v4");
        for (g, w) in got.iter().zip(&want) {
            wrong(&format!("convert to {}", w.dtype()), &inputs, g, w, EXACT, 0.0, &mut e);
        }
    }
    none(e);
}

/// Types of one width, all values; NaNs may be any.
#[test]
fn bitcasts() {
    let mut e = Vec::new();
    let all = [&FLOATS[..], &INTS[..]].concat();
    for &from in &all {
        let x = tensor(from, values(from));
        let mut m = ModuleBuilder::new("ops");
        let mut f = m.func("main");
        let p = f.param("x", x.ty().clone());
        let same = all.iter().filter(|t| t.bits() == from.bits());
        let results: Vec<_> =
            same.map(|&t| f.op(Opcode::BitcastConvert, &[p], &[], &[TensorType::new(x.dims(), t)])[0]).collect();
        f.ret(&results);
        let module = m.finish().unwrap_or_else(|e| panic!("{e:?}"));
        let inputs = [x];
        let (got, want) = run(&module, &inputs, "v5p");
        let nan: Vec<bool> = common::numbers(from, inputs[0].bytes()).iter().map(|v| v.is_nan()).collect();
        for (g, w) in got.iter().zip(&want) {
            let size = w.dtype().bytes();
            let mut g = g.clone();
            for i in (0..nan.len()).filter(|&i| nan[i]) {
                g[i * size..(i + 1) * size].copy_from_slice(&w.bytes()[i * size..(i + 1) * size]);
            }
            wrong(&format!("bitcast to {}", w.dtype()), &inputs, &g, w, EXACT, 0.0, &mut e);
        }
    }
    none(e);
}

/// Constants are held as registers hold them: every code of a type survives.
#[test]
fn constants() {
    let mut e = Vec::new();
    for &t in FLOATS.iter().chain(&INTS) {
        let x = tensor(t, values(t));
        let mut m = ModuleBuilder::new("ops");
        let mut f = m.func("main");
        let c = f.literal(Literal::new(x.ty().clone(), x.bytes().to_vec()));
        let r = f.binary(Opcode::Maximum, c, c);
        f.ret(&[c, r]);
        let module = m.finish().unwrap_or_else(|e| panic!("{e:?}"));
        let (got, want) = run(&module, &[], "v2");
        for (g, w) in got.iter().zip(&want) {
            wrong("constant", std::slice::from_ref(w), g, w, EXACT, 0.0, &mut e);
        }
    }
    none(e);
}
