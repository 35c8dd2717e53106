//! The state of parsing and the steps every part shares: tokens, errors, nesting, names.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::lexer::{Kind, Tok, lex};
use crate::front::Diag;
use crate::hlo::{IdVec, Loc, LocId, LocTable, Type, Value, ValueId};

/// Something is wrong and the diagnostic is already recorded.
#[derive(Debug)]
pub(super) struct Failed;

pub(super) type Parsed<T> = Result<T, Failed>;

/// How deep types, attributes, locations and regions may nest.
const MAX_DEPTH: u32 = 256;

/// Diagnostics after which parsing stops.
pub(super) const MAX_DIAGS: usize = 20;

/// An attribute or location alias (`#name = ...`), resolved when first used because locations come last in a file.
#[derive(Clone, Copy)]
pub(super) enum Alias {
    /// Offset of the text it stands for.
    Text(usize),
    /// Being resolved: a use now is a cycle.
    Busy,
    /// A resolved location.
    Loc(LocId),
}

/// What a `%name` stands for: one value or several in a row.
#[derive(Clone, Copy)]
pub(super) struct Binding {
    pub first: ValueId,
    pub count: u32,
    /// Defined by an op that could not be parsed; uses say nothing further.
    pub poisoned: bool,
}

/// Values and names of the function being parsed.
#[derive(Default)]
pub(super) struct Names<'a> {
    pub values: IdVec<ValueId, Value>,
    map: FxHashMap<&'a str, Binding>,
    /// Names in order of definition, for leaving a scope.
    order: Vec<&'a str>,
}

pub(super) struct Parser<'a> {
    pub src: &'a str,
    pub tok: Tok,
    /// End of the last token taken.
    pub last_end: usize,
    pub diags: Vec<Diag>,
    pub aliases: FxHashMap<&'a str, Alias>,
    /// Where the definition of an alias whose text begins at the key ends.
    pub alias_ends: FxHashMap<usize, usize>,
    pub locs: LocTable,
    pub names: Names<'a>,
    /// Functions and meshes defined so far.
    pub symbols: FxHashSet<String>,
    /// Bytes that uses of attribute aliases may still expand to.
    pub alias_budget: usize,
    /// Name of the file.
    file: String,
    /// Start of the line that was looked up last, and its number.
    line: (usize, u32),
    depth: u32,
}

impl<'a> Parser<'a> {
    pub fn new(src: &'a str, file: &str) -> Self {
        Parser {
            src,
            tok: lex(src, 0),
            last_end: 0,
            diags: Vec::new(),
            aliases: FxHashMap::default(),
            alias_ends: FxHashMap::default(),
            locs: LocTable::default(),
            names: Names::default(),
            symbols: FxHashSet::default(),
            alias_budget: (4 << 20) + src.len().saturating_mul(16),
            file: file.to_owned(),
            line: (0, 1),
            depth: 0,
        }
    }

    /// The location of what stands at byte `at`, for ops that do not say where they come from.
    pub fn place(&mut self, at: usize) -> LocId {
        let (from, mut line) = if at < self.line.0 { (0, 1) } else { self.line };
        let mut start = from;
        for (i, _) in self.slice(from..at).match_indices('\n') {
            (start, line) = (from + i + 1, line + 1);
        }
        self.line = (start, line);
        let col = at.saturating_sub(start) as u32 + 1;
        self.locs.add(Loc::File { file: self.file.clone(), line, col })
    }

    // Errors.

    pub fn error(&mut self, span: Range<usize>, message: impl Into<String>) -> Failed {
        self.diags.push(Diag { span, message: message.into(), help: None });
        Failed
    }

    pub fn error_help(&mut self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Failed {
        self.diags.push(Diag { span, message: message.into(), help: Some(help.into()) });
        Failed
    }

    pub fn span(&self) -> Range<usize> {
        self.tok.start..self.tok.end
    }

    /// From `start` to the end of the last token.
    pub fn since(&self, start: usize) -> Range<usize> {
        start..self.last_end.max(start)
    }

    /// `expected WHAT, found TOKEN` at the current token.
    pub fn expected<T>(&mut self, what: &str) -> Parsed<T> {
        let found = match self.tok.kind {
            Kind::Eof => "the end of the file".to_owned(),
            Kind::Str => "a string".to_owned(),
            Kind::Bad if self.text().starts_with(['"', '@']) => "a string without its closing quote".to_owned(),
            _ => format!("`{}`", self.text().chars().take(40).collect::<String>()),
        };
        Err(self.error(self.span(), format!("expected {what}, found {found}")))
    }

    /// Runs `f` one level deeper.
    pub fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error(self.span(), format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.depth += 1;
        let r = f(self);
        self.depth -= 1;
        r
    }

    // Tokens.

    pub fn text(&self) -> &'a str {
        self.slice(self.tok.start..self.tok.end)
    }

    pub fn slice(&self, span: Range<usize>) -> &'a str {
        self.src.get(span).unwrap_or("")
    }

    pub fn bump(&mut self) -> Tok {
        let t = self.tok;
        self.last_end = t.end;
        self.tok = lex(self.src, t.end);
        t
    }

    /// Continues at byte `at`.
    pub fn reset(&mut self, at: usize) {
        self.last_end = at;
        self.tok = lex(self.src, at);
    }

    pub fn at(&self, p: u8) -> bool {
        self.tok.kind == Kind::Punct(p)
    }

    pub fn at_word(&self, w: &str) -> bool {
        self.tok.kind == Kind::Word && self.text() == w
    }

    pub fn eat(&mut self, p: u8) -> bool {
        let yes = self.at(p);
        if yes {
            self.bump();
        }
        yes
    }

    pub fn eat_word(&mut self, w: &str) -> bool {
        let yes = self.at_word(w);
        if yes {
            self.bump();
        }
        yes
    }

    pub fn expect(&mut self, p: u8) -> Parsed<()> {
        if self.eat(p) { Ok(()) } else { self.expected(&format!("`{}`", char::from(p))) }
    }

    pub fn expect_word(&mut self, w: &str) -> Parsed<()> {
        if self.eat_word(w) { Ok(()) } else { self.expected(&format!("`{w}`")) }
    }

    pub fn expect_arrow(&mut self) -> Parsed<()> {
        if self.tok.kind == Kind::Arrow {
            self.bump();
            Ok(())
        } else {
            self.expected("`->`")
        }
    }

    /// `word =`.
    pub fn expect_field(&mut self, w: &str) -> Parsed<()> {
        self.expect_word(w)?;
        self.expect(b'=')
    }

    pub fn word(&mut self, what: &str) -> Parsed<&'a str> {
        if self.tok.kind != Kind::Word {
            return self.expected(what);
        }
        let w = self.text();
        self.bump();
        Ok(w)
    }

    /// Items between `open` and `close`, separated by commas.
    pub fn list<T>(&mut self, open: u8, close: u8, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.expect(open)?;
        let mut items = Vec::new();
        if self.eat(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat(close) {
                return Ok(items);
            }
            if !self.eat(b',') {
                return self.expected(&format!("`,` or `{}`", char::from(close)));
            }
        }
    }

    /// An integer, with its sign.
    pub fn int(&mut self) -> Parsed<i64> {
        let start = self.tok.start;
        let negative = self.eat(b'-');
        if self.tok.kind != Kind::Int {
            return self.expected("an integer");
        }
        let text = self.text();
        self.bump();
        let magnitude = match text.strip_prefix("0x") {
            Some(hex) => i128::from_str_radix(hex, 16),
            None => text.parse::<i128>(),
        };
        let value = magnitude.ok().map(|m| if negative { -m } else { m });
        match value.and_then(|v| i64::try_from(v).ok()) {
            Some(v) => Ok(v),
            None => Err(self.error(self.since(start), "the integer does not fit 64 bits")),
        }
    }

    /// `[1, 2]`.
    pub fn ints(&mut self) -> Parsed<Vec<i64>> {
        self.list(b'[', b']', Self::int)
    }

    /// A string token, unescaped.
    pub fn string(&mut self) -> Parsed<String> {
        if self.tok.kind != Kind::Str {
            return self.expected("a string");
        }
        let s = unescape(self.text());
        self.bump();
        Ok(s)
    }

    /// `@name` or `@"name"`.
    pub fn symbol(&mut self) -> Parsed<String> {
        if self.tok.kind != Kind::At {
            return self.expected("a symbol");
        }
        let t = &self.text()[1..];
        let name = if t.starts_with('"') { unescape(t) } else { t.to_owned() };
        self.bump();
        Ok(name)
    }

    // Names of values.

    /// Length of the list of names; [`Self::leave`] forgets those defined since.
    pub fn enter(&self) -> usize {
        self.names.order.len()
    }

    pub fn leave(&mut self, mark: usize) {
        for name in self.names.order.drain(mark.min(self.names.order.len())..) {
            self.names.map.remove(name);
        }
    }

    /// Runs `f` with no name of the outside visible.
    pub fn isolated<T>(&mut self, f: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        let map = std::mem::take(&mut self.names.map);
        let order = std::mem::take(&mut self.names.order);
        let r = f(self);
        self.names.map = map;
        self.names.order = order;
        r
    }

    /// Binds `name` (without `%`) to new values of `types`.
    pub fn define(&mut self, name: &'a str, span: Range<usize>, types: Vec<Type>) -> Parsed<Vec<ValueId>> {
        let ids: Vec<ValueId> = types.into_iter().map(|ty| self.names.values.push(Value { ty })).collect();
        let first = ids.first().copied().unwrap_or(ValueId(0));
        self.bind(name, span, Binding { first, count: ids.len() as u32, poisoned: false })?;
        Ok(ids)
    }

    /// Binds the results of an op that failed, so that their uses are not reported as well.
    pub fn poison(&mut self, name: &'a str) {
        if !self.names.map.contains_key(name) {
            self.names.map.insert(name, Binding { first: ValueId(0), count: 0, poisoned: true });
            self.names.order.push(name);
        }
    }

    fn bind(&mut self, name: &'a str, span: Range<usize>, b: Binding) -> Parsed<()> {
        match self.names.map.insert(name, b) {
            None => {
                self.names.order.push(name);
                Ok(())
            }
            Some(old) => {
                self.names.map.insert(name, old);
                if old.poisoned {
                    return Err(Failed);
                }
                Err(self.error(span, format!("`%{name}` is defined twice")))
            }
        }
    }

    /// The value a `%name` or `%name#n` at the current token stands for.
    pub fn operand(&mut self) -> Parsed<(ValueId, Range<usize>)> {
        if self.tok.kind != Kind::Percent {
            return self.expected("a value");
        }
        let start = self.tok.start;
        let name = &self.text()[1..];
        self.bump();
        let mut index = None;
        // The number belongs to the name only if nothing stands between them.
        if self.tok.kind == Kind::Hash && self.tok.start == self.last_end {
            match self.text()[1..].parse::<u32>() {
                Ok(i) => index = Some(i),
                Err(_) => return self.expected("the number of a result"),
            }
            self.bump();
        }
        let span = self.since(start);
        let Some(&b) = self.names.map.get(name) else {
            return Err(self.error_help(
                span,
                format!("`%{name}` is not defined"),
                "a value must be defined before its use, in this region or one around it",
            ));
        };
        if b.poisoned {
            return Err(Failed);
        }
        match index {
            Some(i) if i < b.count => Ok((ValueId(b.first.0 + i), span)),
            None if b.count == 1 => Ok((b.first, span)),
            Some(i) => {
                let message = format!("`%{name}` has {} results, number {i} does not exist", b.count);
                Err(self.error(span, message))
            }
            None => {
                let message = format!("`%{name}` stands for {} values", b.count);
                Err(self.error_help(span, message, format!("name one of them, as in `%{name}#0`")))
            }
        }
    }
}

/// The text of a string token: without quotes, `\n`, `\t`, `\"`, `\\` and `\hh` replaced.
pub(super) fn unescape(token: &str) -> String {
    let inner = token.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(token);
    if !inner.contains('\\') {
        return inner.to_owned();
    }
    let s = inner.as_bytes();
    let mut out = Vec::with_capacity(s.len());
    let mut i = 0;
    while i < s.len() {
        if s[i] != b'\\' {
            out.push(s[i]);
            i += 1;
            continue;
        }
        let hex = |b: Option<&u8>| b.and_then(|&b| char::from(b).to_digit(16));
        match (s.get(i + 1), hex(s.get(i + 1)), hex(s.get(i + 2))) {
            (_, Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                i += 3;
                continue;
            }
            (Some(b'n'), ..) => out.push(b'\n'),
            (Some(b't'), ..) => out.push(b'\t'),
            (Some(&other), ..) => out.push(other),
            (None, ..) => {}
        }
        i += 2;
    }
    String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}
