//! `.npy` files, the arrays a program takes and gives.
//!
//! numpy has no bfloat16 or 8-bit floats of its own: with `ml_dtypes` it saves them as raw bytes (`V2`, `V1`), and many programs
//! store their bits as unsigned integers. A file therefore does not say which of these it holds; the type of the program's
//! parameter does, and [`fits`] checks that the file can be read that way.

mod header;

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use tpusim_isa::num::{DType, DTypeKind};

use crate::atomic::{self, WriteError};

/// What the elements of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One byte, 0 or 1.
    Bool,
    /// Two's complement.
    Int,
    /// Unsigned integers.
    Uint,
    /// IEEE floats.
    Float,
    /// Pairs of IEEE floats.
    Complex,
    /// Raw bytes: bfloat16, 8-bit floats and sub-byte types of `ml_dtypes`.
    Void,
}

/// Element type of a file. Its text is numpy's, e.g. `<f4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Descr {
    /// Family.
    pub kind: Kind,
    /// Bytes per element.
    pub bytes: usize,
}

impl Descr {
    /// How elements of `dtype` are written, as numpy with `ml_dtypes` does.
    pub fn of(dtype: DType) -> Descr {
        let bytes = dtype.bytes();
        let kind = match dtype.kind() {
            DTypeKind::Bool => Kind::Bool,
            _ if dtype == DType::BF16 || dtype.bits() < 8 => Kind::Void,
            DTypeKind::Signed => Kind::Int,
            DTypeKind::Unsigned => Kind::Uint,
            DTypeKind::Float if bytes == 1 => Kind::Void,
            DTypeKind::Float => Kind::Float,
            DTypeKind::Complex => Kind::Complex,
        };
        Descr { kind, bytes }
    }

    /// Every way elements of `dtype` may be stored, the way they are written first.
    pub fn accepted(dtype: DType) -> Vec<Descr> {
        let written = Descr::of(dtype);
        let mut all = vec![written];
        if written.kind == Kind::Void {
            let kind = if dtype.is_signed() { Kind::Int } else { Kind::Uint };
            all.push(Descr { kind, ..written });
        }
        all
    }
}

impl fmt::Display for Descr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.kind {
            Kind::Bool => 'b',
            Kind::Int => 'i',
            Kind::Uint => 'u',
            Kind::Float => 'f',
            Kind::Complex => 'c',
            Kind::Void => 'V',
        };
        // numpy marks single bytes with `|`, except raw ones of `ml_dtypes`.
        let order = if self.bytes == 1 && self.kind != Kind::Void { '|' } else { '<' };
        write!(f, "{order}{letter}{}", self.bytes)
    }
}

/// An array as stored in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpyArray {
    /// Element type.
    pub descr: Descr,
    /// Sizes, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// Elements in C order, each little-endian, whatever the file's order was.
    pub data: Vec<u8>,
}

/// A file cannot be read as an array, or not as the array that is wanted.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    /// Reading failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Another kind of file.
    #[error("not an .npy file")]
    Magic,
    /// A later format.
    #[error("format version {major}.{minor}; supported are 1.0, 2.0 and 3.0")]
    Version {
        /// Major version.
        major: u8,
        /// Minor version.
        minor: u8,
    },
    /// The header does not parse.
    #[error("bad header: {0}")]
    Header(String),
    /// An element type that no TPU type corresponds to.
    #[error("element type `{0}`; supported are bool, integers and floats of up to 64 bits, c8, c16, V1 and V2")]
    Unsupported(String),
    /// More elements than memory has addresses.
    #[error("shape ({}) is too large", join(.0))]
    TooLarge(Vec<usize>),
    /// The file ends early.
    #[error("truncated: {what} needs {expected} bytes, {found} are there")]
    Truncated {
        /// Part of the file.
        what: &'static str,
        /// Bytes it needs.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// Bytes after the array.
    #[error("more bytes than the shape ({}) of `{descr}` needs", join(.shape))]
    Trailing {
        /// Element type.
        descr: Descr,
        /// Shape.
        shape: Vec<usize>,
    },
    /// The array is not what the program takes.
    #[error("expected {dtype}[{}] ({}), found {descr} of shape ({})", join(.expected), accepted_text(*.dtype), join(.found))]
    Mismatch {
        /// Type wanted.
        dtype: DType,
        /// Shape wanted.
        expected: Vec<i64>,
        /// Type found.
        descr: Descr,
        /// Shape found.
        found: Vec<usize>,
    },
    /// Data of a length that does not belong to the shape.
    #[error("{found} bytes for an array that takes {expected}")]
    Length {
        /// Bytes the shape takes.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// An error of one file.
    #[error("`{}`: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<NpyError>,
    },
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl NpyError {
    /// The same error, saying which file it is about.
    pub fn in_file(self, path: &Path) -> NpyError {
        match self {
            NpyError::File { .. } | NpyError::Write(_) => self,
            other => NpyError::File { path: path.to_owned(), source: Box::new(other) },
        }
    }
}

fn join(sizes: &[impl ToString]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn accepted_text(dtype: DType) -> String {
    Descr::accepted(dtype).iter().map(|d| format!("stored as {d}")).collect::<Vec<_>>().join(" or ")
}

impl NpyArray {
    /// An array of `dtype`, `data` in C order, little-endian, one element in [`DType::bytes`] bytes.
    pub fn new(dtype: DType, shape: &[usize], data: Vec<u8>) -> Result<NpyArray, NpyError> {
        let descr = Descr::of(dtype);
        let expected = byte_len(descr, shape)?;
        if data.len() != expected {
            return Err(NpyError::Length { expected, found: data.len() });
        }
        Ok(NpyArray { descr, shape: shape.to_vec(), data })
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = header::write(self.descr, &self.shape);
        out.extend_from_slice(&self.data);
        out
    }

    /// Writes the array to `path`.
    pub fn write(&self, path: &Path) -> Result<(), NpyError> {
        atomic::write(path, |out| {
            out.write_all(&header::write(self.descr, &self.shape))?;
            out.write_all(&self.data)
        })?;
        Ok(())
    }
}

/// Reads the array in the file `path`. Errors name the file.
pub fn read(path: &Path) -> Result<NpyArray, NpyError> {
    let open = || -> Result<NpyArray, NpyError> { read_from(BufReader::new(File::open(path)?)) };
    open().map_err(|e| e.in_file(path))
}

/// Reads the array in the file `path` for a parameter of type `dtype` and shape `shape`. Errors name the file.
pub fn read_as(path: &Path, dtype: DType, shape: &[i64]) -> Result<NpyArray, NpyError> {
    let array = read(path)?;
    fits(&array, dtype, shape).map_err(|e| e.in_file(path))?;
    Ok(array)
}

/// Reads an array to the end of `input`. Allocates no more than a small multiple of the bytes that `input` really has.
pub fn read_from(mut input: impl Read) -> Result<NpyArray, NpyError> {
    let mut start = Vec::new();
    input.by_ref().take(8).read_to_end(&mut start)?;
    let version = match start.as_slice() {
        [magic @ .., major, minor] if magic == header::MAGIC => (*major, *minor),
        short if header::MAGIC.starts_with(short) && !short.is_empty() => {
            return Err(truncated("magic", 8, short.len()));
        }
        _ => return Err(NpyError::Magic),
    };
    let field = exactly(&mut input, header::length_bytes(version.0, version.1)?, "header length")?;
    let len = header::length(&field)?;
    let head = header::parse(&exactly(&mut input, len, "header")?)?;
    let bytes = byte_len(head.descr, &head.shape)?;
    let mut data = exactly(&mut input, bytes, "data")?;
    if input.read(&mut [0])? != 0 {
        return Err(NpyError::Trailing { descr: head.descr, shape: head.shape });
    }
    if head.big_endian {
        swap(head.descr, &mut data);
    }
    if head.descr.kind == Kind::Bool {
        // numpy takes every byte but 0 for true.
        data.iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
    if head.fortran {
        data = to_c_order(&data, &head.shape, head.descr.bytes);
    }
    Ok(NpyArray { descr: head.descr, shape: head.shape, data })
}

/// Whether `array` can be a parameter of type `dtype` and shape `shape`: bf16 may be stored as `V2` or `<u2`, 8-bit floats as `V1`
/// or `|u1`, sub-byte integers as `V1` or 8-bit integers, one per byte; every other type only as itself.
pub fn fits(array: &NpyArray, dtype: DType, shape: &[i64]) -> Result<(), NpyError> {
    let same_type = Descr::accepted(dtype).contains(&array.descr);
    let same_shape = array.shape.len() == shape.len()
        && array.shape.iter().zip(shape).all(|(a, b)| i64::try_from(*a).is_ok_and(|a| a == *b));
    if same_type && same_shape {
        return Ok(());
    }
    Err(NpyError::Mismatch { dtype, expected: shape.to_vec(), descr: array.descr, found: array.shape.clone() })
}

fn truncated(what: &'static str, expected: usize, found: usize) -> NpyError {
    NpyError::Truncated { what, expected: expected as u64, found: found as u64 }
}

/// `len` bytes of `input`. Grows with what is read, so a lying length costs nothing.
fn exactly(input: &mut impl Read, len: usize, what: &'static str) -> Result<Vec<u8>, NpyError> {
    let mut bytes = Vec::new();
    input.take(len as u64).read_to_end(&mut bytes)?;
    if bytes.len() < len { Err(truncated(what, len, bytes.len())) } else { Ok(bytes) }
}

fn byte_len(descr: Descr, shape: &[usize]) -> Result<usize, NpyError> {
    let too_large = || NpyError::TooLarge(shape.to_vec());
    if shape.contains(&0) {
        return Ok(0);
    }
    let bytes = shape.iter().try_fold(descr.bytes, |n, d| n.checked_mul(*d)).ok_or_else(too_large)?;
    if isize::try_from(bytes).is_err() { Err(too_large()) } else { Ok(bytes) }
}

fn swap(descr: Descr, data: &mut [u8]) {
    let word = match descr.kind {
        Kind::Void => 1,
        Kind::Complex => descr.bytes / 2,
        _ => descr.bytes,
    };
    data.chunks_exact_mut(word).for_each(<[u8]>::reverse);
}

/// Reorders `data` from first index fastest to last index fastest.
fn to_c_order(data: &[u8], shape: &[usize], bytes: usize) -> Vec<u8> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut step = bytes;
    for size in shape {
        strides.push(step);
        step = step.saturating_mul(*size);
    }
    let mut out = Vec::with_capacity(data.len());
    let mut index = vec![0; shape.len()];
    let mut from = 0;
    while out.len() < data.len() {
        out.extend_from_slice(data.get(from..from + bytes).unwrap_or_default());
        for ((i, size), stride) in index.iter_mut().zip(shape).zip(&strides).rev() {
            *i += 1;
            from += stride;
            if *i < *size {
                break;
            }
            from -= stride * *size;
            *i = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests;
