//! MLIR bytecode with VHLO, the portable form of StableHLO: what PJRT plugins receive and `jax.export` writes.
//!
//! The container is MLIR's bytecode (versions 0 to 6), whose tables hold strings, operation names, attributes and types; the
//! operations follow as a tree of regions. Inside are operations of VHLO, StableHLO's versioned twin, from 0.9 on: every version
//! of an operation is upgraded to the one operation of the IR. Shardy's operations and attributes appear beside them.
//!
//! - `reader` bounds-checked reading of the format's integers and sections
//! - `sections` the tables of the file, `decode` their entries on demand, `builtin`, `vhlo`, `sdy` the encodings of each dialect
//! - `ir` the operations with their indices, `build` the module, `upgrade` the attributes of old versions
//!
//! The facts are those of LLVM's `BytecodeFormat.md` and of the bytecode interfaces of the builtin, VHLO and Shardy dialects.
//!
//! A damaged or hostile file gives an error that names the byte: nothing here panics on input, recursion is bounded, and memory
//! is proportional to the file.

mod build;
mod builtin;
mod decode;
mod dense;
mod error;
mod ir;
mod locations;
mod ops;
mod reader;
mod sdy;
mod sections;
mod types;
mod upgrade;
mod vhlo;

pub use error::{BytecodeError, ErrorKind};

use crate::hlo::Module;

/// Whether `bytes` begin like an MLIR bytecode file.
pub fn is_bytecode(bytes: &[u8]) -> bool {
    bytes.starts_with(b"ML\xefR")
}

/// Reads a program.
///
/// # Errors
///
/// The first thing in the file that is damaged, unknown, or has no place in the IR.
pub fn parse(bytes: &[u8]) -> Result<Module, BytecodeError> {
    let (module, errors) = parse_all(bytes)?;
    match errors.into_iter().next() {
        Some(e) => Err(e),
        None => Ok(module),
    }
}

/// Reads as much of a program as can be read: every function stands for itself, and those that cannot be read are left out and
/// reported.
///
/// # Errors
///
/// Damage to what the functions share: the container, the tables, the module itself.
pub fn parse_all(bytes: &[u8]) -> Result<(Module, Vec<BytecodeError>), BytecodeError> {
    let file = sections::File::parse(bytes)?;
    let top = ir::read(&file)?;
    build::module(&mut decode::Decoder::new(file), top)
}
