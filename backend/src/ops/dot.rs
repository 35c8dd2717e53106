//! Matrix products.

use rayon::prelude::*;
use tpusim_isa::num::convert::{encode_f32, encode_f64, encode_i64, round_bf16, wrap};
use tpusim_isa::num::{DType, DTypeKind};

use super::elementwise::{Class, decode_complex, encode_complex};
use super::site::{distinct, ensure};
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, shape};
use crate::eval::{DotPrecision, EvalOptions, Fault, Tensor};
use crate::hlo::{Attr, DotDims, Opcode, TensorType};

const TWO: Arity = Arity::Exactly(2);

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::DotGeneral, TWO, Rule::Check(dot_rule), Eval::Tensors(dot_general)),
    OpDef::new(Opcode::Dot, TWO, Rule::Check(dot_rule), Eval::Tensors(dot_general)),
];

/// Dimensions of the two operands by role.
pub(super) struct Roles {
    lhs_batch: Vec<usize>,
    lhs_free: Vec<usize>,
    lhs_contract: Vec<usize>,
    rhs_batch: Vec<usize>,
    rhs_free: Vec<usize>,
    rhs_contract: Vec<usize>,
}

impl Roles {
    /// What `dims` says of operands of types `a` and `b`.
    pub(super) fn new(dims: &DotDims, a: &TensorType, b: &TensorType) -> Result<Roles, RuleError> {
        let (lhs_batch, lhs_contract, lhs_free) = split_dims("left", &dims.lhs_batch, &dims.lhs_contract, a.rank())?;
        let (rhs_batch, rhs_contract, rhs_free) = split_dims("right", &dims.rhs_batch, &dims.rhs_contract, b.rank())?;
        let same =
            |l: &[usize], r: &[usize]| l.len() == r.len() && l.iter().zip(r).all(|(&l, &r)| a.dims[l] == b.dims[r]);
        ensure(same(&lhs_batch, &rhs_batch), || format!("batching dimensions of {a} and {b} differ"))?;
        ensure(same(&lhs_contract, &rhs_contract), || format!("contracting dimensions of {a} and {b} differ"))?;
        Ok(Roles { lhs_batch, lhs_free, lhs_contract, rhs_batch, rhs_free, rhs_contract })
    }

    /// Dimensions of the product of `a` and `b`.
    pub(super) fn result_dims(&self, a: &TensorType, b: &TensorType) -> Vec<i64> {
        let pick = |t: &TensorType, d: &[usize]| d.iter().map(|&d| t.dims[d]).collect::<Vec<_>>();
        [pick(a, &self.lhs_batch), pick(a, &self.lhs_free), pick(b, &self.rhs_free)].concat()
    }
}

fn dot_dims(site: &Site<'_>) -> Result<DotDims, RuleError> {
    let (a, b) = (site.operand(0)?, site.operand(1)?);
    match site.op.attrs.get("dot_dimension_numbers") {
        Some(Attr::Dot(d)) => Ok(d.clone()),
        // Plain `dot`: the last dimension of a vector or matrix with the first of another.
        None if site.op.opcode == Opcode::Dot && (1..=2).contains(&a.rank()) && (1..=2).contains(&b.rank()) => {
            Ok(DotDims { lhs_contract: vec![a.rank() as i64 - 1], rhs_contract: vec![0], ..DotDims::default() })
        }
        _ => Err(RuleError::new("needs `dot_dimension_numbers`")),
    }
}

pub(super) type Split = (Vec<usize>, Vec<usize>, Vec<usize>);

/// Batching, contracting and other dimensions of an operand.
pub(super) fn split_dims(side: &str, batch: &[i64], contract: &[i64], rank: usize) -> Result<Split, RuleError> {
    let all = distinct(&format!("{side} dot dimensions"), &[batch, contract].concat(), rank)?;
    let free = (0..rank).filter(|d| !all.contains(d)).collect();
    let (b, c) = all.split_at(batch.len());
    Ok((b.to_vec(), c.to_vec(), free))
}

fn dot_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (a, b, r) = (site.operand(0)?, site.operand(1)?, site.result(0)?);
    let dims = Roles::new(&dot_dims(site)?, a, b)?.result_dims(a, b);
    ensure(dims == r.dims, || format!("the result should have dimensions {dims:?}, is {r}"))
}

/// Whether `f32` operands are rounded to bf16: at `DEFAULT` precision of an MXU.
pub(super) fn rounds_to_bf16(site: &Site<'_>, options: &EvalOptions) -> bool {
    let high = |a: &Attr| matches!(a, Attr::Enum(s) | Attr::Str(s) if s != "DEFAULT");
    let asked = match site.op.attrs.get("precision_config") {
        Some(Attr::Array(v)) => v.iter().any(high),
        _ => false,
    };
    options.dot == DotPrecision::Tpu && !asked && site.op.attrs.get("algorithm").is_none()
}

fn dot_general(site: &Site<'_>, operands: &[&Tensor], options: &EvalOptions) -> Result<Vec<Tensor>, Fault> {
    Ok(vec![product_of(site, &dot_dims(site)?, operands[0], operands[1], site.result(0)?, options)?])
}

/// The product of `a` and `b` along `dims`, of type `ty`, at the precision that the op at `site` asks for.
pub(super) fn product_of(
    site: &Site<'_>,
    dims: &DotDims,
    a: &Tensor,
    b: &Tensor,
    ty: &TensorType,
    options: &EvalOptions,
) -> Result<Tensor, Fault> {
    let r = Roles::new(dims, a.ty(), b.ty())?;
    let size = |t: &Tensor, d: &[usize]| d.iter().map(|&d| t.dims()[d] as usize).product::<usize>();
    let s = Sizes {
        batch: size(a, &r.lhs_batch),
        m: size(a, &r.lhs_free),
        k: size(a, &r.lhs_contract),
        n: size(b, &r.rhs_free),
    };
    let lhs = shape::permute(a, &[r.lhs_batch.clone(), r.lhs_free, r.lhs_contract].concat());
    let rhs = shape::permute(b, &[r.rhs_batch, r.rhs_contract, r.rhs_free].concat());
    matmul(&lhs, &rhs, s, ty, rounds_to_bf16(site, options))
}

/// Sizes of a batched matrix product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub batch: usize,
    pub m: usize,
    pub k: usize,
    pub n: usize,
}

/// The product of `a` (batch, m, k) and `b` (batch, k, n) as a tensor of type `ty` with batch x m x n elements.
pub(super) fn matmul(a: &Tensor, b: &Tensor, s: Sizes, ty: &TensorType, bf16: bool) -> Result<Tensor, Fault> {
    let wide = |d: DType| matches!(d, DType::F32 | DType::F64) || !d.is_float();
    let bytes = match (Class::of(a.dtype()), Class::of(b.dtype()), ty.dtype.kind()) {
        (Class::Int, Class::Int, DTypeKind::Signed | DTypeKind::Unsigned) => {
            let narrow = ty.dtype.bits() <= 32;
            if narrow {
                let cast = |t: &Tensor| t.to_i64().into_iter().map(|v| v as i32).collect::<Vec<_>>();
                let c = product(&cast(a), &cast(b), s, |c: i32, a, b| c.wrapping_add(a.wrapping_mul(b)));
                encode_i64(ty.dtype, &c.into_iter().map(|v| wrap(ty.dtype, v.into())).collect::<Vec<_>>())
            } else {
                let c = product(&a.to_i64(), &b.to_i64(), s, |c: i64, a, b| c.wrapping_add(a.wrapping_mul(b)));
                encode_i64(ty.dtype, &c)
            }
        }
        (Class::Complex, Class::Complex, _) => {
            let f = |c: (f64, f64), a: (f64, f64), b: (f64, f64)| {
                (c.0 + (a.0 * b.0 - a.1 * b.1), c.1 + (a.0 * b.1 + a.1 * b.0))
            };
            let parts = |t: &Tensor| {
                let mut v = decode_complex(t);
                if bf16 && t.dtype() == DType::C64 {
                    let round = |x: f64| f64::from(round_bf16(x as f32));
                    v.iter_mut().for_each(|c| *c = (round(c.0), round(c.1)));
                }
                v
            };
            return Ok(encode_complex(ty.clone(), &product(&parts(a), &parts(b), s, f)));
        }
        (Class::Complex, ..) | (_, Class::Complex, _) | (_, _, DTypeKind::Complex | DTypeKind::Bool) => {
            return Err(Fault::Unsupported(format!(" of {} by {}", a.ty(), b.ty())));
        }
        _ if bf16 && [a, b].iter().all(|t| matches!(t.dtype(), DType::F32 | DType::F16)) => {
            let round = |t: &Tensor| t.to_f32().into_iter().map(round_bf16).collect::<Vec<_>>();
            encode_f32(ty.dtype, &product(&round(a), &round(b), s, |c: f32, a, b| c + a * b))
        }
        _ if wide(a.dtype()) || wide(b.dtype()) || ty.dtype == DType::F64 => {
            encode_f64(ty.dtype, &product(&a.to_f64(), &b.to_f64(), s, |c: f64, a, b| c + a * b))
        }
        _ => encode_f32(ty.dtype, &product(&a.to_f32(), &b.to_f32(), s, |c: f32, a, b| c + a * b)),
    };
    Ok(Tensor::make(ty.clone(), bytes))
}

/// Each element is summed by one thread in increasing order of `k`.
fn product<T: Copy + Default + Send + Sync>(a: &[T], b: &[T], s: Sizes, f: impl Fn(T, T, T) -> T + Sync) -> Vec<T> {
    let Sizes { batch, m, k, n } = s;
    let mut c = vec![T::default(); batch * m * n];
    if c.is_empty() || k == 0 {
        return c;
    }
    let row = |i: usize, c: &mut [T]| {
        let a = &a[i * k..(i + 1) * k];
        let b = &b[i / m * k * n..(i / m + 1) * k * n];
        for (&x, b) in a.iter().zip(b.chunks_exact(n)) {
            c.iter_mut().zip(b).for_each(|(c, &b)| *c = f(*c, x, b));
        }
    };
    if batch * m * n * k < 1 << 16 {
        c.chunks_exact_mut(n).enumerate().for_each(|(i, c)| row(i, c));
    } else {
        c.par_chunks_exact_mut(n).enumerate().for_each(|(i, c)| row(i, c));
    }
    c
}
