//! Locations: a graph of indices in the file, a table of ids in the IR.

use super::decode::Decoder;
use super::error::{BytecodeError, ErrorKind, Result};
use super::reader::Reader;
use super::sections::lookup;
use crate::hlo::{Loc, LocId, LocTable};

/// Longest chain of locations in locations; what lies deeper is cut off. Consumers follow chains recursively.
const MAX_CHAIN: u32 = 256;

/// Locations decoded so far.
#[derive(Debug)]
pub(super) struct Locations {
    pub table: LocTable,
    state: Vec<State>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    New,
    /// Its children are being decoded.
    Open,
    Done(Known),
}

/// A decoded location and what it offers.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: LocId,
    depth: u32,
    file: bool,
    name: bool,
}

const UNKNOWN: Known = Known { id: LocTable::UNKNOWN, depth: 0, file: false, name: false };

/// A location whose children are still indices.
enum Raw {
    Unknown,
    File { file: u64, line: u32, col: u32 },
    Name(u64, u64),
    CallSite([u64; 2]),
    Fused(Vec<u64>),
}

impl Raw {
    fn children(&self) -> &[u64] {
        match self {
            Raw::Unknown | Raw::File { .. } => &[],
            Raw::Name(_, c) => std::slice::from_ref(c),
            Raw::CallSite(cs) => cs,
            Raw::Fused(cs) => cs,
        }
    }
}

/// Codes of the location attributes of the builtin dialect.
mod code {
    pub const STRING: u64 = 2;
    pub const CALL_SITE: u64 = 10;
    pub const FILE_LINE_COL: u64 = 11;
    pub const FUSED: u64 = 12;
    pub const FUSED_WITH_METADATA: u64 = 13;
    pub const NAME: u64 = 14;
    pub const UNKNOWN: u64 = 15;
    pub const FILE_LINE_COL_RANGE: u64 = 22;
}

/// Whether `code` is a location of the builtin dialect.
pub(super) fn is_location(code: u64) -> bool {
    matches!(code, code::CALL_SITE..=code::UNKNOWN | code::FILE_LINE_COL_RANGE)
}

impl Locations {
    pub fn new(attrs: usize) -> Self {
        Locations { table: LocTable::default(), state: vec![State::New; attrs] }
    }
}

impl<'a> Decoder<'a> {
    /// The location of index `index`. Walks with a stack of its own, since call stacks make long chains.
    pub fn loc(&mut self, index: u64, at: usize) -> Result<LocId> {
        let mut stack = vec![index];
        while let Some(&i) = stack.last() {
            let state = *lookup(&self.locs.state, i, "location", at)?;
            if let State::Done(_) = state {
                stack.pop();
                continue;
            }
            let raw = self.raw_loc(i, at)?;
            let mut ready = true;
            for &c in raw.children() {
                match *lookup(&self.locs.state, c, "location", at)? {
                    State::Done(_) => {}
                    State::New if matches!(state, State::New) => {
                        ready = false;
                        stack.push(c);
                    }
                    _ => return Err(BytecodeError::new(ErrorKind::Depth("locations", MAX_CHAIN as usize), at)),
                }
            }
            let next = if ready { State::Done(self.build(raw, at)?) } else { State::Open };
            if let Some(s) = usize::try_from(i).ok().and_then(|i| self.locs.state.get_mut(i)) {
                *s = next;
            }
        }
        Ok(self.known(index).id)
    }

    fn known(&self, index: u64) -> Known {
        match usize::try_from(index).ok().and_then(|i| self.locs.state.get(i)) {
            Some(State::Done(k)) => *k,
            _ => UNKNOWN,
        }
    }

    /// Adds the location to the table. A call site without any file position keeps only its callee, and a fusion only its first
    /// named part, so that a search for a position never branches without finding one.
    fn build(&mut self, raw: Raw, at: usize) -> Result<Known> {
        let cut = |k: Known| if k.depth >= MAX_CHAIN { UNKNOWN } else { k };
        Ok(match raw {
            Raw::Unknown => UNKNOWN,
            Raw::File { file, line, col } => {
                let file = self.file_name(file, at)?;
                self.charge(1 + file.len() / 64, at)?;
                let id = self.locs.table.add(Loc::File { file, line, col });
                Known { id, depth: 1, file: true, name: false }
            }
            Raw::Name(name, child) => {
                let name = self.file_name(name, at)?;
                self.charge(1 + name.len() / 64, at)?;
                let c = cut(self.known(child));
                let id = self.locs.table.add(Loc::Name(name, c.id));
                Known { id, depth: c.depth + 1, file: c.file, name: true }
            }
            Raw::CallSite([a, b]) => {
                let (a, b) = (cut(self.known(a)), cut(self.known(b)));
                match (a.file || b.file, a.name) {
                    (false, true) => a,
                    (false, false) => b,
                    (true, _) => {
                        let id = self.locs.table.add(Loc::CallSite(a.id, b.id));
                        Known { id, depth: a.depth.max(b.depth) + 1, file: true, name: a.name }
                    }
                }
            }
            Raw::Fused(parts) => {
                let parts: Vec<Known> = parts.iter().map(|p| cut(self.known(*p))).collect();
                if !parts.iter().any(|p| p.file) {
                    return Ok(parts.iter().find(|p| p.name).copied().unwrap_or(UNKNOWN));
                }
                let depth = parts.iter().map(|p| p.depth).max().unwrap_or(0) + 1;
                let name = parts.iter().any(|p| p.name);
                let id = self.locs.table.add(Loc::Fused(parts.iter().map(|p| p.id).collect()));
                Known { id, depth, file: true, name }
            }
        })
    }

    /// A string attribute, of which file names and name stacks are.
    fn file_name(&self, index: u64, at: usize) -> Result<String> {
        let entry = lookup(&self.file.attrs, index, "attribute", at)?;
        let mut r = entry.data.clone();
        if !entry.custom || self.file.dialect(entry.dialect) != "builtin" || r.varint()? != code::STRING {
            return r.fail(ErrorKind::Expected("a string".into()));
        }
        let i = r.varint()?;
        Ok(self.file.string(i, at)?.to_owned())
    }

    fn raw_loc(&self, index: u64, at: usize) -> Result<Raw> {
        let entry = lookup(&self.file.attrs, index, "location", at)?;
        let mut r = entry.data.clone();
        if !entry.custom || self.file.dialect(entry.dialect) != "builtin" {
            return r.fail(ErrorKind::Expected("a location".into()));
        }
        let raw = match r.varint()? {
            code::UNKNOWN => Raw::Unknown,
            code::CALL_SITE => Raw::CallSite([r.varint()?, r.varint()?]),
            code::FILE_LINE_COL => Raw::File { file: r.varint()?, line: clamp(r.varint()?), col: clamp(r.varint()?) },
            code::FILE_LINE_COL_RANGE => file_range(&mut r)?,
            code::FUSED => Raw::Fused(r.varints("locations")?),
            code::FUSED_WITH_METADATA => {
                let parts = r.varints("locations")?;
                r.varint()?;
                Raw::Fused(parts)
            }
            code::NAME => Raw::Name(r.varint()?, r.varint()?),
            _ => return r.fail(ErrorKind::Expected("a location".into())),
        };
        r.finish("location")?;
        Ok(raw)
    }

    /// `file:line` of a location, for messages.
    pub fn position(&mut self, index: u64) -> Option<String> {
        let id = self.loc(index, 0).ok()?;
        let (file, line) = self.locs.table.file_line(id)?;
        Some(format!("{file}:{line}"))
    }
}

/// A range writes only what it needs: nothing, the line, line and column, or where it ends as well. The IR keeps the start.
fn file_range(r: &mut Reader<'_>) -> Result<Raw> {
    let file = r.varint()?;
    let numbers = r.varints("line and column numbers")?;
    let mut numbers = numbers.into_iter().map(clamp);
    Ok(Raw::File { file, line: numbers.next().unwrap_or(0), col: numbers.next().unwrap_or(0) })
}

fn clamp(v: u64) -> u32 {
    u32::try_from(v).unwrap_or(u32::MAX)
}
