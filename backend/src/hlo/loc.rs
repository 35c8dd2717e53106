//! Where an operation comes from.

use super::{IdVec, LocId};

/// A source location, as MLIR has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Loc {
    /// `loc(unknown)`.
    Unknown,
    /// `loc("file.py":line:col)`.
    File {
        /// File name.
        file: String,
        /// Line, from 1 (0 where the framework did not say).
        line: u32,
        /// Column.
        col: u32,
    },
    /// `loc("name"(child))`: the name is JAX's name stack, e.g. `jit(f)/dot_general`.
    Name(String, LocId),
    /// `loc(callsite(callee at caller))`.
    CallSite(LocId, LocId),
    /// `loc(fused[...])`.
    Fused(Vec<LocId>),
}

/// All locations of a module. Entry 0 is [`Loc::Unknown`].
#[derive(Clone, Debug)]
pub struct LocTable {
    locs: IdVec<LocId, Loc>,
}

impl Default for LocTable {
    fn default() -> Self {
        let mut locs = IdVec::default();
        locs.push(Loc::Unknown);
        LocTable { locs }
    }
}

impl LocTable {
    /// The unknown location.
    pub const UNKNOWN: LocId = LocId(0);

    /// Adds a location.
    pub fn add(&mut self, loc: Loc) -> LocId {
        if loc == Loc::Unknown { Self::UNKNOWN } else { self.locs.push(loc) }
    }

    /// The location behind an id.
    pub fn get(&self, id: LocId) -> &Loc {
        &self.locs[id]
    }

    /// All locations with their ids, in order; a location comes behind those it is made of.
    pub fn iter(&self) -> impl Iterator<Item = (LocId, &Loc)> {
        self.locs.iter()
    }

    /// The outermost name, e.g. `jit(f)/dot_general`, if there is one.
    pub fn name(&self, id: LocId) -> Option<&str> {
        match self.get(id) {
            Loc::Name(n, _) => Some(n),
            Loc::CallSite(a, _) => self.name(*a),
            Loc::Fused(ls) => ls.iter().find_map(|&l| self.name(l)),
            _ => None,
        }
    }

    /// The innermost source file position as `(file, line)`, if there is one.
    pub fn file_line(&self, id: LocId) -> Option<(&str, u32)> {
        match self.get(id) {
            Loc::File { file, line, .. } => Some((file, *line)),
            Loc::Name(_, l) => self.file_line(*l),
            Loc::CallSite(a, b) => self.file_line(*a).or_else(|| self.file_line(*b)),
            Loc::Fused(ls) => ls.iter().find_map(|&l| self.file_line(l)),
            Loc::Unknown => None,
        }
    }
}
