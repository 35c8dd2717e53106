//! Tokens of the assembly text.

use super::AsmError;

/// A token with the place where it starts.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub kind: Tok,
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tok {
    /// A name: letters, digits, `_` and single dots, starting with a letter or `_`.
    Word(String),
    /// Digits, without sign.
    Int(u64),
    /// Hexadecimal digits after `0x`.
    Hex(u64),
    /// A number with a point.
    Float(f32),
    Str(String),
    /// One of `{ } [ ] , ; : + - * =`.
    Sign(char),
    /// `..`
    Dots,
    End,
}

impl Tok {
    pub fn describe(&self) -> String {
        match self {
            Tok::Word(w) => format!("`{}`", clip(w)),
            Tok::Int(n) => format!("`{n}`"),
            Tok::Hex(n) => format!("`{n:#x}`"),
            Tok::Float(x) => format!("`{x:?}`"),
            Tok::Str(s) => format!("string \"{}\"", clip(s)),
            Tok::Sign(c) => format!("`{c}`"),
            Tok::Dots => "`..`".to_owned(),
            Tok::End => "the end of the text".to_owned(),
        }
    }
}

fn clip(s: &str) -> String {
    let mut short: String = s.chars().take(40).collect();
    if short.len() < s.len() {
        short.push_str("...");
    }
    short
}

/// Reads one token at a time.
pub(super) struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    column: u32,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Self {
        Lexer { rest: text, line: 1, column: 1 }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn second(&self) -> Option<char> {
        self.rest.chars().nth(1)
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = self.rest.get(c.len_utf8()..).unwrap_or("");
        if c == '\n' {
            self.line = self.line.saturating_add(1);
            self.column = 1;
        } else {
            self.column = self.column.saturating_add(1);
        }
        Some(c)
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let text = self.rest;
        let mut len = 0;
        while let Some(c) = self.peek().filter(|c| keep(*c)) {
            len += c.len_utf8();
            self.bump();
        }
        text.get(..len).unwrap_or("")
    }

    pub fn error<T>(&self, message: impl Into<String>) -> Result<T, AsmError> {
        Err(AsmError { line: self.line, column: self.column, message: message.into() })
    }

    /// The next token; [`Tok::End`] for ever after the last.
    pub fn next(&mut self) -> Result<Token, AsmError> {
        loop {
            self.take_while(char::is_whitespace);
            if !self.rest.starts_with("//") {
                break;
            }
            self.take_while(|c| c != '\n');
        }
        let (line, column) = (self.line, self.column);
        let kind = match self.peek() {
            None => Tok::End,
            Some('"') => self.string()?,
            Some(c) if c.is_ascii_digit() => self.number()?,
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.word(),
            Some('.') if self.second() == Some('.') => {
                self.bump();
                self.bump();
                Tok::Dots
            }
            Some(c) if "{}[],;:+-*=".contains(c) => {
                self.bump();
                Tok::Sign(c)
            }
            Some(c) => return self.error(format!("expected a token, found character {c:?}")),
        };
        Ok(Token { kind, line, column })
    }

    fn word(&mut self) -> Tok {
        let mut word = String::new();
        loop {
            word.push_str(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_'));
            // A single dot inside a word belongs to it (`vadd.f32`); two are a range.
            if self.peek() == Some('.') && self.second().is_some_and(|c| c.is_ascii_alphanumeric()) {
                self.bump();
                word.push('.');
            } else {
                return Tok::Word(word);
            }
        }
    }

    fn number(&mut self) -> Result<Tok, AsmError> {
        let (line, column) = (self.line, self.column);
        let fail = |message: &str| AsmError { line, column, message: message.to_owned() };
        if self.rest.starts_with("0x") {
            self.bump();
            self.bump();
            let digits = self.take_while(|c| c.is_ascii_alphanumeric());
            let bits = u64::from_str_radix(digits, 16);
            return bits.map(Tok::Hex).map_err(|_| fail("expected up to 16 hexadecimal digits after `0x`"));
        }
        let start = self.rest;
        let mut len = self.take_while(|c| c.is_ascii_digit()).len();
        let mut float = false;
        if self.peek() == Some('.') && self.second().is_some_and(|c| c.is_ascii_digit()) {
            float = true;
            self.bump();
            len += 1 + self.take_while(|c| c.is_ascii_digit()).len();
            if matches!(self.peek(), Some('e' | 'E')) {
                self.bump();
                len += 1;
                if matches!(self.peek(), Some('+' | '-')) {
                    self.bump();
                    len += 1;
                }
                len += self.take_while(|c| c.is_ascii_digit()).len();
            }
        }
        if self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            return self
                .error(format!("expected a separator after the number, found {:?}", self.peek().unwrap_or(' ')));
        }
        let digits = start.get(..len).unwrap_or("");
        if float {
            digits.parse().map(Tok::Float).map_err(|_| fail("expected a decimal number"))
        } else {
            digits.parse().map(Tok::Int).map_err(|_| fail("number does not fit 64 bits"))
        }
    }

    fn string(&mut self) -> Result<Tok, AsmError> {
        self.bump();
        let mut out = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => return self.error("expected `\"` at the end of the string"),
                Some('"') => {
                    self.bump();
                    return Ok(Tok::Str(out));
                }
                Some('\\') => {
                    self.bump();
                    out.push(self.escape()?);
                }
                Some(c) => {
                    self.bump();
                    out.push(c);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, AsmError> {
        let c = match self.peek() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some(c @ ('"' | '\\')) => c,
            Some('u') if self.second() == Some('{') => {
                self.bump();
                self.bump();
                let digits = self.take_while(|c| c.is_ascii_hexdigit());
                let code = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
                match code {
                    Some(c) if self.peek() == Some('}') => c,
                    _ => return self.error("expected `\\u{...}` with the hexadecimal code of a character"),
                }
            }
            _ => return self.error("expected one of \\\" \\\\ \\n \\t \\u{...} after the backslash"),
        };
        self.bump();
        Ok(c)
    }
}
