//! `dense<...> : tensor<...>` constants.

use tpusim_isa::num::{DType, DTypeKind};

use super::lexer::Kind;
use super::parser::{Parsed, Parser};
use crate::hlo::number::encode_float;
use crate::hlo::{Attr, DYNAMIC, Literal, TensorType, Type};

/// What stood between `dense<` and `>`, before the type is known.
struct Body {
    /// Byte offset of the first token.
    start: usize,
    /// Offset behind the last one.
    end: usize,
}

impl Parser<'_> {
    /// A `dense` attribute. Those of `index` become integers, as they are always layouts or sizes.
    pub(super) fn dense_attr(&mut self) -> Parsed<Attr> {
        let start = self.tok.start;
        self.bump();
        self.expect(b'<')?;
        // The type, which says how to read the elements, comes last: find it, then come back.
        let body = self.skip_elements()?;
        self.expect(b'>')?;
        self.expect(b':')?;
        if let Some(count) = self.index_tensor()? {
            let after = self.last_end;
            self.reset(body.start);
            let ints = self.index_elements(&body, count)?;
            self.reset(after);
            return Ok(Attr::Ints(ints));
        }
        let ty = self.dense_type()?;
        let after = self.last_end;
        self.reset(body.start);
        let mut bytes = self.elements(&body, &ty)?;
        if self.tok.start < body.end {
            return self.expected("`>`");
        }
        self.reset(after);
        let width = ty.dtype.bytes();
        let expected = ty.elements().map(|n| n as usize);
        let count = bytes.len() / width;
        if expected == Some(0) && count == 1 {
            bytes.clear();
        } else if Some(count) != expected && count != 1 {
            let message = format!("the constant has {count} elements, its type `{ty}` has {}", expected.unwrap_or(0));
            return Err(self.error(start..after, message));
        }
        Ok(Attr::Dense(Literal::new(ty, bytes).into()))
    }

    fn skip_elements(&mut self) -> Parsed<Body> {
        let start = self.tok.start;
        let mut open = 0u64;
        loop {
            match self.tok.kind {
                Kind::Punct(b'>') if open == 0 => return Ok(Body { start, end: self.tok.start }),
                Kind::Punct(b'[' | b'(') => open += 1,
                Kind::Punct(b']' | b')') if open > 0 => open -= 1,
                Kind::Int | Kind::Float | Kind::Str | Kind::Punct(b',' | b'-') => {}
                Kind::Word if matches!(self.text(), "true" | "false") => {}
                _ => return self.expected("an element of the constant"),
            }
            self.bump();
        }
    }

    fn dense_type(&mut self) -> Parsed<TensorType> {
        let start = self.tok.start;
        let ty = match self.ty()? {
            Type::Tensor(t) => t,
            other => {
                let message = format!("a constant needs a tensor type, not `{other}`");
                return Err(self.error(self.since(start), message));
            }
        };
        if ty.quant.is_some() || ty.dims.contains(&DYNAMIC) {
            let message = format!("a constant cannot have type `{ty}`");
            return Err(self.error_help(
                self.since(start),
                message,
                "constants have a static shape and a plain element type",
            ));
        }
        if ty.bytes().is_none() {
            return Err(self.error(self.since(start), "the constant has more bytes than 64 bits can count"));
        }
        Ok(ty)
    }

    /// `tensor<Nxindex>` at the current token: N. Anything else is left alone.
    fn index_tensor(&mut self) -> Parsed<Option<u64>> {
        let at = self.tok.start;
        let text = self.src.get(at..).unwrap_or("");
        let Some((inside, _)) = text.strip_prefix("tensor<").and_then(|t| t.split_once('>')) else { return Ok(None) };
        let Some(size) = inside.strip_suffix("xindex") else { return Ok(None) };
        let Ok(n) = size.parse::<u64>() else { return Ok(None) };
        self.reset(at + "tensor<>".len() + inside.len());
        Ok(Some(n))
    }

    fn index_elements(&mut self, body: &Body, count: u64) -> Parsed<Vec<i64>> {
        let ints = if self.at(b'[') {
            self.ints()?
        } else if body.start == body.end {
            Vec::new()
        } else {
            // A splat is written out, so its length has to be that of a layout.
            let v = self.int()?;
            vec![v; usize::try_from(count.min(64)).unwrap_or(64)]
        };
        if ints.len() as u64 != count {
            let message = format!("the constant has {} elements, its type has {count}", ints.len());
            return Err(self.error(body.start..body.end, message));
        }
        Ok(ints)
    }

    fn elements(&mut self, body: &Body, ty: &TensorType) -> Parsed<Vec<u8>> {
        let mut bytes = Vec::new();
        if body.start == body.end {
            return Ok(bytes);
        }
        if self.tok.kind == Kind::Str {
            return self.hex_elements(ty);
        }
        if self.at(b'[') {
            self.element_list(ty, 0, &mut bytes)?;
        } else {
            self.element(ty.dtype, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// `[...]` of dimension `dim`.
    fn element_list(&mut self, ty: &TensorType, dim: usize, bytes: &mut Vec<u8>) -> Parsed<()> {
        let start = self.tok.start;
        let Some(&size) = ty.dims.get(dim) else {
            return Err(self.error(self.span(), format!("more brackets than dimensions of `{ty}`")));
        };
        let last = dim + 1 == ty.rank();
        let items = self.nested(|p| {
            p.list(b'[', b']', |p| if last { p.element(ty.dtype, bytes) } else { p.element_list(ty, dim + 1, bytes) })
        })?;
        if items.len() as u64 != size.unsigned_abs() {
            let message = format!("{} entries where dimension {dim} of `{ty}` has {size}", items.len());
            return Err(self.error(self.since(start), message));
        }
        Ok(())
    }

    /// One element; complex ones are `(re, im)`.
    fn element(&mut self, dtype: DType, bytes: &mut Vec<u8>) -> Parsed<()> {
        let part = match dtype {
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            d => return self.scalar(d, bytes),
        };
        self.expect(b'(')?;
        self.scalar(part, bytes)?;
        self.expect(b',')?;
        self.scalar(part, bytes)?;
        self.expect(b')')
    }

    fn scalar(&mut self, d: DType, bytes: &mut Vec<u8>) -> Parsed<()> {
        let start = self.tok.start;
        let width = d.bytes();
        if d == DType::I1 && self.tok.kind == Kind::Word {
            bytes.push(u8::from(self.at_word("true")));
            self.bump();
            return Ok(());
        }
        let negative = self.eat(b'-');
        let (kind, text) = (self.tok.kind, self.text());
        if !matches!(kind, Kind::Int | Kind::Float) {
            return self.expected("an element of the constant");
        }
        self.bump();
        let bits = if d.is_float() {
            match text.strip_prefix("0x") {
                Some(h) if !negative => {
                    u64::from_str_radix(h, 16).ok().filter(|&b| d.bits() == 64 || b < 1 << d.bits())
                }
                Some(_) => None,
                None => text.parse().ok().map(|v: f64| encode_float(d, if negative { -v } else { v })),
            }
        } else if kind == Kind::Int {
            self.int_of(text, negative, d).map(|v| v as u64)
        } else {
            None
        };
        match bits {
            Some(b) => {
                bytes.extend_from_slice(&b.to_le_bytes()[..width]);
                Ok(())
            }
            None => Err(self.error(self.since(start), format!("not an element of type `{d}`"))),
        }
    }

    /// `"0x..."`: the elements' bytes as they lie in memory, or those of one element.
    fn hex_elements(&mut self, ty: &TensorType) -> Parsed<Vec<u8>> {
        let span = self.span();
        let text = self.text();
        self.bump();
        let digits = text.strip_prefix("\"0x").and_then(|t| t.strip_suffix('"')).unwrap_or("?").as_bytes();
        let digit = |b: u8| char::from(b).to_digit(16);
        let raw: Option<Vec<u8>> = if digits.len().is_multiple_of(2) {
            digits.chunks_exact(2).map(|p| Some((digit(p[0])? * 16 + digit(p[1])?) as u8)).collect()
        } else {
            None
        };
        let Some(raw) = raw else {
            return Err(self.error(span, "expected an even number of hexadecimal digits behind `0x`"));
        };
        let count = ty.elements().unwrap_or(0);
        let length = raw.len() as u64;
        if ty.dtype.kind() == DTypeKind::Bool {
            // Old files pack eight to a byte, with 0xFF for a splat of true.
            if length == 1 && count > 1 && (count > 8 || matches!(raw[0], 0 | 255)) {
                return Ok(vec![u8::from(raw[0] != 0)]);
            }
            if length == count.div_ceil(8) && length != count {
                return Ok((0..count as usize).map(|i| raw[i / 8] >> (i % 8) & 1).collect());
            }
            return Ok(raw.into_iter().map(|b| u8::from(b != 0)).collect());
        }
        let width = ty.dtype.bytes() as u64;
        if length != width && Some(length) != ty.bytes() {
            let message = format!("{length} bytes for a constant of type `{ty}`");
            return Err(self.error(span, message));
        }
        if ty.dtype.bits() < 8 {
            return Ok(raw.into_iter().map(|b| narrow(ty.dtype, b)).collect());
        }
        Ok(raw)
    }
}

/// The byte of an element narrower than a byte, extended as constants are stored.
fn narrow(d: DType, b: u8) -> u8 {
    let shift = 8 - d.bits();
    if d.is_signed() { ((b << shift) as i8 >> shift) as u8 } else { b << shift >> shift }
}
