//! StableHLO text: MLIR's pretty and generic forms.
//!
//! The lexer makes tokens on demand from a byte offset, so that the parser can go back to an offset: to read the elements of a
//! constant once its type is known, to read an alias where it is used, to continue behind an op that is wrong. The parser is
//! recursive with a bound on its depth. Ops are parsed straight into the IR; a value's type is known from its definition and
//! compared with every signature that uses it.
//!
//! A wrong op does not end the parse: its results are marked so that their uses are not reported too, and the next line of the
//! same block is tried, up to a number of diagnostics.

mod attrs;
mod dense;
mod dialect_attrs;
mod lexer;
mod locs;
mod module;
mod ops;
mod parser;
mod pretty;
mod pretty_more;
mod testing;
mod types;

use super::{Diag, ParseError};
use crate::hlo::Module;

/// Reads a program in text form. `file_name` is only for messages.
///
/// # Errors
///
/// All that is wrong with the program, up to a limit, each with its place.
pub fn parse_text(text: &str, file_name: &str) -> Result<Module, ParseError> {
    let fail = |diags| ParseError { file: file_name.to_owned(), diags, source_text: Some(text.to_owned()) };
    if u32::try_from(text.len()).is_err() {
        // Values and locations are counted with 32 bits.
        let message = "the text is larger than 4 GiB".to_owned();
        let diags = vec![Diag { span: 0..0, message, help: None }];
        return Err(ParseError { file: file_name.to_owned(), diags, source_text: None });
    }
    let mut parser = parser::Parser::new(text, file_name);
    match parser.file() {
        Ok(module) if parser.diags.is_empty() => Ok(module),
        _ => Err(fail(parser.diags)),
    }
}
