//! The header of an `.npy` file: a Python dictionary literal with `descr`, `fortran_order` and `shape`.

use super::{Descr, Kind, NpyError};

/// Longest header taken. numpy itself refuses 10,000 bytes and more by default.
const MAX_HEADER: usize = 1 << 16;
/// Most dimensions taken, as in numpy 2.
const MAX_RANK: usize = 64;
/// What every file begins with.
pub(super) const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// A parsed header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub descr: Descr,
    pub big_endian: bool,
    pub fortran: bool,
    pub shape: Vec<usize>,
}

/// Bytes of the length field that follows the version.
pub(super) fn length_bytes(major: u8, minor: u8) -> Result<usize, NpyError> {
    match (major, minor) {
        (1, 0) => Ok(2),
        (2 | 3, 0) => Ok(4),
        _ => Err(NpyError::Version { major, minor }),
    }
}

/// The header's length from the little-endian `field`.
pub(super) fn length(field: &[u8]) -> Result<usize, NpyError> {
    let len = field.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
    if len > MAX_HEADER {
        return Err(NpyError::Header(format!("{len} bytes long; at most {MAX_HEADER} are read")));
    }
    Ok(len)
}

/// Parses the dictionary.
pub(super) fn parse(text: &[u8]) -> Result<Header, NpyError> {
    // Version 1 and 2 headers are Latin-1, version 3 UTF-8; the keys and types that are supported are ASCII.
    let text = std::str::from_utf8(text).map_err(|_| NpyError::Header("not ASCII".to_owned()))?;
    let mut at = Scanner { rest: text };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    at.expect('{')?;
    while !at.take('}') {
        let key = at.string()?;
        at.expect(':')?;
        match key {
            "descr" => descr = Some(at.descr()?),
            "fortran_order" => fortran = Some(at.boolean()?),
            "shape" => shape = Some(at.tuple()?),
            other => return Err(NpyError::Header(format!("unknown key `{other}`"))),
        }
        if !at.take(',') {
            at.expect('}')?;
            break;
        }
    }
    if !at.rest.trim().is_empty() {
        return Err(at.error("the end"));
    }
    let missing = |key: &str| NpyError::Header(format!("no `{key}`"));
    let (descr, big_endian) = parse_descr(descr.ok_or_else(|| missing("descr"))?)?;
    Ok(Header {
        descr,
        big_endian,
        fortran: fortran.ok_or_else(|| missing("fortran_order"))?,
        shape: shape.ok_or_else(|| missing("shape"))?,
    })
}

/// Writes magic, version, length and dictionary for C order; the data starts at a multiple of 64 bytes.
pub(super) fn write(descr: Descr, shape: &[usize]) -> Vec<u8> {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let mut dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}", sizes.join(", "));
    // Magic, version, 2-byte length and the newline that ends the header.
    let unpadded = MAGIC.len() + 2 + 2 + dict.len() + 1;
    dict.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    dict.push('\n');
    let mut out = MAGIC.to_vec();
    match u16::try_from(dict.len()) {
        Ok(n) => {
            out.extend([1, 0]);
            out.extend(n.to_le_bytes());
        }
        Err(_) => {
            out.extend([2, 0]);
            out.extend((dict.len() as u32).to_le_bytes());
        }
    }
    out.extend(dict.bytes());
    out
}

/// A numpy type string such as `<f4` and whether it is big-endian.
fn parse_descr(text: &str) -> Result<(Descr, bool), NpyError> {
    let unsupported = || NpyError::Unsupported(text.to_owned());
    let mut chars = text.chars();
    let order = chars.next().ok_or_else(unsupported)?;
    let kind = match chars.next().ok_or_else(unsupported)? {
        'b' => Kind::Bool,
        'i' => Kind::Int,
        'u' => Kind::Uint,
        'f' => Kind::Float,
        'c' => Kind::Complex,
        'V' => Kind::Void,
        _ => return Err(unsupported()),
    };
    let descr = Descr { kind, bytes: chars.as_str().parse().map_err(|_| unsupported())? };
    let supported = match kind {
        Kind::Bool => descr.bytes == 1,
        Kind::Int | Kind::Uint => matches!(descr.bytes, 1 | 2 | 4 | 8),
        Kind::Float => matches!(descr.bytes, 2 | 4 | 8),
        Kind::Complex => matches!(descr.bytes, 8 | 16),
        Kind::Void => matches!(descr.bytes, 1 | 2),
    };
    match order {
        _ if !supported => Err(unsupported()),
        '<' | '|' => Ok((descr, false)),
        '>' => Ok((descr, true)),
        _ => Err(unsupported()),
    }
}

struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    fn error(&self, wanted: &str) -> NpyError {
        let found: String = self.rest.trim_start().chars().take(20).collect();
        NpyError::Header(format!("expected {wanted}, found `{}`", found.escape_debug()))
    }

    fn take(&mut self, c: char) -> bool {
        match self.rest.trim_start().strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, c: char) -> Result<(), NpyError> {
        if self.take(c) { Ok(()) } else { Err(self.error(&format!("`{c}`"))) }
    }

    fn string(&mut self) -> Result<&'a str, NpyError> {
        let quote = if self.take('\'') {
            '\''
        } else if self.take('"') {
            '"'
        } else {
            return Err(self.error("a string"));
        };
        let (text, rest) = self.rest.split_once(quote).ok_or_else(|| self.error("a closing quote"))?;
        self.rest = rest;
        Ok(text)
    }

    fn descr(&mut self) -> Result<&'a str, NpyError> {
        if self.rest.trim_start().starts_with('[') {
            return Err(NpyError::Unsupported("a structured type".to_owned()));
        }
        self.string()
    }

    fn word(&mut self) -> &'a str {
        let text = self.rest.trim_start();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.rest = rest;
        word
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        let before = self.rest;
        match self.word() {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => Err(Scanner { rest: before }.error("True or False")),
        }
    }

    fn tuple(&mut self) -> Result<Vec<usize>, NpyError> {
        self.expect('(')?;
        let mut sizes = Vec::new();
        while !self.take(')') {
            if sizes.len() == MAX_RANK {
                return Err(NpyError::Header(format!("more than {MAX_RANK} dimensions")));
            }
            let before = self.rest;
            // Python 2 wrote long integers with an L.
            let size = self.word().trim_end_matches('L').parse();
            sizes.push(size.map_err(|_| Scanner { rest: before }.error("a dimension"))?);
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(sizes)
    }
}
