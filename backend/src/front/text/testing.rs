//! Ops of the dialects that StableHLO's own test programs are written with, `check` and `interpreter`.
//!
//! They are no part of a program, so the IR has no opcode for them: each is a custom call of the op's name, with the op's
//! attributes. Nothing behind the front end knows these targets; a test runner takes them out.

use super::lexer::Kind;
use super::ops::Draft;
use super::parser::{Parsed, Parser};
use crate::hlo::{Attr, Type};
use tpusim_isa::num::DType;

/// Whether `name` is an op of those dialects.
pub(super) fn is_testing(name: &str) -> bool {
    name.starts_with("check.") || name.starts_with("interpreter.")
}

impl Parser<'_> {
    /// `%a, %b, dense<...> : type, field = value : type`. A constant is the attribute `value`; types may be fewer than operands
    /// where they are the same.
    pub(super) fn testing_op(&mut self, d: &mut Draft, name: &str) -> Parsed<()> {
        loop {
            match self.tok.kind {
                Kind::Percent => d.operands.push(self.operand()?),
                Kind::Word if !self.at_word("dense") => {
                    let field = self.word("a field")?.to_owned();
                    self.expect(b'=')?;
                    let value = self.testing_value()?;
                    d.set(&field, value);
                }
                _ => {
                    let value = self.attr()?;
                    d.set("value", value);
                }
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.opt_dict(d)?;
        if self.eat(b':') {
            self.type_list()?;
        }
        if name == "interpreter.probe" {
            d.results = d.operands.iter().map(|(v, _)| self.names.values[*v].ty.clone()).collect();
        }
        Ok(())
    }

    /// A string, an integer of 64 bits without a sign too, or a float, without a type: the `:` behind it belongs to the op.
    fn testing_value(&mut self) -> Parsed<Attr> {
        match self.tok.kind {
            Kind::Str => Ok(Attr::Str(self.string()?)),
            _ => {
                let (span, text) = (self.span(), self.text());
                self.bump();
                match (text.parse(), text.parse()) {
                    (Ok(v), _) => Ok(Attr::Int(v, Type::Scalar(DType::I64))),
                    (_, Ok(v)) => Ok(Attr::Float(v, Type::Scalar(DType::F64))),
                    _ => Err(self.error(span, format!("`{text}` is no number"))),
                }
            }
        }
    }
}
