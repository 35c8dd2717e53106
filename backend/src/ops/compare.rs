//! Comparison, selection, conversion.

use tpusim_isa::num::convert::{
    decode_f64, encode_f32, encode_f64, encode_i64, f64_to_int, int_to_f64_odd, to_i64, wrap,
};
use tpusim_isa::num::{DType, DTypeKind};

use super::binary::{MAXIMUM, MINIMUM, broadcast_operand, broadcast_shapes, less};
use super::elementwise::{Class, binary, decode_complex, encode_complex};
use super::rules::part;
use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, rules, shape};
use crate::eval::{Fault, Tensor};
use crate::hlo::{Opcode, TensorType, Type};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::Compare, Arity::Exactly(2), Rule::Infer(compare_rule), Eval::Tensor(compare)),
    OpDef::new(Opcode::Select, Arity::Exactly(3), Rule::Infer(select_rule), Eval::Tensor(select)),
    OpDef::new(Opcode::Clamp, Arity::Exactly(3), Rule::Infer(clamp_rule), Eval::Tensor(clamp)),
    OpDef::new(Opcode::Convert, Arity::Exactly(1), Rule::Check(convert_rule), Eval::Tensor(convert)),
    OpDef::new(Opcode::BitcastConvert, Arity::Exactly(1), Rule::Check(bitcast_rule), Eval::Tensor(bitcast)).quantized(),
    OpDef::new(
        Opcode::ChloBroadcastCompare,
        Arity::Exactly(2),
        Rule::Check(broadcast_shapes),
        Eval::Tensor(broadcast_compare),
    ),
    OpDef::new(
        Opcode::ChloBroadcastSelect,
        Arity::Exactly(3),
        Rule::Check(broadcast_shapes),
        Eval::Tensor(broadcast_select),
    ),
];

/// What `comparison_direction` asks of an ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Direction {
    less: bool,
    equal: bool,
    greater: bool,
    unordered: bool,
}

impl Direction {
    pub(super) fn of(site: &Site<'_>) -> Result<Direction, RuleError> {
        let text = site.op.attrs.text("comparison_direction").unwrap_or_default();
        let d = |less, equal, greater| Direction { less, equal, greater, unordered: text == "NE" };
        Ok(match text {
            "EQ" => d(false, true, false),
            "NE" => d(true, false, true),
            "LT" => d(true, false, false),
            "LE" => d(true, true, false),
            "GT" => d(false, false, true),
            "GE" => d(false, true, true),
            other => return Err(RuleError(format!("unknown comparison_direction `{other}`"))),
        })
    }

    pub(super) fn holds(self, o: Option<std::cmp::Ordering>) -> bool {
        match o {
            Some(std::cmp::Ordering::Less) => self.less,
            Some(std::cmp::Ordering::Equal) => self.equal,
            Some(std::cmp::Ordering::Greater) => self.greater,
            None => self.unordered,
        }
    }
}

/// Whether floats compare by their total order, in which -NaN < -inf < -0 < +0 < inf < NaN.
pub(super) fn total_order(site: &Site<'_>) -> bool {
    site.op.attrs.text("compare_type") == Some("TOTALORDER")
}

/// How two integers of type `d` are ordered.
pub(super) fn int_order(d: DType, a: i64, b: i64) -> std::cmp::Ordering {
    if less(d, a, b) {
        std::cmp::Ordering::Less
    } else if a == b {
        std::cmp::Ordering::Equal
    } else {
        std::cmp::Ordering::Greater
    }
}

fn compare_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let (a, b) = (site.operand(0)?, site.operand(1)?);
    ensure(rules::compatible(a, b), || format!("operands differ: {a} and {b}"))?;
    Direction::of(site)?;
    Ok(vec![rules::tensor(&a.dims, DType::I1)])
}

fn compare(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    compare_tensors(site, operands[0], operands[1])
}

fn compare_tensors(site: &Site<'_>, a: &Tensor, b: &Tensor) -> Result<Tensor, Fault> {
    let (d, dtype) = (Direction::of(site)?, a.dtype());
    let bytes: Vec<u8> = match Class::of(dtype) {
        Class::F32 | Class::F64 if total_order(site) => {
            a.to_f64().iter().zip(&b.to_f64()).map(|(a, b)| u8::from(d.holds(Some(a.total_cmp(b))))).collect()
        }
        Class::F32 => a.to_f32().iter().zip(&b.to_f32()).map(|(a, b)| u8::from(d.holds(a.partial_cmp(b)))).collect(),
        Class::F64 => a.to_f64().iter().zip(&b.to_f64()).map(|(a, b)| u8::from(d.holds(a.partial_cmp(b)))).collect(),
        Class::Int => {
            let order = |(a, b): (&i64, &i64)| u8::from(d.holds(Some(int_order(dtype, *a, *b))));
            a.to_i64().iter().zip(&b.to_i64()).map(order).collect()
        }
        Class::Complex => {
            let pairs = decode_complex(a).into_iter().zip(decode_complex(b));
            pairs.map(|(a, b)| u8::from(d.holds(a.partial_cmp(&b)))).collect()
        }
    };
    Ok(Tensor::make(site.result(0)?.clone(), bytes))
}

fn broadcast_compare(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    compare_tensors(site, &broadcast_operand(site, 0, operands)?, &broadcast_operand(site, 1, operands)?)
}

fn select_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let (p, a, b) = (site.operand(0)?, site.operand(1)?, site.operand(2)?);
    ensure(rules::compatible(a, b), || format!("branches differ: {a} and {b}"))?;
    ensure(p.dtype == DType::I1, || format!("the predicate should be boolean, is {p}"))?;
    ensure(p.rank() == 0 || p.dims == a.dims, || format!("the predicate {p} does not fit {a}"))?;
    Ok(vec![Type::Tensor(a.clone())])
}

fn select(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let [p, a, b] = operands else { return Err(Fault::invalid("needs three operands")) };
    if p.dims().is_empty() {
        let chosen = if p.bytes() == [1] { a } else { b };
        return Ok(chosen.with_type(site.result(0)?.clone()));
    }
    let w = a.dtype().bytes();
    let mut out = b.bytes().to_vec();
    for ((o, a), &p) in out.chunks_exact_mut(w).zip(a.bytes().chunks_exact(w)).zip(p.bytes()) {
        if p != 0 {
            o.copy_from_slice(a);
        }
    }
    Ok(Tensor::make(site.result(0)?.clone(), out))
}

fn broadcast_select(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let all: Vec<Tensor> = (0..3).map(|i| broadcast_operand(site, i, operands)).collect::<Result<_, _>>()?;
    select(site, &all.iter().collect::<Vec<_>>())
}

fn clamp_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let (lo, x, hi) = (site.operand(0)?, site.operand(1)?, site.operand(2)?);
    for bound in [lo, hi] {
        let fits = bound.dtype == x.dtype && (bound.rank() == 0 || bound.dims == x.dims);
        ensure(fits, || format!("the bound {bound} does not fit {x}"))?;
    }
    Ok(vec![Type::Tensor(x.clone())])
}

fn clamp(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let [lo, x, hi] = operands else { return Err(Fault::invalid("needs three operands")) };
    let spread = |b: &Tensor| if b.dims() == x.dims() { b.clone() } else { shape::broadcast_to(b, &[], x.dims()) };
    let ty = site.result(0)?;
    let above = binary(&MAXIMUM, x, &spread(lo), ty.clone())?;
    binary(&MINIMUM, &above, &spread(hi), ty.clone())
}

fn convert_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (x, r) = (site.operand(0)?, site.result(0)?);
    ensure(x.dims == r.dims, || format!("cannot convert {x} to {r}: shapes differ"))
}

fn convert(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    Ok(convert_to(operands[0], site.result(0)?.dtype))
}

/// `x` with its elements converted to `to`.
pub(super) fn convert_to(x: &Tensor, to: DType) -> Tensor {
    let from = x.dtype();
    let ty = TensorType::new(x.dims(), to);
    if from == to {
        return x.with_type(ty);
    }
    let complex = |d: DType| d.kind() == DTypeKind::Complex;
    if complex(to) {
        let values = if complex(from) {
            decode_complex(x)
        } else {
            convert_to(x, part(to)).to_f64().into_iter().map(|re| (re, 0.0)).collect()
        };
        return encode_complex(ty, &values);
    }
    if complex(from) {
        let reals: Vec<f64> = decode_complex(x).into_iter().map(|(re, _)| re).collect();
        let dtype = part(from);
        return convert_to(&Tensor::make(TensorType::new(x.dims(), dtype), encode_f64(dtype, &reals)), to);
    }
    let bytes = match (Class::of(from), Class::of(to)) {
        (Class::F32, Class::F32) => encode_f32(to, &x.to_f32()),
        (Class::F32 | Class::F64, Class::F32 | Class::F64) => encode_f64(to, &x.to_f64()),
        (Class::F32 | Class::F64, _) => {
            encode_i64(to, &decode_f64(from, x.bytes()).into_iter().map(|v| f64_to_int(to, v)).collect::<Vec<_>>())
        }
        (_, Class::F64) => encode_f64(to, &x.to_f64()),
        (_, Class::F32) => encode_f64(to, &x.to_i64().into_iter().map(|v| int_to_f64_odd(from, v)).collect::<Vec<_>>()),
        (_, _) if to == DType::I1 => x.to_i64().into_iter().map(|v| u8::from(v != 0)).collect(),
        _ => encode_i64(to, &x.to_i64().into_iter().map(|v| wrap(to, v)).collect::<Vec<_>>()),
    };
    Tensor::make(ty, bytes)
}

fn bitcast_rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (x, r) = (site.operand(0)?, site.result(0)?);
    let (from, to) = (i64::from(x.dtype.bits()), i64::from(r.dtype.bits()));
    let fits = match from.cmp(&to) {
        std::cmp::Ordering::Equal => x.dims == r.dims,
        std::cmp::Ordering::Greater => r.dims.split_last() == Some((&(from / to), &x.dims)) && from % to == 0,
        std::cmp::Ordering::Less => x.dims.split_last() == Some((&(to / from), &r.dims)) && to % from == 0,
    };
    ensure(fits, || format!("cannot reinterpret {x} as {r}"))
}

fn bitcast(site: &Site<'_>, operands: &[&Tensor]) -> Result<Tensor, Fault> {
    let (x, ty) = (operands[0], site.result(0)?);
    let (from, to) = (x.dtype(), ty.dtype);
    if from.bits() % 8 == 0 && to.bits() % 8 == 0 {
        return Ok(x.with_type(ty.clone()));
    }
    // Parts of a byte: the first element of the smaller type is in the low bits.
    let mask = |d: DType| u64::MAX >> (64 - d.bits());
    let raw = |b: &[u8]| to_i64(from, b) as u64 & mask(from);
    let elements: Vec<u64> = x.bytes().chunks_exact(from.bytes()).map(raw).collect();
    let values: Vec<i64> = if from.bits() > to.bits() {
        let parts = from.bits() / to.bits();
        elements.iter().flat_map(|&e| (0..parts).map(move |i| (e >> (i * to.bits())) as i64)).collect()
    } else {
        let parts = (to.bits() / from.bits()) as usize;
        let join = |c: &[u64]| c.iter().rev().fold(0u64, |a, &e| a << from.bits() | e) as i64;
        elements.chunks_exact(parts).map(join).collect()
    };
    Ok(Tensor::make(ty.clone(), encode_i64(to, &values)))
}
