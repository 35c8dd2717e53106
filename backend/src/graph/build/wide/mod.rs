//! Types that the chip lacks, as pairs of 32-bit arrays.
//!
//! A 64-bit integer is its low and its high word, a double the sum of a larger and a smaller f32 (see [`crate::lower::math`] for what that
//! is worth), a complex number its real and its imaginary part. In memory an array of such a type is a dense array of words with a last
//! dimension of two: parameters are read through strided views of it, results are put together from both parts. Whatever only moves data
//! moves both parts; what no result needs, such as the high words of positions, is dropped with the rest of the dead graph.
//!
//! Functions of one element that need both registers are [`WideOp`]s, which code generation computes for both parts at once: spelled out
//! as graphs, each would be hundreds of nodes and several kernels.

mod bitcast;
mod complex;
mod convert;
mod fft;
mod float;
mod integer;
mod reduce;

use tpusim_isa::num::DType;

use super::super::{NodeId, NodeOp};
use super::special::Chain;
use super::*;
pub(super) use reduce::combine;

use crate::hlo::{Attr, Literal, Op, Opcode, TensorType};
use crate::lower::math::{Direction, MapOp, WideOp};

/// The nodes of a pair: low and high word, larger and smaller f32, or real and imaginary part.
pub(super) type Parts = [NodeId; 2];

/// What an SSA value became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// One array of a type that the chip has.
    One(NodeId),
    /// Two arrays of the type [`part_of`] the element type.
    Pair(DType, Parts),
}

impl Value {
    /// The only node.
    pub fn one(self) -> Option<NodeId> {
        match self {
            Value::One(n) => Some(n),
            Value::Pair(..) => None,
        }
    }

    /// Its nodes, one or two.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        let (first, second) = match *self {
            Value::One(n) => (n, None),
            Value::Pair(_, [a, b]) => (a, Some(b)),
        };
        std::iter::once(first).chain(second)
    }

    /// A value of the same type made of other nodes.
    pub fn map(self, mut f: impl FnMut(NodeId) -> NodeId) -> Value {
        match self {
            Value::One(n) => Value::One(f(n)),
            Value::Pair(t, p) => Value::Pair(t, p.map(f)),
        }
    }

    /// The nodes of a pair.
    pub fn pair(self) -> Option<(DType, Parts)> {
        match self {
            Value::One(_) => None,
            Value::Pair(t, p) => Some((t, p)),
        }
    }
}

/// Element type of both parts of a value of type `t`; `None` if a value of type `t` is one array.
pub(super) fn part_of(t: DType) -> Option<DType> {
    match t {
        DType::I64 | DType::U64 => Some(DType::U32),
        DType::F64 | DType::C64 => Some(DType::F32),
        _ => None,
    }
}

/// One function of an element of a pair; both registers of its result.
pub(super) fn wide_of(c: &mut Chain<'_, '_>, op: WideOp, args: &[NodeId], part: DType) -> Parts {
    [0, 1].map(|i| c.typed(MapOp::Wide(op, i), args, part))
}

/// `p ? a : b` for both parts.
fn choose(c: &mut Chain<'_, '_>, p: NodeId, a: Parts, b: Parts) -> Parts {
    [0, 1].map(|i| {
        let dtype = c.b.node(a[i]).dtype;
        c.typed(MapOp::Select, &[p, a[i], b[i]], dtype)
    })
}

/// The element of `dtype` with these bits, everywhere.
fn number(c: &mut Chain<'_, '_>, bits: u32, dtype: DType) -> NodeId {
    let t = Shape { dims: c.dims.clone(), dtype };
    c.b.constant(bits.to_le_bytes().to_vec().into(), &t, c.name, c.site.clone())
}

/// The 32-bit patterns of both parts of an element given as its 8 bytes.
fn split(dtype: DType, bytes: &[u8]) -> [u32; 2] {
    let mut raw = [0u8; 8];
    raw.iter_mut().zip(bytes).for_each(|(r, b)| *r = *b);
    let v = u64::from_le_bytes(raw);
    if dtype != DType::F64 {
        return [v as u32, (v >> 32) as u32];
    }
    let x = f64::from_bits(v);
    let h = x as f32;
    let l = if h.is_finite() { (x - f64::from(h)) as f32 } else { 0.0 };
    [h.to_bits(), l.to_bits()]
}

impl Builder<'_> {
    /// `f` of every node of a value, with which of them it is.
    pub(super) fn each(&mut self, v: Value, mut f: impl FnMut(&mut Self, NodeId, usize) -> NodeId) -> Value {
        match v {
            Value::One(n) => Value::One(f(self, n, 0)),
            Value::Pair(t, [a, b]) => Value::Pair(t, [f(self, a, 0), f(self, b, 1)]),
        }
    }

    /// Parameter `index` of the entry function.
    pub(super) fn parameter(&mut self, index: u32, t: &Shape, name: String) -> Value {
        let site = (name, String::new());
        let Some(part) = part_of(t.dtype) else {
            let id = self.push(NodeOp::Param(index), vec![], t, "parameter", site);
            self.graph.params.push(id);
            return Value::One(id);
        };
        // The bits of a double are words first.
        let stored = if t.dtype == DType::F64 { DType::U32 } else { part };
        let whole = Shape { dims: [&t.dims[..], &[2]].concat(), dtype: stored };
        let id = self.push(NodeOp::Param(index), vec![], &whole, "parameter", site.clone());
        self.graph.params.push(id);
        let words = self.unzip(id, &site);
        Value::Pair(t.dtype, self.of_words(t.dtype, words, "parameter", &site))
    }

    /// Both columns of an array whose last dimension is two.
    fn unzip(&mut self, x: NodeId, site: &(String, String)) -> Parts {
        let (dims, dtype) = (self.node(x).dims.clone(), self.node(x).dtype);
        let rank = dims.len() - 1;
        let column = Shape { dims: [&dims[..rank], &[1]].concat(), dtype };
        let flat = Shape { dims: dims[..rank].to_vec(), dtype };
        [0, 1].map(|i| {
            let start = [&vec![0; rank][..], &[i]].concat();
            let y = self.slice(x, start, vec![1; rank + 1], &column, "slice", site.clone());
            self.reshape(y, &flat, "reshape", site.clone())
        })
    }

    /// Two arrays as the columns of one.
    fn zip(&mut self, parts: Parts, name: &'static str, site: &(String, String)) -> NodeId {
        let (dims, dtype) = (self.node(parts[0]).dims.clone(), self.node(parts[0]).dtype);
        let column = Shape { dims: [&dims[..], &[1]].concat(), dtype };
        let columns = parts.map(|p| self.reshape(p, &column, name, site.clone()));
        let t = Shape { dims: [&dims[..], &[2]].concat(), dtype };
        self.push(NodeOp::Concat(dims.len()), columns.to_vec(), &t, name, site.clone())
    }

    fn of_words(&mut self, t: DType, words: Parts, name: &'static str, site: &(String, String)) -> Parts {
        if t != DType::F64 {
            return words;
        }
        let dims = self.node(words[0]).dims.clone();
        let mut c = Chain { b: self, dims, name, site: site.clone() };
        wide_of(&mut c, WideOp::FromBits, &words, DType::F32)
    }

    fn words_of(&mut self, t: DType, parts: Parts, name: &'static str, site: &(String, String)) -> Parts {
        if t != DType::F64 {
            return parts;
        }
        let dims = self.node(parts[0]).dims.clone();
        let mut c = Chain { b: self, dims, name, site: site.clone() };
        wide_of(&mut c, WideOp::ToBits, &parts, DType::U32)
    }

    /// The array that is stored for a result.
    pub(super) fn output(&mut self, v: Value) -> NodeId {
        match v {
            Value::One(id) => id,
            Value::Pair(t, parts) => {
                let n = self.node(parts[0]);
                let site = (n.source.clone(), n.location.clone());
                let words = self.words_of(t, parts, "concatenate", &site);
                self.zip(words, "concatenate", &site)
            }
        }
    }

    /// An operation with an operand or a result that is a pair.
    pub(super) fn wide(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        site: (String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let types: Vec<Shape> =
            op.results.iter().map(|&r| self.tensor(f, r, op.opcode.name(), op.loc)).collect::<Result<_, _>>()?;
        if let (Opcode::Reduce, [a, b]) = (op.opcode, &types[..]) {
            return self.wide_reduce_with_index(op, args, [a, b], &site);
        }
        let [t] = &types[..] else {
            return Err(self.wide_error(op, args, "with several results"));
        };
        let name = op.opcode.name().rsplit('.').next().unwrap_or("op");
        // Positions that are pairs become 32-bit ones; they are clamped anyway.
        let data = data_operands(op.opcode);
        let positioned: Vec<Value> = args
            .iter()
            .enumerate()
            .map(|(i, &a)| match a {
                Value::Pair(k @ (DType::I64 | DType::U64), p) if data.is_some_and(|n| i >= n) => {
                    Value::One(self.saturated(p, k == DType::I64, name, &site))
                }
                _ => a,
            })
            .collect();
        let single: Option<Vec<NodeId>> = positioned.iter().map(|v| v.one()).collect();
        if let Some(own) = single.filter(|_| data.is_some()) {
            let ids = self.narrow(f, op, own, site)?;
            return Ok(ids.into_iter().map(Value::One).collect());
        }
        let args = &positioned[..];
        if let Some(part) = part_of(t.dtype)
            && (moves_data(op.opcode) || data.is_some())
        {
            let t_part = Shape { dims: t.dims.clone(), dtype: part };
            let mut out = Vec::new();
            for i in 0..2 {
                // A predicate or an index has no parts.
                let own = args.iter().map(|a| a.pair().map_or_else(|| a.one(), |(_, p)| Some(p[i])));
                let own: Option<Vec<NodeId>> = own.collect();
                let Some(own) = own else { return Err(self.wide_error(op, args, "of these operands")) };
                out.push(self.single(op, &own, &t_part, site.clone())?);
            }
            return match out[..] {
                [a, b] => Ok(vec![Value::Pair(t.dtype, [a, b])]),
                _ => Ok(Vec::new()),
            };
        }
        let value = match op.opcode {
            Opcode::Constant => self.wide_constant(op, t, name, &site)?,
            Opcode::Iota => {
                let dim = op.attrs.int("iota_dimension").unwrap_or(0) as usize;
                Value::Pair(t.dtype, self.wide_iota(dim, t, name, &site))
            }
            Opcode::Convert => self.wide_convert(args[0], t, name, &site),
            Opcode::BitcastConvert => self.wide_bitcast(op, args[0], t, name, &site)?,
            Opcode::Reduce => self.wide_reduce(op, args, t, name, &site)?,
            Opcode::ReduceWindow => self.wide_reduce_window(op, args, t, name, &site)?,
            Opcode::DotGeneral | Opcode::Dot => self.wide_dot(op, args, t, name, &site)?,
            Opcode::Fft => self.fft(op, args[0], t, name, &site)?,
            _ => return self.wide_map(op, args, t, name, &site).map(|v| vec![v]),
        };
        Ok(vec![value])
    }

    pub(super) fn wide_error(&self, op: &Op, args: &[Value], what: &str) -> LowerError {
        let t = args.iter().find_map(|a| a.pair()).map_or("64-bit types".to_owned(), |(t, _)| t.to_string());
        self.error(op.opcode.name(), op.loc, format!("on {t} {what} is not lowered yet; use a 32-bit type"))
    }

    /// An elementwise operation.
    fn wide_map(
        &mut self,
        op: &Op,
        args: &[Value],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<Value, LowerError> {
        if op.opcode == Opcode::Complex
            && let [Value::One(re), Value::One(im)] = args
        {
            return Ok(Value::Pair(t.dtype, [*re, *im]));
        }
        let pairs: Option<Vec<Parts>> = args.iter().map(|a| a.pair().map(|(_, p)| p)).collect();
        let kind = args.iter().find_map(|a| a.pair()).map(|(t, _)| t);
        let (Some(pairs), Some(kind)) = (pairs, kind) else {
            return Err(self.wide_error(op, args, "mixed with other types"));
        };
        let map = self.map_of(op);
        let mut c = Chain { b: self, dims: t.dims.clone(), name, site: site.clone() };
        let out = match (kind, map) {
            (DType::I64 | DType::U64, Some(MapOp::Compare(d, _))) => {
                let p = integer::compare(&mut c, d, kind == DType::I64, pairs[0], pairs[1]);
                Some(Value::One(p))
            }
            (DType::I64 | DType::U64, _) if op.opcode == Opcode::Clamp => {
                let x = integer::map(&mut c, MapOp::Max, kind == DType::I64, &[pairs[0], pairs[1]]);
                let x = x.and_then(|x| integer::map(&mut c, MapOp::Min, kind == DType::I64, &[x, pairs[2]]));
                x.map(|p| Value::Pair(kind, p))
            }
            (DType::I64 | DType::U64, Some(m)) => {
                integer::map(&mut c, m, kind == DType::I64, &pairs).map(|p| Value::Pair(kind, p))
            }
            (DType::F64, Some(MapOp::Compare(d, false))) => {
                Some(Value::One(float::compare(&mut c, d, pairs[0], pairs[1])))
            }
            (DType::F64, Some(MapOp::Compare(d, true))) => {
                Some(Value::One(float::compare_total(&mut c, d, pairs[0], pairs[1])))
            }
            (DType::F64, Some(MapOp::IsFinite)) => {
                Some(Value::One(c.typed(MapOp::IsFinite, &[pairs[0][0]], DType::I1)))
            }
            (DType::F64, _) if op.opcode == Opcode::Clamp => {
                let x = float::map(&mut c, MapOp::Max, &[pairs[0], pairs[1]]);
                let x = x.and_then(|x| float::map(&mut c, MapOp::Min, &[x, pairs[2]]));
                x.map(|p| Value::Pair(kind, p))
            }
            (DType::F64, Some(m)) => float::map(&mut c, m, &pairs).map(|p| Value::Pair(kind, p)),
            (DType::F64, None) if op.opcode == Opcode::ChloSquare => {
                float::map(&mut c, MapOp::Mul, &[pairs[0], pairs[0]]).map(|p| Value::Pair(kind, p))
            }
            (DType::C64, m) => complex::map(&mut c, op.opcode, m, &pairs),
            _ => None,
        };
        out.ok_or_else(|| self.wide_error(op, args, "elementwise"))
    }

    fn wide_constant(
        &mut self,
        op: &Op,
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<Value, LowerError> {
        let (Some(Attr::Dense(l)), Some(part)) = (op.attrs.get("value"), part_of(t.dtype)) else {
            return Err(self.error(op.opcode.name(), op.loc, "constant without a dense value"));
        };
        let words: Vec<[u32; 2]> = l.bytes.chunks_exact(8).map(|b| split(t.dtype, b)).collect();
        let parts = [0, 1].map(|i| {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w[i].to_le_bytes()).collect();
            // What is the same everywhere in one part, such as high words, repeats.
            let same = words.iter().all(|w| w[i] == words[0][i]) && !words.is_empty();
            let bytes = if same { bytes[..4].to_vec() } else { bytes };
            self.array(bytes, &t.dims, part, name, site)
        });
        Ok(Value::Pair(t.dtype, parts))
    }

    /// A constant array of 32-bit elements; four bytes repeat.
    fn array(
        &mut self,
        bytes: Vec<u8>,
        dims: &[u64],
        dtype: DType,
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let ty = TensorType::new(dims.iter().map(|&d| d as i64).collect::<Vec<_>>(), dtype);
        let t = Shape { dims: dims.to_vec(), dtype };
        self.push(NodeOp::Const(Literal { ty, bytes: bytes.into() }), vec![], &t, name, site.clone())
    }

    fn wide_iota(&mut self, dim: usize, t: &Shape, name: &'static str, site: &(String, String)) -> Parts {
        let of = |dtype| Shape { dims: t.dims.clone(), dtype };
        let low = self.push(NodeOp::Iota(dim), vec![], &of(DType::U32), name, site.clone());
        let mut c = Chain { b: self, dims: t.dims.clone(), name, site: site.clone() };
        let zero = number(&mut c, 0, DType::U32);
        match t.dtype {
            DType::F64 => wide_of(&mut c, WideOp::FromInt(false), &[low, zero], DType::F32),
            DType::C64 => [c.map(MapOp::Convert, &[low]), number(&mut c, 0, DType::F32)],
            _ => [low, zero],
        }
    }
}

/// How many leading operands are data, if the others are positions.
fn data_operands(op: Opcode) -> Option<usize> {
    match op {
        Opcode::DynamicSlice => Some(1),
        Opcode::DynamicUpdateSlice => Some(2),
        _ => None,
    }
}

/// Whether an operation moves elements without looking at them.
fn moves_data(op: Opcode) -> bool {
    use Opcode as O;
    matches!(
        op,
        O::BroadcastInDim
            | O::Broadcast
            | O::Reshape
            | O::Transpose
            | O::Slice
            | O::Reverse
            | O::Concatenate
            | O::Pad
            | O::Select
    )
}

/// Whether both are equal words.
fn equal(c: &mut Chain<'_, '_>, a: Parts, b: Parts) -> NodeId {
    let [p, q] = [0, 1].map(|i| c.typed(MapOp::Compare(Direction::Eq, false), &[a[i], b[i]], DType::I1));
    c.typed(MapOp::And, &[p, q], DType::I1)
}
