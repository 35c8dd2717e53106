//! Types.

use tpusim_isa::num::DType;

use super::lexer::{Kind, skip_space};
use super::parser::{Parsed, Parser};
use crate::hlo::{DYNAMIC, FuncType, Quant, TensorType, Type};

impl<'a> Parser<'a> {
    /// Any type.
    pub(super) fn ty(&mut self) -> Parsed<Type> {
        self.nested(|p| p.ty_inner())
    }

    fn ty_inner(&mut self) -> Parsed<Type> {
        if self.at(b'(') {
            return Ok(Type::Func(self.func_type()?));
        }
        let start = self.tok.start;
        match (self.tok.kind, self.text()) {
            (Kind::Word, "tensor") => {
                self.bump();
                Ok(Type::Tensor(self.tensor_body()?))
            }
            (Kind::Word, "tuple") => {
                self.bump();
                Ok(Type::Tuple(self.list(b'<', b'>', Self::ty)?))
            }
            (Kind::Word, "index") => {
                self.bump();
                Ok(Type::Index)
            }
            (Kind::Bang, "!stablehlo.token" | "!mhlo.token") => {
                self.bump();
                Ok(Type::Token)
            }
            (Kind::Word, "complex") => {
                self.bump();
                Ok(Type::Scalar(self.complex_body(start)?))
            }
            (Kind::Word, word) => {
                self.bump();
                if self.at(b'<') {
                    let message = format!("type `{word}` is not supported");
                    return Err(self.error_help(self.since(start), message, "values are tensors, tokens or tuples"));
                }
                Ok(Type::Scalar(self.dtype(word, start)?))
            }
            (Kind::Bang, name) if !name.contains('.') => {
                self.bump();
                self.expand_alias(name, start, "type", Self::ty)
            }
            (Kind::Bang, name) => {
                let message = format!("type `{name}` is not supported");
                Err(self.error_help(
                    self.span(),
                    message,
                    "values are tensors, tokens or tuples; elements may be `!quant.uniform`",
                ))
            }
            _ => self.expected("a type"),
        }
    }

    /// `(inputs) -> outputs`.
    pub(super) fn func_type(&mut self) -> Parsed<FuncType> {
        let inputs = self.list(b'(', b')', Self::ty)?;
        self.expect_arrow()?;
        Ok(FuncType { inputs, outputs: self.result_types()? })
    }

    /// One type, or a list in parentheses.
    pub(super) fn result_types(&mut self) -> Parsed<Vec<Type>> {
        if self.at(b'(') { self.list(b'(', b')', Self::ty) } else { Ok(vec![self.ty()?]) }
    }

    /// Types separated by commas, at least one.
    pub(super) fn type_list(&mut self) -> Parsed<Vec<Type>> {
        let mut types = vec![self.ty()?];
        while self.eat(b',') {
            types.push(self.ty()?);
        }
        Ok(types)
    }

    /// A tensor type where nothing else may stand.
    pub(super) fn tensor_type(&mut self) -> Parsed<TensorType> {
        let span = self.span();
        match self.ty()? {
            Type::Tensor(t) => Ok(t),
            other => Err(self.error(span, format!("expected a tensor type, found `{other}`"))),
        }
    }

    /// `<2x?x3xf32>` behind `tensor`.
    fn tensor_body(&mut self) -> Parsed<TensorType> {
        if !self.at(b'<') {
            return self.expected("`<`");
        }
        let dims = self.dims()?;
        let (dtype, quant) = self.element_type()?;
        if self.eat(b',') {
            self.encoding()?;
        }
        self.expect(b'>')?;
        Ok(TensorType { dims, dtype, quant })
    }

    /// The sizes behind `<`, each ended by `x`. Sizes and types run together (`0x4xf32`, `3xbf16`), so this reads bytes.
    /// Afterwards the current token may begin inside a word: the element type.
    fn dims(&mut self) -> Parsed<Vec<i64>> {
        let src: &str = self.src;
        let s = src.as_bytes();
        let mut at = skip_space(s, self.tok.end);
        let mut dims = Vec::new();
        loop {
            let start = at;
            let size = match s.get(at) {
                Some(b'?') => {
                    at += 1;
                    DYNAMIC
                }
                Some(b'*') => {
                    let help = "every tensor needs a static shape";
                    return Err(self.error_help(at..at + 1, "unranked tensors are not supported", help));
                }
                Some(b) if b.is_ascii_digit() => {
                    while s.get(at).is_some_and(u8::is_ascii_digit) {
                        at += 1;
                    }
                    match src[start..at].parse::<i64>() {
                        Ok(n) => n,
                        Err(_) => return Err(self.error(start..at, "the size does not fit 63 bits")),
                    }
                }
                _ => break,
            };
            dims.push(size);
            at = skip_space(s, at);
            if s.get(at) != Some(&b'x') {
                return Err(self.error(start..at, "expected `x` after a size"));
            }
            at = skip_space(s, at + 1);
        }
        self.reset(at);
        Ok(dims)
    }

    fn element_type(&mut self) -> Parsed<(DType, Option<Box<Quant>>)> {
        let start = self.tok.start;
        match (self.tok.kind, self.text()) {
            (Kind::Word, "complex") => {
                self.bump();
                Ok((self.complex_body(start)?, None))
            }
            (Kind::Word, word) => {
                self.bump();
                Ok((self.dtype(word, start)?, None))
            }
            (Kind::Bang, "!quant.uniform") => {
                self.bump();
                let q = self.quant_body()?;
                Ok((q.storage, Some(Box::new(q))))
            }
            (Kind::Bang, name) => {
                let message = format!("element type `{name}` is not supported");
                Err(self.error_help(self.span(), message, "`!quant.uniform` is the only quantized element type"))
            }
            _ => self.expected("an element type"),
        }
    }

    fn complex_body(&mut self, start: usize) -> Parsed<DType> {
        self.expect(b'<')?;
        let word = self.word("an element type")?;
        self.expect(b'>')?;
        match word {
            "f32" => Ok(DType::C64),
            "f64" => Ok(DType::C128),
            _ => Err(self.error(self.since(start), format!("complex numbers of `{word}` are not supported"))),
        }
    }

    /// The scalar type called `word`, a token that began at `start`.
    pub(super) fn dtype(&mut self, word: &str, start: usize) -> Parsed<DType> {
        match word.parse::<DType>() {
            Ok(d) => Ok(d),
            Err(e) => {
                let help = match word {
                    "tf32" => "a TPU has no tf32: name the bf16 or f32 algorithm",
                    "index" => "tensors of `index` belong to dynamic shapes, which are not supported",
                    _ => "StableHLO has i1, i2 to i64, ui2 to ui64, f4E2M1FN to f64 and complex<f32|f64>",
                };
                Err(self.error_help(self.since(start), e.to_string(), help))
            }
        }
    }

    /// Bounds of dynamic sizes are read and dropped: the sizes stay dynamic. Any other encoding is an error.
    fn encoding(&mut self) -> Parsed<()> {
        let (start, name) = (self.tok.start, self.text());
        if self.tok.kind != Kind::Hash {
            return self.expected("a tensor encoding");
        }
        self.bump();
        let size = |p: &mut Self| if p.eat(b'?') { Ok(DYNAMIC) } else { p.int() };
        match name {
            "#stablehlo.bounds" | "#mhlo.bounds" => {
                self.list(b'<', b'>', size)?;
            }
            "#stablehlo.type_extensions" | "#mhlo.type_extensions" => {
                self.expect(b'<')?;
                self.expect_field("bounds")?;
                self.list(b'[', b']', size)?;
                self.expect(b'>')?;
            }
            _ => {
                let message = format!("tensor encoding `{name}` is not supported");
                return Err(self.error_help(self.since(start), message, "only `#stablehlo.bounds<...>` is known"));
            }
        }
        Ok(())
    }

    /// `<i8<-128:127>:f32[:axis], scale[:zero] | {...}>` behind `!quant.uniform`.
    fn quant_body(&mut self) -> Parsed<Quant> {
        self.expect(b'<')?;
        let start = self.tok.start;
        let word = self.word("a storage type")?;
        let spelled = if word.starts_with('u') && !word.starts_with("ui") {
            word.replacen('u', "ui", 1)
        } else {
            word.to_owned()
        };
        let storage = self.dtype(&spelled, start)?;
        if !storage.is_int() || storage.bits() > 32 {
            return Err(self.error(self.since(start), format!("`{storage}` cannot store quantized values")));
        }
        let bits = storage.bits();
        let (mut storage_min, mut storage_max) = if storage.is_signed() {
            (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1)
        } else {
            (0, (1i64 << bits) - 1)
        };
        if self.eat(b'<') {
            storage_min = self.int()?;
            self.expect(b':')?;
            storage_max = self.int()?;
            self.expect(b'>')?;
        }
        self.expect(b':')?;
        let start = self.tok.start;
        let word = self.word("an expressed type")?;
        let expressed = self.dtype(word, start)?;
        let mut axis = None;
        if self.eat(b':') {
            if self.at(b'{') {
                return Err(self.error(self.span(), "block-wise quantization is not supported"));
            }
            let start = self.tok.start;
            let Ok(a) = usize::try_from(self.int()?) else {
                return Err(self.error(self.since(start), "a quantized axis is not negative"));
            };
            axis = Some(a);
        }
        self.expect(b',')?;
        let pairs = if axis.is_some() { self.list(b'{', b'}', Self::scale)? } else { vec![self.scale()?] };
        self.expect(b'>')?;
        let (scales, zero_points) = pairs.into_iter().unzip();
        Ok(Quant { storage, expressed, storage_min, storage_max, axis, scales, zero_points })
    }

    fn scale(&mut self) -> Parsed<(f64, i64)> {
        let scale = self.float()?;
        let zero = if self.eat(b':') { self.int()? } else { 0 };
        Ok((scale, zero))
    }

    /// A decimal number, with its sign.
    pub(super) fn float(&mut self) -> Parsed<f64> {
        let negative = self.eat(b'-');
        if !matches!(self.tok.kind, Kind::Float | Kind::Int) {
            return self.expected("a number");
        }
        match self.text().parse::<f64>() {
            Ok(v) if v.is_finite() => {
                self.bump();
                Ok(if negative { -v } else { v })
            }
            _ => self.expected("a decimal number within 64-bit floats"),
        }
    }
}
