//! Front ends: from the bytes a framework sends to a [`Module`].
//!
//! Programs come as StableHLO text, in MLIR's pretty or generic form, or as MLIR bytecode of the portable VHLO dialect. Both
//! give the same module: [`normalize`] is where attributes of old and new spellings meet, and the module page of
//! [`crate::hlo`] says what holds afterwards. A front end checks what it needs to build SSA (names, types of signatures,
//! numbers of operands); whether shapes and attributes make sense is for the verifier.
//!
//! Input is not trusted: nesting is bounded, a splat constant stays one element whatever its shape, and no text makes a
//! front end panic or allocate more than in proportion to its length.

pub mod bytecode;
mod diag;
pub mod normalize;
pub mod text;

pub use diag::{Diag, ParseError};
pub use text::parse_text;

use crate::hlo::Module;

/// First bytes of MLIR bytecode.
pub const BYTECODE_MAGIC: [u8; 4] = *b"ML\xefR";

/// Reads a program of either form. `file_name` is only for messages.
///
/// # Errors
///
/// All that is wrong with the program, up to a limit.
pub fn parse_program(bytes: &[u8], file_name: &str) -> Result<Module, ParseError> {
    if bytes.starts_with(&BYTECODE_MAGIC) {
        return bytecode::parse(bytes).map_err(|e| {
            let at = e.offset.min(bytes.len());
            ParseError::binary(file_name, at..at, e.to_string())
        });
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => parse_text(text, file_name),
        Err(e) => {
            let at = e.valid_up_to();
            let message = "the file is neither MLIR bytecode nor UTF-8 text";
            Err(ParseError::binary(file_name, at..(at + 1).min(bytes.len()), message))
        }
    }
}
