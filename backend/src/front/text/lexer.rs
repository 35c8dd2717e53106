//! Tokens of MLIR text, made on demand from a byte offset.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// End of the text.
    Eof,
    /// A byte no token starts with, or a string without its end.
    Bad,
    /// `word`, `stablehlo.add`.
    Word,
    /// `%name`, without `#n`.
    Percent,
    /// `@name` or `@"name"`.
    At,
    /// `#name`.
    Hash,
    /// `!name`.
    Bang,
    /// `^name`.
    Caret,
    /// `12`, `0x1F`.
    Int,
    /// `1.5e3`.
    Float,
    /// `"text"`.
    Str,
    /// `->`.
    Arrow,
    /// `::`.
    Colons,
    /// `{-#`: resources follow.
    Metadata,
    /// One punctuation character.
    Punct(u8),
}

/// A token: its kind and its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tok {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'.')
}

fn take(s: &[u8], mut at: usize, f: impl Fn(u8) -> bool) -> usize {
    while at < s.len() && f(s[at]) {
        at += 1;
    }
    at
}

/// End of the name behind a sigil at `at`. A dash belongs to it unless it begins an arrow.
fn name_end(s: &[u8], mut at: usize) -> usize {
    if s.get(at).is_some_and(u8::is_ascii_digit) {
        return take(s, at, |b| b.is_ascii_digit());
    }
    loop {
        at = take(s, at, is_word);
        if s.get(at) == Some(&b'-') && s.get(at + 1).is_some_and(|&b| is_word(b)) {
            at += 1;
        } else {
            return at;
        }
    }
}

/// End of the string whose quote is at `at`; `None` if it does not end on its line.
fn string_end(s: &[u8], at: usize) -> Option<usize> {
    let mut i = at + 1;
    loop {
        match s.get(i)? {
            b'"' => return Some(i + 1),
            b'\\' => i += 2,
            b'\n' => return None,
            _ => i += 1,
        }
    }
}

fn number(s: &[u8], start: usize) -> (Kind, usize) {
    if s[start] == b'0' && s.get(start + 1) == Some(&b'x') && s.get(start + 2).is_some_and(u8::is_ascii_hexdigit) {
        return (Kind::Int, take(s, start + 2, |b| b.is_ascii_hexdigit()));
    }
    let digits = |at| take(s, at, |b| b.is_ascii_digit());
    let mut end = digits(start);
    let mut kind = Kind::Int;
    if s.get(end) == Some(&b'.') {
        kind = Kind::Float;
        end = digits(end + 1);
    }
    if matches!(s.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(s.get(end + 1), Some(b'+' | b'-')));
        if s.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
            kind = Kind::Float;
            end = digits(end + 1 + sign);
        }
    }
    (kind, end)
}

/// The offset of the first byte at or after `at` that is neither white space nor comment.
pub(super) fn skip_space(s: &[u8], mut at: usize) -> usize {
    loop {
        at = take(s, at, |b| b.is_ascii_whitespace());
        if s[at.min(s.len())..].starts_with(b"//") {
            at = take(s, at, |b| b != b'\n');
        } else {
            return at;
        }
    }
}

/// The token at or after byte `at`.
pub(super) fn lex(src: &str, at: usize) -> Tok {
    let s = src.as_bytes();
    let start = skip_space(s, at.min(s.len()));
    let tok = |kind, end| Tok { kind, start, end };
    let Some(&b) = s.get(start) else { return tok(Kind::Eof, start) };
    let next = s.get(start + 1).copied();
    match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => tok(Kind::Word, take(s, start, is_word)),
        b'0'..=b'9' => {
            let (kind, end) = number(s, start);
            tok(kind, end)
        }
        b'"' => match string_end(s, start) {
            Some(end) => tok(Kind::Str, end),
            None => tok(Kind::Bad, start + 1),
        },
        b'@' if next == Some(b'"') => match string_end(s, start + 1) {
            Some(end) => tok(Kind::At, end),
            None => tok(Kind::Bad, start + 1),
        },
        b'@' | b'%' | b'#' | b'!' | b'^' => {
            let end = name_end(s, start + 1);
            let kind = match b {
                b'@' => Kind::At,
                b'%' => Kind::Percent,
                b'#' => Kind::Hash,
                b'!' => Kind::Bang,
                _ => Kind::Caret,
            };
            if end == start + 1 { tok(Kind::Bad, end) } else { tok(kind, end) }
        }
        b'-' if next == Some(b'>') => tok(Kind::Arrow, start + 2),
        b':' if next == Some(b':') => tok(Kind::Colons, start + 2),
        b'{' if s[start..].starts_with(b"{-#") => tok(Kind::Metadata, start + 3),
        b'{' | b'}' | b'(' | b')' | b'[' | b']' | b'<' | b'>' | b',' | b':' | b'=' | b'*' | b'+' | b'-' | b'?'
        | b'/' | b'|' => tok(Kind::Punct(b), start + 1),
        _ => {
            let len = src[start..].chars().next().map_or(1, char::len_utf8);
            tok(Kind::Bad, start + len)
        }
    }
}
