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

/// A location with what lookups find through it, so that neither depth nor sharing makes them slow.
#[derive(Clone, Debug)]
struct Entry {
    loc: Loc,
    /// The location whose name is the outermost.
    name: Option<LocId>,
    /// The innermost file position.
    file: Option<LocId>,
}

/// All locations of a module. Entry 0 is [`Loc::Unknown`].
#[derive(Clone, Debug)]
pub struct LocTable {
    locs: IdVec<LocId, Entry>,
}

impl Default for LocTable {
    fn default() -> Self {
        let mut locs = IdVec::default();
        locs.push(Entry { loc: Loc::Unknown, name: None, file: None });
        LocTable { locs }
    }
}

impl LocTable {
    /// The unknown location.
    pub const UNKNOWN: LocId = LocId(0);

    /// Adds a location, whose parts were added before.
    pub fn add(&mut self, loc: Loc) -> LocId {
        let next = LocId::from(self.locs.len());
        let name = |id: LocId| if id < next { self.locs[id].name } else { None };
        let file = |id: LocId| if id < next { self.locs[id].file } else { None };
        let (name, file) = match &loc {
            Loc::Unknown => return Self::UNKNOWN,
            Loc::File { .. } => (None, Some(next)),
            Loc::Name(_, child) => (Some(next), file(*child)),
            Loc::CallSite(callee, caller) => (name(*callee), file(*callee).or_else(|| file(*caller))),
            Loc::Fused(parts) => (parts.iter().find_map(|&l| name(l)), parts.iter().find_map(|&l| file(l))),
        };
        self.locs.push(Entry { loc, name, file })
    }

    /// The location behind an id.
    pub fn get(&self, id: LocId) -> &Loc {
        &self.locs[id].loc
    }

    /// All locations with their ids, in order; a location comes behind those it is made of.
    pub fn iter(&self) -> impl Iterator<Item = (LocId, &Loc)> {
        self.locs.iter().map(|(id, e)| (id, &e.loc))
    }

    /// The outermost name, e.g. `jit(f)/dot_general`, if there is one.
    pub fn name(&self, id: LocId) -> Option<&str> {
        match self.get(self.locs[id].name?) {
            Loc::Name(n, _) => Some(n),
            _ => None,
        }
    }

    /// The innermost source file position as `(file, line)`, if there is one.
    pub fn file_line(&self, id: LocId) -> Option<(&str, u32)> {
        match self.get(self.locs[id].file?) {
            Loc::File { file, line, .. } => Some((file, *line)),
            _ => None,
        }
    }
}
