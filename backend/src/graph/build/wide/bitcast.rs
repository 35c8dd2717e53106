//! Bits of one type as another's, of the same width or with a last dimension that makes up for it.

use super::*;

/// The unsigned type of a width.
fn bits_of(t: DType) -> Option<DType> {
    Some(match t.bits() {
        2 => DType::U2,
        4 => DType::U4,
        8 => DType::U8,
        16 => DType::U16,
        32 => DType::U32,
        _ => return None,
    })
}

impl Builder<'_> {
    /// A bitcast between types of other widths than 64.
    pub(in super::super) fn bitcast(
        &mut self,
        op: &Op,
        x: NodeId,
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<NodeId, LowerError> {
        let (dims, from) = (self.node(x).dims.clone(), self.node(x).dtype);
        if dims == t.dims {
            let same = from == t.dtype;
            return Ok(if same { x } else { self.map(MapOp::Bitcast, &[x], t, name, site.clone()) });
        }
        let (Some(source), Some(target)) = (bits_of(from), bits_of(t.dtype)) else {
            let m = format!("from {from} to {} is not lowered yet; types of 8 bits and more are", t.dtype);
            return Err(self.error(op.opcode.name(), op.loc, m));
        };
        let shape = |dims: &[u64], dtype| Shape { dims: dims.to_vec(), dtype };
        let x = self.map(MapOp::Bitcast, &[x], &shape(&dims, source), name, site.clone());
        let bits = if source.bits() > target.bits() {
            let count = u64::from(source.bits() / target.bits());
            let column = [&dims[..], &[1]].concat();
            let mut pieces = Vec::new();
            for i in 0..count as u32 {
                let mut c = Chain { b: self, dims: dims.clone(), name, site: site.clone() };
                let word = c.typed(MapOp::Convert, &[x], DType::U32);
                let n = number(&mut c, i * target.bits(), DType::U32);
                let y = c.typed(MapOp::ShrLogical, &[word, n], DType::U32);
                let y = c.typed(MapOp::Convert, &[y], target);
                pieces.push(self.reshape(y, &shape(&column, target), name, site.clone()));
            }
            let rank = dims.len();
            self.push(NodeOp::Concat(rank), pieces, &shape(&t.dims, target), name, site.clone())
        } else {
            let count = u64::from(target.bits() / source.bits());
            let rank = t.dims.len();
            let mut sum: Option<NodeId> = None;
            for i in 0..count {
                let start = [&vec![0; rank][..], &[i]].concat();
                let column = shape(&[&t.dims[..], &[1]].concat(), source);
                let y = self.slice(x, start, vec![1; rank + 1], &column, name, site.clone());
                let y = self.reshape(y, &shape(&t.dims, source), name, site.clone());
                let mut c = Chain { b: self, dims: t.dims.clone(), name, site: site.clone() };
                let word = c.typed(MapOp::Convert, &[y], DType::U32);
                let n = number(&mut c, i as u32 * source.bits(), DType::U32);
                let y = c.typed(MapOp::Shl, &[word, n], DType::U32);
                sum = Some(match sum {
                    None => y,
                    Some(s) => c.typed(MapOp::Or, &[s, y], DType::U32),
                });
            }
            self.map(MapOp::Convert, &[sum.unwrap_or(x)], &shape(&t.dims, target), name, site.clone())
        };
        Ok(self.map(MapOp::Bitcast, &[bits], t, name, site.clone()))
    }

    /// A bitcast from or to a type of 64 bits: by way of its two words, which are a last dimension.
    pub(super) fn wide_bitcast(
        &mut self,
        op: &Op,
        x: Value,
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<Value, LowerError> {
        let from = x.pair().map(|(t, _)| t);
        if from == Some(t.dtype) {
            return Ok(x);
        }
        if [from, Some(t.dtype)].contains(&Some(DType::C64)) {
            return Err(self.wide_error(op, &[x], "of complex numbers"));
        }
        let words = match x {
            Value::Pair(t, p) => self.words_of(t, p, name, site),
            Value::One(x) => {
                let dims = [&t.dims[..], &[2]].concat();
                // Narrower types are put together to words first, their count being split off.
                let (own, dtype) = (self.node(x).dims.clone(), self.node(x).dtype);
                let count = u64::from(64 / dtype.bits().max(1));
                let grouped = if count > 2 { [&t.dims[..], &[2, count / 2]].concat() } else { dims.clone() };
                let x = if own == grouped {
                    x
                } else {
                    self.reshape(x, &Shape { dims: grouped, dtype }, name, site.clone())
                };
                let whole = self.bitcast(op, x, &Shape { dims, dtype: DType::U32 }, name, site)?;
                self.unzip(whole, site)
            }
        };
        if part_of(t.dtype).is_some() {
            return Ok(Value::Pair(t.dtype, self.of_words(t.dtype, words, name, site)));
        }
        let whole = self.zip(words, name, site);
        let mut dims = self.node(whole).dims.clone();
        let count = u64::from(32 / t.dtype.bits().max(1));
        if count > 1 {
            dims.push(count);
        }
        let y = self.bitcast(op, whole, &Shape { dims, dtype: t.dtype }, name, site)?;
        Ok(Value::One(self.reshape(y, t, name, site.clone())))
    }
}
