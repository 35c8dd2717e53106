//! Functions beyond arithmetic: CHLO's, complex numbers, factorisations, transforms, normalisation, random bits.

use std::rc::Rc;

use tpusim_backend::eval::Tensor;
use tpusim_backend::hlo::{Attr, Opcode, TensorType, Type};
use tpusim_isa::num::{DType, convert};

use super::value::{Rule, max_of, moved, ulp};
use super::{DTYPES, Gen, int};

/// Half a unit of single precision.
const U: f64 = 1.0 / (1u64 << 24) as f64;

const FLOATS: [DType; 4] = [DType::F32, DType::F32, DType::BF16, DType::F16];

impl Gen<'_> {
    fn given(&mut self, dtype: DType, dims: &[i64], v: &[f64]) -> usize {
        let ty = TensorType::new(dims, dtype);
        let bytes = convert::encode_f64(dtype, v);
        let mag = v.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        let id = self.f.param(&format!("p{}", self.inputs.len()), ty.clone());
        self.inputs.push(Tensor::new(ty, bytes).unwrap_or_else(|e| panic!("{e}")));
        self.push(id, &[], true, false, mag, moved())
    }

    /// Functions whose results have a small error.
    pub fn function(&mut self) {
        use Opcode::*;
        let a = self.any(|v| FLOATS.contains(&v.ty.dtype) && v.exact, &FLOATS);
        let dtype = self.values[a].ty.dtype;
        let (op, by) = self.rng.pick(&[
            (ChloErf, 5.0),
            (ChloErfc, 3.0),
            (ChloErfInv, 0.875),
            (ChloSinh, 4.0),
            (ChloCosh, 4.0),
            (ChloAsin, 0.875),
            (ChloAcos, 0.875),
            (ChloAtanh, 0.875),
            (ChloAtan, 50.0),
            (ChloAsinh, 50.0),
            (ChloTan, 1.0),
            (Tan, 1.0),
        ]);
        let x = self.clamped(a, by);
        let id = self.f.unary(op, self.values[x].id);
        let round = move |m: f64| if dtype == DType::F32 { 0.0 } else { ulp(dtype, m) };
        self.push(id, &[x], false, false, 40.0, Rc::new(move |_, m| 64.0 * U * (m + 1.0) + round(m)));
    }

    /// Functions that are exact.
    pub fn exact_function(&mut self) {
        use Opcode::*;
        match self.rng.below(2) {
            0 => {
                let a = self.any(|v| FLOATS.contains(&v.ty.dtype) && v.exact, &FLOATS);
                let op = self.rng.pick(&[ChloIsInf, ChloIsPosInf, ChloIsNegInf]);
                let id = self.f.unary(op, self.values[a].id);
                self.push(id, &[a], true, false, 1.0, moved());
            }
            _ => {
                let a = self.any(|v| v.float() && v.exact, &DTYPES[..10]);
                let v = self.values[a].clone();
                let (e, m) = (self.rng.pick(&[3, 4, 5, 8]), self.rng.pick(&[0, 1, 2, 3, 7, 10, 23]));
                let bits = |n: i64| Attr::Int(n, Type::Scalar(DType::I32));
                let id =
                    self.f.infer(ReducePrecision, &[v.id], &[("exponent_bits", bits(e)), ("mantissa_bits", bits(m))]);
                self.push(id, &[a], true, false, v.mag * 2.0, moved());
            }
        }
    }

    /// CHLO's operations of two shapes.
    pub fn broadcast_binary(&mut self) {
        use Opcode::*;
        let a = self.any(|v| v.int() || v.ty.dtype == DType::F32 && v.exact, &[DType::F32, DType::I32, DType::U8]);
        let v = self.values[a].clone();
        let from = self.rng.below(v.ty.rank() + 1);
        let dims: Vec<i64> = v.ty.dims[from..].iter().map(|&d| if self.rng.percent(30) { 1 } else { d }).collect();
        let b = self.param(v.ty.dtype, &dims);
        let ids = [v.id, self.values[b].id];
        let ops = [
            ChloBroadcastAdd,
            ChloBroadcastSubtract,
            ChloBroadcastMultiply,
            ChloBroadcastMaximum,
            ChloBroadcastMinimum,
            ChloBroadcastAnd,
            ChloBroadcastOr,
            ChloBroadcastXor,
        ];
        let op = self.rng.pick(if v.int() { &ops } else { &ops[..5] });
        let id = self.f.op(op, &ids, &[], std::slice::from_ref(&v.ty))[0];
        let mag = if v.int() { max_of(v.ty.dtype) } else { v.mag * 4.0 + 4.0 };
        let whole = v.whole && self.values[b].whole;
        self.push(id, &[a, b], true, whole, mag, moved());
    }

    pub fn random_bits(&mut self) {
        let algorithm = self.rng.pick(&["DEFAULT", "THREE_FRY", "PHILOX"]);
        let words = if algorithm == "PHILOX" { self.rng.pick(&[2, 3]) } else { 2 };
        let state = self.param(DType::U64, &[words]);
        let dtype = self.rng.pick(&[DType::U32, DType::U32, DType::I32, DType::U8, DType::U16, DType::U64]);
        let types = [TensorType::new([words], DType::U64), TensorType::new(self.dims(), dtype)];
        let attrs = [("rng_algorithm", Attr::Enum(algorithm.into()))];
        let ids = self.f.op(Opcode::RngBitGenerator, &[self.values[state].id], &attrs, &types);
        for (id, t) in ids.into_iter().zip([DType::U64, dtype]) {
            self.push(id, &[state], true, false, max_of(t), moved());
        }
    }

    /// Batches of matrices, few and small.
    fn matrices(&mut self) -> (Vec<i64>, usize) {
        let batch = if self.rng.percent(50) { vec![self.rng.pick(&[1, 2, 3])] } else { vec![] };
        (batch, self.rng.pick(&[1, 2, 3, 5, 7, 8, 11, 17]) as usize)
    }

    pub fn cholesky(&mut self) {
        let (batch, n) = self.matrices();
        let count = batch.iter().product::<i64>() as usize;
        let mut all = Vec::new();
        for _ in 0..count {
            let b: Vec<f64> = (0..n * n).map(|_| self.rng.unit()).collect();
            let entry = |i: usize, j: usize| (0..n).map(|k| b[i * n + k] * b[j * n + k]).sum::<f64>() / n as f64;
            all.extend((0..n * n).map(|at| entry(at / n, at % n) + if at / n == at % n { 2.0 } else { 0.0 }));
        }
        let a = self.given(DType::F32, &[batch.as_slice(), &[n as i64; 2]].concat(), &all);
        let lower = self.rng.percent(50);
        let id = self.f.infer(Opcode::Cholesky, &[self.values[a].id], &[("lower", Attr::Bool(lower))]);
        self.push(id, &[a], false, false, 3.0, Rc::new(move |_, m| 16.0 * U * n as f64 * (m + 1.0)));
    }

    pub fn triangular_solve(&mut self) {
        let (batch, n) = self.matrices();
        let count = batch.iter().product::<i64>() as usize;
        let mut all = Vec::new();
        for at in 0..count * n * n {
            let (i, j) = (at / n % n, at % n);
            all.push(if i == j { 2.0 + self.rng.unit() / 2.0 } else { self.rng.unit() / n as f64 });
        }
        let a = self.given(DType::F32, &[batch.as_slice(), &[n as i64; 2]].concat(), &all);
        let left = self.rng.percent(50);
        let m = self.rng.pick(&[1, 2, 5, 9]);
        let matrix = if left { [n as i64, m] } else { [m, n as i64] };
        let b = self.param(DType::F32, &[batch.as_slice(), &matrix].concat());
        let attrs = [
            ("left_side", Attr::Bool(left)),
            ("lower", Attr::Bool(self.rng.percent(50))),
            ("unit_diagonal", Attr::Bool(self.rng.percent(30))),
            ("transpose_a", Attr::Enum(self.rng.pick(&["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]).into())),
        ];
        let ids = [self.values[a].id, self.values[b].id];
        let id = self.f.infer(Opcode::TriangularSolve, &ids, &attrs);
        self.push(id, &[a, b], false, false, 12.0, Rc::new(move |_, m| 32.0 * U * n as f64 * (m + 1.0)));
    }

    pub fn fft(&mut self) {
        let kind = self.rng.pick(&["FFT", "IFFT", "RFFT", "IRFFT"]);
        let n = self.rng.pick(&[1, 2, 3, 5, 8, 12, 13, 16, 31, 36]);
        let mut dims: Vec<i64> = (0..self.rng.below(3)).map(|_| self.rng.pick(&[1, 2, 3, 5])).collect();
        dims.push(if kind == "IRFFT" { n / 2 + 1 } else { n });
        let a = self.param(if kind == "RFFT" { DType::F32 } else { DType::C64 }, &dims);
        let attrs = [("fft_type", Attr::Enum(kind.into())), ("fft_length", Attr::Ints(vec![n]))];
        let id = self.f.infer(Opcode::Fft, &[self.values[a].id], &attrs);
        let k = n as f64;
        // An inverse transform divides by its length.
        let mag = 8.0 * k;
        self.push(id, &[a], false, false, mag, Rc::new(move |s, _| 16.0 * U * k.max(2.0) * s[0].mag));
    }

    pub fn batch_norm(&mut self) {
        use Opcode::*;
        let rank = 2 + self.rng.below(3);
        let dims: Vec<i64> = (0..rank).map(|_| self.rng.pick(&[1, 2, 3, 5, 7, 13])).collect();
        let at = self.rng.below(rank);
        let features = dims[at];
        let x = self.param(DType::F32, &dims);
        let scale = self.param(DType::F32, &[features]);
        let attrs = [("epsilon", Attr::Float(0.125, Type::Scalar(DType::F32))), ("feature_index", int(at as i64))];
        let per = TensorType::new([features], DType::F32);
        let full = TensorType::new(dims.clone(), DType::F32);
        let variance: Vec<f64> = (0..features).map(|_| 1.0 + self.rng.unit() / 2.0).collect();
        let count = (dims.iter().product::<i64>() / features) as f64;
        let (op, args, types) = match self.rng.below(3) {
            0 => (BatchNormTraining, vec![x, scale, self.param(DType::F32, &[features])], vec![full, per.clone(), per]),
            1 => {
                let (offset, mean) = (self.param(DType::F32, &[features]), self.param(DType::F32, &[features]));
                let variance = self.given(DType::F32, &[features], &variance);
                (BatchNormInference, vec![x, scale, offset, mean, variance], vec![full])
            }
            _ => {
                let mean = self.param(DType::F32, &[features]);
                let variance = self.given(DType::F32, &[features], &variance);
                let slope = self.param(DType::F32, &dims);
                (BatchNormGrad, vec![x, scale, mean, variance, slope], vec![full, per.clone(), per])
            }
        };
        let ids: Vec<_> = args.iter().map(|&i| self.values[i].id).collect();
        let made = self.f.op(op, &ids, &attrs, &types);
        for id in made {
            // Sums over `count` elements of products up to 64.
            let sums = (8.0 + count.sqrt()) * 64.0 * if op == BatchNormGrad { count } else { 1.0 };
            self.push(id, &args, false, false, 600.0, Rc::new(move |_, m| 64.0 * U * (m + 16.0) + U * sums));
        }
    }

    /// Complex numbers made of two arrays, worked on, and taken apart.
    pub fn complex(&mut self) {
        use Opcode::*;
        let has = self.values.iter().any(|v| v.ty.dtype == DType::C64);
        if !has || self.rng.percent(30) {
            let a = self.any(|v| v.ty.dtype == DType::F32, &[DType::F32]);
            let b = self.partner(a, false);
            let id = self.f.binary(Complex, self.values[a].id, self.values[b].id);
            self.push_moved(id, &[a, b]);
            return;
        }
        let a = self.any(|v| v.ty.dtype == DType::C64, &[DType::C64]);
        let v = self.values[a].clone();
        match self.rng.below(4) {
            0 => {
                let op = self.rng.pick(&[Real, Imag, Negate, ChloConj]);
                let id = self.f.unary(op, v.id);
                self.push_moved(id, &[a]);
            }
            1 => {
                let id = self.f.unary(Abs, v.id);
                self.push(id, &[a], false, false, v.mag * 1.5, Rc::new(|s, m| 2.0 * s[0].err + 8.0 * U * (m + 1e-30)));
            }
            _ => {
                let b = self.partner(a, false);
                let w = self.values[b].clone();
                let op = self.rng.pick(&[Add, Subtract, Multiply]);
                let id = self.f.binary(op, v.id, w.id);
                let mag = if op == Multiply { 2.0 * v.mag * w.mag } else { v.mag + w.mag };
                if mag > 1e30 {
                    return;
                }
                let rule: Rule = match op {
                    Multiply => Rc::new(|s, _| {
                        let (x, y) = (s[0], s[1]);
                        2.0 * (x.mag * y.err + y.mag * x.err + x.err * y.err) + 8.0 * U * (x.mag * y.mag + 1e-30)
                    }),
                    _ => Rc::new(|s, m| s[0].err + s[1].err + 4.0 * U * m + 1e-37),
                };
                let exact = v.exact && w.exact && op != Multiply;
                self.push(id, &[a, b], exact, false, mag, rule);
            }
        }
    }
}
