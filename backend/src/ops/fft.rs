//! Fourier transforms, in double precision and rounded once.

use tpusim_isa::num::convert::encode_f64;
use tpusim_isa::num::{DType, DTypeKind};

use super::elementwise::{C, decode_complex, encode_complex};
use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, complex, rules};
use crate::eval::{Fault, Tensor};
use crate::hlo::{Opcode, Type};

pub(super) static OPS: &[OpDef] = &[OpDef::new(Opcode::Fft, Arity::Exactly(1), Rule::Infer(rule), Eval::Tensor(fft))];

fn rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let (x, length) = (site.operand(0)?, site.ints("fft_length")?);
    let kind = site.op.attrs.text("fft_type").unwrap_or_default();
    ensure((1..=3).contains(&length.len()) && length.len() <= x.rank(), || {
        format!("`fft_length` should have 1 to 3 entries, at most the rank of {x}")
    })?;
    ensure(length.iter().all(|&n| n >= 0), || "`fft_length` should not be negative".into())?;
    let (from, outer) = (x.rank() - length.len(), &x.dims[..x.rank() - length.len()]);
    let half = |n: i64| if n == 0 { 0 } else { n / 2 + 1 };
    let mut halved = length.to_vec();
    halved.iter_mut().rev().take(1).for_each(|n| *n = half(*n));
    let (input, output, dtype) = match (kind, x.dtype) {
        ("FFT" | "IFFT", DType::C64 | DType::C128) => (length, length, x.dtype),
        ("RFFT", DType::F32) => (length, halved.as_slice(), DType::C64),
        ("RFFT", DType::F64) => (length, halved.as_slice(), DType::C128),
        ("IRFFT", DType::C64 | DType::C128) => (halved.as_slice(), length, rules::part(x.dtype)),
        _ => return Err(RuleError(format!("no `{kind}` of {x}"))),
    };
    ensure(&x.dims[from..] == input, || format!("a transform of {length:?} needs dimensions {input:?}, not {x}"))?;
    Ok(vec![rules::tensor(&[outer, output].concat(), dtype)])
}

fn fft(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (x, ty) = (operands[0], site.result(0)?.clone());
    let length: Vec<usize> = site.ints("fft_length")?.iter().map(|&n| n as usize).collect();
    let kind = site.op.attrs.text("fft_type").unwrap_or_default();
    let Some((&n, outer)) = length.split_last() else { return Err(Fault::invalid("needs a length")) };
    let mut v = match x.dtype().kind() {
        DTypeKind::Complex => decode_complex(x),
        _ => x.to_f64().into_iter().map(|re| (re, 0.0)).collect(),
    };
    // The last dimension is done first on the way there and last on the way back, as a transform of reals needs it.
    let inverse = matches!(kind, "IFFT" | "IRFFT");
    let stored = if kind == "IRFFT" { n / 2 + 1 } else { n };
    if !inverse {
        v = rows(&v, n, n, kind == "RFFT", |r| transform(r, -1.0));
    }
    let width = if inverse { stored } else { ty.dims.last().map_or(0, |&d| d as usize) };
    let mut inner = width;
    for &size in outer.iter().rev() {
        columns(&mut v, size, inner, if inverse { 1.0 } else { -1.0 });
        inner *= size;
    }
    if inverse {
        let scale = 1.0 / n as f64;
        v = rows(&v, stored, n, false, |r| {
            // The missing half is the conjugate of the other one.
            let full: Vec<C> = (0..n).map(|i| if i < r.len() { r[i] } else { (r[n - i].0, -r[n - i].1) }).collect();
            transform(&full, 1.0).into_iter().map(|c| (c.0 * scale, c.1 * scale)).collect()
        });
    }
    if ty.dtype.kind() == DTypeKind::Complex {
        return Ok(encode_complex(ty, &v));
    }
    let bytes = encode_f64(ty.dtype, &v.into_iter().map(|c| c.0).collect::<Vec<_>>());
    Ok(Tensor::make(ty, bytes))
}

/// Transforms every row of `stored` elements; with `half`, keeps the first half and the middle of the results.
fn rows(v: &[C], stored: usize, n: usize, half: bool, f: impl Fn(&[C]) -> Vec<C>) -> Vec<C> {
    let keep = if half { n / 2 + 1 } else { n };
    v.chunks_exact(stored.max(1)).flat_map(|r| f(r).into_iter().take(keep)).collect()
}

/// Transforms along a dimension of `size`, in place; `inner` elements lie between neighbours.
fn columns(v: &mut [C], size: usize, inner: usize, sign: f64) {
    let scale = if sign > 0.0 { 1.0 / size as f64 } else { 1.0 };
    for block in v.chunks_exact_mut((size * inner).max(1)) {
        for i in 0..inner {
            let column: Vec<C> = (0..size).map(|k| block[k * inner + i]).collect();
            for (k, c) in transform(&column, sign).into_iter().enumerate() {
                block[k * inner + i] = (c.0 * scale, c.1 * scale);
            }
        }
    }
}

/// The sum of `x[k] exp(sign 2 pi i j k / n)` for every `j`: split by the smallest factor of `n` as long as there is one.
fn transform(x: &[C], sign: f64) -> Vec<C> {
    let n = x.len();
    let root = |k: usize| {
        // Quarter turns are exact.
        if (4 * (k % n)).is_multiple_of(n) {
            return [(1.0, 0.0), (0.0, sign), (-1.0, 0.0), (0.0, -sign)][4 * (k % n) / n];
        }
        let angle = sign * 2.0 * std::f64::consts::PI * (k % n) as f64 / n as f64;
        (libm::cos(angle), libm::sin(angle))
    };
    let add = |a: C, b: C| (a.0 + b.0, a.1 + b.1);
    let factor = (2..n).take_while(|p| p * p <= n).find(|&p| n.is_multiple_of(p)).unwrap_or(n);
    if factor == n {
        let term = |j: usize| (0..n).fold((0.0, 0.0), |s, k| add(s, complex::mul(x[k], root(j * k))));
        return (0..n).map(term).collect();
    }
    let m = n / factor;
    let parts: Vec<Vec<C>> =
        (0..factor).map(|r| transform(&x.iter().skip(r).step_by(factor).copied().collect::<Vec<_>>(), sign)).collect();
    let term = |j: usize| (0..factor).fold((0.0, 0.0), |s, r| add(s, complex::mul(parts[r][j % m], root(j * r))));
    (0..n).map(term).collect()
}
