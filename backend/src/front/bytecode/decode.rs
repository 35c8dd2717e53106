//! The attribute and type tables, decoded on demand.
//!
//! Entries refer to each other by index, so a file is a graph; the IR holds trees. Three bounds keep a malicious file from
//! costing more than an honest one: a depth, a budget of tree nodes proportional to the file's size, and the counts that
//! [`super::reader`] checks.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::error::{BytecodeError, ErrorKind, Result};
use super::locations::Locations;
use super::ops::OpSpec;
use super::reader::Reader;
use super::sections::{Entry, File, lookup};
use super::types::Ty;
use super::{builtin, sdy, vhlo};
use crate::hlo::{Attr, Literal, Type};

/// Deepest nesting of attributes in attributes and of types in types.
pub(super) const MAX_DEPTH: usize = 32;

/// Nodes of attributes and types that a byte of the file may unfold to. An honest operation takes a dozen bytes and has some
/// dozens of nodes.
const NODES_PER_BYTE: usize = 32;
/// Nodes that even a small file may hold, since it may share most of them.
const MIN_NODES: usize = 1 << 18;
/// Nodes that no file may exceed: some gigabytes, or millions of operations.
const MAX_NODES: usize = 1 << 26;

/// Characters of text that cost as much as one node.
const TEXT_UNIT: usize = 64;

/// Decodes entries of a [`File`].
pub(super) struct Decoder<'a> {
    pub file: File<'a>,
    pub locs: Locations,
    /// Types decoded so far, with the number of nodes of each.
    types: FxHashMap<u64, (Ty, usize)>,
    /// Constants decoded so far: they are shared, since they may be large.
    constants: FxHashMap<u64, Arc<Literal>>,
    /// What is known about the operation names that have occurred.
    pub specs: FxHashMap<usize, OpSpec>,
    budget: usize,
    depth: usize,
}

/// One entry being decoded: its data, and the tables its indices refer to.
pub(super) struct Cursor<'d, 'a> {
    pub r: Reader<'a>,
    pub d: &'d mut Decoder<'a>,
    /// Index of the entry.
    pub index: u64,
}

impl<'a> Decoder<'a> {
    pub fn new(file: File<'a>) -> Self {
        let budget = file.len.saturating_mul(NODES_PER_BYTE).saturating_add(MIN_NODES).min(MAX_NODES);
        let locs = Locations::new(file.attrs.len());
        let (types, constants, specs) = Default::default();
        Decoder { file, locs, types, constants, specs, budget, depth: 0 }
    }

    /// Takes `nodes` from the budget.
    pub fn charge(&mut self, nodes: usize, at: usize) -> Result<()> {
        match self.budget.checked_sub(nodes) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err(BytecodeError::new(ErrorKind::Budget, at)),
        }
    }

    fn cursor(&mut self, entry: Entry<'a>, index: u64) -> Cursor<'_, 'a> {
        Cursor { r: entry.data, d: self, index }
    }

    /// Runs `f` one level deeper.
    fn nested<T>(&mut self, what: &'static str, at: usize, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return Err(BytecodeError::new(ErrorKind::Depth(what, MAX_DEPTH), at));
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    /// The attribute of index `index`; `at` is where the index was read.
    pub fn attr(&mut self, index: u64, at: usize) -> Result<Attr> {
        let entry = lookup(&self.file.attrs, index, "attribute", at)?.clone();
        self.charge(1, at)?;
        self.nested("attributes", at, |d| {
            let dialect = d.file.dialect(entry.dialect);
            let custom = entry.custom;
            let mut c = d.cursor(entry, index);
            let attr = match dialect {
                _ if !custom => c.text_attr()?,
                "builtin" => builtin::attr(&mut c)?,
                "vhlo" => vhlo::attr(&mut c)?,
                "sdy" => sdy::attr(&mut c)?,
                _ => return c.unsupported(format!("encoded attributes of dialect `{dialect}`")),
            };
            c.r.finish("attribute")?;
            Ok(attr)
        })
    }

    /// The type of index `index`, whatever it is.
    pub fn any_type(&mut self, index: u64, at: usize) -> Result<Ty> {
        if let Some((ty, nodes)) = self.types.get(&index) {
            let (ty, nodes) = (ty.clone(), *nodes);
            self.charge(nodes, at)?;
            return Ok(ty);
        }
        let entry = lookup(&self.file.types, index, "type", at)?.clone();
        let ty = self.nested("types", at, |d| {
            let dialect = d.file.dialect(entry.dialect);
            let custom = entry.custom;
            let mut c = d.cursor(entry, index);
            let ty = match dialect {
                _ if !custom => c.text_type()?,
                "builtin" => builtin::ty(&mut c)?,
                "vhlo" => vhlo::ty(&mut c)?,
                // Its only type without parameters, which Shardy's operations may pass on.
                "stablehlo" if c.r.varint()? == 0 => Ty::Hlo(Type::Token),
                _ => return c.unsupported(format!("encoded types of dialect `{dialect}`")),
            };
            c.r.finish("type")?;
            Ok(ty)
        })?;
        let nodes = ty.nodes();
        self.charge(nodes, at)?;
        self.types.insert(index, (ty.clone(), nodes));
        Ok(ty)
    }

    /// The type of index `index`, which must be one the IR has.
    pub fn ty(&mut self, index: u64, at: usize) -> Result<Type> {
        self.any_type(index, at)?.into_hlo().map_err(|what| BytecodeError::new(ErrorKind::Unsupported(what), at))
    }
}

impl<'a> Cursor<'_, 'a> {
    pub fn fail<T>(&self, kind: ErrorKind) -> Result<T> {
        self.r.fail(kind)
    }

    pub fn unsupported<T>(&self, what: impl Into<String>) -> Result<T> {
        self.fail(ErrorKind::Unsupported(what.into()))
    }

    pub fn expected<T>(&self, what: &str) -> Result<T> {
        self.fail(ErrorKind::Expected(what.to_owned()))
    }

    pub fn charge(&mut self, nodes: usize) -> Result<()> {
        self.d.charge(nodes, self.r.offset())
    }

    /// An attribute by its index.
    pub fn attr(&mut self) -> Result<Attr> {
        let at = self.r.offset();
        let i = self.r.varint()?;
        self.d.attr(i, at)
    }

    /// An attribute that may be absent.
    pub fn optional_attr(&mut self) -> Result<Option<Attr>> {
        let at = self.r.offset();
        self.r.optional()?.map(|i| self.d.attr(i, at)).transpose()
    }

    pub fn attrs(&mut self) -> Result<Vec<Attr>> {
        let n = self.r.count("attributes")?;
        (0..n).map(|_| self.attr()).collect()
    }

    /// A string attribute by its index.
    pub fn str_attr(&mut self) -> Result<String> {
        match self.attr()? {
            Attr::Str(s) => Ok(s),
            _ => self.expected("a string attribute"),
        }
    }

    pub fn any_type(&mut self) -> Result<Ty> {
        let at = self.r.offset();
        let i = self.r.varint()?;
        self.d.any_type(i, at)
    }

    pub fn ty(&mut self) -> Result<Type> {
        let at = self.r.offset();
        let i = self.r.varint()?;
        self.d.ty(i, at)
    }

    pub fn types(&mut self) -> Result<Vec<Type>> {
        let n = self.r.count("types")?;
        (0..n).map(|_| self.ty()).collect()
    }

    /// A string of the string section by its index. What is not UTF-8, such as the binary configuration of a foreign custom call,
    /// is replaced, as the reader of text does.
    pub fn string(&mut self) -> Result<String> {
        let at = self.r.offset();
        let i = self.r.varint()?;
        let s = self.d.file.bytes(i, at)?;
        self.charge(s.len() / TEXT_UNIT)?;
        Ok(String::from_utf8_lossy(s).into_owned())
    }

    /// One of the enumerators of `names`; empty names do not exist.
    pub fn enumerator(&mut self, what: &'static str, names: &[&str]) -> Result<Attr> {
        let v = self.r.varint()?;
        match usize::try_from(v).ok().and_then(|v| names.get(v)) {
            Some(name) if !name.is_empty() => Ok(Attr::Enum((*name).to_owned())),
            _ => self.fail(ErrorKind::Enum(v, what)),
        }
    }

    /// An entry in text form.
    fn text(&mut self) -> Result<&'a str> {
        let s = self.r.cstr()?;
        self.charge(s.len() / TEXT_UNIT)?;
        Ok(s)
    }

    /// An attribute in text form: its dialect has no encoding of its own for it.
    fn text_attr(&mut self) -> Result<Attr> {
        let s = self.text()?;
        Ok(match s {
            "unit" => Attr::Unit,
            "true" => Attr::Bool(true),
            "false" => Attr::Bool(false),
            _ => Attr::Opaque(s.strip_prefix('#').unwrap_or(s).to_owned()),
        })
    }

    /// A type in text form, as the small floats of the builtin dialect are.
    fn text_type(&mut self) -> Result<Ty> {
        let s = self.text()?;
        Ok(s.parse().map_or_else(|_| Ty::Other(s.to_owned()), Ty::scalar))
    }

    /// A constant, decoded once and then shared.
    pub fn constant(&mut self, make: impl FnOnce(&mut Self) -> Result<Literal>) -> Result<Arc<Literal>> {
        if let Some(lit) = self.d.constants.get(&self.index) {
            let lit = lit.clone();
            // Its data has been read before.
            self.r.bytes(self.r.left() as u64)?;
            return Ok(lit);
        }
        let index = self.index;
        let lit = Arc::new(make(self)?);
        self.d.constants.insert(index, lit.clone());
        Ok(lit)
    }
}
