//! The parser's grip on the tokens: look, expect, consume.

use super::AsmError;
use super::lex::{Lexer, Tok, Token};
use crate::program::SReg;

pub(super) type Result<T> = std::result::Result<T, AsmError>;

pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    pub token: Token,
    /// Bytes of zero runs so far.
    pub zero_bytes: u64,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Result<Self> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next()?;
        Ok(Parser { lexer, token, zero_bytes: 0 })
    }

    pub fn advance(&mut self) -> Result<Tok> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.token, next).kind)
    }

    pub fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(AsmError { line: self.token.line, column: self.token.column, message: message.into() })
    }

    pub fn expected<T>(&self, what: &str) -> Result<T> {
        self.fail(format!("expected {what}, found {}", self.token.kind.describe()))
    }

    pub fn is_sign(&self, c: char) -> bool {
        self.token.kind == Tok::Sign(c)
    }

    pub fn is_word(&self, word: &str) -> bool {
        matches!(&self.token.kind, Tok::Word(w) if w == word)
    }

    pub fn sign(&mut self, c: char) -> Result<()> {
        if !self.is_sign(c) {
            return self.expected(&format!("`{c}`"));
        }
        self.advance().map(drop)
    }

    pub fn word(&mut self, word: &str) -> Result<()> {
        if !self.is_word(word) {
            return self.expected(&format!("`{word}`"));
        }
        self.advance().map(drop)
    }

    /// Consumes `word` if it is next.
    pub fn eat(&mut self, word: &str) -> Result<bool> {
        let found = self.is_word(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub fn string(&mut self) -> Result<String> {
        if !matches!(self.token.kind, Tok::Str(_)) {
            return self.expected("a string");
        }
        match self.advance()? {
            Tok::Str(s) => Ok(s),
            _ => self.expected("a string"),
        }
    }

    pub fn unsigned<T: TryFrom<u64>>(&mut self, what: &str) -> Result<T> {
        let (Tok::Int(n) | Tok::Hex(n)) = self.token.kind else {
            return self.expected(what);
        };
        let Ok(value) = T::try_from(n) else {
            return self.fail(format!("{what} {n} does not fit {} bits", 8 * size_of::<T>()));
        };
        self.advance()?;
        Ok(value)
    }

    pub fn signed(&mut self, what: &str) -> Result<i64> {
        let negative = self.is_sign('-');
        if negative {
            self.advance()?;
        }
        let (Tok::Int(n) | Tok::Hex(n)) = self.token.kind else {
            return self.expected(what);
        };
        let value = if negative { -i128::from(n) } else { i128::from(n) };
        let Ok(value) = i64::try_from(value) else {
            return self.fail(format!("{what} {value} does not fit 64 bits"));
        };
        self.advance()?;
        Ok(value)
    }

    /// `word` followed by a number.
    pub fn keyed<T: TryFrom<u64>>(&mut self, word: &str) -> Result<T> {
        self.word(word)?;
        self.unsigned(&format!("a number after `{word}`"))
    }

    pub fn keyed_signed(&mut self, word: &str) -> Result<i64> {
        self.word(word)?;
        self.signed(&format!("a number after `{word}`"))
    }

    /// The index that the next entry of a table must have.
    pub fn index(&mut self, expected: usize, what: &str) -> Result<()> {
        if self.token.kind != Tok::Int(expected as u64) {
            return self.expected(&format!("`{expected}`, the index of the next {what}"));
        }
        self.advance().map(drop)
    }

    /// A word made of a prefix and a number, such as `v3`.
    pub fn numbered(&mut self, prefix: &str, what: &str) -> Result<u32> {
        let number = match &self.token.kind {
            Tok::Word(w) => w.strip_prefix(prefix).filter(|d| d.bytes().all(|b| b.is_ascii_digit())),
            _ => None,
        };
        let Some(number) = number.and_then(|d| d.parse().ok()) else {
            return self.expected(&format!("{what} such as `{prefix}3`"));
        };
        self.advance()?;
        Ok(number)
    }

    pub fn sreg(&mut self) -> Result<SReg> {
        let at = self.token.clone();
        let n = self.numbered("s", "a scalar register")?;
        u8::try_from(n).map(SReg).map_err(|_| AsmError {
            line: at.line,
            column: at.column,
            message: format!("expected a scalar register below s256, found `s{n}`"),
        })
    }
}
