//! Conversions between pairs, and to and from types that are one array.

use tpusim_isa::num::{DTypeKind, convert};

use super::*;

/// The 64-bit pattern of a pair of integers that is the same everywhere, if it is known.
pub(super) fn known(b: &Builder<'_>, p: Parts) -> Option<u64> {
    let word = |n: NodeId| Some(u64::from(u32::from_le_bytes(b.splat_of(n)?.get(..4)?.try_into().ok()?)));
    Some(word(p[1])? << 32 | word(p[0])?)
}

/// `x` of an integer type of up to 32 bits, or `i1`, as words.
fn widened(c: &mut Chain<'_, '_>, x: NodeId, from: DType) -> Parts {
    let zero = number(c, 0, DType::U32);
    if let NodeOp::Iota(d) = c.b.node(x).op
        && from.bits() == 32
    {
        let t = Shape { dims: c.dims.clone(), dtype: DType::U32 };
        return [c.b.push(NodeOp::Iota(d), vec![], &t, c.name, c.site.clone()), zero];
    }
    if let Some(bytes) = c.b.splat_of(x) {
        let v = convert::to_i64(from, &bytes);
        return [number(c, v as u32, DType::U32), number(c, (v >> 32) as u32, DType::U32)];
    }
    if !from.is_signed() {
        return [c.typed(MapOp::Convert, &[x], DType::U32), zero];
    }
    let x = c.typed(MapOp::Convert, &[x], DType::I32);
    let n = number(c, 31, DType::I32);
    let high = c.typed(MapOp::ShrArith, &[x, n], DType::I32);
    [x, high].map(|w| c.typed(MapOp::Bitcast, &[w], DType::U32))
}

/// A value of one array as the pair of type `to`.
fn to_pair(c: &mut Chain<'_, '_>, x: NodeId, to: DType) -> Parts {
    let from = c.b.node(x).dtype;
    let float = from.is_float();
    match to {
        DType::I64 | DType::U64 if float => {
            let x = c.map(MapOp::Convert, &[x]);
            wide_of(c, WideOp::F32ToInt(to == DType::I64), &[x], DType::U32)
        }
        DType::I64 | DType::U64 => widened(c, x, from),
        // An integer of 32 bits is a double-float, but no f32.
        DType::F64 if !float && from.bits() > 24 => {
            let words = widened(c, x, from);
            wide_of(c, WideOp::FromInt(from.is_signed()), &words, DType::F32)
        }
        _ => [c.map(MapOp::Convert, &[x]), number(c, 0, DType::F32)],
    }
}

/// Words as `to`, an integer type of up to 32 bits, `i1` or a float type of up to 32 bits.
fn integer_to_one(c: &mut Chain<'_, '_>, x: Parts, signed: bool, to: DType) -> NodeId {
    if let Some(v) = known(c.b, x) {
        let from = if signed { DType::I64 } else { DType::U64 };
        let bytes = match to.kind() {
            DTypeKind::Bool => vec![u8::from(v != 0)],
            DTypeKind::Float => convert::from_f64(to, convert::int_to_f64_odd(from, v as i64))[..to.bytes()].to_vec(),
            _ => convert::from_i64(to, v as i64)[..to.bytes()].to_vec(),
        };
        let t = Shape { dims: c.dims.clone(), dtype: to };
        return c.b.constant(bytes.into(), &t, c.name, c.site.clone());
    }
    match to.kind() {
        DTypeKind::Bool => {
            let both = c.typed(MapOp::Or, &x, DType::U32);
            let z = number(c, 0, DType::U32);
            c.typed(MapOp::Compare(Direction::Ne, false), &[both, z], DType::I1)
        }
        DTypeKind::Float if to == DType::F32 => c.map(MapOp::Wide(WideOp::IntToF32(signed), 0), &x),
        DTypeKind::Float => {
            let y = c.map(MapOp::Wide(WideOp::IntToF32Odd(signed), 0), &x);
            c.typed(MapOp::Convert, &[y], to)
        }
        _ => c.typed(MapOp::Convert, &[x[0]], to),
    }
}

fn double_to_one(c: &mut Chain<'_, '_>, x: Parts, to: DType) -> NodeId {
    match to.kind() {
        DTypeKind::Bool => {
            let z = number(c, 0, DType::F32);
            c.typed(MapOp::Compare(Direction::Ne, false), &[x[0], z], DType::I1)
        }
        DTypeKind::Float if to == DType::F32 => x[0],
        DTypeKind::Float => {
            let y = c.map(MapOp::Wide(WideOp::ToF32Odd, 0), &x);
            c.typed(MapOp::Convert, &[y], to)
        }
        _ => {
            // Saturated to 64 bits, then to fewer.
            let w = wide_of(c, WideOp::ToInt(true), &x, DType::U32);
            let (lo, hi) = convert::int_range(to);
            let w = [(MapOp::Max, lo), (MapOp::Min, hi)].into_iter().fold(w, |w, (m, v)| {
                let v = v as i64;
                let limit = [number(c, v as u32, DType::U32), number(c, (v >> 32) as u32, DType::U32)];
                integer::map(c, m, true, &[w, limit]).unwrap_or(w)
            });
            c.typed(MapOp::Convert, &[w[0]], to)
        }
    }
}

impl Builder<'_> {
    /// 64-bit integers as 32-bit ones, saturated.
    pub(in super::super) fn saturated(
        &mut self,
        x: Parts,
        signed: bool,
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let dims = self.node(x[0]).dims.clone();
        let mut c = Chain { b: self, dims, name, site: site.clone() };
        if let Some(v) = known(c.b, x) {
            let v = if signed { v as i64 } else { i64::try_from(v).unwrap_or(i64::MAX) };
            return number(&mut c, v.clamp(i32::MIN.into(), i32::MAX.into()) as i32 as u32, DType::I32);
        }
        let low = c.typed(MapOp::Bitcast, &[x[0]], DType::I32);
        let high = c.typed(MapOp::Bitcast, &[x[1]], DType::I32);
        let n = number(&mut c, 31, DType::I32);
        let sign = c.typed(MapOp::ShrArith, &[low, n], DType::I32);
        // What was extended from 32 bits fits.
        if let NodeOp::Map(MapOp::Bitcast) = c.b.node(x[1]).op
            && c.b.node(x[1]).args == [sign]
        {
            return low;
        }
        let most = number(&mut c, i32::MAX as u32, DType::I32);
        if c.b.splat_of(x[1]).is_some_and(|v| v.iter().all(|&b| b == 0)) {
            // An index fits too; only an unsigned word may not.
            if matches!(c.b.node(x[0]).op, NodeOp::Iota(_)) {
                return low;
            }
            let zero = number(&mut c, 0, DType::I32);
            let over = c.typed(MapOp::Compare(Direction::Lt, false), &[low, zero], DType::I1);
            return c.typed(MapOp::Select, &[over, most, low], DType::I32);
        }
        let end = if signed {
            let s = c.typed(MapOp::ShrArith, &[high, n], DType::I32);
            c.typed(MapOp::Xor, &[s, most], DType::I32)
        } else {
            most
        };
        let mut fits = c.typed(MapOp::Compare(Direction::Eq, false), &[high, sign], DType::I1);
        if !signed {
            let zero = number(&mut c, 0, DType::I32);
            let small = c.typed(MapOp::Compare(Direction::Eq, false), &[high, zero], DType::I1);
            fits = c.typed(MapOp::And, &[fits, small], DType::I1);
        }
        c.typed(MapOp::Select, &[fits, low, end], DType::I32)
    }

    pub(super) fn wide_convert(&mut self, x: Value, t: &Shape, name: &'static str, site: &(String, String)) -> Value {
        let mut c = Chain { b: self, dims: t.dims.clone(), name, site: site.clone() };
        let to = t.dtype;
        let whole = |t: DType| matches!(t, DType::I64 | DType::U64);
        match x {
            Value::One(x) => Value::Pair(to, to_pair(&mut c, x, to)),
            Value::Pair(from, p) if part_of(to).is_some() => {
                let q = match (from, to) {
                    _ if from == to || whole(from) && whole(to) => p,
                    (DType::F64, _) if whole(to) => wide_of(&mut c, WideOp::ToInt(to == DType::I64), &p, DType::U32),
                    (_, DType::F64) if whole(from) => {
                        wide_of(&mut c, WideOp::FromInt(from == DType::I64), &p, DType::F32)
                    }
                    // The real part alone, or a real number as one.
                    (DType::C64, _) => to_pair(&mut c, p[0], to),
                    _ if whole(from) => {
                        [integer_to_one(&mut c, p, from == DType::I64, DType::F32), number(&mut c, 0, DType::F32)]
                    }
                    _ => [p[0], number(&mut c, 0, DType::F32)],
                };
                Value::Pair(to, q)
            }
            Value::Pair(DType::C64, p) => Value::One(c.typed(MapOp::Convert, &[p[0]], to)),
            Value::Pair(DType::F64, p) => Value::One(double_to_one(&mut c, p, to)),
            Value::Pair(from, p) => Value::One(integer_to_one(&mut c, p, from == DType::I64, to)),
        }
    }
}
