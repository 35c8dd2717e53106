//! The container: header, sections, strings, dialects, operation names, properties, resources.

use super::error::{BytecodeError, ErrorKind, Result};
use super::reader::Reader;

/// The newest container version this reader knows.
pub(super) const NEWEST_VERSION: u64 = 6;
/// From here on dialects carry versions.
const DIALECT_VERSIONS: u64 = 1;
/// From here on regions of isolated operations are sections of their own.
const LAZY_REGIONS: u64 = 2;
/// From here on use-list orders may occur.
const USE_LISTS: u64 = 3;
/// From here on unknown locations of block arguments are left out, and the number of operation names is given.
const SHORT_BLOCK_ARGS: u64 = 4;
/// From here on properties are encoded natively, and operation names tell whether they were registered.
const PROPERTIES: u64 = 5;

const MAGIC: &[u8] = b"ML\xefR";

mod id {
    pub const STRING: u8 = 0;
    pub const DIALECT: u8 = 1;
    pub const ATTR_TYPE: u8 = 2;
    pub const ATTR_TYPE_OFFSET: u8 = 3;
    pub const IR: u8 = 4;
    pub const RESOURCE: u8 = 5;
    pub const RESOURCE_OFFSET: u8 = 6;
    pub const DIALECT_VERSION: u8 = 7;
    pub const PROPERTIES: u8 = 8;
    pub const COUNT: usize = 9;
}

/// Number of the section that holds operations.
pub(super) const IR_SECTION: u8 = id::IR;

/// A dialect's name, as an index into [`File::dialects`].
pub(super) type DialectId = usize;

/// The name of an operation.
#[derive(Clone, Debug)]
pub(super) struct OpName {
    pub dialect: DialectId,
    /// Name without the dialect.
    pub name: u64,
    /// Whether the writer knew the operation; decides how its properties are encoded.
    pub registered: bool,
}

/// An attribute or type, not yet decoded.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub dialect: DialectId,
    /// Encoded by its dialect, not as text.
    pub custom: bool,
    pub data: Reader<'a>,
}

/// The tables of a file.
#[derive(Debug)]
pub(super) struct File<'a> {
    /// Container version.
    pub version: u64,
    /// All strings, not yet known to be UTF-8.
    strings: Vec<&'a [u8]>,
    /// Names of the dialects.
    pub dialects: Vec<&'a str>,
    pub op_names: Vec<OpName>,
    pub attrs: Vec<Entry<'a>>,
    pub types: Vec<Entry<'a>>,
    /// Encoded properties, one per distinct set.
    pub properties: Vec<Reader<'a>>,
    /// Resources of dialects, in the order of their handles.
    pub resources: Vec<Reader<'a>>,
    /// The operations.
    pub ir: Reader<'a>,
    /// Length of the file.
    pub len: usize,
}

impl<'a> File<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut r = Reader::new(bytes, 0);
        if !bytes.starts_with(MAGIC) {
            return r.fail(ErrorKind::Magic);
        }
        r.bytes(MAGIC.len() as u64)?;
        let version = r.varint()?;
        if version > NEWEST_VERSION {
            return r.fail(ErrorKind::Version(version));
        }
        r.cstr()?; // the producer, e.g. `StableHLO_v1.18.0`
        let mut sections: [Option<Reader<'a>>; id::COUNT] = std::array::from_fn(|_| None);
        while !r.is_empty() {
            let s = r.section()?;
            match sections.get_mut(usize::from(s.id)) {
                Some(slot @ None) => *slot = Some(s.data),
                Some(_) => return r.fail(ErrorKind::DuplicateSection(s.id)),
                None => return r.fail(ErrorKind::Section(s.id)),
            }
        }
        let end = r.offset();
        let mut take = |id: u8, what: &'static str| {
            let s = sections.get_mut(usize::from(id)).and_then(Option::take);
            s.ok_or_else(|| BytecodeError::new(ErrorKind::MissingSection(what), end))
        };
        let mut file = File {
            version,
            strings: strings(take(id::STRING, "string")?)?,
            dialects: Vec::new(),
            op_names: Vec::new(),
            attrs: Vec::new(),
            types: Vec::new(),
            properties: Vec::new(),
            resources: Vec::new(),
            ir: take(id::IR, "IR")?,
            len: bytes.len(),
        };
        file.read_dialects(take(id::DIALECT, "dialect")?)?;
        file.read_entries(
            take(id::ATTR_TYPE, "attribute and type")?,
            take(id::ATTR_TYPE_OFFSET, "attribute and type offset")?,
        )?;
        match take(id::PROPERTIES, "properties") {
            Ok(p) => file.read_properties(p)?,
            Err(e) if version >= PROPERTIES => return Err(e),
            Err(_) => {}
        }
        match (take(id::RESOURCE, "resource"), take(id::RESOURCE_OFFSET, "resource offset")) {
            (Ok(data), Ok(offsets)) => file.read_resources(data, offsets)?,
            (Err(_), Err(_)) => {}
            (Err(e), _) | (_, Err(e)) => return Err(e),
        }
        Ok(file)
    }

    pub fn has_lazy_regions(&self) -> bool {
        self.version >= LAZY_REGIONS
    }

    pub fn has_use_lists(&self) -> bool {
        self.version >= USE_LISTS
    }

    pub fn has_short_block_args(&self) -> bool {
        self.version >= SHORT_BLOCK_ARGS
    }

    /// The string of index `i`, whatever it holds; `at` is where the index was read.
    pub fn bytes(&self, i: u64, at: usize) -> Result<&'a [u8]> {
        lookup(&self.strings, i, "string", at).copied()
    }

    /// The text of index `i`; `at` is where the index was read.
    pub fn string(&self, i: u64, at: usize) -> Result<&'a str> {
        std::str::from_utf8(self.bytes(i, at)?).map_err(|_| BytecodeError::new(ErrorKind::Text, at))
    }

    /// The name of a dialect.
    pub fn dialect(&self, d: DialectId) -> &'a str {
        self.dialects.get(d).copied().unwrap_or_default()
    }

    fn read_dialects(&mut self, mut r: Reader<'a>) -> Result<()> {
        for _ in 0..r.count("dialects")? {
            let at = r.offset();
            let name = if self.version < DIALECT_VERSIONS {
                r.varint()?
            } else {
                let (name, versioned) = r.varint_flag()?;
                // Nothing depends on it: VHLO names carry their versions, the other dialects have none that matter.
                if versioned {
                    let s = r.section()?;
                    if s.id != id::DIALECT_VERSION {
                        return r.fail(ErrorKind::Section(s.id));
                    }
                }
                name
            };
            self.dialects.push(self.string(name, at)?);
        }
        if self.version >= SHORT_BLOCK_ARGS {
            r.count("operation names")?;
        }
        while !r.is_empty() {
            let (dialect, n) = self.group(&mut r)?;
            for _ in 0..r.check_count(n, "operation names")? {
                let (name, registered) = if self.version < PROPERTIES { (r.varint()?, true) } else { r.varint_flag()? };
                self.op_names.push(OpName { dialect, name, registered });
            }
        }
        Ok(())
    }

    /// A dialect and the number of its items that follow.
    fn group(&self, r: &mut Reader<'a>) -> Result<(DialectId, u64)> {
        let at = r.offset();
        let d = r.varint()?;
        lookup(&self.dialects, d, "dialect", at)?;
        Ok((d as usize, r.varint()?))
    }

    fn read_entries(&mut self, mut data: Reader<'a>, mut r: Reader<'a>) -> Result<()> {
        let attrs = r.count("attributes")?;
        let types = r.count("types")?;
        self.attrs = self.read_entry_groups(attrs, &mut data, &mut r)?;
        self.types = self.read_entry_groups(types, &mut data, &mut r)?;
        r.finish("attribute and type offsets")
    }

    fn read_entry_groups(&self, n: usize, data: &mut Reader<'a>, r: &mut Reader<'a>) -> Result<Vec<Entry<'a>>> {
        let mut out = Vec::new();
        while out.len() < n {
            let (dialect, k) = self.group(r)?;
            if k > (n - out.len()) as u64 {
                return r.fail(ErrorKind::Count(k, "entries of a dialect", n - out.len()));
            }
            for _ in 0..k {
                let (size, custom) = r.varint_flag()?;
                out.push(Entry { dialect, custom, data: data.sub(size)? });
            }
            if k == 0 && r.is_empty() {
                return r.fail(ErrorKind::Truncated(1));
            }
        }
        Ok(out)
    }

    fn read_properties(&mut self, mut r: Reader<'a>) -> Result<()> {
        if r.is_empty() {
            return Ok(());
        }
        for _ in 0..r.count("properties")? {
            let n = r.varint()?;
            self.properties.push(r.sub(n)?);
        }
        r.finish("properties")
    }

    fn read_resources(&mut self, mut data: Reader<'a>, mut r: Reader<'a>) -> Result<()> {
        // External resources belong to tools that wrote the file; only those of dialects are referred to.
        for _ in 0..r.count("resource groups")? {
            r.varint()?;
            self.read_resource_group(&mut data, &mut r, false)?;
        }
        while !r.is_empty() {
            let at = r.offset();
            let d = r.varint()?;
            lookup(&self.dialects, d, "dialect", at)?;
            self.read_resource_group(&mut data, &mut r, true)?;
        }
        Ok(())
    }

    fn read_resource_group(&mut self, data: &mut Reader<'a>, r: &mut Reader<'a>, keep: bool) -> Result<()> {
        for _ in 0..r.count("resources")? {
            r.varint()?; // key
            let size = r.varint()?;
            r.byte()?; // kind
            let entry = data.sub(size)?;
            if keep {
                self.resources.push(entry);
            }
        }
        Ok(())
    }
}

/// `table[index]` with an error that names the table.
pub(super) fn lookup<'t, T>(table: &'t [T], index: u64, what: &'static str, at: usize) -> Result<&'t T> {
    let entry = usize::try_from(index).ok().and_then(|i| table.get(i));
    entry.ok_or_else(|| BytecodeError::new(ErrorKind::Index { what, index, len: table.len() }, at))
}

/// String lengths come first, last string first; the zero-terminated strings fill the end of the section.
fn strings(mut r: Reader<'_>) -> Result<Vec<&[u8]>> {
    let n = r.count("strings")?;
    let mut sizes = Vec::new();
    for _ in 0..n {
        sizes.push(r.varint()?);
    }
    let mut out = Vec::new();
    for size in sizes.into_iter().rev() {
        match r.bytes(size)? {
            [text @ .., 0] => out.push(text),
            _ => return r.fail(ErrorKind::Text),
        }
    }
    r.finish("strings")?;
    Ok(out)
}
