//! What can be wrong with a bytecode file.

use thiserror::Error;

/// Why a bytecode file was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ErrorKind {
    /// The file does not begin with `ML\xefR`.
    #[error("not an MLIR bytecode file: it does not begin with `ML\\xefR`")]
    Magic,
    /// A container version newer than this reader.
    #[error("bytecode version {0} is newer than {newest}, the newest this reader knows", newest = super::sections::NEWEST_VERSION)]
    Version(u64),
    /// The data ends too early.
    #[error("the data ends here, but {0} more bytes are needed")]
    Truncated(u64),
    /// A count that cannot be true, because each item takes at least one byte of what is left.
    #[error("{0} {1} cannot fit into the {2} bytes that are left")]
    Count(u64, &'static str, usize),
    /// Bytes left over after something that must fill its space.
    #[error("{0} unread bytes after the {1}")]
    Trailing(usize, &'static str),
    /// A section that must be there.
    #[error("the {0} section is missing")]
    MissingSection(&'static str),
    /// A section twice.
    #[error("section {0} occurs twice")]
    DuplicateSection(u8),
    /// A section number out of range, or another than the expected one.
    #[error("unexpected section {0}")]
    Section(u8),
    /// An alignment that is no power of two, or padding that is not 0xCB.
    #[error("bad alignment or padding")]
    Alignment,
    /// A string without its terminating zero, or not UTF-8.
    #[error("malformed string")]
    Text,
    /// An index past the end of a table.
    #[error("{what} {index} does not exist (there are {len})")]
    Index {
        /// Which table.
        what: &'static str,
        /// The index.
        index: u64,
        /// Length of the table.
        len: usize,
    },
    /// An attribute or type code that no version of the dialect defines.
    #[error("unknown {what} code {code} of dialect `{dialect}`")]
    Code {
        /// `attribute` or `type`.
        what: &'static str,
        /// Dialect.
        dialect: String,
        /// The code.
        code: u64,
    },
    /// An enumerator that does not exist.
    #[error("{0} is no value of the enum {1}")]
    Enum(u64, &'static str),
    /// Another kind of attribute, type or location was expected.
    #[error("expected {0}")]
    Expected(String),
    /// Nested too deeply, or cyclic.
    #[error("{0} nested more than {1} deep, or containing itself")]
    Depth(&'static str, usize),
    /// Sharing in the attribute or type table that unfolds to far more than the file holds.
    #[error("attributes and types unfold to far more than the file holds")]
    Budget,
    /// An operation this compiler does not know.
    #[error("unknown operation `{0}`")]
    UnknownOp(String),
    /// An operation of a dialect that promises no compatibility between versions.
    #[error("`{0}` is not portable: write the program with `stablehlo.serialize_portable_artifact`, or as text")]
    NotPortable(String),
    /// A construct the intermediate representation has no place for.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// A value used before or outside its definition, or more values than announced.
    #[error("value {0} is not defined here")]
    Value(u64),
    /// A dense constant whose data does not match its type.
    #[error("{bytes} bytes of data for a constant of type {ty}")]
    Dense {
        /// Bytes found.
        bytes: usize,
        /// Type of the constant.
        ty: String,
    },
    /// Something that must be there once.
    #[error("missing {0}")]
    Missing(String),
}

/// An error with its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind} (byte {offset:#x}{})", self.place())]
pub struct BytecodeError {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Offset in the file, in bytes.
    pub offset: usize,
    /// Name of the operation being read, e.g. `vhlo.add_v1`.
    pub op: Option<String>,
    /// Source position of that operation, e.g. `model.py:12`.
    pub position: Option<String>,
}

impl BytecodeError {
    pub(super) fn new(kind: ErrorKind, offset: usize) -> Self {
        BytecodeError { kind, offset, op: None, position: None }
    }

    /// Names the operation, unless an inner one is named already.
    pub(super) fn in_op(mut self, op: &str, position: impl FnOnce() -> Option<String>) -> Self {
        if self.op.is_none() {
            self.op = Some(op.to_owned());
            self.position = position();
        }
        self
    }

    fn place(&self) -> String {
        let op = self.op.as_ref().map(|o| format!(", in `{o}`")).unwrap_or_default();
        let position = self.position.as_ref().map(|s| format!(" at {s}")).unwrap_or_default();
        op + &position
    }
}

pub(super) type Result<T, E = BytecodeError> = std::result::Result<T, E>;
