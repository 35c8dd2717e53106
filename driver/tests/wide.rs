//! Types of two registers, 64-bit integers, doubles and complex numbers: every elementwise operation on special values.
//!
//! Oracle: the reference evaluator. Integers agree to the bit; doubles within what `backend::lower::math` promises of double-floats,
//! for arguments that a double-float can hold, and exactly in NaNs, infinities and signs of zero.

mod common;

use tpusim_backend::eval::Tensor;
use tpusim_backend::hlo::{Attr, Module, ModuleBuilder, Opcode, TensorType, Verified};
use tpusim_isa::num::{DType, convert};

fn run(module: &Verified<Module>, inputs: &[Tensor]) -> (Vec<Vec<u8>>, Vec<Tensor>) {
    let chip = common::chip("v5e");
    let program = common::compiled(module, &chip).unwrap_or_else(|e| panic!("{e}"));
    let bytes: Vec<Vec<u8>> = inputs.iter().map(|t| t.bytes().to_vec()).collect();
    let got = common::run(&program, &chip, &bytes).unwrap_or_else(|e| panic!("{e}"));
    (got, common::reference(module, inputs))
}

fn tensor(t: DType, bytes: Vec<u8>) -> Tensor {
    let n = (bytes.len() / t.bytes()) as i64;
    Tensor::new(TensorType::new([n], t), bytes).unwrap_or_else(|e| panic!("{e}"))
}

fn integers() -> Vec<i64> {
    let mut v = vec![0, 1, 2, 3, 7, 10, 31, 32, 33, 63, 64, 65, 100, 0xffff, 0x1_0000, i64::MAX, i64::MAX - 1];
    v.extend([1 << 31, (1 << 31) - 1, 1 << 32, (1 << 32) - 1, (1 << 32) + 1, 1 << 52, (1 << 53) + 1, 1 << 62]);
    v.extend([0x0123_4567_89ab_cdef, 0x7fff_ffff_0000_0001, 0x0000_0001_8000_0000, 999_999_999_999]);
    let mut all: Vec<i64> = v.iter().flat_map(|&x| [x, x.wrapping_neg()]).collect();
    all.push(i64::MIN);
    all.push(i64::MIN + 1);
    all
}

/// Doubles that are sums of two f32, in f32's range.
fn doubles() -> Vec<f64> {
    let mut v =
        vec![0.0, 1.0, 0.5, 1.5, 2.5, 3.5, 2.0, 3.0, 10.0, 100.0, 1e-3, 1e-8, 0.75, 88.0, 20.25, 1e10, 1e20, 1e-20];
    v.extend([1.0 + 2f64.powi(-40), 1.0 - 2f64.powi(-40), 8_388_608.5, 8_388_609.5, 16_777_217.0, 4_503_599_627_370.5]);
    v.extend([std::f64::consts::PI, std::f64::consts::E, 1.0 / 3.0, 0.1, 1234.5678, 0.999, 1.001, 7e-5, 5.0, 0.3, 0.7]);
    let pair = |x: f64| f64::from(x as f32) + f64::from((x - f64::from(x as f32)) as f32);
    let mut all: Vec<f64> = v.iter().map(|&x| pair(x)).flat_map(|x| [x, -x]).collect();
    all.extend([f64::INFINITY, f64::NEG_INFINITY, f64::NAN]);
    all
}

fn pairs<T: Copy>(v: &[T]) -> (Vec<T>, Vec<T>) {
    let a = v.iter().flat_map(|&x| v.iter().map(move |_| x)).collect();
    let b = v.iter().flat_map(|_| v.iter().copied()).collect();
    (a, b)
}

/// Elements as text, and those of `got` that are wrong: by more than `rel` of their size and `abs`; negative `rel` is exact.
fn wrong(name: &str, args: &[Vec<String>], got: &[u8], want: &Tensor, rel: f64, abs: f64, errors: &mut Vec<String>) {
    let t = want.dtype();
    let (g, w) = if t == DType::C64 {
        (convert::decode_f64(DType::F32, got), convert::decode_f64(DType::F32, want.bytes()))
    } else {
        (common::numbers(t, got), common::numbers(t, want.bytes()))
    };
    let mut bad = Vec::new();
    let step = g.len() / args[0].len().max(1);
    for (i, (&a, &b)) in g.iter().zip(&w).enumerate() {
        let own = rel < 0.0
            && got[i * t.bytes() / step..(i + 1) * t.bytes() / step]
                == want.bytes()[i * t.bytes() / step..(i + 1) * t.bytes() / step];
        let range = f64::from(f32::MAX);
        let ok = if a.is_nan() || b.is_nan() {
            a.is_nan() && b.is_nan()
        } else if rel < 0.0 {
            own
        } else {
            // Beyond f32's range there is only infinity, and near its lower end bits are missing.
            let over =
                b.abs() >= range * 0.999 && (a.is_infinite() || a.abs() >= range * 0.99) && a.signum() == b.signum();
            a == b && (a != 0.0 || t != DType::F64 || a.is_sign_negative() == b.is_sign_negative() || abs > 0.0)
                || over
                || (a - b).abs() <= rel * b.abs() + abs
                || b.abs() < 1e-29 && (a - b).abs() <= 1e-36 + b.abs() * 1e-6
        };
        if !ok {
            let args: Vec<&str> = args.iter().map(|x| &x[i / step][..]).collect();
            bad.push(format!("{name}({}) = {a:?}, not {b:?}", args.join(", ")));
        }
    }
    if !bad.is_empty() {
        errors.push(format!("{} wrong, such as {}", bad.len(), bad[..bad.len().min(8)].join("; ")));
    }
}

fn text(t: &Tensor) -> Vec<String> {
    match t.dtype() {
        DType::C64 => convert::decode_f64(DType::F32, t.bytes()).chunks(2).map(|c| format!("{c:?}")).collect(),
        d if d.is_float() => convert::decode_f64(d, t.bytes()).iter().map(|v| format!("{v:?}")).collect(),
        d => convert::decode_i64(d, t.bytes()).iter().map(i64::to_string).collect(),
    }
}

fn check(inputs: &[Tensor], ops: &[(Opcode, f64, f64)], errors: &mut Vec<String>) {
    for group in ops.chunks(4) {
        let mut m = ModuleBuilder::new("wide");
        let mut f = m.func("main");
        let p: Vec<_> = inputs.iter().map(|x| f.param("x", x.ty().clone())).collect();
        let results: Vec<_> = group.iter().map(|o| f.infer(o.0, &p, &[])).collect();
        f.ret(&results);
        let module = m.finish().unwrap_or_else(|e| panic!("{e:?}"));
        let (got, want) = run(&module, inputs);
        let args: Vec<Vec<String>> = inputs.iter().map(text).collect();
        for (i, o) in group.iter().enumerate() {
            wrong(o.0.name(), &args, &got[i], &want[i], o.1, o.2, errors);
        }
    }
}

fn none(errors: Vec<String>) {
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

const EXACT: f64 = -1.0;

#[test]
fn integer_ops() {
    use Opcode::*;
    let mut e = Vec::new();
    for t in [DType::I64, DType::U64] {
        let x = tensor(t, convert::encode_i64(t, &integers()));
        check(&[x], &[Abs, Negate, Sign, Not, Popcnt, CountLeadingZeros].map(|o| (o, EXACT, 0.0)), &mut e);
        let (a, b) = pairs(&integers());
        let inputs = [tensor(t, convert::encode_i64(t, &a)), tensor(t, convert::encode_i64(t, &b))];
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
        check(&inputs, &ops.map(|o| (o, EXACT, 0.0)), &mut e);
    }
    none(e);
}

#[test]
fn comparisons() {
    let mut e = Vec::new();
    for t in [DType::I64, DType::U64, DType::F64] {
        let inputs = if t == DType::F64 {
            let (a, b) = pairs(&doubles());
            [tensor(t, convert::encode_f64(t, &a)), tensor(t, convert::encode_f64(t, &b))]
        } else {
            let (a, b) = pairs(&integers());
            [tensor(t, convert::encode_i64(t, &a)), tensor(t, convert::encode_i64(t, &b))]
        };
        let mut m = ModuleBuilder::new("compare");
        let mut f = m.func("main");
        let (p, q) = (f.param("x", inputs[0].ty().clone()), f.param("y", inputs[1].ty().clone()));
        let mut names = Vec::new();
        let mut results = Vec::new();
        for kind in if t == DType::F64 { vec!["FLOAT", "TOTALORDER"] } else { vec![""] } {
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
        let (got, want) = run(&module, &inputs);
        let args: Vec<Vec<String>> = inputs.iter().map(text).collect();
        for (i, name) in names.iter().enumerate() {
            wrong(name, &args, &got[i], &want[i], EXACT, 0.0, &mut e);
        }
    }
    none(e);
}

#[test]
fn conversions() {
    let mut e = Vec::new();
    let narrow = [
        DType::F32,
        DType::BF16,
        DType::F16,
        DType::F8E5M2,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::I1,
    ];
    let wide = [DType::I64, DType::U64, DType::F64];
    let values = |t: DType| {
        if t.is_float() {
            convert::encode_f64(t, &[&doubles()[..], &[-3.7, 1e19, 2e19, -1e19, 9.2e18]].concat())
        } else {
            convert::encode_i64(t, &integers())
        }
    };
    for from in [&narrow[..], &wide].concat() {
        let bytes = if from == DType::I1 { vec![0, 1] } else { values(from) };
        let x = tensor(from, bytes);
        let targets: Vec<DType> = if wide.contains(&from) { [&narrow[..], &wide].concat() } else { wide.to_vec() }
            .into_iter()
            .filter(|t| *t != from)
            .collect();
        for group in targets.chunks(5) {
            let mut m = ModuleBuilder::new("convert");
            let mut f = m.func("main");
            let p = f.param("x", x.ty().clone());
            let results: Vec<_> = group.iter().map(|&t| f.convert(p, t)).collect();
            f.ret(&results);
            let module = m.finish().unwrap_or_else(|e| panic!("{e:?}"));
            let inputs = [x.clone()];
            let (got, want) = run(&module, &inputs);
            let args = [text(&x)];
            for (g, w) in got.iter().zip(&want) {
                // A double-float keeps 48 bits of an integer.
                let rel = if w.dtype() == DType::F64 { 2f64.powi(-47) } else { EXACT };
                wrong(&format!("convert {from} to {}", w.dtype()), &args, g, w, rel, 0.0, &mut e);
            }
        }
    }
    none(e);
}

const U: f64 = 1.0 / (1u64 << 46) as f64;

#[test]
fn double_ops() {
    use Opcode::*;
    let mut e = Vec::new();
    let t = DType::F64;
    let x = tensor(t, convert::encode_f64(t, &doubles()));
    let exact = [Abs, Negate, Sign, Floor, Ceil, RoundNearestEven, RoundNearestAfz, IsFinite];
    check(std::slice::from_ref(&x), &exact.map(|o| (o, EXACT, 0.0)), &mut e);
    let ops = [
        (Exponential, 256.0 * U, 0.0),
        (ExponentialMinusOne, 256.0 * U, 0.0),
        (Log, 16.0 * U, 0.0),
        (LogPlusOne, 16.0 * U, 0.0),
        (Tanh, 16.0 * U, 0.0),
        (Logistic, 256.0 * U, 0.0),
        (Sqrt, 4.0 * U, 0.0),
        (Rsqrt, 4.0 * U, 0.0),
        (Cbrt, 8.0 * U, 0.0),
    ];
    check(&[x], &ops, &mut e);
    let (a, b) = pairs(&doubles());
    let inputs = [tensor(t, convert::encode_f64(t, &a)), tensor(t, convert::encode_f64(t, &b))];
    let ops = [
        (Add, U, 0.0),
        (Subtract, U, 0.0),
        (Multiply, U, 0.0),
        (Divide, 2.0 * U, 0.0),
        (Maximum, EXACT, 0.0),
        (Minimum, EXACT, 0.0),
        (Atan2, 16.0 * U, 0.0),
    ];
    check(&inputs, &ops, &mut e);
    none(e);
}

/// Angles, powers and remainders that have no digits left at extreme arguments.
#[test]
fn double_ops_of_moderate_arguments() {
    use Opcode::*;
    let mut e = Vec::new();
    let t = DType::F64;
    let moderate: Vec<f64> = doubles().into_iter().filter(|x| x.is_nan() || (1e-6..=1e6).contains(&x.abs())).collect();
    let x = tensor(t, convert::encode_f64(t, &moderate));
    check(&[x], &[(Sine, 16.0 * U, 1e-15), (Cosine, 16.0 * U, 1e-15), (Tan, 64.0 * U, 1e-14)], &mut e);
    let few: Vec<f64> = moderate.into_iter().filter(|x| x.is_nan() || x.abs() <= 1300.0).collect();
    let (a, b) = pairs(&few);
    let inputs = [tensor(t, convert::encode_f64(t, &a)), tensor(t, convert::encode_f64(t, &b))];
    check(&inputs, &[(Power, 4096.0 * U, 0.0), (Remainder, 0.0, 1e-12)], &mut e);
    none(e);
}

#[test]
fn complex_ops() {
    use Opcode::*;
    let mut e = Vec::new();
    let v = [0.0f32, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, 10.0, -7.25, 0.1];
    let (re, im) = pairs(&v);
    let all: Vec<f32> = re.iter().zip(&im).flat_map(|(&a, &b)| [a, b]).collect();
    let t = DType::C64;
    let x = tensor(t, all.iter().flat_map(|v| v.to_le_bytes()).collect());
    let ops = [
        (Negate, EXACT, 0.0),
        (Abs, 1e-6, 0.0),
        (Real, EXACT, 0.0),
        (Imag, EXACT, 0.0),
        (Exponential, 4e-6, 4e-3),
        (Log, 2e-6, 4e-7),
        (Sqrt, 2e-6, 0.0),
        (Tanh, 2e-5, 2e-6),
        (Sine, 1e-5, 1e-3),
        (Cosine, 1e-5, 1e-3),
        (ExponentialMinusOne, 4e-6, 4e-3),
        (LogPlusOne, 4e-6, 1e-6),
    ];
    check(&[x], &ops, &mut e);
    let some: Vec<f32> = all.chunks(2).step_by(7).flatten().copied().collect();
    let items: Vec<[f32; 2]> = some.chunks(2).map(|c| [c[0], c[1]]).collect();
    let (a, b) = pairs(&items);
    let of = |v: Vec<[f32; 2]>| tensor(t, v.into_iter().flatten().flat_map(f32::to_le_bytes).collect());
    let inputs = [of(a), of(b)];
    check(&inputs, &[(Add, EXACT, 0.0), (Subtract, EXACT, 0.0), (Multiply, 1e-6, 1e-5), (Divide, 1e-5, 1e-5)], &mut e);
    none(e);
}
