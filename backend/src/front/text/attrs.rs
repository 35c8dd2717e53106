//! Attributes of the builtin dialect, and the dispatch to the others.

use tpusim_isa::num::DType;

use super::lexer::Kind;
use super::parser::{Alias, Parsed, Parser};
use crate::hlo::number::{decode_float, encode_float};
use crate::hlo::{Attr, AttrList, Type};

impl<'a> Parser<'a> {
    /// Any attribute.
    pub(super) fn attr(&mut self) -> Parsed<Attr> {
        self.nested(Self::attr_inner)
    }

    fn attr_inner(&mut self) -> Parsed<Attr> {
        match (self.tok.kind, self.text()) {
            (Kind::Str, _) => Ok(Attr::Str(self.string()?)),
            (Kind::Int | Kind::Float | Kind::Punct(b'-'), _) => self.number_attr(),
            (Kind::Punct(b'['), _) => Ok(Attr::Array(self.list(b'[', b']', Self::attr)?)),
            (Kind::Punct(b'{'), _) => Ok(Attr::Dict(self.attr_dict()?)),
            (Kind::At, _) => self.symbol_path(),
            (Kind::Hash, name) => self.hash_attr(name),
            (Kind::Word, "true") => self.keyword(Attr::Bool(true)),
            (Kind::Word, "false") => self.keyword(Attr::Bool(false)),
            (Kind::Word, "unit") => self.keyword(Attr::Unit),
            (Kind::Word, "dense") => self.dense_attr(),
            (Kind::Word, "array") => self.array_attr(),
            (
                Kind::Word,
                word @ ("dense_resource" | "sparse" | "affine_map" | "affine_set" | "opaque" | "distinct" | "loc"),
            ) => {
                let message = format!("`{word}` attributes are not supported");
                let help = match word {
                    "dense_resource" => "print the program with its constants inline, as `dense<...>`",
                    _ => "StableHLO programs hold numbers, strings, lists, symbols, types and `dense` constants",
                };
                Err(self.error_help(self.span(), message, help))
            }
            (Kind::Word | Kind::Bang | Kind::Punct(b'('), _) => Ok(Attr::Type(self.ty()?)),
            _ => self.expected("an attribute"),
        }
    }

    fn keyword(&mut self, attr: Attr) -> Parsed<Attr> {
        self.bump();
        Ok(attr)
    }

    /// `{a = 1, b, "c d" = 2}`.
    pub(super) fn attr_dict(&mut self) -> Parsed<AttrList> {
        let start = self.tok.start;
        let items = self.list(b'{', b'}', Self::named_attr)?;
        self.attr_list(items, start)
    }

    /// Sorts attributes that were written from byte `start` on.
    pub(super) fn attr_list(&mut self, mut items: Vec<(String, Attr)>, start: usize) -> Parsed<AttrList> {
        items.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(w) = items.windows(2).find(|w| w[0].0 == w[1].0) {
            let message = format!("attribute `{}` is given twice", w[0].0);
            return Err(self.error(self.since(start), message));
        }
        Ok(items.into_iter().collect())
    }

    pub(super) fn named_attr(&mut self) -> Parsed<(String, Attr)> {
        let name = match self.tok.kind {
            Kind::Str => self.string()?,
            _ => self.word("the name of an attribute")?.to_owned(),
        };
        let value = if self.eat(b'=') { self.attr()? } else { Attr::Unit };
        Ok((name, value))
    }

    fn symbol_path(&mut self) -> Parsed<Attr> {
        let mut path = self.symbol()?;
        while self.tok.kind == Kind::Colons {
            self.bump();
            path.push_str("::");
            path.push_str(&self.symbol()?);
        }
        Ok(Attr::Symbol(path))
    }

    /// `1`, `-1.5 : f32`, `0x7FC00000 : f32`.
    fn number_attr(&mut self) -> Parsed<Attr> {
        let start = self.tok.start;
        let negative = self.eat(b'-');
        let (kind, text) = (self.tok.kind, self.text());
        if !matches!(kind, Kind::Int | Kind::Float) {
            return self.expected("a number");
        }
        self.bump();
        let ty = if self.eat(b':') {
            self.ty()?
        } else {
            Type::Scalar(if kind == Kind::Int { DType::I64 } else { DType::F64 })
        };
        let span = self.since(start);
        match &ty {
            Type::Scalar(d) if d.is_float() => {
                let (d, hex) = (*d, text.strip_prefix("0x"));
                let value = match hex {
                    Some(h) => u64::from_str_radix(h, 16).ok().map(|bits| decode_float(d, bits)),
                    None => text.parse().ok().map(|v: f64| if negative { -v } else { v }),
                };
                match value {
                    // The attribute holds what its type can: 1e-6 : f32 is a float.
                    Some(v) => Ok(Attr::Float(decode_float(d, encode_float(d, v)), ty)),
                    None => Err(self.error(span, format!("`{text}` is no number of type `{d}`"))),
                }
            }
            Type::Scalar(d) if kind == Kind::Int && (d.is_int() || *d == DType::I1) => {
                let value = self.int_of(text, negative, *d);
                match value {
                    Some(v) if *d == DType::I1 => Ok(Attr::Bool(v != 0)),
                    Some(v) => Ok(Attr::Int(v, ty)),
                    None => Err(self.error(span, format!("the number does not fit `{d}`"))),
                }
            }
            Type::Index if kind == Kind::Int => match self.int_of(text, negative, DType::I64) {
                Some(v) => Ok(Attr::Int(v, ty)),
                None => Err(self.error(span, "the number does not fit `index`")),
            },
            other => {
                let message = format!("a number cannot have type `{other}`");
                Err(self.error(span, message))
            }
        }
    }

    /// An integer token as a value of `d`, sign- or zero-extended (`ui64` keeps its bits).
    pub(super) fn int_of(&self, text: &str, negative: bool, d: DType) -> Option<i64> {
        let magnitude = match text.strip_prefix("0x") {
            Some(h) => u128::from_str_radix(h, 16).ok()?,
            None => text.parse::<u128>().ok()?,
        };
        let bits = d.bits();
        let unsigned_limit = 1u128 << bits;
        let signed_limit = 1u128 << (bits - 1);
        let fits = if negative { magnitude <= signed_limit } else { magnitude < unsigned_limit };
        // Hexadecimal gives the bits; a decimal of a signed type has to be in its range.
        let in_range = !d.is_signed() || text.starts_with("0x") || negative || magnitude < signed_limit;
        if !fits || !in_range {
            return None;
        }
        let raw = if negative { (magnitude as i128).wrapping_neg() } else { magnitude as i128 };
        let shift = 128 - bits;
        let extended = if d.is_signed() { raw << shift >> shift } else { ((raw as u128) << shift >> shift) as i128 };
        Some(extended as i64)
    }

    /// `array<i64: 1, 2>`, `array<i1: true>`, `array<i64>`.
    fn array_attr(&mut self) -> Parsed<Attr> {
        self.bump();
        self.expect(b'<')?;
        let start = self.tok.start;
        let word = self.word("an element type")?;
        let dtype = self.dtype(word, start)?;
        let mut bools = Vec::new();
        let mut ints = Vec::new();
        let mut floats = Vec::new();
        if self.eat(b':') {
            loop {
                let start = self.tok.start;
                match dtype {
                    DType::I1 if self.at_word("true") || self.at_word("false") => {
                        bools.push(self.at_word("true"));
                        self.bump();
                    }
                    DType::I1 => bools.push(self.int()? != 0),
                    d if d.is_float() => {
                        let v = self.float()?;
                        floats.push(Attr::Float(decode_float(d, encode_float(d, v)), Type::Scalar(d)));
                    }
                    d if d.is_int() => {
                        let v = self.int()?;
                        if d.bits() < 64 && (v >= 1 << d.bits() || v < -(1 << (d.bits() - 1))) {
                            return Err(self.error(self.since(start), format!("{v} does not fit `{d}`")));
                        }
                        ints.push(v);
                    }
                    d => return Err(self.error(self.since(start), format!("arrays of `{d}` are not supported"))),
                }
                if !self.eat(b',') {
                    break;
                }
            }
        }
        self.expect(b'>')?;
        Ok(match dtype {
            DType::I1 => Attr::Bools(bools),
            d if d.is_float() => Attr::Array(floats),
            _ => Attr::Ints(ints),
        })
    }

    /// `#dialect.name<...>`, `#dialect<name ...>`, or an alias.
    fn hash_attr(&mut self, name: &'a str) -> Parsed<Attr> {
        let start = self.tok.start;
        self.bump();
        if name.contains('.') || (self.at(b'<') && self.tok.start == self.last_end) {
            return self.dialect_attr(name.get(1..).unwrap_or(""), start);
        }
        self.expand_alias(name, start, "attribute", Self::attr)
    }

    /// Reads what the alias `name`, whose use began at byte `start` and was taken, stands for.
    pub(super) fn expand_alias<T>(
        &mut self,
        name: &'a str,
        start: usize,
        what: &str,
        read: impl FnOnce(&mut Self) -> Parsed<T>,
    ) -> Parsed<T> {
        let span = self.since(start);
        let at = match self.aliases.get(name) {
            Some(&Alias::Text(at)) => at,
            Some(Alias::Busy) => return Err(self.error(span, format!("`{name}` stands for itself"))),
            Some(Alias::Loc(_)) => return Err(self.error(span, format!("`{name}` is a location, not an {what}"))),
            None => return Err(self.error(span, format!("{what} `{name}` is not defined"))),
        };
        let back = self.last_end;
        self.aliases.insert(name, Alias::Busy);
        self.reset(at);
        let value = read(self);
        let cost = self.last_end.saturating_sub(at);
        self.reset(back);
        self.aliases.insert(name, Alias::Text(at));
        match self.alias_budget.checked_sub(cost) {
            Some(left) => self.alias_budget = left,
            None => return Err(self.error(span, "the aliases of this file expand to too much text")),
        }
        value
    }
}
